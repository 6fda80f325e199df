"""Pictures and reports: what alignment does to the features of each client."""

from ._alignment import AlignmentDisplay
from ._alignment_report import alignment_report
from ._diagnose import diagnose
from ._heat_maps import ClientDistanceDisplay, LabelShiftDisplay
from ._outliers import ClientOutlierDisplay
from ._tau_path import TauPathDisplay
from ._variance_components import VarianceComponentsDisplay

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
