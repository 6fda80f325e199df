"""What needs packages that are not always installed."""


def torch_heads():
    """The module that imports torch and skorch, when it is first needed."""
    try:
        import skorch  # noqa: F401
        import torch  # noqa: F401

        from . import _torch_heads
    except ImportError as error:
        raise ImportError(
            "FedAvgClassifier trains with torch and skorch, and one of them is "
            'missing. Install them with: pip install "skslot[torch]"'
        ) from error
    return _torch_heads
