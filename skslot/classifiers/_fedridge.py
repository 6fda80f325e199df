"""FedRidge: least squares to one-hot labels, from one round of class statistics."""

import re
from numbers import Integral, Real

import numpy as np
from scipy.linalg import cho_solve
from sklearn.base import clone
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.validation import check_array

from .._docstrings import document
from .._sklearn_compat import HasMethods, Interval, StrOptions
from ._gaussian import ClassStatisticsClassifier, factorise

ALPHA_REMEDY = "so alpha=0 or a tiny alpha cannot invert it; use a larger one."


@document
class FedRidgeClassifier(ClassStatisticsClassifier):
    """Federated ridge regression of one-hot labels, in one round.

    Clients send class counts, class means and one covariance, which is the message of
    :class:`FedCGSClassifier`. The server pools them and computes the ridge regression
    of the one-hot labels of all samples in closed form. The result does not depend on
    how samples are distributed over clients. :meth:`as_afl` and :meth:`as_fed3r` are
    the settings of AFL [1]_ and Fed3R [2]_, which compute the same result from other
    messages.

    Read more in the :doc:`User Guide </user_guide/classifiers>`.

    Parameters
    ----------
    alpha : float, default=0.1
        Penalty on the weights.
    scale_alpha : bool, default=True
        Whether ``alpha`` is relative to the mean feature variance and the number of
        samples, so that neither the unit of the features nor the number of samples
        matters. If False, ``alpha`` is added to sums over samples, as in
        :class:`sklearn.linear_model.Ridge`.
    fit_intercept : bool or "penalized", default=True
        Whether to fit an intercept. ``"penalized"`` treats it as the weight of a
        feature that is one in all samples, and penalizes it by ``alpha``, too.
    normalize : bool, default=False
        Whether to divide the weights and the intercept of each class by the norm of the
        weights, so that weights of rare and frequent classes have equal length.
    class_weight : dict, "balanced" or None, default=None
        Weight of the samples of each class. ``"balanced"`` gives all classes equal
        weight. Because clients send one covariance for all classes, all classes are
        assumed to have the same covariance around their means.
    feature_map : transformer, default=None
        Transformer, such as random features, that is applied before the linear
        classifier. All clients must use the same map without sharing samples: each
        client clones it and fits it to zeros. Its ``fit`` must therefore depend only on
        the number of features, and its ``random_state`` must be an integer. The size of
        the message is quadratic in the number of output features. It cannot be combined
        with ``aligner``; put the aligner before this classifier in a Pipeline instead.
    {aligner}
        Predictions equal those of a Pipeline of this aligner and this classifier.
    {privacy}
    {client_column}
    {screen}
    {n_jobs}
    {verbose}

    Attributes
    ----------
    {classes_}
    {coef_}
        With ``feature_map``, they apply to its output.
    {intercept_}
    {clients_report_}
    {aligner_}
    {n_features_in_}
    {feature_names_in_}

    See Also
    --------
    FedCGSClassifier : A Gaussian classifier from the same message.
    sklearn.linear_model.Ridge : Equivalent on pooled samples and one-hot labels with
        ``scale_alpha=False``.

    Notes
    -----
    Scores are estimates of one-hot labels. ``predict_proba`` is their softmax. It
    orders classes correctly, but is much too uniform to be used as a probability.

    With ``feature_map``, the ``encoder`` of a message names the map, so that a server
    rejects messages made by different maps. Calling ``with_encoder`` on the message
    replaces this name and disables the check.

    References
    ----------
    .. [1] R. He, K. Tong, D. Fang, H. Sun, Z. Zeng, H. Li, T. Chen, H. Zhuang. "AFL: A
       Single-Round Analytic Approach for Federated Learning with Pre-trained Models".
       CVPR, 2025.
    .. [2] E. Fani, R. Camoriano, B. Caputo, M. Ciccone. "Accelerating Heterogeneous
       Federated Learning with Closed-form Classifiers". ICML, 2024.

    Examples
    --------
    >>> from sklearn.kernel_approximation import RBFSampler
    >>> from skslot import FedRidgeClassifier
    >>> from skslot.datasets import load_digit_scanners
    >>> data = load_digit_scanners()
    >>> X, y, site = data.data, data.target, data.client_ids
    >>> FedRidgeClassifier().fit(X, y, client_ids=site).score(X, y) > 0.85
    True
    >>> features = RBFSampler(gamma=0.0005, n_components=500, random_state=0)
    >>> curved = FedRidgeClassifier(0.001, feature_map=features)
    >>> curved.fit(X, y, client_ids=site).score(X, y) > 0.95
    True
    """

    _parameter_constraints: dict = {
        **ClassStatisticsClassifier._parameter_constraints,
        "alpha": [Interval(Real, 0, None, closed="left")],
        "scale_alpha": ["boolean"],
        "fit_intercept": ["boolean", StrOptions({"penalized"})],
        "normalize": ["boolean"],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "feature_map": [HasMethods(["fit", "transform"]), None],
        "aligner": ClassStatisticsClassifier._aligner_constraint,
    }

    def __init__(
        self,
        alpha=0.1,
        *,
        scale_alpha=True,
        fit_intercept=True,
        normalize=False,
        class_weight=None,
        feature_map=None,
        aligner=None,
        privacy=None,
        client_column=None,
        screen="warn",
        n_jobs=None,
        verbose=0,
    ):
        self.alpha = alpha
        self.scale_alpha = scale_alpha
        self.fit_intercept = fit_intercept
        self.normalize = normalize
        self.class_weight = class_weight
        self.feature_map = feature_map
        self.aligner = aligner
        self.privacy = privacy
        self.client_column = client_column
        self.screen = screen
        self.n_jobs = n_jobs
        self.verbose = verbose

    @classmethod
    def as_afl(cls, **params):
        """Make a classifier with the setting of AFL.

        Least squares without intercept and without penalty (``alpha=0``). AFL penalizes
        the problem of each client, and removes the sum of these penalties from the
        result. As in AFL, all clients together need more samples than features, and no
        feature may be constant.

        Parameters
        ----------
        **params : dict
            Parameters that override the setting.

        Returns
        -------
        classifier : FedRidgeClassifier
            Unfitted classifier.
        """
        return cls(**{"alpha": 0.0, "fit_intercept": False, **params})

    @classmethod
    def as_fed3r(cls, **params):
        """Make a classifier with the setting of Fed3R.

        The penalty is ``alpha=0.01`` on sums over samples (``scale_alpha=False``),
        also on the intercept (``fit_intercept="penalized"``), and weights have length
        one (``normalize=True``). For the variant with random features, Fed3R-RF, set
        ``feature_map``.

        Parameters
        ----------
        **params : dict
            Parameters that override the setting.

        Returns
        -------
        classifier : FedRidgeClassifier
            Unfitted classifier.
        """
        paper = {
            "alpha": 0.01,
            "scale_alpha": False,
            "fit_intercept": "penalized",
            "normalize": True,
        }
        return cls(**{**paper, **params})

    def linear_model(self):
        if getattr(self, "_feature_map", None) is not None:
            raise ValueError(
                "FedRidgeClassifier with a feature_map is linear after the map only, "
                "so there is no linear model to send; fit it without feature_map, or "
                "to features that are mapped before."
            )
        return super().linear_model()

    def _validate_params(self):
        super()._validate_params()
        if self.feature_map is not None and self.aligner is not None:
            raise ValueError(
                "aligner moves features as they are, not those after feature_map; put "
                "it before this classifier in a Pipeline instead."
            )

    def _summarize(self, X, y, classes, client, seed):
        if self.feature_map is None:
            return super()._summarize(X, y, classes, client, seed)
        check_is_shared(self.feature_map, X.shape[1])
        mapped = map_features(self.feature_map, X)
        message = super()._summarize(mapped, y, classes, client, seed)
        return message.with_encoder(name_map(self.feature_map, X.shape[1]))

    def _aggregate(self, messages, seed):
        super()._aggregate(messages, seed)
        if self._feature_map is not None:
            del self.n_features_in_  # of the messages, which are on mapped features
            n_features = features_before(self._encoder)
            if n_features is not None:
                self.n_features_in_ = n_features + (self.client_column is not None)
        return self

    def _fit_head(self, pooled):
        # parameters that are set after fit wait for the next one
        self._feature_map = (
            None if self.feature_map is None else clone(self.feature_map)
        )
        if self.class_weight is not None:
            pooled = pooled.weighted(self._weights(pooled))
        self.coef_, self.intercept_ = ridge_head(
            pooled, self.alpha, self.scale_alpha, self.fit_intercept
        )
        if self.normalize:
            lengths = np.linalg.norm(self.coef_, axis=1)
            lengths[lengths == 0] = 1.0
            self.coef_ /= lengths[:, None]
            self.intercept_ /= lengths

    def _weights(self, pooled):
        """Weight of a row of each class."""
        if self.class_weight == "balanced":
            return pooled.n_samples / (len(pooled.counts) * pooled.counts)
        classes = pooled.classes
        weights = compute_class_weight(self.class_weight, classes=classes, y=classes)
        if not ((weights > 0) & (weights < np.inf)).all():
            raise ValueError(
                f"class_weight must have positive numbers, got {self.class_weight!r}."
            )
        return weights

    def _scores(self, X):
        if self._feature_map is not None:
            X = map_features(self._feature_map, X)
        return super()._scores(X)


def ridge_head(pooled, alpha, scale_alpha=True, fit_intercept=True):
    """Weights and intercepts of the least squares fit to one-hot labels.

    All sums are divided by the number of rows. With a penalty q on the intercept, it is
    (1 - s) (shares - coef mean) where s = q / (1 + q), and putting that in leaves the
    equations of an intercept without penalty, but for the share s of the mean that
    stays in. So s = 0 is an intercept without penalty, and s = 1 is no intercept.
    """
    covariance, mean = pooled.covariance("total"), pooled.mean
    shares = pooled.counts / pooled.n_samples
    penalty = alpha if scale_alpha else alpha / pooled.n_samples
    stays = 0.0 if fit_intercept else 1.0
    if fit_intercept == "penalized":
        stays = penalty / (1.0 + penalty)
    covariance += stays * np.outer(mean, mean)
    if scale_alpha:
        penalty *= np.trace(covariance) / len(mean)
    covariance.flat[:: len(mean) + 1] += penalty
    factor = factorise(covariance, pooled.means, pooled.n_samples, ALPHA_REMEDY)
    if factor is None:
        return np.zeros_like(pooled.means), (1.0 - stays) * shares
    moments = shares[:, None] * (pooled.means - (1.0 - stays) * mean)
    coef = cho_solve((factor, True), moments.T).T
    return coef, (1.0 - stays) * (shares - coef @ mean)


def map_features(feature_map, X):
    """Map samples by a map that is fitted to their number of columns alone."""
    fitted = clone(feature_map).fit(np.zeros((2, X.shape[1])))
    return check_array(fitted.transform(X), dtype=(np.float64, np.float32), order="C")


def check_is_shared(feature_map, n_features):
    """Reject a map that would differ between clients."""
    for name, value in feature_map.get_params().items():
        if name.split("__")[-1] == "random_state" and not isinstance(value, Integral):
            raise ValueError(
                f"feature_map has {name}={value!r}, so each client would draw a map of "
                f"its own; set it to an integer that all clients share."
            )
    rows = np.random.default_rng(0).uniform(size=(16, n_features))
    first, second = (
        np.asarray(clone(feature_map).fit(some).transform(rows))
        for some in (rows[:6], rows[6:])
    )
    if not np.array_equal(first, second):
        raise ValueError(
            f"feature_map {type(feature_map).__name__} depends on the rows that it is "
            "fitted to, which clients do not share; choose one whose fit needs no more "
            "than the number of features, such as RBFSampler or PolynomialCountSketch "
            "with numbers for gamma and random_state."
        )


def name_map(feature_map, n_features):
    """Return a fingerprint of the map and its number of input features."""
    params = sorted(feature_map.get_params(deep=False).items())
    listed = ", ".join(f"{name}={value!r}" for name, value in params)
    return f"{n_features} features through {type(feature_map).__name__}({listed})"


def features_before(fingerprint):
    """Return the number of input features in a fingerprint of :func:`name_map`.

    None if the fingerprint is of another kind.
    """
    match = re.match(r"(\d+) features through ", fingerprint or "")
    return int(match[1]) if match else None
