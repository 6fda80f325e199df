"""Read images of any kind, and encode them in batches."""

import hashlib
import os
from contextlib import closing, nullcontext

import numpy as np
import torch
from PIL import Image, ImageOps
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from .._utils import warn_user
from ._backbones import as_tensor, evaluating, sample_image
from ._encoder import ImageReadError

# The largest value of 12-bit cameras and scanners, and one more.
DARK = 4096
# Formats whose 16-bit images Pillow opens in its 32-bit mode "I".
SIXTEEN_BIT_FORMATS = {"PNG", "PPM"}
PEAK = "skslot_peak"  # entry of Image.info: largest value before scaling 16 bits to 8
NOT_AN_IMAGE = "neither a path, nor a PIL image, nor an array of numbers"


# ------------------------------------------------------------------ reading


def as_items(X, image_shape=None):
    """A sequence with one item per image: a path, a PIL image or an array.

    Arrays are not copied, so those on disk stay there.
    """
    if isinstance(X, (str, bytes, os.PathLike, Image.Image)):
        raise ValueError(
            f"X is a single image ({describe(X)}); pass a list of images, even if it "
            "has one item."
        )
    if image_shape is not None:
        try:
            return X.reshape(len(X), *image_shape)
        except ValueError:
            raise ValueError(
                f"image_shape={tuple(image_shape)} does not fit rows of {X.shape[1]} "
                "pixels."
            ) from None
    if hasattr(X, "columns") and len(X.columns) != 1:
        raise ValueError(
            f"X has the columns {list(map(str, X.columns))}; pass the column with "
            'the paths only, for example by ColumnTransformer([("images", '
            'FrozenEncoder(), ["path"])], remainder="passthrough").'
        )
    if hasattr(X, "to_numpy"):  # a Series, or a frame of one column
        X = X.to_numpy()
    elif not isinstance(X, (list, tuple)):
        X = np.asanyarray(X)
    if isinstance(X, np.ndarray):
        X = _array_items(X)
    if len(X) == 0:
        raise ValueError("X holds 0 images; a minimum of 1 is required.")
    return X


def _array_items(X):
    if X.ndim == 0:
        raise ValueError(f"X must be a sequence of images, got {X.item()!r}.")
    if X.dtype.kind in "OUST":
        if X.ndim == 2 and X.shape[1] == 1:
            X = X[:, 0]
        if X.ndim != 1:
            raise ValueError(f"paths must be one per row, got the shape {X.shape}.")
        return X
    if X.ndim == 2:
        raise ValueError(
            f"X has the shape {X.shape}: rows of flattened images need image_shape, "
            "for example image_shape=(28, 28)."
        )
    if X.ndim not in (3, 4):
        raise ValueError(
            "arrays of images must have the shape (n, h, w) or (n, h, w, c), got "
            f"{X.shape}."
        )
    return X


def is_path(item):
    return isinstance(item, (str, bytes, os.PathLike))


def describe(item):
    """Return the name of an item for an error."""
    if is_path(item):
        return os.fsdecode(item)
    if isinstance(item, Image.Image):
        return f"PIL image of {item.width} x {item.height} pixels"
    if isinstance(item, np.ndarray):
        return f"array of shape {item.shape}"
    return f"object of type {type(item).__name__}"


def check_header(item):
    """Refuse files that do not begin as images do."""
    if is_path(item):
        if os.path.getsize(item) == 0:
            raise ValueError("the file is empty")
        Image.open(item).close()


def reason(error):
    """Return the cause of a failure, without the path."""
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, Image.UnidentifiedImageError):
        return "not an image, or of an unknown format"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{error}" or type(error).__name__


def content_digest(item):
    """Compute the SHA-256 of an image: of the bytes of a file, or of the pixels."""
    if is_path(item):
        with open(item, "rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    if isinstance(item, Image.Image):
        item = np.asarray(to_rgb(item))
    if not isinstance(item, np.ndarray):
        raise TypeError(NOT_AN_IMAGE)
    head = f"{item.dtype.str} {item.shape} "
    return hashlib.sha256(head.encode() + np.ascontiguousarray(item).data).digest()


def read_image(item):
    """Read an image in RGB, in its proper orientation."""
    if is_path(item):
        with Image.open(item) as image:
            return to_rgb(image)
    if isinstance(item, Image.Image):
        return to_rgb(item)
    if not isinstance(item, np.ndarray):
        raise TypeError(NOT_AN_IMAGE)
    return _from_array(item)


def read_floats(item):
    """Return an array of floats with three channels; read others as RGB images."""
    if not (isinstance(item, np.ndarray) and item.dtype.kind == "f"):
        return read_image(item)
    if not np.isfinite(item).all():
        raise ValueError("X has NaN or infinity among the pixels of this image")
    return _with_channels(item)


def as_pixels(image):
    """Float32 pixels of shape (3, h, w), for models without preprocessing.

    Integers become fractions of their largest value; floats stay what they are.
    """
    pixels = np.asarray(image).astype(np.float32)
    if isinstance(image, Image.Image):
        pixels /= 255
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def to_rgb(image):
    """Convert to RGB without clipping modes of more than 8 bits."""
    has_sixteen_bits = image.mode != "I" or image.format in SIXTEEN_BIT_FORMATS
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I") and has_sixteen_bits:
        return _from_array(np.asarray(image).astype(np.uint16))
    if image.mode in ("I", "F"):
        return _from_array(np.asarray(image))
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("RGB")


def _from_array(array):
    image = Image.fromarray(_as_uint8(_with_channels(array)))
    if array.dtype.newbyteorder("=") == np.uint16:
        image.info[PEAK] = int(array.max())
    return image


def _with_channels(array):
    if array.ndim == 2:
        array = array[..., np.newaxis]
    if array.ndim != 3 or array.shape[2] not in (1, 3, 4) or 0 in array.shape:
        raise ValueError(
            "an image must have the shape (h, w) or (h, w, c) with 1, 3 or 4 channels, "
            f"got {array.shape}"
        )
    return np.repeat(array, 3, axis=2) if array.shape[2] == 1 else array[..., :3]


def _as_uint8(array):
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    if array.dtype.newbyteorder("=") == np.uint16:
        return (array // 257).astype(np.uint8)
    if array.dtype.kind == "b":
        return array.astype(np.uint8) * 255
    if array.dtype.kind not in "iuf":
        raise ValueError(f"pixels must be integers or floats, got {array.dtype}")
    low, high = array.min(), array.max()
    if array.dtype.kind == "f":
        if not (low >= 0 and high <= 1):  # also true for NaN
            raise ValueError(
                f"float pixels must lie in [0, 1], but go from {low:g} to {high:g}: "
                "rescale X, or pass it as uint8"
            )
        return np.rint(array * 255).astype(np.uint8)
    if low < 0 or high > 255:
        raise ValueError(
            "integer pixels must lie between 0 and 255 (uint16: 65535), got "
            f"{array.dtype} from {low} to {high}"
        )
    return array.astype(np.uint8)


# ------------------------------------------------------------------ encoding


class _Inputs(Dataset):
    """What goes into the model, or why it cannot, for some of the items.

    Of images with 16 bits also their largest value.
    """

    def __init__(self, items, rows, preprocess):
        self.items = items
        self.rows = rows
        self.read = read_floats if preprocess is None else read_image
        self.preprocess = preprocess or as_pixels

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, position):
        row = self.rows[position]
        item = self.items[row]
        try:
            image = self.read(item)
        except Exception as error:
            return row, None, None, _failure(row, item, error)
        peak = image.info.pop(PEAK, None) if hasattr(image, "info") else None
        try:
            return row, as_tensor(self.preprocess(image)), peak, None
        except Exception as error:
            error.add_note(f"Raised by preprocess on row {row}: {describe(item)}")
            raise


def _collate(samples):
    good = [(row, tensor) for row, tensor, *_ in samples if tensor is not None]
    peaks = [peak for _, _, peak, _ in samples if peak is not None]
    failures = [failure for *_, failure in samples if failure is not None]
    shapes = {tuple(tensor.shape) for _, tensor in good}
    if len(shapes) > 1:
        raise ValueError(
            "images of one batch have different shapes after preprocessing, such as "
            f"{' and '.join(map(str, sorted(shapes)[:2]))}. Pass a preprocess that "
            "brings all images to one size."
        )
    batch = torch.stack([tensor for _, tensor in good]) if good else None
    return [row for row, _ in good], batch, peaks, failures


def encode(items, backbone, cache=None, **options):
    """Encode all items, except images whose features are in the cache."""
    rows = range(len(items))
    if cache is None:
        keys, failures, known = dict(zip(rows, rows, strict=True)), [], {}
        advice = "Set cache_dir, and the work on the others will not be lost."
    else:
        keys, failures = _apply(content_digest, items, rows)
        known = cache.get(list(dict.fromkeys(keys.values())))
        advice = "The features of all others are in the cache."
    missing = [row for row, key in keys.items() if key not in known]
    failures += _apply(check_header, items, missing)[1]
    _raise_if_any(failures, items, "No image was encoded yet.")
    first = {keys[row]: row for row in reversed(missing)}
    missing = sorted(first.values())
    if cache is not None:
        cache.count(hits=len(items) - len(missing), misses=len(missing))
    reasons = {}
    with closing(_batches(items, missing, backbone, **options)) as batches:
        for done, part, bad in batches:
            reasons |= {keys[row]: why for row, _, why in bad}
            found = [keys[row] for row in done]
            known |= zip(found, part, strict=True)
            if cache is not None:
                cache.put(found, part)
    failures = [
        (row, describe(items[row]), reasons[key])
        for row, key in keys.items()
        if key in reasons
    ]
    _raise_if_any(failures, items, advice)
    if cache is not None and len({len(row) for row in known.values()}) > 1:
        raise ValueError(
            f"{cache.path} holds features of another length. The code of the model "
            "must have changed, which the cache does not see: call cache_clear()."
        )
    return np.stack([known[key] for key in keys.values()])


def _batches(items, rows, backbone, *, batch_size, dtype, n_workers, progress):
    """Yield the encoded rows of each batch, their features, and the failures."""
    highest = 0
    loader = DataLoader(
        _Inputs(items, rows, backbone.preprocess),
        batch_size,
        num_workers=n_workers,
        collate_fn=_collate,
        pin_memory=backbone.network.device.type == "cuda",
        generator=torch.Generator(),  # or it would draw from the global one
    )
    bar = tqdm(total=len(rows), unit="img", desc="encode", disable=not progress)
    with evaluating(backbone.network.module), bar:
        for done, batch, peaks, failures in loader:
            features = _forward(backbone, batch, dtype) if done else np.empty((0, 0))
            _check_features(features, done, items, dtype)
            yield done, features, failures
            highest = max([highest, *peaks])
            bar.update(len(done) + len(failures))
    if 0 < highest < DARK:  # values of 8 or 12 bits
        warn_user(
            "16-bit pixels are divided by 65535; those of X reach only "
            f"{highest}, so the images are nearly black. Scale them first, or pass "
            "values up to 255 as uint8.",
        )


def n_features_out(backbone, image_shape, dtype):
    """Return the length of a feature vector, by encoding a test image."""
    height, width = (224, 224) if image_shape is None else image_shape[:2]
    if -1 in (height, width):
        raise ValueError(
            f"image_shape={tuple(image_shape)} leaves the size of images open: call "
            "fit with data first."
        )
    preprocess = backbone.preprocess or as_pixels
    batch = as_tensor(preprocess(sample_image(width, height)))[None]
    with evaluating(backbone.network.module):
        return _forward(backbone, batch, dtype).shape[1]


def _apply(function, items, rows):
    """Apply a function; return results by row, and failures."""
    results, failures = {}, []
    for row in rows:
        try:
            results[row] = function(items[row])
        except Exception as error:
            failures.append(_failure(row, items[row], error))
    return results, failures


def _failure(row, item, error):
    return row, describe(item), reason(error)


def _raise_if_any(failures, items, advice):
    if failures:
        raise ImageReadError(failures, len(items), advice)


def _forward(backbone, batch, dtype):
    batch = batch.to(backbone.network.device, non_blocking=True)
    cast = nullcontext()
    if dtype != "float32":
        cast = torch.autocast(batch.device.type, dtype=getattr(torch, dtype))
    with torch.inference_mode(), cast:
        features = backbone.network.module(batch)
    if not isinstance(features, torch.Tensor) or features.ndim != 2:
        got = list(features.shape) if hasattr(features, "shape") else type(features)
        raise ValueError(
            "the model must return one vector per image, an output of shape (n, dim); "
            f"got {got}."
        )
    return features.float().cpu().numpy()


def _check_features(features, rows, items, dtype):
    if len(features) != len(rows):
        raise ValueError(
            f"the model must return one vector per image, but returned "
            f"{len(features)} for a batch of {len(rows)}."
        )
    bad = np.flatnonzero(~np.isfinite(features).all(axis=1))
    if len(bad):
        row = rows[bad[0]]
        advice = "" if dtype == "float32" else ' Use dtype="float32".'
        raise ValueError(
            f"the model returned NaN or infinity for {len(bad)} of {len(rows)} images "
            f"in a batch, first for row {row} ({describe(items[row])}).{advice}"
        )
