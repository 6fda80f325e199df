"""Data sets with clients: real images, simulated features, files of your own."""

from ._digit_scanners import load_digit_scanners
from ._features import ClientSamples, load_features
from ._images import (
    load_digits_benchmark,
    load_domainnet,
    load_image_folder,
    load_office_home,
)
from ._plan import StudyPlan
from ._shifted_clients import make_shifted_clients

__all__ = [
    "ClientSamples",
    "StudyPlan",
    "load_digit_scanners",
    "load_digits_benchmark",
    "load_domainnet",
    "load_features",
    "load_image_folder",
    "load_office_home",
    "make_shifted_clients",
]
