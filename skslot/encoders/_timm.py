"""Models of timm without their classifier."""

import os

from ._optional import library
from ._weights import (
    DEFAULT_TAG,
    check_overrides,
    no_weights_given,
    not_downloaded,
    unknown_name,
    unreadable,
)

COMPARED = ("mean", "std", "interpolation", "crop_pct", "crop_mode", "input_size")


def build(model, pretrained, overrides, has_callable):
    """Module, architecture, preprocessing and its configuration."""
    timm = library("timm")
    if model.startswith(("hf-hub:", "local-dir:")):
        module = _create_with_weights(timm, model)
    else:
        _check_model(timm, model)
        if not pretrained:
            raise no_weights_given("timm", model)
        if os.path.isfile(pretrained):
            if overrides is None and not has_callable:
                _check_preprocessing(timm, model)
            module = _create_from_file(timm, model, pretrained)
        else:
            module = _create_with_weights(timm, _with_tag(timm, model, pretrained))
    config = timm.data.resolve_model_data_config(module)
    check_overrides(overrides, config)
    config |= overrides or {}
    transform = timm.data.create_transform(**config, is_training=False)
    architecture = ["timm", module.pretrained_cfg.get("architecture", model)]
    return module, architecture, transform, config


def _check_model(timm, model):
    known = timm.list_models() + timm.list_pretrained()
    if model not in known:
        raise unknown_name("model", model, "timm", known)


def _with_tag(timm, model, pretrained):
    """The name with its tag, which timm writes behind a dot."""
    name, _, tag = model.partition(".")
    if pretrained in (DEFAULT_TAG, tag):
        return model
    tags = [each.partition(".")[2] for each in timm.list_pretrained(f"{name}.*")]
    if tag or pretrained not in tags:
        raise unknown_name("pretrained", pretrained, f"timm for {model!r}", tags)
    return f"{name}.{pretrained}"


def _create_with_weights(timm, name):
    try:
        # With its classifier, since timm then checks that all weights are there.
        module = timm.create_model(name, pretrained=True)
    except Exception as error:
        if isinstance(error, RuntimeError) or name.startswith("local-dir:"):
            raise unreadable("timm", name, None, error) from error
        raise not_downloaded("timm", name, None) from error
    module.reset_classifier(0)
    return module


def _create_from_file(timm, name, path):
    module = timm.create_model(name, pretrained=False, num_classes=0)
    try:
        result = timm.models.load_checkpoint(module, path, strict=False)
    except Exception as error:
        raise unreadable("timm", name, path, error) from error
    heads = module.pretrained_cfg.get("classifier") or ()
    heads = tuple(f"{head}." for head in ([heads] if isinstance(heads, str) else heads))
    unused = [key for key in result.unexpected_keys if not key.startswith(heads)]
    if result.missing_keys or unused:
        problem = (
            f"{len(result.missing_keys)} weights are missing "
            f"({', '.join(result.missing_keys[:3])}), {len(unused)} are not known "
            f"({', '.join(unused[:3])})"
        )
        raise unreadable("timm", name, path, problem)
    return module


def _check_preprocessing(timm, model):
    """Refuse a file whose preprocessing depends on where its weights come from."""
    if "." in model:
        return
    published = timm.models.get_arch_pretrained_cfgs(model)
    settings = {
        name: tuple(getattr(config, entry) for entry in COMPARED)
        for name, config in published.items()
    }
    if len(set(settings.values())) > 1:
        raise ValueError(
            f"the preprocessing of {model!r} depends on its weights, and a file does "
            "not say which they are. Name their origin as model, one of "
            f"{', '.join(map(repr, settings))}; or pass preprocess."
        )
