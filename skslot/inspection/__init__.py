"""Displays, diagnosis and reports of clients and of their alignment."""

from ._alignment import AlignmentDisplay, ClientDistanceDisplay, alignment_report
from ._clients import (
    ClientOutlierDisplay,
    LabelShiftDisplay,
    VarianceComponentsDisplay,
)
from ._diagnose import diagnose
from ._report import client_report, message_report
from ._tau_path import TauPathDisplay

__all__ = [
    "AlignmentDisplay",
    "ClientDistanceDisplay",
    "ClientOutlierDisplay",
    "LabelShiftDisplay",
    "TauPathDisplay",
    "VarianceComponentsDisplay",
    "alignment_report",
    "client_report",
    "diagnose",
    "message_report",
]
