"""Any metric as a scorer."""

import inspect

from sklearn.metrics import get_scorer, make_scorer


def as_scorer(metric):
    """Scorer ``(estimator, X, y) -> float`` from a name, a scorer or a metric."""
    if isinstance(metric, str):
        return get_scorer(metric)
    if not callable(metric):
        raise ValueError(
            "metric must be the name of a scorer, a scorer, or a function of y_true "
            f"and y_pred; got {metric!r}."
        )
    first = next(iter(inspect.signature(metric).parameters), None)
    return metric if first == "estimator" else make_scorer(metric)
