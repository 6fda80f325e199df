"""Pictures and reports: what alignment does to the features of each client."""

from ._alignment import AlignmentDisplay, ClientDistanceDisplay, alignment_report
from ._clients import (
    ClientOutlierDisplay,
    LabelShiftDisplay,
    VarianceComponentsDisplay,
)
from ._diagnose import diagnose
from ._tau_path import TauPathDisplay

__all__ = [
    "AlignmentDisplay",
    "ClientDistanceDisplay",
    "ClientOutlierDisplay",
    "LabelShiftDisplay",
    "TauPathDisplay",
    "VarianceComponentsDisplay",
    "alignment_report",
    "diagnose",
]
