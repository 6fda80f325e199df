"""The numbers that the paper reports."""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True)
class PaperRow:
    """One row of a table of the paper.

    Parameters
    ----------
    experiment : str
        Name of the experiment, as in ``skslot bench``.
    dataset : str
        "Office-Home", "Digits" or "DomainNet".
    backbone : str
        The frozen encoder.
    alpha : float or None
        Concentration of the label shift; None for no label shift.
    n_clients : int
        Number of clients.
    method : str
        "FedAvg" (many rounds), "O-FedAvg", "FedCGS" or "FedPFT".
    tau : float
        Strength of the alignment; 0 is none.
    accuracy : dict or None
        Accuracy of each domain in percent, where the paper has it.
    mean : float
        Their mean, as printed.
    std : float
        Their standard deviation, as printed.
    gain : float or None
        Gain over no alignment, as printed.

    See Also
    --------
    paper_results : All rows.

    Examples
    --------
    >>> from skslot.experiments import paper_results
    >>> paper_results("main", "Office-Home")[-1].mean
    80.74
    """

    experiment: str
    dataset: str
    backbone: str
    alpha: float | None
    n_clients: int
    method: str
    tau: float
    accuracy: dict | None
    mean: float
    std: float
    gain: float | None


def paper_results(experiment=None, dataset=None):
    """Rows of the paper's tables.

    Parameters
    ----------
    experiment : str, default=None
        Name of an experiment; all by default.
    dataset : str, default=None
        Name of a data set; all by default.

    Returns
    -------
    rows : list of PaperRow
        In the order of the paper.

    See Also
    --------
    paper_notes : Which of them do not add up.

    Examples
    --------
    >>> from skslot.experiments import paper_results
    >>> rows = paper_results("main", "Digits")
    >>> rows[1].method, rows[1].mean
    ('O-FedAvg', 64.7)
    """
    return [
        PaperRow(**row)
        for row in _file()["rows"]
        if experiment in (None, row["experiment"]) and dataset in (None, row["dataset"])
    ]


def paper_notes():
    """Numbers of the paper that do not follow from its other numbers.

    Returns
    -------
    notes : list of dict
        For each the row, the field, what is printed and what it should be.

    See Also
    --------
    paper_results : The numbers.

    Examples
    --------
    >>> from skslot.experiments import paper_notes
    >>> note = paper_notes()[-1]
    >>> note["field"], note["printed"], note["recomputed"]
    ('gain', 5.97, 5.73)
    """
    return _file()["notes"]


@cache
def _file():
    return json.loads(files(__package__).joinpath("paper_results.json").read_text())
