"""Scores per client, and scorers that hand client ids on."""

from ._client_scores import ClientScorer, client_scores

__all__ = ["ClientScorer", "client_scores"]
