"""FedQDA: Gaussian classes with a covariance each, from one round of statistics."""

from dataclasses import dataclass, replace
from numbers import Real

import numpy as np
from numpy.linalg import LinAlgError, cholesky
from scipy.linalg import solve_triangular
from scipy.linalg.blas import dspr

from .._linalg import (
    pack_triangle,
    packed_diagonal,
    unpack_triangle,
)
from .._sklearn_compat import Interval, StrOptions
from ..exchange import ClassMixtures
from ..statistics import average_rows, is_constant
from ._aligned import AlignedClassifierMixin
from ._fedpft import FedPFTClassifier
from ._gaussian import COLLINEAR, LEAST_RIDGE, class_priors
from ._one_shot import OneShotClassifier


class FedQDAClassifier(AlignedClassifierMixin, OneShotClassifier):
    """Federated quadratic discriminant analysis, in one round.

    Clients send a Gaussian for each of their classes, the message of
    ``FedPFTClassifier(n_components=1)``. The server has the Gaussian of all rows of
    each class, pulls their covariances towards their mean [1]_, and predicts the class
    under which a row is most likely. How the rows are spread over clients does not
    change the result.

    Read more in the :doc:`User Guide </user_guide/classifiers>`.

    Parameters
    ----------
    covariance_type : {"full", "diag"}, default="full"
        Covariances of the classes: "diag" takes features as independent of each other
        within a class, which is naive Bayes. Per class a client sends
        m + m (m + 1) / 2 + 1 numbers or 2 m + 1, with m features.
    shrink_to_pooled : float, default=0.9
        Weight of the covariance within all classes in that of each class; 1 is linear
        discriminant analysis.
    shrink_to_identity : float, default=0.05
        After that, weight of the multiple of the identity that has the same trace.
    priors : {"empirical", "uniform"} or array-like of shape (n_classes,), \
default="empirical"
        Class probabilities: as in the data of all clients, equal, or given in the order
        of ``classes_``.
    aligner : aligner, default=None
        Aligns the clients without a second exchange. With ``covariance_type="full"``
        predictions equal those of a Pipeline of this aligner and this classifier. With
        "diag" they do not: what clients send has lost the covariances between features,
        which the map of a client makes variances of. The variances of the Gaussian that
        was sent are exact after the map. ``predict`` needs ``client_ids``. Its
        ``screen`` is not used.
    client_column : str or int, default=None
        Name or position of the column of X that holds the client ids. None means that
        ids are passed as ``client_ids``.
    screen : None, "warn", "exclude" or ClientScreen, default="warn"
        How to handle clients whose statistics are implausible compared with all others,
        see :doc:`/user_guide/trust`. ``"warn"`` issues a warning, ``"exclude"`` drops
        the client, ``None`` disables the check. A :class:`~skslot.trust.ClientScreen`
        also limits the fraction of all samples that one client may contribute.
    n_jobs : int, default=None
        Threads over clients.
    verbose : int, default=0
        1 prints a line for each client that is done.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels that at least one client holds.
    means_ : ndarray of shape (n_classes, n_features)
        Mean of each class.
    covariances_ : ndarray of shape (n_classes, n_features, n_features) or \
(n_classes, n_features)
        Covariance of each class as it is used, or its diagonal.
    priors_ : ndarray of shape (n_classes,)
        Class probabilities used.
    clients_report_ : ClientsReport
        Share, distance and so on of each client, and who stands out.
    aligner_ : aligner
        The fitted aligner; only with ``aligner``.
    n_features_in_ : int
        Number of columns of X, with the client column if there is one.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of these columns, when all are strings.

    See Also
    --------
    FedCGSClassifier : One covariance for all classes, and a linear classifier.
    FedPFTClassifier : Trains any classifier on rows drawn from the same message.
    sklearn.discriminant_analysis.QuadraticDiscriminantAnalysis : The same from pooled
        rows, without ``shrink_to_pooled``.
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
        """Covariance of each class as it is used, or its diagonal."""
        if self._roots[0].ndim == 1:
            return np.array([root**2 for root in self._roots])
        return np.array([root @ root.T for root in self._roots])

    @property
    def _ids_matter(self):
        return self.aligner is not None

    def _summarize(self, X, y, classes, client, seed):
        sender = FedPFTClassifier(
            covariance_type=self.covariance_type,
            aligner=self.aligner,
        )
        return sender._summarize(X, y, classes, client, seed)

    def _learn(self, messages, seed):
        self._fit_aligner(messages)
        pooled = {}
        for message in self._aligned_messages(messages, push_gaussians):
            check_one_gaussian(message, self.covariance_type)
            for label, gaussian in gaussians_of(message):
                known = pooled.get(label)
                pooled[label] = gaussian if known is None else known.merge(gaussian)
        self.classes_ = np.unique(list(pooled))
        gaussians = [pooled[label] for label in self.classes_.tolist()]
        counts = np.array([each.count for each in gaussians])
        self.priors_ = class_priors(self.priors, counts, self.classes_)
        self.means_ = np.array([each.mean for each in gaussians])
        self._roots = shrunk_roots(
            gaussians,
            self.classes_,
            self.covariance_type,
            self.shrink_to_pooled,
            self.shrink_to_identity,
        )

    def _scores(self, X):
        return gaussian_scores(X, self.means_, self._roots, np.log(self.priors_))


@dataclass(frozen=True)
class ClassGaussian:
    """Rows of one class: number, mean, and scatter, packed or diagonal."""

    count: int
    mean: np.ndarray
    scatter: np.ndarray

    def merge(self, other):
        """The same of the rows of both."""
        count = self.count + other.count
        apart, share = other.mean - self.mean, other.count / count
        scatter, weight = self.scatter + other.scatter, self.count * share
        if len(scatter) > len(apart):
            size = len(apart)
            scatter = dspr(size, weight, apart, scatter, lower=1, overwrite_ap=1)
        else:
            scatter += weight * apart**2
        return ClassGaussian(count, self.mean + share * apart, scatter)


def check_one_gaussian(message, covariance_type):
    """Refuse mixtures, and covariances of another type."""
    if message.covariance_type != covariance_type or message.n_components.max() > 1:
        raise ValueError(
            f"client {message.client!r} sent up to {message.n_components.max()} "
            f"components of type {message.covariance_type!r} for a class, where one of "
            f"type {covariance_type!r} is needed; give client and server the same "
            "FedQDAClassifier."
        )


def push_gaussians(message, matrix, offset):
    """Message on the same rows after ``z -> matrix @ z + offset``.

    Exact for full covariances; of a diagonal one, the exact diagonal after the map.
    """
    if matrix is None:
        return replace(message, means=message.means + offset)
    if message.covariance_type == "full":
        covariances = np.array(
            [
                pack_triangle(matrix @ unpack_triangle(flat) @ matrix.T)
                for flat in message.covariances
            ]
        )
    else:
        covariances = message.covariances @ (matrix**2).T
    means = message.means @ matrix.T + offset
    return replace(message, means=means, covariances=covariances)


def gaussians_of(message):
    """Pairs of a label and the Gaussian of its rows, in a message."""
    rows = message.counts.tolist(), message.means, message.covariances
    for label, count, mean, flat in zip(message.classes, *rows, strict=True):
        yield label, ClassGaussian(count, mean, count * flat)


def diagonal_of(covariance_type, n_features):
    """Where the variances are, in a packed or a diagonal covariance."""
    is_full = covariance_type == "full"
    return packed_diagonal(n_features) if is_full else np.arange(n_features)


def shrunk_roots(gaussians, classes, covariance_type, to_pooled, to_identity):
    """Cholesky factor of the covariance of each class, or the root of a diagonal one.

    Where classes have one row each, all their covariances are zero; the identity then
    counts by a small part of the variance of all rows, and the nearest mean is chosen.
    """
    counts = np.array([each.count for each in gaussians])
    means = np.array([each.mean for each in gaussians])
    shares, n_features = counts / counts.sum(), means.shape[1]
    diagonal = diagonal_of(covariance_type, n_features)
    within = sum(each.scatter for each in gaussians) / counts.sum()
    total = within[diagonal] + shares @ (means - average_rows(means, shares)) ** 2
    if is_constant(total, np.abs(means).max(axis=0), counts.sum()).all():
        # any covariance will do: priors decide
        is_full = covariance_type == "full"
        return [np.eye(n_features) if is_full else np.ones(n_features)] * len(counts)
    roots = []
    for label, each in zip(classes.tolist(), gaussians, strict=True):
        covariance = (1 - to_pooled) / each.count * each.scatter
        covariance += to_pooled * within
        variance = max(covariance[diagonal].mean(), LEAST_RIDGE * total.mean())
        covariance *= 1 - to_identity
        covariance[diagonal] += to_identity * variance
        root = root_of(covariance, covariance_type)
        # an entry is what its feature varies by, given those before it
        entries = root if root.ndim == 1 else np.diag(root)
        if np.any(entries**2 <= COLLINEAR * covariance[diagonal]):
            raise ValueError(
                f"the covariance of class {label!r} is singular; use a larger "
                "shrink_to_pooled or shrink_to_identity."
            )
        roots.append(root)
    return roots


def root_of(covariance, covariance_type):
    """Cholesky factor, or the root of a diagonal covariance; zeros if singular."""
    if covariance_type == "diag":
        return np.sqrt(np.maximum(covariance, 0.0))
    try:
        return cholesky(unpack_triangle(covariance))
    except LinAlgError:
        return np.zeros((1, 1))


def gaussian_scores(X, means, roots, log_priors):
    """Log-density of each row under each class, up to a constant, and its prior."""
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
