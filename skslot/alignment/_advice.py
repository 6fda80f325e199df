"""When alignment is likely to cost accuracy, by what labels and rows say."""

import numpy as np

from .._text import shorten
from .._warnings import warn_user

# Where a smaller share of (client, class) cells is empty, or a client has fewer rows
# per feature, a strength of 0.4 lost accuracy; the user guide has the measurements.
FEW_EMPTY_CELLS = 0.05
FEW_ROWS = 0.05


class AlignmentWarning(UserWarning):
    """A fixed strength of the alignment is likely to cost accuracy.

    :class:`~skslot.FederatedOTAligner` warns by it in ``fit``, also inside a
    classifier. When, and by what measurements, is in :ref:`when_not_to_align`.

    Attributes
    ----------
    remedy : str
        What to do instead, with which the text of each warning ends.

    See Also
    --------
    skslot.inspection.diagnose : Says what to do instead.

    Examples
    --------
    Where you know better:

    >>> import warnings
    >>> from skslot.alignment import AlignmentWarning
    >>> warnings.filterwarnings("ignore", category=AlignmentWarning)
    """

    remedy = (
        "Take MixedEffectsClassifier or tau='auto', search for tau by "
        "FederatedGridSearchCV, or ask skslot.inspection.diagnose."
    )


def advise_on_classes(class_counts):
    """Warn if clients hold the same classes, so that there is nothing to align.

    ``class_counts`` has the number of rows of each class, for each client.
    """
    held = [{c for c, count in each.items() if count > 0} for each in class_counts]
    held = [each for each in held if each]
    n_classes = len(set().union(*held))
    n_cells = len(held) * n_classes
    n_empty = n_cells - sum(map(len, held))
    if min(len(held), n_classes) > 1 and n_empty < FEW_EMPTY_CELLS * n_cells:
        _warn(
            f"{n_empty} of {n_cells} (client, class) cells are empty: clients have "
            "like classes, so that a classifier learns by itself how they differ"
        )


def advise_on_rows(n_samples, n_features):
    """Warn of clients, of those whose number of rows is given, with few of them."""
    few = {c: n for c, n in n_samples.items() if n < FEW_ROWS * n_features}
    if len(n_samples) > 1 and few:
        most = max(few.values()) / n_features
        _warn(
            f"client {shorten(few)} has {most:.1g} rows per feature or less, too few "
            "for a map"
        )


def _warn(reason):
    warn_user(
        f"alignment is likely to cost accuracy: {reason}. {AlignmentWarning.remedy}",
        AlignmentWarning,
    )


def count_classes(y, groups):
    """Rows of each class at each client; none if these are no labels."""
    n_rows = sum(len(rows) for _, rows in groups.items())
    try:
        y = np.asarray(y)
        classes, labels = np.unique(y, return_inverse=True)
    except (TypeError, ValueError):  # such as None among text
        return []
    is_continuous = y.dtype.kind == "f" and not np.array_equal(y, np.floor(y))
    if y.shape not in ((n_rows,), (n_rows, 1)) or is_continuous:
        return []
    labels = labels.ravel()
    return [
        dict(enumerate(np.bincount(labels[rows], minlength=len(classes)).tolist()))
        for rows in groups.rows
    ]
