"""The ``skslot`` command: one module per group of commands."""

from ._main import main

__all__ = ["main"]
