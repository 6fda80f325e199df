"""FedCGS: a Gaussian classifier from one round of class statistics."""

from numbers import Real

import numpy as np

from .._sklearn_compat import Interval, StrOptions
from ._class_statistics import ClassStatisticsClassifier
from ._gaussian import class_priors, gaussian_head, regularize


class FedCGSClassifier(ClassStatisticsClassifier):
    """Federated Gaussian classifier from class statistics, in one round.

    Clients send class counts, class means and one covariance. The server adds them up
    and has the linear classifier that Gaussian classes with a common covariance call
    for (FedCGS [1]_). How the rows are spread over clients does not change the result.

    Read more in the :doc:`User Guide </user_guide/classifiers>`.

    Parameters
    ----------
    covariance : {"total", "within", "identity"}, default="total"
        Covariance of all rows, as in FedCGS, or around the class means, which is linear
        discriminant analysis. "identity" takes all directions as equally wide: with
        ``priors="uniform"`` the nearest class mean is predicted, as in FedNCM [3]_.
    ridge : "auto" or float, default="auto"
        What keeps the covariance invertible. "auto" shrinks it towards a multiple of
        the identity by the oracle-approximating coefficient [2]_ for its number of
        rows, and adds 1e-6 of the mean variance of a feature to the diagonal (more if
        float16 messages call for it). A number is added to the diagonal as it is.
    priors : {"empirical", "uniform"} or array-like of shape (n_classes,), \
default="empirical"
        Class probabilities: as in the data of all clients, equal, or given in the order
        of ``classes_``.
    aligner : FederatedOTAligner, default=None
        Aligns the clients without a second exchange: the one message of each client
        serves both, and predictions equal those of a Pipeline of this aligner and this
        classifier. ``predict`` then needs ``client_ids``. The aligner's ``screen`` is
        not used.
    privacy : PrivacyBudget, default=None
        Guarantee of differential privacy for the rows of each client: its message is
        then made of noisy sums alone, ``client_update`` needs ``classes``, and in
        ``fit`` the labels in ``y`` are taken as public. See
        :class:`~skslot.privacy.PrivacyBudget`.
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
    coef_ : ndarray of shape (n_classes, n_features)
        Weights.
    intercept_ : ndarray of shape (n_classes,)
        Intercepts.
    priors_ : ndarray of shape (n_classes,)
        Class probabilities used.
    clients_report_ : ClientsReport
        Share, distance and so on of each client, and who stands out.
    aligner_ : FederatedOTAligner
        The fitted aligner; only with ``aligner``.
    n_features_in_ : int
        Number of columns of X, with the client column if there is one.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of these columns, when all are strings.

    See Also
    --------
    FederatedOTAligner : Aligns features of clients.
    sklearn.discriminant_analysis.LinearDiscriminantAnalysis : The same from pooled rows
        with ``covariance="within"`` and ``ridge=0``.
    sklearn.neighbors.NearestCentroid : The same from pooled rows with
        ``covariance="identity"`` and ``priors="uniform"``.

    References
    ----------
    .. [1] Z. Guan, Y. Zhou, X. Gu. "Capture Global Feature Statistics for One-Shot
       Federated Learning". AAAI, 2025.
    .. [2] Y. Chen, A. Wiesel, Y. C. Eldar, A. O. Hero. "Shrinkage Algorithms for MMSE
       Covariance Estimation". IEEE Transactions on Signal Processing, 2010.
    .. [3] G. Legate, N. Bernier, L. Page-Caccia, E. Oyallon, E. Belilovsky. "Guiding
       The Last Layer in Federated Learning with Pre-Trained Models". NeurIPS, 2023.

    Examples
    --------
    >>> from skslot import FedCGSClassifier, FederatedOTAligner
    >>> from skslot.datasets import load_digit_scanners
    >>> data = load_digit_scanners()
    >>> classifier = FedCGSClassifier(aligner=FederatedOTAligner(tau=0.4))
    >>> classifier.fit(data.data, data.target, client_ids=data.client_ids)
    FedCGSClassifier(aligner=FederatedOTAligner())
    >>> classifier.score(data.data, data.target, client_ids=data.client_ids) > 0.9
    True
    """

    _parameter_constraints: dict = {
        **ClassStatisticsClassifier._parameter_constraints,
        "covariance": [StrOptions({"total", "within", "identity"})],
        "ridge": [StrOptions({"auto"}), Interval(Real, 0, None, closed="left")],
        "priors": [StrOptions({"empirical", "uniform"}), "array-like"],
        "aligner": ClassStatisticsClassifier._aligner_constraint,
    }

    def __init__(
        self,
        covariance="total",
        *,
        ridge="auto",
        priors="empirical",
        aligner=None,
        privacy=None,
        client_column=None,
        screen="warn",
        n_jobs=None,
        verbose=0,
    ):
        self.covariance = covariance
        self.ridge = ridge
        self.priors = priors
        self.aligner = aligner
        self.privacy = privacy
        self.client_column = client_column
        self.screen = screen
        self.n_jobs = n_jobs
        self.verbose = verbose

    def _fit_head(self, pooled):
        covariance = regularize(pooled, self.covariance, self.ridge)
        self.priors_ = class_priors(self.priors, pooled.counts, self.classes_)
        self.coef_, self.intercept_ = gaussian_head(
            pooled.means, covariance, np.log(self.priors_), pooled.n_samples
        )
