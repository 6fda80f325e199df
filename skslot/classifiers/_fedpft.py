"""FedPFT: a classifier trained on rows drawn from the clients' class mixtures."""

import pickle
from numbers import Integral, Real

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.dummy import DummyClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.metaestimators import available_if

from ..exchange import ClassMixtures
from ..statistics import FeatureMoments
from ._aligned import AlignedClassifierMixin
from ._base import OneShotClassifier
from ._logistic import CentredLogisticRegression
from ._mixtures import (
    COVARIANCE_TYPES,
    check_can_be_drawn,
    draw_rows,
    fit_mixture,
    push_mixtures,
)


def _estimator_has(method):
    def check(self):
        if hasattr(self, "estimator_"):
            return hasattr(self.estimator_, method)
        return self.estimator is None or hasattr(self.estimator, method)

    return check


class FedPFTClassifier(AlignedClassifierMixin, OneShotClassifier):
    """Federated classifier trained on synthetic features, in one round.

    Clients send a Gaussian mixture for each of their classes. The server draws as many
    rows as there were from these mixtures and trains any classifier on them (FedPFT
    [1]_).

    Read more in the :doc:`User Guide </user_guide/classifiers>`.

    Parameters
    ----------
    n_components : int, default=1
        Components of each mixture. One has a closed form; more are fitted by
        expectation maximisation, at most one per distinct row of the class.
    covariance_type : {"spherical", "diag", "full"}, default="spherical"
        Shape of the components. Per class a client sends K (m + 2), K (2 m + 1) or
        K (m + m (m + 1) / 2 + 1) numbers, with K components and m features.
    estimator : estimator object, default=None
        Classifier trained by the server on the rows drawn; by default the logistic
        regression of scikit-learn, fitted to centred rows.
    reg_covar : float, default=1e-6
        Added to the variances.
    aligner : FederatedOTAligner, default=None
        Aligns the clients without a second exchange. With one component and
        ``covariance_type="full"``, predictions equal those of a Pipeline of this
        aligner and this classifier; other mixtures are mapped approximately.
        ``predict`` then needs ``client_ids``.
    client_column : str or int, default=None
        Name or position of the column of X that holds the client ids. None means that
        ids are passed as ``client_ids``.
    wire_dtype : {"float64", "float32", "float16"}, default="float16"
        Precision of the messages.
    random_state : int, RandomState instance or None, default=None
        Determines the rows drawn, the start of expectation maximisation, and the
        estimator if it has no ``random_state`` of its own. Pass an int for the same
        classifier on every call, whatever ``n_jobs`` is.
    n_jobs : int, default=None
        Threads over clients.
    verbose : int, default=0
        1 prints a line for each client that is done.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels that at least one client holds.
    estimator_ : estimator object
        The classifier trained by the server.
    communication_ : dict
        For each client the bytes sent and received, as a :class:`Communication`. A
        linear estimator is sent as a :class:`~skslot.exchange.LinearModel`, any other
        is counted as it pickles.
    reference_ : AlignmentReference
        Reference of the alignment; only with ``aligner``.
    n_features_in_ : int
        Number of columns of X, with the client column if there is one.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of these columns, when all are strings.

    See Also
    --------
    FedCGSClassifier : Needs no rows to be drawn.
    sklearn.mixture.GaussianMixture : Fits the mixtures with several components.

    Notes
    -----
    Numbers of rows are what the clients say. If drawing as many would take more than
    8 GB, the server refuses, and names the client with the most.

    References
    ----------
    .. [1] M. Beitollahi, A. Bie, S. Hemati, L. M. Brunswic, X. Li, X. Chen, G. Zhang.
       "Parametric Feature Transfer: One-shot Federated Learning with Foundation
       Models". arXiv:2402.01862, 2024.

    Examples
    --------
    >>> from skslot import FedPFTClassifier
    >>> from skslot.datasets import load_digit_scanners
    >>> data = load_digit_scanners()
    >>> classifier = FedPFTClassifier(random_state=0)
    >>> classifier.fit(data.data, data.target, client_ids=data.client_ids)
    FedPFTClassifier(random_state=0)
    >>> classifier.score(data.data, data.target) > 0.85
    True
    """

    _message_type = ClassMixtures

    _parameter_constraints: dict = {
        **OneShotClassifier._parameter_constraints,
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "covariance_type": [StrOptions(set(COVARIANCE_TYPES))],
        "estimator": [HasMethods(["fit", "predict"]), None],
        "reg_covar": [Interval(Real, 0, None, closed="left")],
        "aligner": [
            HasMethods(["client_update", "client_map", "server_aggregate"]),
            None,
        ],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_components=1,
        *,
        covariance_type="spherical",
        estimator=None,
        reg_covar=1e-6,
        aligner=None,
        client_column=None,
        wire_dtype="float16",
        random_state=None,
        n_jobs=None,
        verbose=0,
    ):
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.estimator = estimator
        self.reg_covar = reg_covar
        self.aligner = aligner
        self.client_column = client_column
        self.wire_dtype = wire_dtype
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def client_classifier(self, client):
        """The classifier for one client, with its alignment built in.

        What the server sends to that client: it predicts from unaligned features and
        needs no ids.

        Parameters
        ----------
        client : object
            The client.

        Returns
        -------
        classifier : estimator object
            A fitted classifier; with ``aligner`` a Pipeline of the client's map and
            ``estimator_``.
        """
        client_map = self._kept_of(client)
        if client_map is None:
            return self.estimator_
        return make_pipeline(FunctionTransformer(client_map.transform), self.estimator_)

    def predict(self, X, client_ids=None):
        """Most likely class of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features.
        client_ids : array-like of shape (n_samples,) or scalar, default=None
            Client of each row; only needed with ``aligner``.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Predicted labels.
        """
        features = self._aligned_rows(X, client_ids)
        return self.estimator_.predict(features)

    @available_if(_estimator_has("decision_function"))
    def decision_function(self, X, client_ids=None):
        """Decision function of the estimator.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features.
        client_ids : array-like of shape (n_samples,) or scalar, default=None
            Client of each row; only needed with ``aligner``.

        Returns
        -------
        scores : ndarray of shape (n_samples, n_classes) or (n_samples,)
            As the estimator defines them.
        """
        features = self._aligned_rows(X, client_ids)
        return self.estimator_.decision_function(features)

    @available_if(_estimator_has("predict_proba"))
    def predict_proba(self, X, client_ids=None):
        """Probability of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features.
        client_ids : array-like of shape (n_samples,) or scalar, default=None
            Client of each row; only needed with ``aligner``.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
            One column per entry of ``classes_``.
        """
        features = self._aligned_rows(X, client_ids)
        return self.estimator_.predict_proba(features)

    @available_if(_estimator_has("predict_proba"))
    def predict_log_proba(self, X, client_ids=None):
        """Logarithm of the probability of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features.
        client_ids : array-like of shape (n_samples,) or scalar, default=None
            Client of each row; only needed with ``aligner``.

        Returns
        -------
        log_probabilities : ndarray of shape (n_samples, n_classes)
            One column per entry of ``classes_``.
        """
        return np.log(self.predict_proba(X, client_ids))

    def _summarize(self, X, y, classes, client):
        self._warn_if_wire_is_coarse(X, client)
        held, counts = np.unique(y, return_counts=True)
        seed = self._seed()
        shape = self.n_components, self.covariance_type, self.reg_covar
        parts = [fit_mixture(X[y == label], *shape, seed) for label in held]
        fields = np.empty(0), np.empty(0)
        if self.aligner is not None:
            fields = self._alignment_fields(FeatureMoments.from_rows(X))
        return ClassMixtures(
            held.tolist(),
            self.covariance_type,
            counts.astype(np.int32),
            np.array([len(weights) for weights, *_ in parts], dtype=np.int32),
            *map(np.concatenate, zip(*parts, strict=True)),
            *fields,
            client,
        )

    def _learn(self, messages):
        check_can_be_drawn(m for m in messages if isinstance(m, ClassMixtures))
        rng = np.random.default_rng(self._seed())
        rows, labels, maps = [], [], {}
        for message, client_map in self._align(messages):
            if client_map is not None:
                maps[message.client] = client_map
            if not isinstance(message, ClassMixtures):
                continue
            if client_map is not None:
                message = push_mixtures(message, *client_map.affine)
            drawn, drawn_labels = draw_rows(message, self.reg_covar, rng)
            rows.append(drawn)
            labels += drawn_labels
        if self.aligner is not None:
            self._keep(maps)
        self._say(f"training on {len(labels)} rows drawn")
        self.estimator_ = self._make_estimator(len(set(labels)))
        self.estimator_.fit(np.vstack(rows), np.array(labels))
        self.classes_ = self.estimator_.classes_

    def _aligned_rows(self, X, client_ids):
        X, groups = self._prediction_rows(X, client_ids)
        return X if self.aligner is None else self._fitted_maps().move(X, groups)

    def _make_estimator(self, n_classes):
        if n_classes == 1:  # most classifiers refuse a single class
            return DummyClassifier(strategy="prior")
        if self.estimator is None:
            return CentredLogisticRegression(max_iter=1000)
        if not is_classifier(self.estimator):
            raise ValueError(
                f"estimator must be a classifier, got {type(self.estimator).__name__}."
            )
        estimator = clone(self.estimator)
        unset = {
            name: self._seed()
            for name, value in estimator.get_params().items()
            if name.split("__")[-1] == "random_state" and value is None
        }
        return estimator.set_params(**unset)

    def _linear_head(self):
        return self.estimator_

    def _model_for(self, client):
        model, client_map = super()._model_for(client), self._kept_of(client)
        if client_map is None:
            return model
        return model.pulled_back(*client_map.affine, client)

    def _download_size(self, client):
        """Bytes of a linear classifier with the map folded in, or of the pickle."""
        if hasattr(self.estimator_, "coef_"):
            return super()._download_size(client)
        return len(pickle.dumps(self.client_classifier(client)))
