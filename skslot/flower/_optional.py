"""What needs Flower, which is not always installed."""

import warnings


def flower_modules():
    """The modules ``flwr.app``, ``flwr.clientapp`` and ``flwr.serverapp``."""
    try:
        with warnings.catch_warnings():
            # what it imports in turn uses deprecated names of each other
            warnings.simplefilter("ignore", DeprecationWarning)
            import flwr.app
            import flwr.clientapp
            import flwr.serverapp
    except ImportError as error:
        raise ImportError(
            "Flower is missing, and skslot.flower makes apps for it. Install it with: "
            'pip install "skslot[flower]"'
        ) from error
    return flwr.app, flwr.clientapp, flwr.serverapp
