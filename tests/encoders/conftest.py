"""Images on disk and a model that is quick and easy to follow."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
Image = pytest.importorskip("PIL.Image")


class Colours(torch.nn.Module):
    """Mean colours, mixed by a random matrix; counts the images that it sees."""

    def __init__(self, n_features=5):
        super().__init__()
        self.n_seen = 0
        generator = torch.Generator().manual_seed(0)
        weights = torch.randn(3, n_features, generator=generator)
        self.weights = torch.nn.Parameter(weights)

    def forward(self, images):
        self.n_seen += len(images)
        return images.mean(dim=(2, 3)) @ self.weights


@pytest.fixture
def colours():
    return Colours()


@pytest.fixture
def pixels():
    """Twelve different images."""
    rng = np.random.default_rng(0)
    return rng.integers(256, size=(12, 10, 8, 3), dtype=np.uint8)


@pytest.fixture
def paths(tmp_path, pixels):
    """The same images as files."""
    names = [tmp_path / f"{i}.png" for i in range(len(pixels))]
    for name, image in zip(names, pixels, strict=True):
        Image.fromarray(image).save(name)
    return [str(name) for name in names]
