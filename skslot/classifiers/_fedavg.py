"""FedAvg: heads trained at the clients and averaged, in one round or several."""

from numbers import Integral, Real

import numpy as np
from joblib import Parallel, delayed
from sklearn.utils import check_random_state

from .._docstrings import document
from .._sklearn_compat import (
    HasMethods,
    Interval,
    StrOptions,
    validate_parameter_constraints,
)
from .._utils import ignored, import_optional
from ..exchange import (
    FeatureScale,
    FeatureSummary,
    HeadWeights,
    MessageError,
    check_same_features,
)
from ..statistics import average_rows, is_constant
from ..trust import ClientsReport
from ._base import OneShotClassifier

# Whole numbers up to this are exact in float64; no message may claim more rows.
MAX_ROWS = 2**53

# How nets that are made here are trained, by skorch's names: default and constraint.
NET_PARAMS = {
    "net__lr": (0.01, Interval(Real, 0, None, closed="neither")),
    "net__max_epochs": (10, Interval(Integral, 1, None, closed="left")),
    "net__batch_size": (64, Interval(Integral, 1, None, closed="left")),
    "net__optimizer": ("sgd", StrOptions({"sgd", "adam", "adamw"}), callable),
    "net__optimizer__momentum": (0.9, Interval(Real, 0, 1, closed="left")),
    "net__optimizer__weight_decay": (1e-5, Interval(Real, 0, None, closed="left")),
    "net__device": ("cpu", str),
}
NET_DEFAULTS = {name: default for name, (default, *_) in NET_PARAMS.items()}
NET_CONSTRAINTS = {name: allowed for name, (_, *allowed) in NET_PARAMS.items()}


def import_torch_heads():
    """Import the module that needs torch and skorch."""
    for package in ("torch", "skorch"):
        import_optional(package, "torch", "FedAvgClassifier")
    from . import _torch_heads

    return _torch_heads


@document
class FedAvgClassifier(OneShotClassifier):
    """Federated averaging of classification heads trained by the clients.

    Every client trains the same linear classifier or net on its samples, and the server
    averages the weights. One round is one-shot FedAvg, several rounds are FedAvg [1]_.
    ``fit`` runs :meth:`client_update` for each client in each round, starting from the
    average of the previous round, and :meth:`server_aggregate` once.

    If clients hold few of the classes, plain averaging is hardly better than chance.
    Three defaults fix this: all clients centre and scale features in the same way
    (``standardize``), the head starts at zero (``net=None``), and local training
    accounts for classes that the client lacks (``local_softmax``). :meth:`as_in_paper`
    switches them off.

    Read more in the :doc:`User Guide </user_guide/classifiers>`.

    Parameters
    ----------
    n_rounds : int, default=1
        Number of rounds of local training and averaging.
    net : torch module, callable or skorch.NeuralNetClassifier, default=None
        Head to train. None is a linear layer that starts at zero. A module class or
        other callable is called with the number of features and the number of classes,
        and returns a module with one logit per class; ``torch.nn.Linear`` is a linear
        layer with random weights. A module instance starts with its own weights. A
        skorch net is trained unchanged, on labels 0, 1, ...; ``local_softmax`` and the
        defaults of ``net__params`` then do not apply.
    averaging : {"uniform", "samples"}, default="uniform"
        Weights of the clients: all equal, or proportional to the number of samples.
    standardize : bool, default=True
        Whether to subtract the mean of all clients' samples from the features, and
        divide them by one number: the root of their mean variance. This requires one
        additional small message from and to each client.
    local_softmax : {"balanced", "held", "all"}, default="balanced"
        How local training treats the class distribution of a client. ``"all"`` is the
        plain cross-entropy, which drives the probability of classes that the client
        lacks to zero. ``"held"`` takes the softmax over the classes that the client
        holds [2]_, or over all classes if it holds a single one. ``"balanced"`` adds
        log(5 + number of samples of the class) to each logit [3]_. Classes then count
        as if they were equally frequent, and classes that the client lacks lose little.
    {client_column}
    {screen}
    {random_state}
        Seeds initial weights, the order of samples, and dropout. An int seeds torch
        at every client in the first round.
    n_jobs : int, default=None
        Number of processes that train clients in parallel. Each process uses one
        thread, except for a skorch net, which uses as many threads as in the calling
        process.
    verbose : int, default=0
        If 1, print a line for each client and round that is done.
    **net__params : dict
        Parameters of the net by skorch's names, prefixed with ``net__``. They can be
        searched in a grid. A skorch net passed as ``net`` is copied and not modified.
        Other nets have ``net__lr`` (default 0.01), ``net__max_epochs`` (10 per round),
        ``net__batch_size`` (64), ``net__device`` ("cpu") and ``net__optimizer``: "sgd"
        (default), "adam", "adamw" or a class from ``torch.optim``. The optimizer is
        created again for every client in every round. If it has these arguments, the
        defaults are ``net__optimizer__momentum=0.9`` and
        ``net__optimizer__weight_decay=1e-5``. Other arguments of the optimizer and of
        the module are ``net__optimizer__...`` and ``net__module__...``.

    Attributes
    ----------
    {classes_}
    net_ : skorch.NeuralNetClassifier
        Averaged head, with one output for each label in ``model_.classes``.
    model_ : HeadWeights
        Weights of the averaged head, which are the last message of the server.
    scale_ : FeatureScale
        Mean and scale of the features. None if ``standardize=False``.
    {coef_}
        They apply to features that are not standardized. Only defined if ``net_`` is
        linear.
    {intercept_}
        Only defined if ``net_`` is linear.
    history_ : list of dict
        For each ``"round"``, the cross-entropy of the model before local training
        (``"global_loss"``) and of the heads after local training (``"local_loss"``).
        Both are computed on each client's own samples and averaged over clients
        according to ``averaging``.
    {clients_report_}
    {n_features_in_}
    {feature_names_in_}

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
    >>> FedAvgClassifier(net__lr=0.05).set_params(net__max_epochs=3)
    FedAvgClassifier(net__lr=0.05, net__max_epochs=3)
    """

    message_type = HeadWeights

    _parameter_constraints: dict = {
        **OneShotClassifier._parameter_constraints,
        "n_rounds": [Interval(Integral, 1, None, closed="left")],
        "net": [callable, HasMethods("fit_loop"), None],
        "averaging": [StrOptions({"uniform", "samples"})],
        "standardize": ["boolean"],
        "local_softmax": [StrOptions({"balanced", "held", "all"})],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_rounds=1,
        *,
        net=None,
        averaging="uniform",
        standardize=True,
        local_softmax="balanced",
        client_column=None,
        screen="warn",
        random_state=None,
        n_jobs=None,
        verbose=0,
        **net__params,
    ):
        self.n_rounds = n_rounds
        self.net = net
        self.averaging = averaging
        self.standardize = standardize
        self.local_softmax = local_softmax
        self.client_column = client_column
        self.screen = screen
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        for name in net__params:
            if not name.startswith("net__"):
                raise TypeError(
                    f"FedAvgClassifier() got an unexpected keyword argument {name!r}; "
                    "parameters of the net start with net__, such as net__lr."
                )
        self._net_params = net__params

    @classmethod
    def as_in_paper(cls, **params):
        """Make a classifier with the plain setting of the SLOT-Align paper.

        Unchanged features (``standardize=False``), a linear layer with torch's random
        weights (``net=torch.nn.Linear``), plain cross-entropy (``local_softmax="all"``)
        and ``net__lr=1e-3``. It is hardly better than chance if clients hold few of the
        classes.

        Parameters
        ----------
        **params : dict
            Parameters that override the setting.

        Returns
        -------
        classifier : FedAvgClassifier
            An unfitted classifier.
        """
        paper = {
            "net": import_torch_heads().torch.nn.Linear,
            "net__lr": 1e-3,
            "standardize": False,
            "local_softmax": "all",
        }
        return cls(**{**paper, **params})

    def get_params(self, deep=True):
        params = super().get_params(deep)
        if deep and not self._has_skorch_net():
            params |= NET_DEFAULTS
        return params | self._net_params

    def set_params(self, **params):
        nested = {name: params[name] for name in params if name.startswith("net__")}
        super().set_params(**{n: v for n, v in params.items() if n not in nested})
        self._check_net_names(name for name in nested if name not in self._net_params)
        # a new dict, as a copy of the classifier may share the old one
        self._net_params = self._net_params | nested
        return self

    # ---------------------------------------------------------------- the steps

    def client_summary(self, X, *, client=None):
        """Compute the client step before training: size, mean and variance.

        Only for ``standardize=True``. It needs no fitted estimator and has no side
        effects.

        Parameters
        ----------
        {X}
        {client}

        Returns
        -------
        summary : FeatureSummary
            The message to the server.
        """
        self._validate_params()
        X = self._read_client(X, client)
        mean = average_rows(X)
        variance = float(np.square(X - mean).mean())
        return FeatureSummary(len(X), mean, variance, client)

    def server_scale(self, summaries):
        """Compute the server step before training: common mean and scale.

        It needs no fitted estimator and has no side effects.

        Parameters
        ----------
        summaries : list of FeatureSummary
            Messages of the clients.

        Returns
        -------
        scale : FeatureScale
            The message to all clients.
        """
        self._validate_params()
        return pool_summaries(list(self._receive(summaries, FeatureSummary)))

    def client_update(
        self, X, y=None, *, classes=None, client=None, scale=None, start=None
    ):
        """Run the client step: train the head on the samples of one client.

        It needs no fitted estimator and has no side effects. ``fit`` calls it for each
        client and round.

        Parameters
        ----------
        {X}
        {y}
            Required.
        classes : array-like of shape (n_classes,), default=None
            Labels that may occur, equal at all clients. If None, the labels in ``y``.
        {client}
        scale : FeatureScale, default=None
            Result of :meth:`server_scale`. Required if ``standardize=True``.
        start : HeadWeights, default=None
            Result of :meth:`server_average` in the previous round. None in the first
            round.

        Returns
        -------
        message : HeadWeights
            The message to the server.
        """
        torch_heads = import_torch_heads()
        self._validate_params()
        is_seeded = isinstance(self.random_state, Integral)
        module = torch_heads.torch.nn.Module
        has_weights = self.net is None or isinstance(self.net, module)
        if start is None and not is_seeded and not has_weights:
            raise ValueError(
                "clients must start with the same weights, and those of this net are "
                "random: set random_state to the same integer at all clients."
            )
        X, y, classes = self._client_rows(X, y, classes, client)
        self._check_standardization(scale is not None, "scale", "server_scale")
        classes, n_features = np.unique(classes), X.shape[1]
        n_rounds = 0 if start is None else start.n_rounds
        if start is not None and (
            start.classes != classes.tolist() or start.n_features != n_features
        ):
            raise ValueError(
                f"start is a head for {start.n_features} features and the classes "
                f"{start.classes}, but here are {n_features} features and the classes "
                f"{classes.tolist()}. Pass the same classes in every round."
            )
        codes = np.searchsorted(classes, y)
        counts = np.bincount(codes, minlength=len(classes)).astype(np.int32)
        seed = self.random_state
        if not is_seeded:
            seed = check_random_state(seed).randint(np.iinfo(np.int32).max)
        weights, losses = torch_heads.train(
            self.local_net(n_features, counts),
            training_rows(X, scale),
            codes,
            start,
            int(seed) + n_rounds,
        )
        if not all(np.isfinite(array).all() for array in weights.values()):
            raise ValueError(
                f"training diverged at client {client!r}: some weights are not finite. "
                "Lower the learning rate, or set standardize=True."
            )
        facts = n_features, n_rounds + 1, client
        return HeadWeights(classes.tolist(), counts, weights, losses, *facts)

    def server_average(self, messages):
        """Run the server step of one round: average the heads.

        It needs no fitted estimator and has no side effects.

        Parameters
        ----------
        messages : list of HeadWeights
            Messages of the clients in this round.

        Returns
        -------
        average : HeadWeights
            The message to all clients.
        """
        self._validate_params()
        return average_heads(list(self._receive(messages, HeadWeights)), self.averaging)

    def server_aggregate(self, messages):
        """Run the server step at the end: fit the classifier to all messages.

        Parameters
        ----------
        messages : iterable of HeadWeights and FeatureSummary
            Heads of all rounds. The model is the average of the last round, and earlier
            rounds are used for ``history_``. If ``standardize=True``, also the summary
            of each client.

        Returns
        -------
        self : FedAvgClassifier
            Fitted classifier.
        """
        torch_heads = import_torch_heads()
        self._validate_params()
        summaries, rounds = [], {}
        for message in messages:
            if isinstance(message, FeatureSummary):
                summaries.append(message)
            else:  # other kinds are refused by the average
                is_head = isinstance(message, HeadWeights)
                number = message.n_rounds if is_head else 0
                rounds.setdefault(number, []).append(message)
        self._check_standardization(
            bool(summaries), "a FeatureSummary among the messages", "client_summary"
        )
        report, scale, average, history = ClientsReport([]), None, None, []
        if summaries:
            scale, report = self._run_server(self.server_scale, summaries)
        for _, heads in sorted(rounds.items()) or [(0, [])]:
            if report.left_out:  # of no use in what follows either
                heads = [head for head in heads if head.client not in report.left_out]
            earlier = average
            average, found = self._run_server(self.server_average, heads)
            check_same_features(earlier or average, average)
            report = report.merged(found)
            before_training, after_training = average.losses.tolist()
            history.append(
                {
                    "round": average.n_rounds,
                    "global_loss": before_training,
                    "local_loss": after_training,
                }
            )
        vars(self).pop("feature_names_in_", None)  # of an earlier fit
        net = self.local_net(average.n_features, average.counts)
        self.net_ = torch_heads.fitted_net(net, average.weights)
        self.model_, self.scale_ = average, scale
        held = average.counts > 0
        self.classes_ = np.array(average.classes)[held]
        self._encoder = average.encoder
        self.n_features_in_ = average.n_features + (self.client_column is not None)
        self.history_, self.clients_report_ = history, report
        for name in ("coef_", "intercept_"):  # of an earlier fit
            vars(self).pop(name, None)
        linear = torch_heads.linear_coefficients(self.net_, scale)
        if linear is not None:
            self.coef_, self.intercept_ = linear[0][held], linear[1][held]
        return self

    def local_net(self, n_features, counts):
        """Make the unfitted net that a client trains.

        With one client and one round, the classifier equals this net fitted to the
        standardized samples and labels 0, 1, ... after ``torch.manual_seed`` with
        ``random_state``.

        Parameters
        ----------
        n_features : int
            Number of features.
        counts : array-like of shape (n_classes,)
            Number of samples of each class at the client.

        Returns
        -------
        net : skorch.NeuralNetClassifier
            A new net.
        """
        return import_torch_heads().make_net(
            self.net,
            self._net_params,
            NET_DEFAULTS,
            self.local_softmax,
            n_features,
            counts,
        )

    # ------------------------------------------------------------------ helpers

    def _client_updates(self, X, y, groups):
        """Return the messages of all clients in all rounds."""
        torch_heads = import_torch_heads()
        threads, n_threads = torch_heads.threads, torch_heads.torch.get_num_threads()
        messages, scale, average = [], None, None
        # server_aggregate repeats the steps of the server, and their warnings
        if self.standardize:
            pairs = zip(groups.clients, groups.rows, strict=True)
            messages = [self.client_summary(X[rows], client=c) for c, rows in pairs]
            with ignored(UserWarning):
                scale, report = self._run_server(self.server_scale, messages)
            groups = groups.without(report.left_out)
        classes = np.unique(y)

        def update(X, y, client, start):
            with threads(n_threads):  # also in another process
                return self.client_update(
                    X, y, classes=classes, client=client, scale=scale, start=start
                )

        # torch has one random state for all threads of a process
        run = Parallel(self.n_jobs, prefer="processes", return_as="generator")
        for n_rounds in range(1, self.n_rounds + 1):
            jobs = (
                delayed(update)(X[rows], y[rows], client, average)
                for client, rows in zip(groups.clients, groups.rows, strict=True)
            )
            heads = []
            for head in run(jobs):
                heads.append(head)
                self._say(
                    f"round {n_rounds}/{self.n_rounds}: client {head.client!r} done "
                    f"({len(heads)}/{len(groups.clients)}), "
                    + "loss {:.3f} -> {:.3f}".format(*head.losses)
                )
            with ignored(UserWarning):
                average, report = self._run_server(self.server_average, heads)
            groups = groups.without(report.left_out)
            messages += heads
        return messages

    def _run_server(self, step, messages):
        """Return the result of a server step, and the report on its clients."""
        received = self._receive(messages, FeatureSummary, HeadWeights)
        return step(received), received.clients_report

    def _check_standardization(self, given, what, step):
        """Refuse what belongs to ``standardize=True`` without it, and its absence."""
        if self.standardize != given:
            raise ValueError(
                f"standardize={self.standardize}, but {what} was "
                f"{'' if given else 'not '}passed. It comes from {step} and is needed "
                "with standardize=True only."
            )

    def _has_skorch_net(self):
        return hasattr(self.net, "get_params") and not isinstance(self.net, type)

    def _validate_params(self):
        super()._validate_params()
        self._check_net_names(self._net_params)
        if not self._has_skorch_net():
            name = type(self).__name__
            validate_parameter_constraints(NET_CONSTRAINTS, self._net_params, name)

    def _check_net_names(self, names):
        """Refuse names that the net does not have."""
        known, hint = NET_DEFAULTS, "; for others, pass a skorch net"
        if self._has_skorch_net():
            known, hint = [f"net__{name}" for name in self.net.get_params()], ""
        parts = {"module", *(name.split("__")[1] for name in known)}
        for name in names:
            _, part, *rest = name.split("__")
            if name not in known and not (rest and part in parts):
                public = ", ".join(n for n in known if not n.startswith("net___"))
                raise ValueError(
                    f"Invalid parameter {name!r} for {type(self).__name__}. Valid "
                    f"parameters of its net are {public}, and those that start with "
                    f"net__module__ or net__optimizer__{hint}."
                )

    def _scores(self, X):
        if hasattr(self, "coef_"):
            return super()._scores(X)
        scores = import_torch_heads().class_scores(
            self.net_, training_rows(X, self.scale_)
        )
        return scores[:, self.model_.counts > 0]


def pool_summaries(summaries):
    """Mean and scale of the rows of all clients."""
    sizes = np.array([summary.n_samples for summary in summaries], dtype=np.float64)
    means = np.array([summary.mean for summary in summaries])
    variances = np.array([summary.variance for summary in summaries])
    mean = average_rows(means, sizes)
    apart = np.square(means - mean).mean(axis=1)
    variance = sizes @ (variances + apart) / sizes.sum()
    varies = not is_constant(variance, np.abs(mean).max(), sizes.sum())
    scale = np.sqrt(variance) if varies else 1.0
    return FeatureScale(mean, float(scale), summaries[0].encoder)


def average_heads(messages, averaging):
    """Average of the heads of one round."""
    sizes = [message.n_samples for message in messages]
    shares = np.array(sizes if averaging == "samples" else [1] * len(sizes), float)
    first = messages[0]
    weights = {
        name: _average([message.weights[name] for message in messages], shares)
        for name in first.weights
    }
    if sum(sizes) > MAX_ROWS:
        most = max(messages, key=lambda message: message.n_samples)
        raise MessageError(
            f"it claims {most.n_samples} rows, and those of all clients add up to more "
            f"than {MAX_ROWS}; leave it out.",
            most.client,
        )
    # whole rows, also of clients that count for a part of theirs
    counts = np.sum([message.counts for message in messages], axis=0, dtype=np.float64)
    counts = np.ceil(counts).astype(np.int64)
    if counts.max() <= np.iinfo(np.int32).max:  # half the bytes, as in other messages
        counts = counts.astype(np.int32)
    return HeadWeights(
        first.classes,
        counts,
        weights,
        _average([message.losses for message in messages], shares),
        first.n_features,
        first.n_rounds,
        encoder=first.encoder,
    )


def training_rows(X, scale):
    """Rows as local training reads them: a copy in float32."""
    return X.astype(np.float32) if scale is None else scale.apply(X)


def _average(arrays, shares):
    """Weighted mean in float64; counters in a state stay integers."""
    total = sum(
        share * np.asarray(array, dtype=np.float64)
        for share, array in zip(shares, arrays, strict=True)
    )
    mean = total / shares.sum()
    is_whole = all(np.asarray(array).dtype.kind in "iub" for array in arrays)
    mean = np.rint(mean).astype(np.result_type(*arrays)) if is_whole else mean
    return np.asarray(mean)  # sums of arrays without axes are scalars
