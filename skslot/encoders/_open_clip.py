"""Image towers of open_clip, with the weights and preprocessing that belong to them."""

import json
import os
from pathlib import Path

import torch

from ._optional import library
from ._weights import (
    check_overrides,
    no_weights_given,
    not_downloaded,
    unknown_name,
    unreadable,
)

# What must be the same for features to mean the same; the size is the model's.
COMPARED = ("mean", "std", "interpolation", "resize_mode")
CONFIG_FILE = "open_clip_config.json"


def build(model, pretrained, overrides, has_callable):
    """Module, architecture, preprocessing and its configuration."""
    open_clip = library("open_clip")
    if model.startswith(("hf-hub:", "local-dir:")):
        kind, pretrained = model.partition(":")[0], None
    else:
        model = model.replace("/", "-")
        kind = _kind_of_weights(open_clip, model, pretrained)
    clip = _create(open_clip, model, pretrained, kind, overrides)
    config = open_clip.get_model_preprocess_cfg(clip)
    check_overrides(overrides, config)
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
    """The image tower of CoCa without the tokens that it also returns."""

    def __init__(self, tower):
        super().__init__()
        self.tower = tower

    def forward(self, images):
        return self.tower(images)[0]


def _kind_of_weights(open_clip, model, pretrained):
    """Whether ``pretrained`` is a tag or a file."""
    if model not in open_clip.list_models():
        raise unknown_name("model", model, "open_clip", open_clip.list_models())
    if not pretrained:
        raise no_weights_given("open_clip", model)
    if open_clip.is_pretrained_cfg(model, pretrained):
        return "tag"
    if os.path.isfile(pretrained):
        return "file"
    tags = open_clip.list_pretrained_tags_by_model(model)
    raise unknown_name("pretrained", pretrained, f"open_clip for {model!r}", tags)


def _create(open_clip, model, pretrained, kind, overrides):
    if kind == "tag":
        tag = open_clip.get_pretrained_cfg(model, pretrained)
        _check_activation(open_clip, model, pretrained, tag)
        try:
            open_clip.download_pretrained(tag)
        except Exception as error:
            raise not_downloaded("open_clip", model, pretrained) from error
    try:
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
            raise not_downloaded("open_clip", model, None) from error
        raise unreadable("open_clip", model, pretrained, error) from error


def _check_activation(open_clip, model, pretrained, tag):
    """Refuse weights that were trained with another activation; open_clip warns."""
    needed = tag.get("quick_gelu", False)
    if needed != open_clip.get_model_config(model).get("quick_gelu", False):
        plain = model.removesuffix("-quickgelu")
        how, name = ("with", f"{plain}-quickgelu") if needed else ("without", plain)
        raise ValueError(
            f"the weights {pretrained!r} were trained {how} QuickGELU: use "
            f"model={name!r}."
        )


def _architecture(open_clip, model):
    """Of the image tower; the name, which may be a local path, is left out."""
    config = open_clip.get_model_config(model)
    parts = ("embed_dim", "vision_cfg", "quick_gelu")
    return ["open_clip", {part: config.get(part) for part in parts}]


# ------------------------------------------------------------------ preprocessing


def _check_preprocessing(open_clip, model, pretrained, kind, config):
    """Refuse what open_clip falls back to when it does not know better.

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
    """Preprocessing by origin, wherever the weights may come from."""
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
    listed = {name: config.get(name) for name in COMPARED}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in listed.items()
    }
