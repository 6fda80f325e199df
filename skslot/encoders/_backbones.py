"""The model behind an encoder: loaded once per process, and identified."""

import hashlib
import json
import os
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from threading import Lock

import numpy as np
import torch
from PIL import Image

from ._sources import CONFIG_FILE, build_open_clip, build_timm

BUILDERS = {"open_clip": build_open_clip, "timm": build_timm}
FINGERPRINT_DIGITS = 16
_lock = Lock()


@dataclass(frozen=True, eq=False)
class Network:
    """A module with its weights."""

    module: torch.nn.Module
    architecture: object
    device: torch.device

    @cached_property
    def digest(self):
        """SHA-256 of architecture and weights."""
        result = hashlib.sha256(json.dumps(self.architecture).encode())
        for name, tensor in sorted(self.module.state_dict().items()):
            result.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
            flat = tensor.detach().cpu().contiguous().reshape(-1)
            result.update(flat.view(torch.uint8).numpy().data)
        return result.hexdigest()


@dataclass(frozen=True, eq=False)
class Backbone:
    """A network, and what is done to images before it."""

    network: Network
    preprocess: object
    preprocess_config: dict

    def fingerprint(self, *settings):
        """Short name of the feature space, given further settings."""
        parts = [self.network.digest, self.preprocess_config, *settings]
        text = json.dumps(parts, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:FINGERPRINT_DIGITS]


def load_backbone(model, pretrained, source, preprocess, device):
    """The backbone that the parameters of an encoder describe."""
    device = pick_device(device)
    if not isinstance(model, str):
        return _from_module(model, preprocess, device)
    pretrained = None if pretrained is None else os.fspath(pretrained)
    overrides = preprocess if isinstance(preprocess, dict) else None
    with _lock:
        backbone = _load(
            source,
            model,
            pretrained,
            json.dumps(overrides, sort_keys=True),
            callable(preprocess),
            str(device),
            _stamps(model, pretrained),
        )
    if callable(preprocess):
        return Backbone(backbone.network, preprocess, describe_callable(preprocess))
    return backbone


# Two, for those who compare two models; more would fill the memory.
@lru_cache(maxsize=2)
def _load(source, model, pretrained, overrides, has_callable, device, _):
    module, architecture, preprocess, config = BUILDERS[source](
        model, pretrained, json.loads(overrides), has_callable
    )
    device = torch.device(device)
    module = module.to(device).eval().requires_grad_(False)
    config = json.loads(json.dumps(config))  # tuples become lists
    return Backbone(Network(module, architecture, device), preprocess, config)


def _stamps(model, pretrained):
    """What changes when local files do."""
    path = Path(model.removeprefix("local-dir:")) if ":" in model else None
    files = sorted(path.iterdir()) if path and path.is_dir() else []
    if pretrained and os.path.isfile(pretrained):
        files.append(Path(pretrained))
        files.extend(Path(pretrained).parent.glob(CONFIG_FILE))
    stats = [(file, file.stat()) for file in files]
    return tuple((str(file), stat.st_mtime_ns, stat.st_size) for file, stat in stats)


def _from_module(module, preprocess, device):
    if not isinstance(module, torch.nn.Module):
        raise TypeError(
            "model must be a name or a torch.nn.Module, got "
            f"{module if isinstance(module, type) else type(module)}. A class must be "
            "called first: its weights are what counts."
        )
    if isinstance(preprocess, dict):
        raise TypeError(
            "preprocess is a dict, which changes the preprocessing that a named model "
            "brings along. A module brings none: pass a callable that takes a PIL "
            "image and returns a tensor."
        )
    architecture = ["module", repr(module)]
    config = {} if preprocess is None else describe_callable(preprocess)
    return Backbone(
        Network(module.to(device), architecture, device), preprocess, config
    )


def pick_device(device):
    """The torch device; "auto" is the fastest that is there."""
    if device != "auto":
        try:
            return torch.empty(0, device=device).device
        except Exception as error:
            raise ValueError(
                f'device={device!r} cannot be used here. Pass "auto", or a device of '
                'torch that this computer has, such as "cpu", "cuda:0" or "mps".'
            ) from error
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


@contextmanager
def evaluating(module):
    """Evaluation mode, and afterwards the mode that each part was in."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def describe_callable(preprocess):
    """What a callable is called, and a digest of what it does to a test image."""
    first, second = (_try_out(preprocess) for _ in range(2))
    if not np.array_equal(first, second, equal_nan=True):
        raise ValueError(
            "preprocess gives different results for the same image. Features of a "
            "frozen encoder must not be random: pass the preprocessing for evaluation, "
            "not the one for training."
        )
    rounded = np.round(first, 4) + 0.0  # no negative zeros
    digest = hashlib.sha256(f"{first.shape}".encode() + rounded.tobytes())
    name = getattr(preprocess, "__qualname__", None) or repr(preprocess)
    is_unnamed = " at 0x" in name
    name = type(preprocess).__qualname__ if is_unnamed else name
    return {"callable": name, "digest": digest.hexdigest()}


def _try_out(preprocess):
    try:
        with torch.random.fork_rng(devices=[]):
            torch.seed()
            return as_tensor(preprocess(sample_image(256, 192))).cpu().numpy()
    except Exception as error:
        error.add_note("Raised by preprocess on an RGB image of 256 x 192 pixels.")
        raise


def as_tensor(result):
    """What a preprocessing returned, as float32 tensor."""
    if isinstance(result, (torch.Tensor, np.ndarray)):
        return torch.as_tensor(result).to(torch.float32)
    raise TypeError(
        "preprocess must return a torch tensor, for example of shape (3, h, w); got "
        f"{type(result).__name__}."
    )


def sample_image(width, height):
    """An image with colours, edges and gradients."""
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    channels = [x * 255 // width, y * 255 // height, (x // 8 + y // 8) % 2 * 255]
    return Image.fromarray(np.stack(channels, axis=2).astype(np.uint8))
