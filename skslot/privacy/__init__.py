"""Differential privacy for what clients send."""

from ._budget import PrivacyBudget, PrivateStatistics
from ._mechanism import gaussian_noise_scale

__all__ = ["PrivacyBudget", "PrivateStatistics", "gaussian_noise_scale"]
