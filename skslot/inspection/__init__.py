"""Pictures and reports: what alignment does to the features of each client."""

from ._alignment import AlignmentDisplay
from ._distances import ClientDistanceDisplay
from ._label_shift import LabelShiftDisplay
from ._report import AlignmentReport, alignment_report
from ._tau_path import TauPathDisplay

__all__ = [
    "AlignmentDisplay",
    "AlignmentReport",
    "ClientDistanceDisplay",
    "LabelShiftDisplay",
    "TauPathDisplay",
    "alignment_report",
]
