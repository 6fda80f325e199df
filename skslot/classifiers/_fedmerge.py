"""FedMerge: heads of the clients, merged by the curvature of their losses."""

from numbers import Real

from .._sklearn_compat import Interval, StrOptions
from ..exchange import CurvedHead
from ._aligned import FoldedHeadsMixin
from ._linear_heads import LocalHeadsMixin, train_logistic
from ._merging import merge_heads
from ._one_shot import OneShotClassifier


class FedMergeClassifier(FoldedHeadsMixin, LocalHeadsMixin, OneShotClassifier):
    """Federated classifier that merges the heads of all clients, in one round.

    Each client fits a logistic regression to the classes that it holds, and sends its
    weights with a summary of how sure it is of them. The server solves for the weights
    that are nearest to all of these, near being what the summaries say.

    Read more in the :doc:`User Guide </user_guide/classifiers>`.

    Parameters
    ----------
    curvature : {"gram", "none", "diag", "kfac"}, default="gram"
        What clients say about the curvature of their loss: second moments of the
        features (RegMean [1]_), nothing (the plain average), its diagonal (Fisher
        merging [2]_), or second moments of the features times those of the
        probabilities (as in FedLPA [3]_).
    l2 : float, default=10
        Penalty of local training: half of it times the squared weights of standardised
        features is added to the loss, summed over rows.
    local_softmax : {"balanced", "held"}, default="balanced"
        Whether the classes that a client holds weigh the same in its loss, or as many
        rows as they have.
    off_diagonal : float in [0, 1], default=0.9
        Factor of the off-diagonal second moments in "gram" and "kfac".
    aligner : FederatedOTAligner or MixedEffectsAligner, default=None
        Aligns the clients without a second exchange: their heads and second moments are
        mapped in closed form. Local training has seen features that were not aligned,
        and its penalty belongs to these; predictions equal those of a Pipeline of this
        aligner and this classifier with shifts, and are close to them otherwise.
        ``predict`` then needs ``client_ids``. The aligner's ``screen`` is not used.
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
    clients_report_ : ClientsReport
        Share, distance and so on of each client, and who stands out.
    aligner_ : FederatedOTAligner or MixedEffectsAligner
        The fitted aligner; only with ``aligner``.
    n_features_in_ : int
        Number of columns of X, with the client column if there is one.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of these columns, when all are strings.

    See Also
    --------
    FedEnsembleClassifier : Keeps the heads apart.
    FedAvgClassifier : Averages heads of any form, over several rounds.

    Notes
    -----
    Clients weigh the same, whatever their number of rows. A client has no weights for a
    class that it does not hold, so the weights of a class are merged from its holders
    only. A client with a single class has nothing to tell it from and is left out; a
    class that only such clients hold gets weights of zero.

    The server needs memory for one matrix of second moments per set of holders of a
    class with "gram", and per client with "kfac".

    References
    ----------
    .. [1] X. Jin, X. Ren, D. Preotiuc-Pietro, P. Cheng. "Dataless Knowledge Fusion by
       Merging Weights of Language Models". ICLR, 2023.
    .. [2] M. Matena, C. Raffel. "Merging Models with Fisher-Weighted Averaging".
       NeurIPS, 2022.
    .. [3] X. Liu, L. Liu, F. Ye, Y. Shen, X. Li, L. Jiang, J. Li. "FedLPA: One-shot
       Federated Learning with Layer-Wise Posterior Aggregation". NeurIPS, 2024.

    Examples
    --------
    >>> from skslot import FedMergeClassifier
    >>> from skslot.datasets import load_digit_scanners
    >>> data = load_digit_scanners()
    >>> classifier = FedMergeClassifier()
    >>> classifier.fit(data.data, data.target, client_ids=data.client_ids)
    FedMergeClassifier()
    >>> classifier.score(data.data, data.target) > 0.85
    True
    """

    _parameter_constraints: dict = {
        **OneShotClassifier._parameter_constraints,
        "curvature": [StrOptions({"gram", "none", "diag", "kfac"})],
        "l2": [Interval(Real, 0, None, closed="neither")],
        "local_softmax": [StrOptions({"balanced", "held"})],
        "off_diagonal": [Interval(Real, 0, 1, closed="both")],
        "aligner": LocalHeadsMixin._aligner_constraint,
    }

    def __init__(
        self,
        curvature="gram",
        *,
        l2=10,
        local_softmax="balanced",
        off_diagonal=0.9,
        aligner=None,
        client_column=None,
        screen="warn",
        n_jobs=None,
        verbose=0,
    ):
        self.curvature = curvature
        self.l2 = l2
        self.local_softmax = local_softmax
        self.off_diagonal = off_diagonal
        self.aligner = aligner
        self.client_column = client_column
        self.screen = screen
        self.n_jobs = n_jobs
        self.verbose = verbose

    def _summarize(self, X, y, classes, client, seed):
        head = train_logistic(X, y, self.l2, self.local_softmax == "balanced")
        return self._head_message(X, y, *head, self.curvature, client)

    def _learn(self, messages, seed):
        self._check_curvature(messages, self.curvature, f"curvature={self.curvature!r}")
        self._fit_aligner(messages)
        self._warn_if_all_have_one_class(messages)
        self.classes_, self.coef_, self.intercept_ = merge_heads(
            lambda: self._aligned_messages(messages, CurvedHead.pushed),
            self.curvature,
            self.off_diagonal,
        )
