"""What needs packages that are not always installed."""


def torch_side():
    """The modules that import torch and Pillow, when they are first needed."""
    try:
        import PIL  # noqa: F401
        import torch  # noqa: F401

        from . import _backbones, _images, _loop
    except ImportError as error:
        raise ImportError(
            "FrozenEncoder needs torch and Pillow, and one of them is missing. "
            'Install them with: pip install "skslot[clip]"'
        ) from error
    return _backbones, _images, _loop


def library(name):
    """The module open_clip or timm, or an error that names the extra."""
    try:
        if name == "open_clip":
            import open_clip as module
        else:
            import timm as module
    except ImportError as error:
        raise ImportError(
            f"source={name!r} needs {name}, which is missing. Install it with: "
            'pip install "skslot[clip]"'
        ) from error
    return module
