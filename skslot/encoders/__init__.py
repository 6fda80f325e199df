"""Frozen encoders: images to features, each image once."""

from ._cache import CacheInfo
from ._encoder import FrozenEncoder
from ._failures import ImageReadError

__all__ = ["CacheInfo", "FrozenEncoder", "ImageReadError"]
