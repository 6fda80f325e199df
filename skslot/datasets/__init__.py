"""Data sets with clients, available offline: real images and simulated features."""

from ._digit_scanners import load_digit_scanners
from ._shifted_clients import make_shifted_clients

__all__ = ["load_digit_scanners", "make_shifted_clients"]
