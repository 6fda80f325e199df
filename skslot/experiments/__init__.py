"""Experiments on embedded data or on features from a file: the paper's, and ours."""

from ._demo import run_demo
from ._feature_set import FeatureSet
from ._leaderboard import Leaderboard
from ._methods import compare_methods
from ._paper_tables import ExperimentResult, paper_results
from ._runs import run_experiment

__all__ = [
    "ExperimentResult",
    "FeatureSet",
    "Leaderboard",
    "compare_methods",
    "paper_results",
    "run_demo",
    "run_experiment",
]
