"""FedQDA: Gaussian classes with a covariance each, from one round of statistics."""

from numbers import Real

import numpy as np
from numpy.linalg import LinAlgError, cholesky
from scipy.linalg import solve_triangular

from .._docstrings import document
from .._sklearn_compat import Interval, StrOptions
from .._utils import unpack_triangle
from ..exchange import ClassMixtures
from ..statistics import average_rows, is_constant
from ._base import AlignedClassifierMixin, OneShotClassifier
from ._fedpft import FedPFTClassifier, pool_components
from ._gaussian import COLLINEAR, LEAST_RIDGE, class_priors


@document
class FedQDAClassifier(AlignedClassifierMixin, OneShotClassifier):
    """Federated quadratic discriminant analysis, in one round.

    Clients send a Gaussian for each of their classes, which is the message of
    ``FedPFTClassifier(n_components=1)``. The server pools the Gaussians of each class,
    shrinks their covariances towards the mean covariance [1]_, and predicts the class
    with the largest likelihood. The result does not depend on how samples are
    distributed over clients.

    Read more in the :doc:`User Guide </user_guide/classifiers>`.

    Parameters
    ----------
    covariance_type : {"full", "diag"}, default="full"
        Covariances of the classes. ``"diag"`` assumes independent features within a
        class, as in naive Bayes. With m features, a client sends
        m + m (m + 1) / 2 + 1 numbers per class for "full" and 2 m + 1 for "diag".
    shrink_to_pooled : float, default=0.9
        Weight of the pooled covariance within classes in the covariance of each class.
        1 is linear discriminant analysis.
    shrink_to_identity : float, default=0.05
        Weight of a multiple of the identity with the same trace, applied after
        ``shrink_to_pooled``.
    {priors}
    {aligner}
        With ``covariance_type="full"``, predictions equal those of a Pipeline of this
        aligner and this classifier. With "diag" they differ, because clients do not
        send the covariances between features, which alignment turns into variances.
    {client_column}
    {screen}
    {n_jobs}
    {verbose}

    Attributes
    ----------
    {classes_}
    means_ : ndarray of shape (n_classes, n_features)
        Mean of each class.
    covariances_ : ndarray of shape (n_classes, n_features, n_features) or \
(n_classes, n_features)
        Shrunk covariance of each class, or its diagonal.
    {priors_}
    {clients_report_}
    {aligner_}
    {n_features_in_}
    {feature_names_in_}

    See Also
    --------
    FedCGSClassifier : One covariance for all classes, and a linear classifier.
    FedPFTClassifier : Trains any classifier on samples drawn from the same message.
    sklearn.discriminant_analysis.QuadraticDiscriminantAnalysis : Equivalent on pooled
        samples, without ``shrink_to_pooled``.
    sklearn.naive_bayes.GaussianNB : Likewise for ``covariance_type="diag"``.

    References
    ----------
    .. [1] J. H. Friedman. "Regularized Discriminant Analysis". Journal of the American
       Statistical Association, 1989.

    Examples
    --------
    >>> from skslot import FedQDAClassifier
    >>> from skslot.datasets import load_digit_scanners
    >>> data = load_digit_scanners()
    >>> classifier = FedQDAClassifier()
    >>> classifier.fit(data.data, data.target, client_ids=data.client_ids)
    FedQDAClassifier()
    >>> classifier.score(data.data, data.target) > 0.9
    True
    """

    message_type = ClassMixtures

    _parameter_constraints: dict = {
        **OneShotClassifier._parameter_constraints,
        "covariance_type": [StrOptions({"full", "diag"})],
        "shrink_to_pooled": [Interval(Real, 0, 1, closed="both")],
        "shrink_to_identity": [Interval(Real, 0, 1, closed="both")],
        "priors": [StrOptions({"empirical", "uniform"}), "array-like"],
        "aligner": AlignedClassifierMixin._aligner_constraint,
    }

    def __init__(
        self,
        covariance_type="full",
        *,
        shrink_to_pooled=0.9,
        shrink_to_identity=0.05,
        priors="empirical",
        aligner=None,
        client_column=None,
        screen="warn",
        n_jobs=None,
        verbose=0,
    ):
        self.covariance_type = covariance_type
        self.shrink_to_pooled = shrink_to_pooled
        self.shrink_to_identity = shrink_to_identity
        self.priors = priors
        self.aligner = aligner
        self.client_column = client_column
        self.screen = screen
        self.n_jobs = n_jobs
        self.verbose = verbose

    def linear_model(self):
        raise ValueError(
            "FedQDAClassifier has a covariance for each class, so it is not linear and "
            "there is no linear model to send; FedCGSClassifier('within') has one "
            "covariance for all."
        )

    @property
    def covariances_(self):
        """Shrunk covariance of each class, or its diagonal."""
        if self._roots[0].ndim == 1:
            return np.array([root**2 for root in self._roots])
        return np.array([root @ root.T for root in self._roots])

    @property
    def _ids_matter(self):
        return self.aligner is not None

    def _summarize(self, X, y, classes, client, seed):
        sender = FedPFTClassifier(
            covariance_type=self.covariance_type, aligner=self.aligner
        )
        return sender.client_update(X, y, classes=classes, client=client)

    def _learn(self, messages, seed):
        self._fit_aligner(messages)
        is_diagonal = self.covariance_type == "diag"
        pooled = pool_components(self._with_one_gaussian(messages), is_diagonal)
        self.classes_ = np.unique(list(pooled))
        counts, means, covariances = zip(
            *(pooled[label] for label in self.classes_.tolist()), strict=True
        )
        if not is_diagonal:
            covariances = [unpack_triangle(each) for each in covariances]
        counts, self.means_ = np.array(counts), np.array(means)
        self.priors_ = class_priors(self.priors, counts, self.classes_)
        self._roots = shrunk_roots(
            counts,
            self.means_,
            covariances,
            self.classes_,
            self.shrink_to_pooled,
            self.shrink_to_identity,
        )

    def _with_one_gaussian(self, messages):
        """Messages and maps; reject mixtures, and covariances of another type."""
        for message, client_map in self._with_maps(messages):
            most, kind = message.n_components.max(), message.covariance_type
            if kind != self.covariance_type or most > 1:
                raise ValueError(
                    f"client {message.client!r} sent up to {most} components of type "
                    f"{kind!r} for a class, where one of type "
                    f"{self.covariance_type!r} is needed; give client and server the "
                    "same FedQDAClassifier."
                )
            yield message, client_map

    def _scores(self, X):
        return gaussian_scores(X, self.means_, self._roots, np.log(self.priors_))


def shrunk_roots(counts, means, covariances, classes, to_pooled, to_identity):
    """Compute the Cholesky factor of the shrunk covariance of each class.

    If covariances are diagonals, the result is the root of each. Where classes have one
    row each, all their covariances are zero. The identity then counts by a small part
    of the variance of all rows, and the nearest mean is chosen.
    """
    shares, n_features = counts / counts.sum(), means.shape[1]
    is_full = covariances[0].ndim == 2
    diagonal = slice(None, None, n_features + 1 if is_full else 1)
    within = sum(s * each for s, each in zip(shares, covariances, strict=True))
    total = within.flat[diagonal] + shares @ (means - average_rows(means, shares)) ** 2
    if is_constant(total, np.abs(means).max(axis=0), counts.sum()).all():
        # any covariance will do: priors decide
        return [np.eye(n_features) if is_full else np.ones(n_features)] * len(counts)
    roots = []
    for label, own in zip(classes.tolist(), covariances, strict=True):
        covariance = (1 - to_pooled) * own + to_pooled * within
        variance = max(covariance.flat[diagonal].mean(), LEAST_RIDGE * total.mean())
        covariance *= 1 - to_identity
        covariance.flat[diagonal] += to_identity * variance
        try:
            root = (
                cholesky(covariance)
                if is_full
                else np.sqrt(np.maximum(covariance, 0.0))
            )
        except LinAlgError:
            root = np.zeros_like(covariance)
        # an entry is what its feature varies by, given those before it
        entries = root.flat[diagonal]
        if np.any(entries**2 <= COLLINEAR * covariance.flat[diagonal]):
            raise ValueError(
                f"the covariance of class {label!r} is singular; use a larger "
                "shrink_to_pooled or shrink_to_identity."
            )
        roots.append(root)
    return roots


def gaussian_scores(X, means, roots, log_priors):
    """Return the log-density of each row and class, up to a constant, with priors."""
    scores = np.empty((len(X), len(means)))
    for index, (mean, root) in enumerate(zip(means, roots, strict=True)):
        white = (X - mean).T
        if root.ndim == 1:
            white, lengths = white / root[:, None], root
        else:
            white = solve_triangular(root, white, lower=True, check_finite=False)
            lengths = np.diag(root)
        distances = np.einsum("ij,ij->j", white, white)
        scores[:, index] = log_priors[index] - np.log(lengths).sum() - distances / 2
    return scores
