"""FedCGS: a Gaussian classifier from one round of class statistics."""

from numbers import Real

import numpy as np
from sklearn.base import clone
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from ..exchange import ClassStatistics, LinearModel
from ..statistics import FeatureMoments
from ._aligned import AlignedClassifierMixin
from ._base import OneShotClassifier
from ._gaussian import counts_and_means, gaussian_head, pool_statistics, regularize


class FedCGSClassifier(AlignedClassifierMixin, OneShotClassifier):
    """Federated Gaussian classifier from class statistics, in one round.

    Clients send class counts, class means and one covariance. The server adds them up
    and has the linear classifier that Gaussian classes with a common covariance call
    for (FedCGS [1]_). How the rows are spread over clients does not change the result.

    Read more in the :doc:`User Guide </user_guide/classifiers>`.

    Parameters
    ----------
    covariance : {"total", "within"}, default="total"
        Covariance of all rows, as in FedCGS, or around the class means, which is linear
        discriminant analysis.
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
        classifier. ``predict`` then needs ``client_ids``.
    client_column : str or int, default=None
        Name or position of the column of X that holds the client ids. None means that
        ids are passed as ``client_ids``.
    wire_dtype : {"float64", "float32", "float16"}, default="float64"
        Precision of the messages.
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
    communication_ : dict
        For each client the bytes sent and received, as a :class:`Communication`.
    reference_ : AlignmentReference
        Reference of the alignment; only with ``aligner``.
    n_features_in_ : int
        Number of columns of X, with the client column if there is one.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of these columns, when all are strings.

    See Also
    --------
    FederatedOTAligner : Aligns features of clients.
    sklearn.discriminant_analysis.LinearDiscriminantAnalysis : The same from pooled rows
        with ``covariance="within"`` and ``ridge=0``.

    References
    ----------
    .. [1] Z. Guan, Y. Zhou, X. Gu. "Capture Global Feature Statistics for One-Shot
       Federated Learning". AAAI, 2025.
    .. [2] Y. Chen, A. Wiesel, Y. C. Eldar, A. O. Hero. "Shrinkage Algorithms for MMSE
       Covariance Estimation". IEEE Transactions on Signal Processing, 2010.

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
    >>> classifier.communication_["fax"]
    Communication(up=..., down=...)
    """

    _message_type = ClassStatistics

    _parameter_constraints: dict = {
        **OneShotClassifier._parameter_constraints,
        "covariance": [StrOptions({"total", "within"})],
        "ridge": [StrOptions({"auto"}), Interval(Real, 0, None, closed="left")],
        "priors": [StrOptions({"empirical", "uniform"}), "array-like"],
        "aligner": [
            HasMethods(["client_update", "client_map", "server_aggregate"]),
            None,
        ],
    }

    def __init__(
        self,
        covariance="total",
        *,
        ridge="auto",
        priors="empirical",
        aligner=None,
        client_column=None,
        wire_dtype="float64",
        n_jobs=None,
        verbose=0,
    ):
        self.covariance = covariance
        self.ridge = ridge
        self.priors = priors
        self.aligner = aligner
        self.client_column = client_column
        self.wire_dtype = wire_dtype
        self.n_jobs = n_jobs
        self.verbose = verbose

    def client_classifier(self, client):
        """The classifier for one client, with its alignment folded in.

        What the server sends to that client: it predicts from unaligned features and
        needs no ids.

        Parameters
        ----------
        client : object
            The client.

        Returns
        -------
        classifier : FedCGSClassifier
            A fitted classifier without ``aligner``.
        """
        model = self._model_for(client)
        # nothing of other clients goes along: no map, no reference
        classifier = clone(self).set_params(aligner=None, client_column=None)
        classifier.classes_, classifier.priors_ = self.classes_, self.priors_
        classifier._encoder = self._encoder
        classifier.coef_, classifier.intercept_ = model.coef, model.intercept
        classifier.n_features_in_ = model.coef.shape[1]
        names = getattr(self, "feature_names_in_", None)
        if names is not None:
            ids = [] if self.client_column is None else self._client_position
            classifier.feature_names_in_ = np.delete(names, ids)
        return classifier

    @property
    def _ids_matter(self):
        return self.aligner is not None

    def _summarize(self, X, y, classes, client):
        self._warn_if_wire_is_coarse(X, client)
        counts, means = counts_and_means(X, y, classes)
        fields = self._alignment_fields(FeatureMoments.from_rows(X))
        return ClassStatistics(classes.tolist(), counts, means, *fields, client)

    def _learn(self, messages):
        mapped = self._align(messages)
        pooled = pool_statistics(
            message if client_map is None else message.pushed(*client_map.affine)
            for message, client_map in mapped
            if isinstance(message, ClassStatistics)
        )
        covariance = regularize(pooled, self.covariance, self.ridge)
        self.classes_ = pooled.classes
        self.priors_ = self._class_priors(pooled.counts)
        self.coef_, self.intercept_ = gaussian_head(
            pooled.means, covariance, np.log(self.priors_)
        )
        if self.aligner is not None:
            self._keep({m.client: self._what_to_keep(m.client, t) for m, t in mapped})

    def _what_to_keep(self, client, client_map):
        """The classifier of one client: all that predictions need of its map."""
        return super()._model_for(client).pulled_back(*client_map.affine, client)

    def _model_for(self, client):
        model = self._kept_of(client)
        return super()._model_for(client) if model is None else model

    def _scores_by_client(self, X, groups):
        if self.aligner is None:
            return self._scores(X)
        scores = np.empty((len(X), len(self.classes_)))
        found = self._fitted_maps().choose(X, groups)
        for model, client, rows in zip(found, groups.clients, groups.rows, strict=True):
            if not isinstance(model, LinearModel):  # the map of an unknown client
                model = self._what_to_keep(client, model)
            scores[rows] = X[rows] @ model.coef.T + model.intercept
        return scores

    def _class_priors(self, counts):
        if isinstance(self.priors, str):
            counts = counts if self.priors == "empirical" else np.ones_like(counts)
            return counts / counts.sum()
        priors = np.asarray(self.priors, dtype=np.float64)
        if priors.shape != counts.shape or not ((priors > 0) & (priors < np.inf)).all():
            raise ValueError(
                f"priors must be {len(counts)} positive numbers, one for each of the "
                f"classes {self.classes_.tolist()}, got {self.priors!r}."
            )
        return priors / priors.sum()
