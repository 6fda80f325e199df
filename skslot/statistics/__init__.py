"""What one client knows about its own features."""

from ._moments import FeatureMoments

__all__ = ["FeatureMoments"]
