"""Differential privacy for what clients send."""

from ._budget import PrivacyBudget, PrivateStatistics, gaussian_noise_scale

__all__ = ["PrivacyBudget", "PrivateStatistics", "gaussian_noise_scale"]
