"""FedPFT: a classifier trained on rows drawn from the clients' class mixtures."""

from functools import partial
from math import fsum
from numbers import Integral, Real

import numpy as np

from .._sklearn_compat import HasMethods, Interval, StrOptions
from ..exchange import ClassMixtures
from ..statistics import FeatureMoments
from ._aligned import AlignedClassifierMixin
from ._mixtures import (
    COVARIANCE_TYPES,
    Outline,
    check_can_be_drawn,
    draw_rows,
    fit_mixture,
    merge_by_class,
    ranks_by_content,
)
from ._one_shot import OneShotClassifier
from ._server_estimator import ServerEstimatorMixin, choose_estimator


class FedPFTClassifier(ServerEstimatorMixin, AlignedClassifierMixin, OneShotClassifier):
    """Federated classifier trained on synthetic features, in one round.

    Clients send a Gaussian mixture for each of their classes. The server draws rows
    from these mixtures and trains any classifier on them (FedPFT [1]_).

    Read more in the :doc:`User Guide </user_guide/classifiers>`.

    Parameters
    ----------
    n_components : int, default=1
        Components of each mixture. One has a closed form; more are fitted by
        expectation maximisation, at most one per distinct row of the class.
    covariance_type : {"spherical", "diag", "full", "lowrank"}, default="spherical"
        Shape of the components. Per class a client sends K (m + 2), K (2 m + 1) or
        K (m + m (m + 1) / 2 + 1) numbers, with K components and m features. "lowrank"
        has one component and takes m (q + 1) + 2 numbers: a mean, q loadings and what
        they leave, by probabilistic principal component analysis [2]_, which is also
        the linear case of a conditional variational autoencoder.
    n_loadings : int, default=10
        Loadings q of ``covariance_type="lowrank"``, at most one per feature. Other
        shapes do not use it.
    pool : {"client", "class"}, default="client"
        "client" draws from the mixtures of each client. "class" first merges those of
        all clients, so that each class has one Gaussian with the mean and covariance of
        all its rows (CCVR [3]_).
    draws : "counts" or int, default="counts"
        Rows drawn for each class of each client, or of each class with
        ``pool="class"``: as many as there were, or this many. A fixed number lets small
        clients count as much as large ones.
    estimator : estimator object, default=None
        Classifier trained by the server on the rows drawn; by default the logistic
        regression of scikit-learn, fitted to centred rows that are divided by the root
        of their mean variance, so that the unit of the features does not matter.
    reg_covar : float, default=1e-6
        Added to the variances, as a share of the mean variance within components.
    aligner : FederatedOTAligner, default=None
        Aligns the clients without a second exchange: rows are drawn as the client has
        them, and then mapped. ``predict`` then needs ``client_ids``. Its ``screen`` is
        not used.
    client_column : str or int, default=None
        Name or position of the column of X that holds the client ids. None means that
        ids are passed as ``client_ids``.
    screen : None, "warn", "exclude" or ClientScreen, default="warn"
        How to handle clients whose statistics are implausible compared with all others,
        see :doc:`/user_guide/trust`. ``"warn"`` issues a warning, ``"exclude"`` drops
        the client, ``None`` disables the check. A :class:`~skslot.trust.ClientScreen`
        also limits the fraction of all samples that one client may contribute.
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
    FedCGSClassifier : Needs no rows to be drawn.
    sklearn.mixture.GaussianMixture : Fits the mixtures with several components.

    Notes
    -----
    Numbers of rows are what the clients say. If drawing as many would take more than
    8 GB, the server refuses, and names the client with the most. A message of one
    client that claims as many is refused when it is read, as a damaged one is, so that
    the others can go on without it.

    A Pipeline of an aligner and this classifier describes rows after the map,
    ``aligner`` describes them before. With one component and ``covariance_type="full"``
    that is the same Gaussian: rows drawn have the same mean, and covariances that
    differ by chance only; with ``pool="class"`` predictions are the same up to
    rounding. Other shapes do not stay so under a map, and results differ slightly.

    Neither the names of clients nor the order of their messages changes a row that is
    drawn: messages are ordered by what is in them. With the default ``estimator``,
    features in another unit give the same predictions, up to rounding.

    References
    ----------
    .. [1] M. Beitollahi, A. Bie, S. Hemati, L. M. Brunswic, X. Li, X. Chen, G. Zhang.
       "Parametric Feature Transfer: One-shot Federated Learning with Foundation
       Models". arXiv:2402.01862, 2024.
    .. [2] M. E. Tipping, C. M. Bishop. "Probabilistic Principal Component Analysis".
       Journal of the Royal Statistical Society B, 61(3), 1999.
    .. [3] M. Luo, F. Chen, D. Hu, Y. Zhang, J. Liang, J. Feng. "No Fear of
       Heterogeneity: Classifier Calibration for Federated Learning with Non-IID Data".
       NeurIPS, 2021.

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
    >>> classifier.set_params(covariance_type="lowrank", n_loadings=5)
    FedPFTClassifier(covariance_type='lowrank', n_loadings=5, random_state=0)
    >>> classifier.fit(data.data, data.target, client_ids=data.client_ids)
    FedPFTClassifier(covariance_type='lowrank', n_loadings=5, random_state=0)
    >>> classifier.score(data.data, data.target) > 0.92
    True
    """

    message_type = ClassMixtures

    _parameter_constraints: dict = {
        **OneShotClassifier._parameter_constraints,
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "covariance_type": [StrOptions(set(COVARIANCE_TYPES))],
        "n_loadings": [Interval(Integral, 1, None, closed="left")],
        "pool": [StrOptions({"client", "class"})],
        "draws": [StrOptions({"counts"}), Interval(Integral, 1, None, closed="left")],
        "estimator": [HasMethods(["fit", "predict"]), None],
        "reg_covar": [Interval(Real, 0, None, closed="left")],
        "aligner": AlignedClassifierMixin._aligner_constraint,
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_components=1,
        *,
        covariance_type="spherical",
        n_loadings=10,
        pool="client",
        draws="counts",
        estimator=None,
        reg_covar=1e-6,
        aligner=None,
        client_column=None,
        screen="warn",
        random_state=None,
        n_jobs=None,
        verbose=0,
    ):
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.n_loadings = n_loadings
        self.pool = pool
        self.draws = draws
        self.estimator = estimator
        self.reg_covar = reg_covar
        self.aligner = aligner
        self.client_column = client_column
        self.screen = screen
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def _summarize(self, X, y, classes, client, seed):
        if self.covariance_type == "lowrank" and self.n_components > 1:
            raise ValueError(
                f"covariance_type='lowrank' has one component per class, got "
                f"n_components={self.n_components}; raise n_loadings instead."
            )
        held, counts = np.unique(y, return_counts=True)
        shape = self.n_components, self.covariance_type, self.n_loadings, self.reg_covar
        parts = [fit_mixture(X[y == label], *shape, seed) for label in held]
        part = np.empty(0), np.empty(0)
        if self.aligner is not None:
            part = self._part_for_alignment(FeatureMoments.from_rows(X))
        return ClassMixtures(
            held.tolist(),
            self.covariance_type,
            counts.astype(np.int32),
            np.array([len(weights) for weights, *_ in parts], dtype=np.int32),
            *map(np.concatenate, zip(*parts, strict=True)),
            *part,
            client,
        )

    def _learn(self, messages, seed):
        from ._logistic import UnitFreeLogisticRegression  # other servers need none

        outlines = [Outline.of(m) for m in messages if isinstance(m, ClassMixtures)]
        self._check_can_be_drawn(outlines)
        self._fit_aligner(messages)
        parts = self._draw(messages, outlines, seed)
        rows, labels = map(np.concatenate, zip(*parts, strict=True))
        self._say(f"training on {len(labels)} rows drawn")
        default = UnitFreeLogisticRegression(max_iter=1000)
        self.estimator_ = choose_estimator(self.estimator, default, labels, seed)
        self.estimator_.fit(rows, labels)
        self.classes_ = self.estimator_.classes_

    def _draw(self, messages, outlines, seed):
        """Rows and labels drawn from each message, or from all merged by class."""
        total = sum(each.n_samples for each in outlines)
        # an exact sum does not depend on the order of the messages
        variance = fsum(each.n_samples * each.variance for each in outlines) / total
        draw = partial(draw_rows, draws=self.draws, ridge=self.reg_covar * variance)
        if self.pool == "class":
            merged = merge_by_class(self._with_maps(messages))
            return [draw(merged, rng=np.random.default_rng(seed))]
        parts = [None] * len(outlines)
        ranks = ranks_by_content(outlines)
        for rank, each in zip(ranks, self._with_maps(messages), strict=True):
            message, client_map = each
            rows, labels = draw(message, rng=np.random.default_rng([seed, rank]))
            if client_map is not None:
                rows = client_map.transform(rows)
            parts[rank] = rows, labels
        return parts

    def _check_can_be_drawn(self, outlines):
        """Refuse more rows than fit in memory, which anybody may claim to have."""
        if not outlines:
            return
        if self.draws == "counts":
            most = max(outlines, key=lambda each: each.n_samples)
            n_rows = sum(each.n_samples for each in outlines)
            remedy = (
                f"Client {most.client!r} says that it has {most.n_samples} of them: if "
                "that is wrong, leave its message out; otherwise pass a number as "
                "draws."
            )
        else:
            held = [label for each in outlines for label in each.classes]
            cells = len(set(held)) if self.pool == "class" else len(held)
            n_rows, remedy = cells * self.draws, f"Lower draws={self.draws}."
        check_can_be_drawn(n_rows, outlines[0].n_features, remedy)
