"""Images through the model, a batch at a time."""

import warnings
from contextlib import nullcontext

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from ._backbones import as_tensor, evaluating, sample_image
from ._failures import ImageReadError
from ._images import (
    PEAK,
    as_pixels,
    content_digest,
    describe,
    obvious_problem,
    read_floats,
    read_image,
    reason,
)

# The largest value of 12-bit cameras and scanners, and one more.
DARK = 4096


class _Inputs(Dataset):
    """What goes into the model, or why it cannot, for some of the items.

    Of images with 16 bits also their largest value.
    """

    def __init__(self, items, rows, preprocess):
        self.items = items
        self.rows = rows
        self.preprocess = preprocess

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, position):
        row = int(self.rows[position])
        item = self.items[row]
        try:
            image = read_floats(item) if self.preprocess is None else read_image(item)
        except Exception as error:
            return row, None, None, (row, describe(item), reason(error))
        peak = image.info.pop(PEAK, None) if hasattr(image, "info") else None
        if self.preprocess is None:
            return row, torch.from_numpy(as_pixels(image)), peak, None
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


def encode(items, backbone, **options):
    """Features of all items, without a cache."""
    rows = np.arange(len(items))
    _raise_if_any(_scan(items, rows), items, "No image was encoded yet.")
    features, failures = _encode_rows(items, rows, backbone, **options)
    advice = "Set cache_dir, and the work on the others will not be lost."
    _raise_if_any(failures, items, advice)
    return features


def encode_with_cache(items, backbone, cache, **options):
    """Features of all items; only images that the cache lacks are encoded, once."""
    keys, failures = _digests(items)
    known = cache.get(list(dict.fromkeys(filter(None, keys))))
    missing = [row for row, key in enumerate(keys) if key and key not in known]
    failures += _scan(items, missing)
    _raise_if_any(failures, items, "No image was encoded yet.")
    first = {keys[row]: row for row in reversed(missing)}
    missing = sorted(first.values())
    cache.count(hits=len(items) - len(missing), misses=len(missing))
    if missing:
        features, failures = _encode_rows(
            items,
            missing,
            backbone,
            keep=lambda rows, part: cache.put([keys[row] for row in rows], part),
            **options,
        )
        reasons = {keys[row]: why for row, _, why in failures}
        failures = [
            (row, describe(items[row]), reasons[key])
            for row, key in enumerate(keys)
            if key in reasons
        ]
        _raise_if_any(failures, items, "The features of all others are in the cache.")
        known |= zip((keys[row] for row in missing), features, strict=True)
    if len({len(row) for row in known.values()}) > 1:
        raise ValueError(
            f"{cache.path} holds features of another length. The code of the model "
            "must have changed, which the cache does not see: call cache_clear()."
        )
    return np.stack([known[key] for key in keys])


def _encode_rows(
    items, rows, backbone, *, batch_size, dtype, n_workers, progress, keep=None
):
    """Features of the given rows, and failures of those that cannot be read.

    ``keep(rows, features)`` is called for each batch.
    """
    features, peaks, failures = None, [], []
    positions = {int(row): position for position, row in enumerate(rows)}
    loader = DataLoader(
        _Inputs(items, rows, backbone.preprocess),
        batch_size,
        num_workers=n_workers,
        collate_fn=_collate,
        pin_memory=backbone.network.device.type == "cuda",
        generator=torch.Generator(),  # or it would draw from the global one
    )
    with evaluating(backbone.network.module), _progress_bar(progress, len(rows)) as bar:
        for done, batch, high, bad in loader:
            peaks += high
            failures += bad
            if done:
                part = _forward(backbone, batch, dtype)
                _check_features(part, done, items, dtype)
                if keep is not None:
                    keep(done, part)
                if features is None:
                    features = np.zeros((len(rows), part.shape[1]), np.float32)
                features[[positions[row] for row in done]] = part
            bar.update(len(done) + len(bad))
    _warn_if_dark(peaks)
    return features, failures


def _warn_if_dark(peaks):
    """Tell of values with 8 or 12 bits in images with 16."""
    if 0 < max(peaks, default=0) < DARK:
        warnings.warn(
            "16-bit pixels are divided by 65535; those of X reach only "
            f"{max(peaks)}, so the images are nearly black. Scale them first, or pass "
            "values up to 255 as uint8.",
            stacklevel=6,  # the caller of transform, which scikit-learn wraps
        )


def n_features_out(backbone, image_shape, dtype):
    """Length of a feature vector, found by encoding a test image."""
    height, width = (224, 224) if image_shape is None else image_shape[:2]
    if -1 in (height, width):
        raise ValueError(
            f"image_shape={tuple(image_shape)} leaves the size of images open: call "
            "fit with data first."
        )
    image = sample_image(width, height)
    if backbone.preprocess is None:
        batch = torch.from_numpy(as_pixels(image))[None]
    else:
        batch = as_tensor(backbone.preprocess(image))[None]
    with evaluating(backbone.network.module):
        return _forward(backbone, batch, dtype).shape[1]


def _digests(items):
    """Digest of each item, None where it cannot be had, and failures."""
    keys, failures = [], []
    for row, item in enumerate(items):
        try:
            keys.append(content_digest(item))
        except Exception as error:
            keys.append(None)
            failures.append((row, describe(item), reason(error)))
    return keys, failures


def _scan(items, rows):
    """Failures that show before any image is decoded."""
    problems = ((int(row), obvious_problem(items[row])) for row in rows)
    return [(row, describe(items[row]), found) for row, found in problems if found]


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


def _progress_bar(progress, total):
    from tqdm import tqdm

    return tqdm(total=total, unit="img", desc="encode", disable=not progress)
