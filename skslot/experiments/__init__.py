"""Runnable experiments: the demo, and what the paper measured."""

from ._demo import DemoResult, run_demo
from ._protocol import load_features, paper_split

__all__ = ["DemoResult", "load_features", "paper_split", "run_demo"]
