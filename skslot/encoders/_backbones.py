"""Load the model of an encoder once per process, and compute its fingerprint.

Named models never get random weights or an uncertain preprocessing. Where open_clip or
timm would continue with a fallback, an error states what to do.
"""

import hashlib
import json
import os
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property, lru_cache
from pathlib import Path
from threading import Lock
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import torch
from PIL import Image

from .._utils import import_optional
from ._encoder import DEFAULT_TAG

# What must be the same for features to mean the same; the size is the model's.
OPEN_CLIP_SETTINGS = ("mean", "std", "interpolation", "resize_mode")
CONFIG_FILE = "open_clip_config.json"
SECONDS_TO_ANSWER = 5  # for the hub, before it counts as out of reach
TIMM_SETTINGS = ("mean", "std", "interpolation", "crop_pct", "crop_mode", "input_size")
FINGERPRINT_DIGITS = 16
_lock = Lock()


@dataclass(frozen=True, eq=False)
class Network:
    """Module with its weights."""

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
    """Network and the preprocessing of its images."""

    network: Network
    preprocess: object
    preprocess_config: dict

    def fingerprint(self, *settings):
        """Compute a short name of the feature space, given further settings."""
        parts = [self.network.digest, self.preprocess_config, *settings]
        text = json.dumps(parts, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:FINGERPRINT_DIGITS]


def load_backbone(model, pretrained, source, preprocess, device):
    """Load the backbone that the parameters of an encoder describe."""
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
    build = {"open_clip": _build_open_clip, "timm": _build_timm}[source]
    module, architecture, preprocess, config = build(
        model, pretrained, json.loads(overrides), has_callable
    )
    device = torch.device(device)
    module = module.to(device).eval().requires_grad_(False)
    config = json.loads(json.dumps(config))  # tuples become lists
    return Backbone(Network(module, architecture, device), preprocess, config)


def _stamps(model, pretrained):
    """Return values that change when local files do."""
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
    """Return the torch device; "auto" is the fastest available device."""
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
    """Switch to evaluation mode, then restore the mode of each part."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def describe_callable(preprocess):
    """Return the name of a callable, and a digest of its result for a test image."""
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
    """Convert the result of a preprocessing to a float32 tensor."""
    if isinstance(result, (torch.Tensor, np.ndarray)):
        return torch.as_tensor(result).to(torch.float32)
    raise TypeError(
        "preprocess must return a torch tensor, for example of shape (3, h, w); got "
        f"{type(result).__name__}."
    )


def sample_image(width, height):
    """Draw an image with colours, edges and gradients."""
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    channels = [x * 255 // width, y * 255 // height, (x // 8 + y // 8) % 2 * 255]
    return Image.fromarray(np.stack(channels, axis=2).astype(np.uint8))


# ------------------------------------------------------------------ open_clip


def _build_open_clip(model, pretrained, overrides, has_callable):
    """Return module, architecture, preprocessing and its configuration."""
    open_clip = import_optional("open_clip", "clip", "source='open_clip'")
    if model.startswith(("hf-hub:", "local-dir:")):
        kind, pretrained = model.partition(":")[0], None
    else:
        model = model.replace("/", "-")
        kind = _kind_of_weights(open_clip, model, pretrained)
    clip = _create_clip(open_clip, model, pretrained, kind, overrides)
    config = open_clip.get_model_preprocess_cfg(clip)
    _check_overrides(overrides, config)
    if overrides is None and not has_callable:
        _check_preprocessing(open_clip, model, pretrained, kind, config)
    transform = open_clip.transform.image_transform_v2(
        open_clip.transform.PreprocessCfg(**config), is_train=False
    )
    tower = clip.visual
    if isinstance(clip, open_clip.CoCa):
        tower = _FirstOutput(tower)
    return tower, _architecture(open_clip, model), transform, config


class _FirstOutput(torch.nn.Module):
    """Image tower of CoCa without the tokens that it also returns."""

    def __init__(self, tower):
        super().__init__()
        self.tower = tower

    def forward(self, images):
        return self.tower(images)[0]


def _kind_of_weights(open_clip, model, pretrained):
    """Return whether ``pretrained`` is a tag or a file."""
    _check_names("open_clip", model, open_clip.list_models(), pretrained)
    if open_clip.is_pretrained_cfg(model, pretrained):
        return "tag"
    if os.path.isfile(pretrained):
        return "file"
    tags = open_clip.list_pretrained_tags_by_model(model)
    raise _unknown_name("pretrained", pretrained, f"open_clip for {model!r}", tags)


def _create_clip(open_clip, model, pretrained, kind, overrides):
    if kind == "tag":
        tag = open_clip.get_pretrained_cfg(model, pretrained)
        try:
            with _without_retries():
                open_clip.download_pretrained(tag)
        except Exception as error:
            raise _not_downloaded("open_clip", model, pretrained) from error
    try:
        with _without_retries(kind in ("tag", "hf-hub")), warnings.catch_warnings():
            warnings.filterwarnings("error", "QuickGELU mismatch")
            return open_clip.create_model(
                model,
                pretrained=pretrained,
                force_preprocess_cfg=overrides,
                pretrained_text=False,
                require_pretrained=True,
                weights_only=True,
            )
    except Exception as error:
        if kind == "hf-hub":
            raise _not_downloaded("open_clip", model, None) from error
        raise _unreadable("open_clip", model, pretrained, error) from error


def _architecture(open_clip, model):
    """Describe the image tower, without the name, which may be a local path."""
    config = open_clip.get_model_config(model)
    parts = ("embed_dim", "vision_cfg", "quick_gelu")
    return ["open_clip", {part: config.get(part) for part in parts}]


def _check_preprocessing(open_clip, model, pretrained, kind, config):
    """Refuse a preprocessing that open_clip only uses as a fallback.

    Given a file, it takes the preprocessing of OpenAI's models, whatever the weights
    were trained with (its issue 1068).
    """
    used = _comparable(config)
    for origin, other in _published(open_clip, model, pretrained, kind):
        if other is None:
            raise ValueError(
                f"{origin} does not say how images are preprocessed. Pass it as "
                f"preprocess, for example preprocess={used}."
            )
        expected = _comparable({**config, **other})
        if expected != used:
            raise ValueError(
                f"the preprocessing of {pretrained or model!r} is not certain: "
                f"open_clip would use {used}, but {origin} has {expected}. Pass the "
                "right one as preprocess, as a dict like these."
            )


def _published(open_clip, model, pretrained, kind):
    """Yield possible origins of the weights and their preprocessing."""
    if kind == "tag":
        yield f"the tag {pretrained!r}", open_clip.get_pretrained_cfg(model, pretrained)
    elif kind == "file":
        beside = Path(pretrained).parent / CONFIG_FILE
        if beside.is_file():
            yield _stated(beside)
        else:
            for tag in open_clip.list_pretrained_tags_by_model(model):
                yield f"the tag {tag!r}", open_clip.get_pretrained_cfg(model, tag)
    elif kind == "local-dir":
        yield _stated(Path(model.removeprefix("local-dir:")) / CONFIG_FILE)
    else:
        path = open_clip.pretrained.download_pretrained_from_hf(
            model.removeprefix("hf-hub:"), filename=CONFIG_FILE
        )
        yield _stated(path)


def _stated(path):
    config = json.loads(Path(path).read_text(encoding="utf-8"))
    return str(path), config.get("preprocess_cfg") or None


def _comparable(config):
    listed = {name: config.get(name) for name in OPEN_CLIP_SETTINGS}
    return json.loads(json.dumps(listed))  # tuples become lists


# ------------------------------------------------------------------ timm


def _build_timm(model, pretrained, overrides, has_callable):
    """Return module, architecture, preprocessing and its configuration."""
    timm = import_optional("timm", "clip", "source='timm'")
    if model.startswith(("hf-hub:", "local-dir:")):
        module = _create_with_weights(timm, model)
    else:
        known = timm.list_models() + timm.list_pretrained()
        _check_names("timm", model, known, pretrained)
        if os.path.isfile(pretrained):
            if overrides is None and not has_callable:
                _check_origin(timm, model)
            module = _create_from_file(timm, model, pretrained)
        else:
            module = _create_with_weights(timm, _with_tag(timm, model, pretrained))
    config = timm.data.resolve_model_data_config(module)
    _check_overrides(overrides, config)
    config |= overrides or {}
    transform = timm.data.create_transform(**config, is_training=False)
    architecture = ["timm", module.pretrained_cfg.get("architecture", model)]
    return module, architecture, transform, config


def _with_tag(timm, model, pretrained):
    """Return the name with its tag, which timm writes after a dot."""
    name, _, tag = model.partition(".")
    if pretrained in (DEFAULT_TAG, tag):
        return model
    tags = [each.partition(".")[2] for each in timm.list_pretrained(f"{name}.*")]
    if tag or pretrained not in tags:
        raise _unknown_name("pretrained", pretrained, f"timm for {model!r}", tags)
    return f"{name}.{pretrained}"


def _create_with_weights(timm, name):
    try:
        with _without_retries(not name.startswith("local-dir:")):
            # With its classifier, since timm then checks that all weights are there.
            module = timm.create_model(name, pretrained=True)
    except Exception as error:
        if isinstance(error, RuntimeError) or name.startswith("local-dir:"):
            raise _unreadable("timm", name, None, error) from error
        raise _not_downloaded("timm", name, None) from error
    module.reset_classifier(0)
    return module


def _create_from_file(timm, name, path):
    module = timm.create_model(name, pretrained=False, num_classes=0)
    try:
        result = timm.models.load_checkpoint(module, path, strict=False)
    except Exception as error:
        raise _unreadable("timm", name, path, error) from error
    heads = module.pretrained_cfg.get("classifier") or ()
    heads = tuple(f"{head}." for head in ([heads] if isinstance(heads, str) else heads))
    unused = [key for key in result.unexpected_keys if not key.startswith(heads)]
    if result.missing_keys or unused:
        problem = (
            f"{len(result.missing_keys)} weights are missing "
            f"({', '.join(result.missing_keys[:3])}), {len(unused)} are not known "
            f"({', '.join(unused[:3])})"
        )
        raise _unreadable("timm", name, path, problem)
    return module


def _check_origin(timm, model):
    """Refuse a file whose preprocessing depends on where its weights come from."""
    if "." in model:
        return
    published = timm.models.get_arch_pretrained_cfgs(model)
    settings = {
        name: tuple(getattr(config, entry) for entry in TIMM_SETTINGS)
        for name, config in published.items()
    }
    if len(set(settings.values())) > 1:
        raise ValueError(
            f"the preprocessing of {model!r} depends on its weights, and a file does "
            "not say which they are. Name their origin as model, one of "
            f"{', '.join(map(repr, settings))}; or pass preprocess."
        )


# ------------------------------------------------------------------ without a network


@contextmanager
def _without_retries(uses_hub=True):
    """Use only downloaded files if the hub is out of reach.

    Its client would ask for every file again and again, for more than a minute.
    """
    from huggingface_hub import constants

    is_offline = constants.HF_HUB_OFFLINE
    if uses_hub and not is_offline and not _is_reachable(constants.ENDPOINT):
        constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = is_offline


def _is_reachable(address):
    try:
        with urlopen(Request(address, method="HEAD"), timeout=SECONDS_TO_ANSWER):
            return True
    except HTTPError:  # an answer, if not a friendly one
        return True
    except OSError:
        return False


# ------------------------------------------------------------------ what may be wrong


def _check_names(source, model, known, pretrained):
    if model not in known:
        raise _unknown_name("model", model, source, known)
    if not pretrained:
        raise ValueError(
            f"pretrained is empty, so {source} would give {model!r} random weights, "
            "and its features would mean nothing. Name a tag, or a file with weights."
        )


def _unknown_name(parameter, name, where, known):
    close = get_close_matches(name, known, n=5, cutoff=0.4) or sorted(known)[:5]
    hint = f" Known are, for example, {', '.join(map(repr, close))}." if close else ""
    what = "a name" if parameter == "model" else "a tag or an existing file"
    return ValueError(
        f"{parameter}={name!r} is not {what} that is known to {where}.{hint} Nothing "
        "was downloaded."
    )


def _not_downloaded(source, model, tag):
    name = f"{model!r}" + (f" with the tag {tag!r}" if tag else "")
    return OSError(
        f"the weights of the {source} model {name} are not on this computer and could "
        "not be fetched; nothing was downloaded. Without a network, copy the "
        'checkpoint here and pass pretrained="/path/to/checkpoint.safetensors", or '
        'for a folder with its configuration model="local-dir:/path/to/folder".'
    )


def _unreadable(source, model, pretrained, error):
    weights = f"the weights {pretrained!r}" if pretrained else "the weights"
    return ValueError(
        f"{weights} could not be loaded into the {source} model {model!r}: {error}"
    )


def _check_overrides(overrides, config):
    """Refuse entries of ``preprocess`` that the library would ignore."""
    unknown = sorted(set(overrides or ()) - set(config))
    if unknown:
        raise ValueError(
            f"preprocess has the unknown entries {unknown}; known are {list(config)}."
        )
