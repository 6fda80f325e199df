"""The paper's experiments, on embedded data or on features from a file."""

from ._demo import DemoResult, run_demo
from ._features import FeatureSet
from ._paper import PaperRow, paper_notes, paper_results
from ._pca import pca_figures
from ._protocol import paper_split
from ._runs import run_experiment
from ._tables import ExperimentResult, ResultRow

__all__ = [
    "DemoResult",
    "ExperimentResult",
    "FeatureSet",
    "PaperRow",
    "ResultRow",
    "paper_notes",
    "paper_results",
    "paper_split",
    "pca_figures",
    "run_demo",
    "run_experiment",
]
