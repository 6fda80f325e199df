"""What X may be, and what becomes of each kind of image."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from PIL import Image, ImageOps

from skslot import FrozenEncoder
from skslot.encoders import ImageReadError
from skslot.encoders._images import as_items, as_pixels, content_digest, read_image


@pytest.fixture
def expected(colours, pixels):
    mean = (pixels / 255).mean(axis=(1, 2))
    return mean @ colours.weights.detach().numpy()


# ------------------------------------------------------------------ what X may be

FORMS = {
    "list": list,
    "tuple": tuple,
    "array": np.array,
    "object array": lambda paths: np.array(paths, dtype=object),
    "bytes": lambda paths: np.array(paths, dtype=bytes),
    "one column": lambda paths: np.array(paths)[:, np.newaxis],
    "series": pd.Series,
    "frame": lambda paths: pd.DataFrame({"path": paths}),
    "polars series": lambda paths: pl.Series("path", paths),
    "polars frame": lambda paths: pl.DataFrame({"path": paths}),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=list(FORMS))
def test_paths_in_any_container(form, colours, paths, expected):
    features = FrozenEncoder(colours).transform(form(paths))
    assert features.dtype == np.float32
    np.testing.assert_allclose(features, expected, atol=1e-6)


def test_path_objects_and_pil_images(colours, paths, expected, tmp_path):
    objects = [tmp_path / path for path in paths]
    images = [Image.open(path) for path in paths]
    for X in (objects, images, objects[:6] + images[6:]):
        features = FrozenEncoder(colours).transform(X)
        np.testing.assert_allclose(features, expected, atol=1e-6)
    for image in images:
        image.close()


ARRAYS = {
    "uint8": lambda x: x,
    "float64": lambda x: x / 255,
    "float32": lambda x: (x / 255).astype(np.float32),
    "int64": lambda x: x.astype(np.int64),
    "uint16": lambda x: x.astype(np.uint16) * 257,
    "with alpha": lambda x: np.concatenate([x, x[..., :1]], axis=3),
    "list of arrays": list,
}


@pytest.mark.parametrize("preprocess", [None, as_pixels], ids=["none", "callable"])
@pytest.mark.parametrize("change", ARRAYS.values(), ids=list(ARRAYS))
def test_arrays(change, preprocess, colours, pixels, expected):
    encoder = FrozenEncoder(colours, preprocess=preprocess)
    features = encoder.transform(change(pixels))
    np.testing.assert_allclose(features, expected, atol=1e-6)


@pytest.mark.parametrize("shape", [(10, 8, 3), (-1, 8, 3), [10, 8, 3]])
def test_rows_of_pixels(shape, colours, pixels, expected):
    rows = pixels.reshape(len(pixels), -1)
    encoder = FrozenEncoder(colours, image_shape=shape)
    for X in (rows, rows / 255, pd.DataFrame(rows)):
        np.testing.assert_allclose(encoder.transform(X), expected, atol=1e-6)


def test_grey_images_have_three_equal_channels(colours, pixels):
    grey = pixels[..., 0]
    encoder = FrozenEncoder(colours)
    features = encoder.transform(np.repeat(grey[..., np.newaxis], 3, axis=3))
    assert np.array_equal(encoder.transform(grey), features)
    assert np.array_equal(encoder.transform(grey[..., np.newaxis]), features)


def test_black_and_white_array():
    image = read_image(np.array([[True, False]]))
    assert np.array_equal(np.asarray(image)[0], [[255] * 3, [0] * 3])


def test_arrays_on_disk_stay_there(tmp_path, pixels):
    np.save(tmp_path / "x.npy", pixels)
    items = as_items(np.load(tmp_path / "x.npy", mmap_mode="r"))
    assert isinstance(items, np.memmap)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ("a.png", "X is a single image"),
        (Image.new("RGB", (2, 3)), "PIL image of 2 x 3 pixels"),
        ([], "X holds 0 images"),
        (np.zeros((0, 4, 4)), "X holds 0 images"),
        (np.zeros((2, 64)), "need image_shape"),
        (np.zeros((2, 1, 1, 4, 4)), r"must have the shape \(n, h, w\)"),
        (np.array([["a", "b"]]), "one per row"),
        (np.float64(3), "must be a sequence of images, got 3"),
        (pd.DataFrame({"path": ["a"], "site": ["b"]}), r"columns \['path', 'site'\]"),
    ],
)
def test_what_x_may_not_be(X, message, colours):
    with pytest.raises(ValueError, match=message):
        FrozenEncoder(colours).transform(X)


def test_shape_that_does_not_fit(colours):
    encoder = FrozenEncoder(colours, image_shape=(3, 5))
    with pytest.raises(ValueError, match=r"\(3, 5\) does not fit rows of 9"):
        encoder.transform(np.zeros((2, 9)))


# ------------------------------------------------------------------ kinds of images


@pytest.mark.parametrize("mode", ["L", "1", "P", "RGBA", "LA", "CMYK", "YCbCr", "RGB"])
def test_modes_become_rgb_as_pillow_does_it(mode, pixels):
    image = Image.fromarray(pixels[0]).convert(mode)
    result = read_image(image)
    assert result.mode == "RGB"
    assert np.array_equal(np.asarray(result), np.asarray(image.convert("RGB")))


def test_alpha_is_dropped(pixels):
    image = Image.fromarray(pixels[0])
    image.putalpha(7)
    assert np.array_equal(np.asarray(read_image(image)), pixels[0])


def test_palette_with_transparency(tmp_path):
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 40, 50, 60])
    image.putdata([0, 1])
    image.save(tmp_path / "p.png", transparency=b"\x00\xff")
    result = np.asarray(read_image(tmp_path / "p.png"))
    assert np.array_equal(result[0], [[10, 20, 30], [40, 50, 60]])


def test_sixteen_bits_are_scaled_not_clipped(tmp_path):
    values = np.array([[0, 257, 32768, 65535]], dtype=np.uint16)
    Image.fromarray(values).save(tmp_path / "deep.png")
    result = np.asarray(read_image(tmp_path / "deep.png"))
    assert np.array_equal(result[0, :, 0], [0, 1, 127, 255])


def test_mode_i_is_read_like_an_array_of_integers():
    values = np.array([[0, 200, 255]], dtype=np.int32)
    for item in (values, Image.fromarray(values)):
        assert np.array_equal(np.asarray(read_image(item))[0, :, 0], [0, 200, 255])


@pytest.mark.parametrize("dtype", ["<u2", ">u2"])
def test_byte_order_of_sixteen_bits_does_not_matter(dtype):
    values = np.array([[0, 257, 65535]], dtype=dtype)
    assert np.array_equal(np.asarray(read_image(values))[0, :, 0], [0, 1, 255])


def test_sixteen_bits_of_a_pgm_file_are_scaled(tmp_path):
    values = np.array([[0, 257, 65535]], dtype=">u2")
    (tmp_path / "deep.pgm").write_bytes(b"P5 3 1 65535\n" + values.tobytes())
    result = np.asarray(read_image(tmp_path / "deep.pgm"))
    assert np.array_equal(result[0, :, 0], [0, 1, 255])


def as_deep_files(X, folder):
    names = [folder / f"deep{i}.png" for i in range(len(X))]
    for name, values in zip(names, X, strict=True):
        Image.fromarray(values).save(name)
    return names


@pytest.mark.parametrize("form", ["array", "files", "images"])
@pytest.mark.parametrize("preprocess", [None, as_pixels], ids=["none", "callable"])
@pytest.mark.parametrize("n_workers", [0, 1])
def test_nearly_black_images_are_told_of_once(
    form, preprocess, n_workers, colours, tmp_path
):
    X = np.full((6, 4, 4), 4095, dtype=np.uint16)
    if form == "files":
        X = as_deep_files(X, tmp_path)
    elif form == "images":
        X = [Image.fromarray(values) for values in X]
    encoder = FrozenEncoder(
        colours, preprocess=preprocess, batch_size=2, n_workers=n_workers
    )
    with pytest.warns(UserWarning, match="reach only 4095, .* nearly black") as caught:
        encoder.transform(X)
    assert len(caught) == 1
    assert caught[0].filename == __file__


@pytest.mark.parametrize("brightest", [0, 4096, 65535])
def test_images_that_are_dark_among_others_are_not_told_of(brightest, colours):
    X = np.zeros((3, 4, 4), dtype=np.uint16)
    X[1] = brightest
    FrozenEncoder(colours, batch_size=1).transform(X)


def test_float_image():
    image = Image.fromarray(np.array([[0, 0.5, 1]], dtype=np.float32))
    assert np.array_equal(np.asarray(read_image(image))[0, :, 0], [0, 128, 255])


def test_exif_rotation_is_respected(tmp_path, pixels):
    image = Image.fromarray(pixels[0])
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held sideways
    image.save(tmp_path / "turned.png", exif=exif)
    result = read_image(tmp_path / "turned.png")
    assert result.size == (10, 8)
    turned = image.transpose(Image.Transpose.ROTATE_270)
    assert np.array_equal(np.asarray(result), np.asarray(turned))
    with Image.open(tmp_path / "turned.png") as opened:
        assert content_digest(opened) == content_digest(ImageOps.exif_transpose(opened))


def test_digest_tells_shapes_and_types_apart():
    zeros = np.zeros((2, 3), np.uint8)
    others = [zeros.T, zeros.astype(np.int8), zeros + 1, Image.fromarray(zeros)]
    assert len({content_digest(item) for item in [zeros, *others]}) == 5
    assert content_digest(np.asfortranarray(zeros)) == content_digest(zeros)


# ------------------------------------------------------------------ bad images


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (np.full((4, 4), 16.0), r"float pixels must lie in \[0, 1\], but go from 16"),
        (np.full((4, 4), -0.1), r"must lie in \[0, 1\]"),
        (np.full((4, 4), np.nan), r"must lie in \[0, 1\]"),
        (np.full((4, 4), 256), "between 0 and 255"),
        (np.full((4, 4), -1), "between 0 and 255"),
        (np.full((4, 4), 1j), "must be integers or floats, got complex128"),
        (np.zeros((3, 5, 5)), "1, 3 or 4 channels"),
        (np.zeros((0, 4)), "1, 3 or 4 channels"),
        (Image.fromarray(np.array([[-1]], np.int32)), "between 0 and 255"),
        (None, "object of type NoneType: neither a path, nor a PIL image"),
    ],
)
@pytest.mark.parametrize("cached", [False, True])
def test_bad_pixels(item, message, cached, colours, tmp_path, pixels):
    encoder = FrozenEncoder(
        colours, preprocess=as_pixels, cache_dir=tmp_path if cached else None
    )
    with pytest.raises(ImageReadError, match=f"(?s)1 of 2 images.*row 1: .*{message}"):
        encoder.transform([pixels[0], item])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("cached", [False, True])
def test_nan_in_x_is_not_blamed_on_the_model(bad, cached, colours, tmp_path):
    X = np.zeros((5, 4, 4))
    X[[1, 3], 2, 2] = bad
    encoder = FrozenEncoder(colours, cache_dir=tmp_path if cached else None)
    with pytest.raises(ImageReadError, match="2 of 5 .*\n.*X has NaN") as caught:
        encoder.transform(X)
    assert [row for row, _, _ in caught.value.failures] == [1, 3]


def test_one_image_is_not_called_images(colours):
    with pytest.raises(ImageReadError, match="1 of 1 image cannot be read"):
        FrozenEncoder(colours).transform([None])


def bad_files(folder):
    """Paths of bad files, with what is wrong with them."""
    (folder / "empty.png").touch()
    (folder / "text.jpg").write_text("not an image")
    (folder / "folder.png").mkdir()
    reasons = ["no such file", "the file is empty", "not an image", "directory"]
    names = ["missing.png", "empty.png", "text.jpg", "folder.png"]
    return [str(folder / name) for name in names], reasons


@pytest.mark.parametrize("cached", [False, True])
def test_bad_files_are_found_before_anything_is_encoded(
    cached, colours, paths, tmp_path
):
    bad, reasons = bad_files(tmp_path)
    cache_dir = tmp_path / "cache" if cached else None
    encoder = FrozenEncoder(colours, batch_size=2, cache_dir=cache_dir)
    with pytest.raises(ImageReadError) as caught:
        encoder.transform(paths[:3] + bad + paths[3:])
    assert colours.n_seen == 0
    error = caught.value
    assert [row for row, _, _ in error.failures] == [3, 4, 5, 6]
    assert [path for _, path, _ in error.failures] == bad
    for (_, _, found), reason in zip(error.failures, reasons, strict=True):
        assert reason in found.lower()


def truncated(path, target):
    with open(path, "rb") as file:
        content = file.read()
    target.write_bytes(content[: len(content) // 2])
    return str(target)


@pytest.mark.parametrize("n_workers", [0, 1])
def test_broken_files_are_reported_at_the_end_and_the_others_kept(
    n_workers, colours, paths, tmp_path
):
    broken = [truncated(paths[i], tmp_path / f"broken{i}.png") for i in range(12)]
    X = [path for pair in zip(paths, broken, strict=True) for path in pair]
    encoder = FrozenEncoder(
        colours, batch_size=5, cache_dir=tmp_path / "cache", n_workers=n_workers
    )
    with pytest.raises(ImageReadError, match="12 of 24 images") as caught:
        encoder.transform(X)
    assert "row 1: " + broken[0] in str(caught.value)
    assert "row 19: " in str(caught.value)
    assert "row 21: " not in str(caught.value)
    assert "... and 2 more" in str(caught.value)
    assert "are in the cache" in str(caught.value)
    assert colours.n_seen == 12
    encoder.transform(paths)
    assert colours.n_seen == 12


def test_without_cache_the_error_advises_one(colours, paths, tmp_path):
    broken = truncated(paths[0], tmp_path / "broken.png")
    with pytest.raises(ImageReadError, match="Set cache_dir"):
        FrozenEncoder(colours).transform([broken])


def test_copies_of_a_broken_file_are_all_reported(colours, paths, tmp_path):
    broken = [truncated(paths[0], tmp_path / f"broken{i}.png") for i in range(2)]
    encoder = FrozenEncoder(colours, cache_dir=tmp_path / "cache")
    with pytest.raises(ImageReadError) as caught:
        encoder.transform([broken[0], paths[1], broken[1]])
    assert [path for _, path, _ in caught.value.failures] == broken
