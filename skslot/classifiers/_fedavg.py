"""FedAvg: heads trained at the clients and averaged, in one round or several."""

from functools import partial
from numbers import Integral, Real

import numpy as np
from sklearn.base import _fit_context
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from .._clients import check_client_name
from ..exchange import FeatureSummary, HeadWeights
from ._averaging import (
    TrainingRecord,
    average_heads,
    check_finite,
    check_heads,
    check_standardization,
    check_start,
    local_labels,
    pool_summaries,
    summarize_rows,
    training_rows,
)
from ._base import OneShotClassifier
from ._messages import check_messages, checked
from ._optional import torch_heads


class FedAvgClassifier(OneShotClassifier):
    """Federated averaging of heads that are trained at the clients.

    Every client trains the same head on its rows, and the server averages the weights.
    One round is one-shot FedAvg, several are FedAvg [1]_.

    When clients hold few of the classes, plain averaging is near chance. Three changes
    repair it and are the default: features are centred and scaled alike at all clients
    (``standardize``), the head starts at zero (``head=None``), and local training is
    told which classes the client lacks (``local_softmax``). :meth:`as_in_paper` is
    without them.

    Read more in the :doc:`User Guide </user_guide/classifiers>`.

    Parameters
    ----------
    n_rounds : int, default=1
        Rounds of local training and averaging.
    head : torch module, callable or skorch.NeuralNetClassifier, default=None
        What is trained. None is a linear layer that starts at zero. A module class, or
        any callable, is called with the numbers of features and of classes and returns
        a module with one logit per class; ``torch.nn.Linear`` is a linear layer with
        random weights. A module that is made already starts with the weights it has. A
        skorch net is trained as it is, on labels 0, 1, ...: ``lr``, ``max_epochs``,
        ``batch_size``, ``optimizer``, ``momentum``, ``weight_decay``, ``local_softmax``
        and ``device`` then do not apply.
    lr : float, default=0.01
        Learning rate.
    max_epochs : int, default=10
        Epochs of local training in each round.
    batch_size : int, default=64
        Rows per step.
    optimizer : {"sgd", "adam", "adamw"} or callable, default="sgd"
        Optimizer, or a class like those of ``torch.optim``. It starts anew at every
        client in every round.
    momentum : float, default=0.9
        Momentum; ignored by optimizers without it.
    weight_decay : float, default=1e-5
        Weight decay.
    averaging : {"uniform", "samples"}, default="uniform"
        Whether clients count the same or by their number of rows.
    standardize : bool, default=True
        Whether features are centred by the mean of all clients' rows and divided by one
        number, the root of their variance averaged over features. Needs one small
        message more from and to each client.
    local_softmax : {"balanced", "held", "all"}, default="balanced"
        How local training treats the label mix of a client. "all" is the plain
        cross-entropy, which teaches a client that classes it lacks do not exist.
        "held" takes the softmax over the classes that the client holds [2]_, or over
        all if it holds a single one. "balanced" adds log(5 + number of rows of the
        class) to each logit [3]_: classes count as if they were equally frequent, and
        those that the client lacks are pushed down little.
    client_column : str or int, default=None
        Name or position of the column of X that holds the client ids. None means that
        ids are passed as ``client_ids``.
    wire_dtype : {"float64", "float32", "float16"}, default="float32"
        Precision of the messages.
    device : str, default="cpu"
        Device of torch.
    random_state : int, RandomState instance or None, default=None
        Seed of initial weights, order of rows and dropout. An int is the seed of torch
        at every client in the first round, and makes fits repeatable, whatever
        ``n_jobs`` is.
    n_jobs : int, default=None
        Processes over clients. Heads are trained on one thread each, except for a
        skorch net, which uses as many in each process as in the calling one.
    verbose : int, default=0
        1 prints a line for each client and round that is done.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels that at least one client holds.
    net_ : skorch.NeuralNetClassifier
        The averaged head. It has one output for each label in ``model_.classes``.
    model_ : HeadWeights
        Its weights: the last message of the server.
    scale_ : FeatureScale
        Mean and scale of the features; None with ``standardize=False``.
    coef_ : ndarray of shape (n_classes, n_features)
        Weights for features that are not standardized; only if the head is linear.
    intercept_ : ndarray of shape (n_classes,)
        Intercepts that go with them; only if the head is linear.
    history_ : list of dict
        For each ``"round"`` the cross-entropy of the model at its start
        (``"global_loss"``) and of the heads after local training (``"local_loss"``),
        each on the clients' own rows, averaged over clients as ``averaging`` says.
    communication_ : dict
        For each client the bytes sent and received in all rounds, as a
        :class:`Communication`.
    n_features_in_ : int
        Number of columns of X, with the client column if there is one.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of these columns, when all are strings.

    See Also
    --------
    FedCGSClassifier : Needs no training.
    FederatedOTAligner : Aligns features of clients.

    Notes
    -----
    Needs torch and skorch: ``pip install "skslot[torch]"``.

    References
    ----------
    .. [1] B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Aguera y Arcas.
       "Communication-Efficient Learning of Deep Networks from Decentralized Data".
       AISTATS, 2017.
    .. [2] X.-C. Li, D.-C. Zhan. "FedRS: Federated Learning with Restricted Softmax for
       Label Distribution Non-IID Data". KDD, 2021.
    .. [3] A. K. Menon, S. Jayasumana, A. S. Rawat, H. Jain, A. Veit, S. Kumar.
       "Long-tail Learning via Logit Adjustment". ICLR, 2021.

    Examples
    --------
    >>> from skslot import FedAvgClassifier
    >>> from skslot.datasets import load_digit_scanners
    >>> data = load_digit_scanners()
    >>> classifier = FedAvgClassifier(random_state=0)
    >>> classifier.fit(data.data, data.target, client_ids=data.client_ids)
    FedAvgClassifier(random_state=0)
    >>> classifier.score(data.data, data.target) > 0.85
    True
    >>> classifier.communication_["fax"]
    Communication(up=..., down=...)
    """

    _message_type = HeadWeights
    # torch has one random state for all threads of a process
    _prefer = "processes"

    _parameter_constraints: dict = {
        **OneShotClassifier._parameter_constraints,
        "n_rounds": [Interval(Integral, 1, None, closed="left")],
        "head": [callable, HasMethods("fit_loop"), None],
        "lr": [Interval(Real, 0, None, closed="neither")],
        "max_epochs": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "optimizer": [StrOptions({"sgd", "adam", "adamw"}), callable],
        "momentum": [Interval(Real, 0, 1, closed="left")],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "averaging": [StrOptions({"uniform", "samples"})],
        "standardize": ["boolean"],
        "local_softmax": [StrOptions({"balanced", "held", "all"})],
        "device": [str],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_rounds=1,
        *,
        head=None,
        lr=0.01,
        max_epochs=10,
        batch_size=64,
        optimizer="sgd",
        momentum=0.9,
        weight_decay=1e-5,
        averaging="uniform",
        standardize=True,
        local_softmax="balanced",
        client_column=None,
        wire_dtype="float32",
        device="cpu",
        random_state=None,
        n_jobs=None,
        verbose=0,
    ):
        self.n_rounds = n_rounds
        self.head = head
        self.lr = lr
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.optimizer = optimizer
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.averaging = averaging
        self.standardize = standardize
        self.local_softmax = local_softmax
        self.client_column = client_column
        self.wire_dtype = wire_dtype
        self.device = device
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    @classmethod
    def as_in_paper(cls, **params):
        """The plain setting of the SLOT-Align paper.

        Features as they are, a linear layer with torch's random weights, plain
        cross-entropy and a learning rate of 1e-3: near chance when clients hold few of
        the classes.

        Parameters
        ----------
        **params : dict
            Parameters that are to differ from it.

        Returns
        -------
        classifier : FedAvgClassifier
            An unfitted classifier.
        """
        linear = torch_heads().torch.nn.Linear
        paper = {"head": linear, "lr": 1e-3, "standardize": False}
        return cls(**{**paper, "local_softmax": "all", **params})

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y, client_ids=None):
        """Train at the clients and average, for all rounds.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features of all clients, in any order.
        y : array-like of shape (n_samples,)
            Labels.
        client_ids : array-like of shape (n_samples,), default=None
            Client of each row; without any ids all rows are one client.

        Returns
        -------
        self : FedAvgClassifier
            The fitted classifier.
        """
        torch_heads()
        X, y, groups = self._read_training_rows(X, y, client_ids)
        record = TrainingRecord(self.wire_dtype)
        scale = average = None
        if self.standardize:
            summaries = [
                self.client_summary(X[rows], client)
                for client, rows in zip(groups.clients, groups.rows, strict=True)
            ]
            scale = self.server_scale(summaries)
            record.add_exchange(summaries, scale)
        fixed = {"seed": self._seed(), "n_threads": torch_heads().n_threads()}
        for _ in range(self.n_rounds):
            step = partial(self._train_client, scale=scale, start=average, **fixed)
            messages = self._run_clients(step, X, y, groups)
            average = self.server_average(messages)
            record.add_round(messages, average)
        return self._adopt(average, scale, record)

    # ---------------------------------------------------------------- the steps

    def client_summary(self, X, client=None):
        """Client step before training: size, mean and variance of the rows.

        Only for ``standardize=True``. Needs no fit and changes nothing.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows of the client.
        client : object, default=None
            Its name.

        Returns
        -------
        summary : FeatureSummary
            The message to the server, in the precision of the wire.
        """
        self._validate_params()
        check_client_name(client)
        X = self._read_client(X, client)
        return summarize_rows(X, client).as_received(self.wire_dtype)

    def server_scale(self, summaries):
        """Server step before training: the common origin and unit of features.

        Needs no fit and changes nothing.

        Parameters
        ----------
        summaries : list of FeatureSummary
            What the clients sent.

        Returns
        -------
        scale : FeatureScale
            The message to all clients, in the precision of the wire.
        """
        self._validate_params()
        scale = pool_summaries(check_messages(summaries, FeatureSummary))
        return scale.as_received(self.wire_dtype)

    def client_update(self, X, y, classes=None, client=None, *, scale=None, start=None):
        """Client step: train the head on the rows of one client.

        Needs no fit, changes nothing, and is what ``fit`` does for each client and
        round.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows of the client.
        y : array-like of shape (n_samples,)
            Their labels.
        classes : array-like of shape (n_classes,), default=None
            Labels that may occur, the same at all clients; by default those in ``y``.
        client : object, default=None
            Its name.
        scale : FeatureScale, default=None
            What :meth:`server_scale` gave; for ``standardize=True``.
        start : HeadWeights, default=None
            What :meth:`server_average` gave in the last round; None is the first round.

        Returns
        -------
        message : HeadWeights
            The message to the server, in the precision of the wire.
        """
        heads = torch_heads()
        is_seeded = isinstance(self.random_state, Integral)
        if start is None and not is_seeded and heads.starts_at_random(self.head):
            raise ValueError(
                "clients must start with the same weights, and those of this head are "
                "random: set random_state to the same integer at all clients."
            )
        return self._train_client(
            X, y, classes, client, scale, start, self._seed(), heads.n_threads()
        )

    def server_average(self, messages):
        """Server step: the average of the heads of one round.

        Needs no fit and changes nothing.

        Parameters
        ----------
        messages : list of HeadWeights
            What the clients sent in this round.

        Returns
        -------
        average : HeadWeights
            The message to all clients, in the precision of the wire.
        """
        self._validate_params()
        average = average_heads(check_heads(messages), self.averaging)
        return average.as_received(self.wire_dtype)

    def server_aggregate(self, messages, summaries=()):
        """Server step at the end: the classifier, from all that the clients sent.

        Parameters
        ----------
        messages : list of HeadWeights
            Heads of all rounds. The model is the average of the last round; earlier
            ones count for ``history_`` and ``communication_``.
        summaries : list of FeatureSummary, default=()
            What the clients had sent before, with ``standardize=True``.

        Returns
        -------
        self : FedAvgClassifier
            The classifier, fitted.
        """
        self._validate_params()
        messages, summaries = list(checked(messages, HeadWeights)), list(summaries)
        check_standardization(
            self.standardize, bool(summaries), "summaries", "client_summary"
        )
        record, scale = TrainingRecord(self.wire_dtype), None
        if summaries:
            scale = self.server_scale(summaries)
            record.add_exchange(summaries, scale)
        for number in sorted({message.n_rounds for message in messages}):
            heads = [message for message in messages if message.n_rounds == number]
            average = self.server_average(heads)
            record.add_round(heads, average)
        return self._adopt(average, scale, record)

    def local_net(self, n_features, counts):
        """The net that a client trains, unfitted.

        With one client and one round, the classifier is this net, fitted to the
        standardized rows and to labels 0, 1, ... after ``torch.manual_seed`` with
        ``random_state``.

        Parameters
        ----------
        n_features : int
            Number of features.
        counts : array-like of shape (n_classes,)
            Number of rows the client has of each class.

        Returns
        -------
        net : skorch.NeuralNetClassifier
            A new net.
        """
        params = self.get_params(deep=False)
        return torch_heads().make_net(params, n_features, counts)

    # ------------------------------------------------------------------ helpers

    def _seed(self):
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return check_random_state(self.random_state).randint(np.iinfo(np.int32).max)

    def _say_done(self, message, count):
        self._say(
            f"round {message.n_rounds}/{self.n_rounds}: client {message.client!r} "
            f"done ({count}), " + "loss {:.3f} -> {:.3f}".format(*message.losses)
        )

    def _train_client(self, X, y, classes, client, scale, start, seed, n_threads):
        X, y, classes = self._client_rows(X, y, classes, client)
        check_standardization(
            self.standardize, scale is not None, "scale", "server_scale"
        )
        classes, codes, counts = local_labels(y, classes)
        n_rounds = check_start(start, classes, X.shape[1])
        net, rows = self.local_net(X.shape[1], counts), training_rows(X, scale)
        weights, losses = torch_heads().train(
            net, rows, codes, start, seed + n_rounds, n_threads
        )
        check_finite(weights, client)
        facts = X.shape[1], n_rounds + 1, client
        message = HeadWeights(classes.tolist(), counts, weights, losses, *facts)
        return message.as_received(self.wire_dtype)

    def _adopt(self, average, scale, record):
        """Become the classifier with these weights."""
        heads = torch_heads()
        net = self.local_net(average.n_features, average.counts)
        self.net_ = heads.fitted_net(net, average.weights)
        self.model_, self.scale_ = average, scale
        held = average.counts > 0
        self.classes_ = np.array(average.classes)[held]
        self._encoder = average.encoder
        self.n_features_in_ = average.n_features + (self.client_column is not None)
        self.history_, self.communication_ = record.history, record.communication
        for name in ("coef_", "intercept_"):  # of an earlier fit
            vars(self).pop(name, None)
        linear = heads.linear_coefficients(self.net_, scale)
        if linear is not None:
            self.coef_, self.intercept_ = linear[0][held], linear[1][held]
        return self

    def _scores(self, X):
        if hasattr(self, "coef_"):
            return super()._scores(X)
        scores = torch_heads().class_scores(self.net_, training_rows(X, self.scale_))
        return scores[:, self.model_.counts > 0]
