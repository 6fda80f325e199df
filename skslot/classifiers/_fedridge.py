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
    """Federated least squares to one-hot labels, in one round.

    Clients send class counts, class means and one covariance, the message of
    :class:`FedCGSClassifier`. The server adds them up and has the ridge regression of
    all rows on their labels in closed form. How the rows are spread over clients does
    not change the result. :meth:`as_afl` and :meth:`as_fed3r` are the settings of AFL
    [1]_ and Fed3R [2]_, which send other numbers to the same end.

    Read more in the :doc:`User Guide </user_guide/classifiers>`.

    Parameters
    ----------
    alpha : float, default=0.1
        Penalty on the weights.
    scale_alpha : bool, default=True
        Whether ``alpha`` is in units of the mean variance of a feature, summed over
        rows, so that neither the unit of the features nor the number of rows matters.
        With False it is added to sums over rows as it is, as in
        :class:`sklearn.linear_model.Ridge`.
    fit_intercept : bool or "penalized", default=True
        Whether there is an intercept. "penalized" takes it as the weight of a feature
        that is one in all rows, and penalises it by ``alpha`` too; the unit of that
        feature is one.
    normalize : bool, default=False
        Whether weights and intercept of each class are divided by the norm of the
        weights, so that rare classes have as long weights as others.
    class_weight : dict, "balanced" or None, default=None
        Weight of the rows of each class; "balanced" makes all classes count the same.
        As there is one covariance for all classes, they are taken to have the same one
        around their means.
    feature_map : transformer, default=None
        Map of the features, such as a random one, that the classifier is linear after.
        All clients must have the same, without having each other's rows: each clones it
        and fits it to rows of zeros. So ``fit`` must need no more than the number of
        features, and ``random_state`` must be an integer. The message is on the
        features after the map, and grows with their number squared. Not together with
        ``aligner``; put that before the classifier in a Pipeline.
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
    sklearn.linear_model.Ridge : The same from pooled rows and one-hot labels with
        ``scale_alpha=False``.

    Notes
    -----
    Scores are estimates of one-hot labels. ``predict_proba`` is their softmax, which
    orders classes as the scores do but is far too even to be taken for a probability.

    A message on mapped features names the map as its ``encoder``, so that a server
    refuses messages that were made by different maps. Who calls ``with_encoder`` on it
    says something else instead, and has to see to that.

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

        Least squares without intercept and without penalty (``alpha=0``): AFL penalises
        what each client solves, and takes the sum of these penalties out of the result
        again. All clients together need more rows than features, and features that
        vary, as in AFL.

        Parameters
        ----------
        **params : dict
            Parameters that are to differ from it.

        Returns
        -------
        classifier : FedRidgeClassifier
            An unfitted classifier.
        """
        return cls(**{"alpha": 0.0, "fit_intercept": False, **params})

    @classmethod
    def as_fed3r(cls, **params):
        """Make a classifier with the setting of Fed3R.

        The penalty ``alpha=0.01`` on sums over rows (``scale_alpha=False``), also on
        the intercept (``fit_intercept="penalized"``), and weights of length one
        (``normalize=True``). Random features, as in the method that Fed3R calls
        Fed3R-RF, are its ``feature_map``.

        Parameters
        ----------
        **params : dict
            Parameters that are to differ from it.

        Returns
        -------
        classifier : FedRidgeClassifier
            An unfitted classifier.
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
