"""Images through the model, a batch at a time."""

from contextlib import closing, nullcontext

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from .._utils import warn_user
from ._backbones import as_tensor, evaluating, sample_image
from ._encoder import ImageReadError
from ._images import (
    PEAK,
    as_pixels,
    check_header,
    content_digest,
    describe,
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
    """Features of all items; images that the cache has are not encoded again."""
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
    """Encode rows: those of a batch, their features, and failures of the others."""
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
    """Length of a feature vector, found by encoding a test image."""
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
    """Results by row, and failures of the rows that have none."""
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
