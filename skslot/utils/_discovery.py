"""Finding the estimators of the package."""

import inspect
import pkgutil
from importlib import import_module

from sklearn.base import BaseEstimator

import skslot


def all_estimators(type_filter=None):
    """List the estimators of skslot.

    Parameters
    ----------
    type_filter : {"classifier", "aligner", "preprocessor"}, default=None
        Which of them; by default all. "classifier" are those with the two steps of
        :class:`~skslot.classifiers.OneShotClassifier`, "preprocessor" those that treat
        all clients alike.

    Returns
    -------
    estimators : list of tuple
        Pairs of a name and a class, sorted by name; base classes are left out.

    See Also
    --------
    parametrize_with_checks : Checks each of them.
    sklearn.utils.discovery.all_estimators : Those of scikit-learn.

    Examples
    --------
    >>> from skslot.utils import all_estimators
    >>> [name for name, _ in all_estimators("aligner")]
    ['FederatedOTAligner', 'MixedEffectsAligner']
    """
    from ..alignment import FederatedAligner
    from ..classifiers import OneShotClassifier

    if type_filter not in (None, "classifier", "aligner", "preprocessor"):
        raise ValueError(
            "type_filter must be None, 'classifier', 'aligner' or 'preprocessor', got "
            f"{type_filter!r}."
        )
    found = {}
    for info in pkgutil.iter_modules(skslot.__path__):
        if info.ispkg and not info.name.startswith("_"):
            module = import_module(f"skslot.{info.name}")
            found |= {name: getattr(module, name) for name in module.__all__}
    return sorted(
        (name, item)
        for name, item in found.items()
        if inspect.isclass(item)
        and issubclass(item, BaseEstimator)
        and hasattr(item, "fit")
        and item not in (OneShotClassifier, FederatedAligner)  # base classes
        and type_filter in (None, _type_of(item))
    )


def _type_of(estimator):
    if not hasattr(estimator, "client_update"):
        return None
    if not hasattr(estimator, "transform"):
        return "classifier"
    return "aligner" if hasattr(estimator, "client_map") else "preprocessor"
