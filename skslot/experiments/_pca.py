"""The two figures of the paper's appendix."""

import numpy as np

from ..alignment import FederatedOTAligner
from ._features import require_labels

TAUS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
ALPHA = 0.1


def pca_figures(data):
    """Draw features for several strengths of the alignment, as the paper does.

    The paper draws half of the classes and does not say which rows. These are the
    first half of the classes, and the training rows of the first partition with
    alpha = 0.1: what the reference is made of and a classifier is trained on.

    Parameters
    ----------
    data : FeatureSet
        What to draw.

    Returns
    -------
    figures : dict of str to matplotlib Figure
        One coloured by "client", one by "class".

    See Also
    --------
    run_experiment : The experiments that end in a table.
    skslot.inspection.AlignmentDisplay : Draws the figures.

    Examples
    --------
    >>> from skslot.experiments import FeatureSet, pca_figures
    >>> figures = pca_figures(FeatureSet.embedded())
    >>> list(figures)
    ['client', 'class']
    """
    from ..inspection import AlignmentDisplay

    half = _half_of_the_classes(data)
    rows, _ = half.partition(ALPHA, 0)
    X, y, ids = half.X[rows], half.y[rows], half.client_ids[rows]
    aligner = FederatedOTAligner().fit(X, client_ids=ids)
    display = AlignmentDisplay.from_estimator(
        aligner, X, y, ids, taus=TAUS, color_by="client"
    )
    return {
        "client": display.figure_,
        "class": display.plot(color_by="class").figure_,
    }


def _half_of_the_classes(data):
    require_labels(data)
    classes = np.unique(data.y)
    return data.select(np.isin(data.y, classes[: max(2, len(classes) // 2)]))
