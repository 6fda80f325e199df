"""Scores per client, and scorers that hand client ids on."""

from ._client_scores import ClientScores, client_scores
from ._scorer import ClientScorer, make_client_scorer

__all__ = ["ClientScorer", "ClientScores", "client_scores", "make_client_scorer"]
