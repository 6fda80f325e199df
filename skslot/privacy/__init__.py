"""Differential privacy for what clients send."""

from ._mechanism import gaussian_noise_scale
from ._release import PrivacyBudget

__all__ = ["PrivacyBudget", "gaussian_noise_scale"]
