"""Experiments on embedded data or on features from a file: the paper's, and ours."""

from ._demo import run_demo
from ._experiments import compare_methods, run_experiment
from ._feature_set import FeatureSet
from ._results import ExperimentResult, Leaderboard, paper_results

__all__ = [
    "ExperimentResult",
    "FeatureSet",
    "Leaderboard",
    "compare_methods",
    "paper_results",
    "run_demo",
    "run_experiment",
]
