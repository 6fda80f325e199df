"""One-shot federated learning by optimal-transport alignment of features."""

from .alignment import FederatedOTAligner

__version__ = "0.1.0.dev0"

__all__ = ["FederatedOTAligner", "__version__"]
