"""Runnable experiments: the demo, and what the paper measured."""

from ._demo import DemoResult, run_demo

__all__ = ["DemoResult", "run_demo"]
