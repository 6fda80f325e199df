"""FedCGS: a Gaussian classifier from one round of class statistics."""

from numbers import Integral, Real

import numpy as np
from sklearn.base import clone
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from ..exchange import ClassStatistics, LinearModel
from ..exchange._packing import pack_triangle
from ..exchange._wire import WIRE_DTYPES
from ..statistics import FeatureMoments
from ._aligned import AlignedClassifierMixin, names_of
from ._base import Communication, OneShotClassifier
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
        "covariance": [StrOptions({"total", "within"})],
        "ridge": [StrOptions({"auto"}), Interval(Real, 0, None, closed="left")],
        "priors": [StrOptions({"empirical", "uniform"}), "array-like"],
        "aligner": [HasMethods(["client_update", "server_aggregate"]), None],
        "client_column": [str, Integral, None],
        "wire_dtype": [StrOptions(set(WIRE_DTYPES))],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
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

    def client_update(self, X, y, classes=None, client=None):
        """Client step: summarise the rows of one client.

        Needs no fit, changes nothing, and is what ``fit`` does for each client.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows of the client.
        y : array-like of shape (n_samples,)
            Their labels.
        classes : array-like of shape (n_classes,), default=None
            Labels that may occur; by default those in ``y``.
        client : object, default=None
            Its name.

        Returns
        -------
        message : ClassStatistics
            The message to the server, in the precision of the wire.
        """
        X, y, classes = self._client_rows(X, y, classes, client)
        self._warn_if_wire_is_coarse(X, client)
        moments = FeatureMoments.from_rows(X)
        counts, means = counts_and_means(X, y, classes)
        message = ClassStatistics(
            classes.tolist(),
            counts,
            means,
            pack_triangle(moments.sample_covariance()),
            self._alignment_shrinkage(moments),
            client,
        )
        return message.as_received(self.wire_dtype)

    def server_aggregate(self, messages):
        """Server step: the classifier, from one message per client.

        Parameters
        ----------
        messages : list of ClassStatistics
            What the clients sent.

        Returns
        -------
        self : FedCGSClassifier
            The classifier, fitted.
        """
        self._validate_params()
        messages = self._check_messages(messages)
        aligned = [
            message.pushed(*client_map.affine) if client_map else message
            for message, client_map in zip(
                messages, self._align_messages(messages), strict=True
            )
        ]
        self._encoder = messages[0].encoder
        pooled = pool_statistics(aligned)
        covariance = regularize(pooled, self.covariance, self.ridge)
        self.classes_ = pooled.classes
        self.priors_ = self._class_priors(pooled.counts)
        self.coef_, self.intercept_ = gaussian_head(
            pooled.means, covariance, np.log(self.priors_)
        )
        self.n_features_in_ = pooled.means.shape[1] + (self.client_column is not None)
        self.communication_ = {
            name: Communication(
                up=message._nbytes(self.wire_dtype),
                down=self._model_for(message.client)._nbytes(self.wire_dtype),
            )
            for name, message in zip(names_of(messages), messages, strict=True)
        }
        return self

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

    def _ids_matter(self):
        return self.aligner is not None

    def _model_for(self, client):
        coef, intercept = self.coef_, self.intercept_
        client_map = self._map_of(client)
        if client_map is not None:
            matrix, offset = client_map.affine
            coef, intercept = coef @ matrix, intercept + coef @ offset
        return LinearModel(
            self.classes_.tolist(), coef, intercept, client, self._encoder
        )

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

    def _scores(self, X):
        return X @ self.coef_.T.astype(X.dtype, copy=False) + self.intercept_
