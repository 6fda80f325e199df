"""Scores per client, and scorers that hand client ids on."""

from ._client_scores import client_scores, make_client_scorer

__all__ = ["client_scores", "make_client_scorer"]
