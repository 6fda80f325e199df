"""Frozen encoders: images to features, each image once."""

from ._encoder import FrozenEncoder, ImageReadError

__all__ = ["FrozenEncoder", "ImageReadError"]
