"""From whatever X is to a sequence of images, each read when it is its turn."""

import hashlib
import os

import numpy as np
from PIL import Image, ImageOps

# Formats whose 16-bit images Pillow opens in its 32-bit mode "I".
SIXTEEN_BIT_FORMATS = {"PNG", "PPM"}
PEAK = "skslot_peak"  # entry of Image.info: largest value before scaling 16 bits to 8
NOT_AN_IMAGE = "neither a path, nor a PIL image, nor an array of numbers"


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
        return _Reshaped(X, image_shape)
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


class _Reshaped:
    """Rows of flattened images."""

    def __init__(self, rows, image_shape):
        self.rows = rows
        try:
            self.shape = np.empty((rows.shape[1],), np.int8).reshape(image_shape).shape
        except ValueError:
            raise ValueError(
                f"image_shape={tuple(image_shape)} does not fit rows of "
                f"{rows.shape[1]} pixels."
            ) from None

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, row):
        return self.rows[row].reshape(self.shape)


def is_path(item):
    return isinstance(item, (str, bytes, os.PathLike))


def describe(item):
    """How an error names an item."""
    if is_path(item):
        return os.fsdecode(item)
    if isinstance(item, Image.Image):
        return f"PIL image of {item.width} x {item.height} pixels"
    if isinstance(item, np.ndarray):
        return f"array of shape {item.shape}"
    return f"object of type {type(item).__name__}"


def check_header(item):
    """Refuse files whose first bytes tell that they are no images."""
    if is_path(item):
        if os.path.getsize(item) == 0:
            raise ValueError("the file is empty")
        Image.open(item).close()


def reason(error):
    """The cause of a failure, without the path that is named beside it."""
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, Image.UnidentifiedImageError):
        return "not an image, or of an unknown format"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{error}" or type(error).__name__


def content_digest(item):
    """SHA-256 of what is in an image: the bytes of a file, or the pixels."""
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
    """The image in RGB, the right way up."""
    if is_path(item):
        with Image.open(item) as image:
            return to_rgb(image)
    if isinstance(item, Image.Image):
        return to_rgb(item)
    if not isinstance(item, np.ndarray):
        raise TypeError(NOT_AN_IMAGE)
    return _from_array(item)


def read_floats(item):
    """An array of floats as it is, with three channels; others as RGB image."""
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
    """RGB as ``Image.convert`` makes it, but for modes that it would clip."""
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
