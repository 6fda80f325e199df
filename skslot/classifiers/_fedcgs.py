"""FedCGS: a Gaussian classifier from one round of class statistics."""

from numbers import Real

import numpy as np

from .._docstrings import document
from .._sklearn_compat import Interval, StrOptions
from ..statistics import lift_eigenvalues, shrink_covariance, shrinkage_coefficient
from ._gaussian import (
    ClassStatisticsClassifier,
    class_priors,
    factorise,
    head_of_means,
)


@document
class FedCGSClassifier(ClassStatisticsClassifier):
    """Federated Gaussian classifier from class statistics, in one round.

    Clients send class counts, class means and one covariance. The server pools them and
    computes the linear classifier of Gaussian classes with a common covariance (FedCGS
    [1]_). The result does not depend on how samples are distributed over clients.

    Read more in the :doc:`User Guide </user_guide/classifiers>`.

    Parameters
    ----------
    covariance : {"total", "within", "identity"}, default="total"
        ``"total"`` is the covariance of all samples, as in FedCGS. ``"within"`` is the
        covariance around class means, as in linear discriminant analysis.
        ``"identity"`` assumes equal variance in all directions; with
        ``priors="uniform"``, the nearest class mean is predicted, as in FedNCM [3]_.
    ridge : "auto" or float, default="auto"
        Regularization of the covariance. ``"auto"`` shrinks it towards a multiple of
        the identity with the oracle-approximating coefficient [2]_, and adds 1e-6 of
        the mean feature variance to the diagonal (more if float16 messages require it).
        A number is added to the diagonal.
    {priors}
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
    {intercept_}
    {priors_}
    {clients_report_}
    {aligner_}
    {n_features_in_}
    {feature_names_in_}

    See Also
    --------
    FederatedOTAligner : Aligns features of clients.
    sklearn.discriminant_analysis.LinearDiscriminantAnalysis : Equivalent on pooled
        samples with ``covariance="within"`` and ``ridge=0``.
    sklearn.neighbors.NearestCentroid : Equivalent on pooled samples with
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
        factor = factorise(covariance, pooled.means, pooled.n_samples)
        self.coef_, self.intercept_ = head_of_means(
            pooled.means, factor, np.log(self.priors_)
        )


def regularize(pooled, kind, ridge):
    """Compute the covariance with ``ridge``, or the "auto" ridge, on its diagonal."""
    covariance = pooled.covariance(kind)
    if ridge != "auto":
        return covariance + ridge * np.eye(len(covariance))
    coefficient = shrinkage_coefficient("oas", covariance, pooled.n_samples)
    variance = np.trace(pooled.covariance("total")) / len(covariance)
    return lift_eigenvalues(shrink_covariance(covariance, coefficient), variance)
