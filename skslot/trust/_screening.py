"""How a server step handles implausible and dominant clients."""

from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from math import isnan, nan
from numbers import Real
from statistics import median
from types import SimpleNamespace

import numpy as np

from .._utils import about, number_unnamed, short, shorten, text_table, warn_user
from ..statistics import is_constant

ACTIONS = (None, "warn", "exclude")


@dataclass(frozen=True)
class ClientScreen:
    """Rules by which a server step screens its clients.

    The ``screen`` parameter of all estimators takes an instance.

    Read more in the :doc:`User Guide </user_guide/trust>`.

    Parameters
    ----------
    action : None, "warn" or "exclude", default="warn"
        How to handle clients whose statistics are implausible compared with all others.
        ``"warn"`` issues a warning, ``"exclude"`` drops the client, ``None`` disables
        the check. The report on the clients is computed in any case.
    max_share : float in (0, 1], default=None
        Maximum fraction of all samples that one client may contribute. Larger clients
        are down-weighted, see :func:`cap_shares`. If None, no limit is applied.

    See Also
    --------
    examine_clients : Examine clients and apply an action to outliers.
    cap_shares : Compute the weights of clients under a limit.

    Examples
    --------
    >>> from skslot import FedCGSClassifier
    >>> from skslot.datasets import load_digit_scanners
    >>> from skslot.trust import ClientScreen
    >>> data = load_digit_scanners()
    >>> screen = ClientScreen(action="exclude", max_share=0.5)
    >>> screen
    ClientScreen(action='exclude', max_share=0.5)
    >>> classifier = FedCGSClassifier(screen=screen)
    >>> classifier = classifier.fit(data.data, data.target, client_ids=data.client_ids)
    >>> classifier.clients_report_.left_out
    {}
    """

    action: str | None = "warn"
    max_share: float | None = None

    def __post_init__(self):
        if self.action not in ACTIONS:
            raise ValueError(
                f"action must be None, 'warn' or 'exclude', got {self.action!r}."
            )
        share = self.max_share
        if share is not None and not (isinstance(share, Real) and 0 < share <= 1):
            error = ValueError(
                "max_share must be None or a number above 0 and at most 1, got "
                f"{share!r}."
            )
            raise about(error, "max_share")

    @classmethod
    def of(cls, screen):
        """Convert a value of the ``screen`` parameter to a ClientScreen.

        Parameters
        ----------
        screen : None, "warn", "exclude" or ClientScreen
            Value to convert. An instance is returned unchanged.

        Returns
        -------
        screen : ClientScreen
            The instance.
        """
        return screen if isinstance(screen, cls) else cls(screen)


# ------------------------------------------------------------------ shares


def cap_shares(n_samples, max_share):
    """Lower the weights of large clients to a maximum share of all.

    Weights are the largest ``w <= n_samples`` with ``w <= max_share * sum(w)``. All
    clients that are too large get the same weight, and all other weights stay the same.

    Parameters
    ----------
    n_samples : array-like of shape (n_clients,)
        Weight of each client without a limit, such as its number of samples.
    max_share : float
        Maximum share of one client in the sum of weights, at least 1 / n_clients.

    Returns
    -------
    weights : ndarray of shape (n_clients,)
        Weight of each client.

    Examples
    --------
    >>> from skslot.trust import cap_shares
    >>> cap_shares([1000, 10, 20], 0.5)
    array([30., 10., 20.])
    >>> cap_shares([1000, 900, 20, 30], 0.4)
    array([100., 100.,  20.,  30.])
    """
    weights = np.asarray(n_samples, dtype=np.float64)
    n_clients = len(weights)
    if not n_clients or not (weights >= 0).all():
        raise ValueError("n_samples must be non-negative numbers, one per client.")
    # of as many clients as that, each can have no more than this share
    if max_share * n_clients < 1 - 1e-9:
        error = ValueError(
            f"max_share={max_share:g} is too small for {n_clients} clients, who "
            f"have 1/{n_clients} each if all weigh the same; give it at least "
            f"{1 / n_clients:.3g}."
        )
        raise about(error, "max_share")
    ordered = np.sort(weights)[::-1]
    for n_capped in range(n_clients):
        rest = ordered[n_capped:].sum()
        left = 1 - max_share * n_capped
        # the cap, if so many clients are at it
        cap = max_share * rest / left if left > 1e-9 else ordered[-1]
        if ordered[n_capped] <= cap:
            break
    else:
        cap = ordered[-1]
    return np.minimum(weights, cap)


# ------------------------------------------------------------------ clients


# Class means are kept as this many numbers each, so that a thousand clients with many
# classes fit in memory. Distances between them change by about a tenth by that.
SKETCH = 32


@dataclass(frozen=True)
class ClientFacts:
    """What is kept of a message when many are compared.

    Usually made by :meth:`skslot.exchange.Message.facts`. Everything but the name may
    be missing, because not every message contains it.

    Parameters
    ----------
    client : object
        Name of the client.
    n_samples : float, default=None
        Number of samples.
    mean : ndarray of shape (n_features,), default=None
        Mean of the features.
    variances : ndarray of shape (n_features,), default=None
        Variance of each feature.
    classes : tuple, default=()
        Labels of the classes that the client has samples of.
    sketches : ndarray of shape (n_classes, n_numbers), default=None
        A few numbers that represent the mean of each class, see :meth:`from_moments`.
    offsets : ndarray of shape (n_classes,), default=None
        Distance of the mean of each class from the mean of the client.
    within : float, default=None
        Variance around class means, summed over features.
    head_norms : tuple of float, default=None
        Norms of the weights and of the intercepts that the client trained.
    n_values : ndarray of shape (n_features,), default=None
        Number of values of each feature that are not missing. If it is given, features
        are the columns of a table as they were recorded. Each has a unit of its own and
        is also compared by itself.
    feature_names : list of str, default=None
        Names of the columns of a table. If these are given without ``n_values``,
        columns may have been transformed, and each is compared by its unit alone.
    kind : type, default=None
        Class of the message.
    class_counts : dict, default={}
        Number of samples by label.
    traits : dict, default={}
        What must be the same in all messages of one exchange.
    path : path-like, default=None
        File of the message.
    is_private : bool, default=False
        Whether the message has a guarantee of differential privacy.

    See Also
    --------
    examine_clients : Compare clients.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot import FedCGSClassifier
    >>> X = np.array([[0.0, 1.0], [2.0, 1.0], [5.0, 5.0]])
    >>> message = FedCGSClassifier().client_update(X, ["a", "a", "b"], client="A")
    >>> facts = message.facts()
    >>> facts.n_samples, facts.class_counts
    (3, {'a': 2, 'b': 1})
    """

    client: object
    n_samples: float | None = None
    mean: np.ndarray | None = None
    variances: np.ndarray | None = None
    classes: tuple = ()
    sketches: np.ndarray | None = None
    offsets: np.ndarray | None = None
    within: float | None = None
    head_norms: tuple | None = None
    n_values: np.ndarray | None = None
    feature_names: list | None = None
    kind: type | None = None
    class_counts: dict = field(default_factory=dict)
    traits: dict = field(default_factory=dict)
    path: object = None
    is_private: bool = False

    @classmethod
    def from_moments(
        cls,
        client,
        n_samples,
        mean=None,
        variances=None,
        class_means=None,
        head=(),
        n_values=None,
        feature_names=None,
        **others,
    ):
        """Summarise the moments of a client, its class means and what it trained.

        Parameters
        ----------
        client : object
            Name of the client.
        n_samples : float
            Number of samples.
        mean : ndarray of shape (n_features,), default=None
            Mean of the features.
        variances : ndarray of shape (n_features,), default=None
            Variance of each feature.
        class_means : dict, default=None
            Number of samples and their mean by label, as returned by
            :func:`skslot.statistics.class_means`.
        head : iterable of ndarray, default=()
            Weights that the client trained. Vectors are taken as intercepts.
        n_values : ndarray of shape (n_features,), default=None
            Number of values of each feature that are not missing.
        feature_names : list of str, default=None
            Names of the features, if they are the columns of a table.
        **others : dict
            Other parameters of the class.

        Returns
        -------
        facts : ClientFacts
            The record. It keeps at most 32 numbers of each class mean.
        """
        if mean is None or len(feature_names or ()) != len(mean):
            feature_names = None  # other names, as in a forged message
        if variances is not None:
            rows = n_samples if n_values is None else n_values
            variances = np.where(is_constant(variances, mean, rows), 0.0, variances)
        if class_means:
            counts = np.array([count for count, _ in class_means.values()], np.float64)
            centres = np.array([each for _, each in class_means.values()])
            squares = np.square(centres - mean).sum(axis=1)
            others |= {
                "classes": tuple(class_means),
                "sketches": sketch(centres),
                "offsets": np.sqrt(squares),
            }
            if variances is not None:
                between = counts @ squares / counts.sum()
                others["within"] = max(float(np.sum(variances) - between), 0.0)
        return cls(
            client,
            n_samples,
            mean,
            variances,
            head_norms=_norms(head),
            n_values=n_values,
            feature_names=feature_names,
            **others,
        )

    @property
    def n_features(self):
        """Number of features."""
        return self.traits["number of features"]

    @property
    def encoder(self):
        """Fingerprint of the encoder."""
        return self.traits["encoder"]

    @property
    def has_labels(self):
        """Whether the message describes classes."""
        return "kind of labels" in self.traits

    @property
    def words(self):
        """Words for the sender; the message of a server has no samples."""
        if self.n_samples is None and self.client is None:
            return "the model" if self.has_labels else "the reference"
        return f"client {short(self.client)}"

    def name_of(self, column):
        """Return the name of a feature in words.

        Parameters
        ----------
        column : int
            Position of the feature.

        Returns
        -------
        text : str
            The name, or the number counted from 1.
        """
        if self.feature_names is None:
            return f"feature {column + 1}"
        return f"column {self.feature_names[column]!r}"

    @property
    def is_of_table(self):
        """Whether features are columns of a table, each with a unit of its own."""
        if self.mean is None or self.variances is None:
            return False
        return self.n_values is not None or self.feature_names is not None

    @property
    def trace(self):
        """Variance, summed over features; 0 if it is not known."""
        return 0.0 if self.variances is None else float(np.sum(self.variances))

    @property
    def length(self):
        """Root of the mean squared length of a row."""
        return float(np.sqrt(np.sum(np.square(self.mean)) + self.trace))


def _norms(head):
    """Norms of matrices and of vectors, each taken together; None without any."""
    squares = {True: 0.0, False: 0.0}
    for array in head:
        squares[np.ndim(array) > 1] += float(np.sum(np.square(array, dtype=np.float64)))
    norms = np.sqrt(squares[True]), np.sqrt(squares[False])
    return tuple(map(float, norms)) if any(norms) else None


def sketch(means):
    """Projections of vectors on a few random directions, which keep distances."""
    n_features = means.shape[1]
    return means if n_features <= SKETCH else means @ _directions(n_features)


@lru_cache(maxsize=4)
def _directions(n_features):
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(n_features, SKETCH))
    return signs / np.sqrt(SKETCH)


# ------------------------------------------------------------------ report


@dataclass(frozen=True)
class ClientFinding:
    """Figures of one client in a :class:`ClientsReport`.

    Parameters
    ----------
    client : object
        Name of the client.
    n_samples : float
        Number of samples in its message.
    share : float
        Share of all samples.
    distance : float, default=nan
        2-Wasserstein distance from the other clients, in ordinary distances.
    trace_ratio : float, default=nan
        Variance of the features in units of the median over clients.
    class_distance : float, default=nan
        Largest distance of a class mean from the mean of the class at other clients, in
        standard deviations within a class.
    head_ratio : float, default=nan
        Norm of the trained weights in units of the median over clients.
    reason : str, default=None
        Reason why the client stands out; None if it does not.
    left_out : bool, default=False
        Whether it was left out.

    See Also
    --------
    ClientsReport : Findings on all clients.

    Examples
    --------
    >>> from skslot.trust import ClientFinding
    >>> ClientFinding("A", 50, 0.5, distance=0.7).stands_out
    False
    """

    client: object
    n_samples: float
    share: float
    distance: float = nan
    trace_ratio: float = nan
    class_distance: float = nan
    head_ratio: float = nan
    reason: str | None = None
    left_out: bool = False

    @property
    def stands_out(self):
        """Whether there is a reason to look at the client."""
        return self.reason is not None


# Maximum number of clients in a table, unless more stand out.
MOST_LINES = 20
COLUMNS = {
    "distance": "distance",
    "trace_ratio": "trace",
    "class_distance": "class means",
    "head_ratio": "head",
}


@dataclass(frozen=True)
class ClientsReport:
    """Findings on the clients of a server step; prints as a table.

    The attribute ``clients_report_`` of all classifiers, aligners and scalers.

    Parameters
    ----------
    findings : list of ClientFinding
        Findings on each client.

    See Also
    --------
    examine_clients : Make a report.
    skslot.inspection.ClientOutlierDisplay : Draw a report.

    Notes
    -----
    Of more than 20 clients, those that stand out and the farthest others are printed.
    Empty columns are omitted. ``share`` is the fraction of all samples, ``distance``
    the distance of the features from other clients, ``trace`` their variance relative
    to the median, ``class means`` the distance of the farthest class mean, and ``head``
    the size of the weights. A client stands out with a distance above 10, weights above
    100 times the median, or more than 1000 times the samples of all others together.

    Examples
    --------
    >>> from skslot import FedCGSClassifier
    >>> from skslot.datasets import load_digit_scanners
    >>> data = load_digit_scanners()
    >>> X, y, site = data.data, data.target, data.client_ids
    >>> classifier = FedCGSClassifier().fit(X, y, client_ids=site)
    >>> print(classifier.clients_report_)
    client     rows  share  distance  trace  class means
    fax         449  25.0%      0.72   1.35         0.93
    flatbed     450  25.0%      0.57   1.87         0.96
    microfilm   449  25.0%      0.40   0.65         0.59
    phone       449  25.0%      0.49   0.39         0.76
    no client stands out
    >>> classifier.clients_report_.outliers
    {}
    """

    # A client stands out above this. Features of one encoder are of one order of
    # magnitude: another unit changes them by a factor of ten or more, and what honest
    # sites do to them stays within a few of these distances.
    MOST_DISTANCE = 10.0

    findings: list

    def __iter__(self):
        return iter(self.findings)

    def __getitem__(self, client):
        for finding in self.findings:
            if finding.client == client:
                return finding
        raise KeyError(client)

    @property
    def clients(self):
        """Names of all clients."""
        return [each.client for each in self.findings]

    @property
    def outliers(self):
        """Why clients stand out, by name."""
        return {each.client: each.reason for each in self.findings if each.stands_out}

    @property
    def left_out(self):
        """Why clients were left out, by name."""
        return {each.client: each.reason for each in self.findings if each.left_out}

    @property
    def has_majority(self):
        """Whether at least two clients, and more than half, do not stand out."""
        n_clients = len(self.findings)
        return n_clients - len(self.outliers) >= max(2, n_clients // 2 + 1)

    def without_outliers(self):
        """Return the report after clients that stand out were left out.

        It is an error if fewer than two clients, or no majority, would remain.

        Returns
        -------
        report : ClientsReport
            Report with ``left_out`` set for these clients.
        """
        found = self.outliers
        if found and not self.has_majority:
            client, reason = next(iter(found.items()))
            n_clients = len(self.findings)
            error = ValueError(
                f"screen='exclude' would leave {n_clients - len(found)} of "
                f"{n_clients} clients, which are no measure of the others: client "
                f"{shorten(found)} would go, {client!r} because {reason} Look at all "
                "of them, or set screen='warn'."
            )
            raise about(error, "screen")
        return ClientsReport(
            [replace(each, left_out=each.stands_out) for each in self.findings]
        )

    def farthest(self, most):
        """Select the clients that stand out and the farthest of the others.

        Parameters
        ----------
        most : int
            Maximum number of clients, unless more stand out.

        Returns
        -------
        report : ClientsReport
            Report on these clients, in the same order.
        """
        ordered = sorted(self.findings, key=_farthest, reverse=True)
        chosen = {id(each) for each in ordered[: max(most, len(self.outliers))]}
        return ClientsReport([each for each in self.findings if id(each) in chosen])

    def merged(self, later):
        """Merge the report of a later exchange with the same clients.

        Parameters
        ----------
        later : ClientsReport
            Report of the later exchange. Some clients may be missing.

        Returns
        -------
        report : ClientsReport
            Report with the later figures, the earlier shares, and all reasons.
        """
        merged = {each.client: each for each in self.findings}
        for new in later.findings:
            old = merged.get(new.client, new)
            figures = {
                name: getattr(old if isnan(getattr(new, name)) else new, name)
                for name in COLUMNS
            }
            reasons = dict.fromkeys(filter(None, (old.reason, new.reason)))
            merged[new.client] = replace(
                old,
                **figures,
                reason="; ".join(reasons) or None,
                left_out=old.left_out or new.left_out,
            )
        return ClientsReport(list(merged.values()))

    def to_dicts(self):
        """Convert the findings to plain data, such as for JSON or a data frame.

        Returns
        -------
        rows : list of dict
            One for each client. Unknown numbers are None.
        """
        return [
            {name: _plain(value) for name, value in asdict(each).items()}
            for each in self.findings
        ]

    @classmethod
    def from_dicts(cls, rows):
        """Read what :meth:`to_dicts` returned.

        Parameters
        ----------
        rows : list of dict
            One for each client.

        Returns
        -------
        report : ClientsReport
            The report.
        """
        numbers = tuple(COLUMNS)
        return cls(
            [
                ClientFinding(
                    **{
                        name: nan if value is None and name in numbers else value
                        for name, value in row.items()
                    }
                )
                for row in rows
            ]
        )

    def __str__(self):
        shown = [
            name
            for name in COLUMNS
            if any(not isnan(getattr(each, name)) for each in self.findings)
        ]
        rows = [["client", "rows", "share", *(COLUMNS[name] for name in shown)]]
        listed = self.farthest(MOST_LINES).findings
        for each in listed:
            numbers = (_rounded(getattr(each, name)) for name in shown)
            name = str(each.client)
            name = name if name.isprintable() else repr(name)
            name += " (left out)" * each.left_out
            rows.append([name, f"{each.n_samples:.0f}", f"{each.share:.1%}", *numbers])
        lines = [
            f"client {client!r} stands out: {reason}"
            for client, reason in self.outliers.items()
        ]
        n_others = len(self.findings) - len(listed)
        more = [f"and {n_others} clients that are nearer to the others"] * bool(
            n_others
        )
        lines = lines or ["no client stands out"]
        return "\n".join([text_table(rows), *more, *lines])


def _farthest(finding):
    """Key that sorts clients that stand out first, then by distance."""
    distances = finding.distance, finding.class_distance
    return finding.stands_out, max((d for d in distances if not isnan(d)), default=0.0)


def _rounded(value):
    if isnan(value):
        return "-"
    return f"{value:.2f}" if value < 1000 else f"{value:.1e}"


def _plain(value):
    is_nan = isinstance(value, float) and isnan(value)
    return None if is_nan else value


# ------------------------------------------------------------------ examine


MOST_DISTANCE = ClientsReport.MOST_DISTANCE
# Heads of sites with other classes differ by more than features do.
MOST_WEIGHTS = 100.0
# Number of samples relative to all others together. The others count at least ten
# samples each, because fewer do not show what is ordinary.
MOST_ROWS = 1000.0
FEWEST_ROWS = 10
# Minimum number of clients with a class that are compared with each other.
FEWEST_HOLDERS = 3
# A unit changes mean and deviation of a feature alike, up to what sites differ by.
ALIKE = 1.5
# Makes the median absolute deviation of normal numbers their standard deviation.
MAD = 1.4826


REMEDY = "If this is expected, set screen=None; screen='exclude' drops the client."


def examine_clients(messages, action=None):
    """Examine clients and apply an action to outliers.

    This function is the only definition of an outlying client. The ``screen`` parameter
    of all estimators calls it.

    Parameters
    ----------
    messages : iterable of Message or ClientFacts
        The message of each client, or the :meth:`~skslot.exchange.Message.facts` on it.
        Messages are read one by one.
    action : None, "warn" or "exclude", default=None
        How to handle outliers. ``"warn"`` issues a warning, ``"exclude"`` marks them as
        excluded and issues a warning, ``None`` only reports them. It is an error to
        exclude so many that fewer than two clients, or no majority, remain.

    Returns
    -------
    report : ClientsReport
        Figures of each client, and the reason if it is an outlier.

    See Also
    --------
    ClientsReport : Meaning of the figures.
    ClientScreen : Action and limit as a parameter of estimators.

    Notes
    -----
    The distance of a client is the 2-Wasserstein distance between two Gaussians: one
    with the mean and the variances of its features, the other with the medians of these
    over clients. Correlations of features are ignored, so that a thousand clients need
    no more memory than their means. The unit is an ordinary distance (median plus
    median absolute deviation over clients) or the median spread of samples around the
    mean of their client, whichever is larger. Outliers are taken out of these medians,
    and all clients are measured again, until no more are found or no majority is left.

    Features of a table are examined one by one too. A feature has another unit if its
    mean and deviation are both ten times those of others, or a tenth. A feature whose
    mean is ten deviations away is an outlier as well, unless it has only zeros and
    ones. Of two clients, each is measured by the size of the other's samples, as there
    is no ordinary distance.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot import FederatedOTAligner
    >>> from skslot.trust import examine_clients
    >>> rng, aligner = np.random.default_rng(0), FederatedOTAligner()
    >>> units = {"A": 1, "B": 1, "C": 1, "D": 1000}
    >>> messages = [
    ...     aligner.client_update(unit * rng.normal(1, 1, size=(50, 4)), client=name)
    ...     for name, unit in units.items()
    ... ]
    >>> examine_clients(messages).outliers["D"]
    'its features are about ... times larger than those of others: other units ...'
    """
    clients = [m if isinstance(m, ClientFacts) else m.facts() for m in messages]
    if not clients:
        raise ValueError("messages is empty: there is no client to examine.")
    widths = {len(each.mean) for each in clients if each.mean is not None}
    if len(widths) > 1:
        raise ValueError(
            f"messages have different numbers of features, {sorted(widths)}; "
            "skslot.exchange.receive names the clients."
        )
    report = _report_on(_without_gaps(clients))
    found = report.outliers
    if not found or action is None:
        return report
    if action == "exclude":
        report = report.without_outliers()
    for client, reason in found.items():
        name = "the client" if client is None else f"client {client!r}"
        if action == "exclude":
            warn_user(f"{name} was left out: {reason}")
        else:
            warning = UserWarning(f"{name} stands out: {reason} {REMEDY}")
            warn_user(about(warning, "screen"))
    return report


def _report_on(clients):
    """Measure all clients, without outliers among those that they are measured by."""
    n_clients = len(clients)
    fewest = max(2, n_clients // 2 + 1)
    is_outlier = np.zeros(n_clients, dtype=bool)
    while True:
        figures = _measure(clients, ~is_outlier)
        pairs = zip(clients, figures, strict=True)
        reasons = [_reasons(*each, n_clients == 2) for each in pairs]
        found = is_outlier | np.array([bool(each) for each in reasons], dtype=bool)
        if n_clients < 3 or (found == is_outlier).all():
            break
        is_outlier = found
        if np.sum(~is_outlier) < fewest:
            break
    total = sum(each.n_samples for each in clients)
    names = number_unnamed([each.client for each in clients])
    findings = [
        ClientFinding(
            name,
            client.n_samples,
            client.n_samples / total,
            *(getattr(each, figure) for figure in COLUMNS),
            "; ".join(why) or None,
        )
        for name, client, each, why in zip(
            names, clients, figures, reasons, strict=True
        )
    ]
    return ClientsReport(findings)


def _reasons(client, figures, is_one_of_two):
    """Why a client is an outlier, in words."""
    reasons, what, length = [], None, figures.length_ratio
    # another unit changes the spread of rows as well, and a shift does not
    sizes = length, np.sqrt(figures.trace_ratio)
    is_large = np.fmin(*sizes) >= MOST_DISTANCE
    is_small = np.fmax(*sizes) < 1 / MOST_DISTANCE and np.fmin(*sizes) > 0
    if figures.distance > MOST_DISTANCE:
        what = f"{_number(figures.distance)} ordinary distances away from"
        if is_large:
            what = f"about {_times(length)} larger than"
    elif is_small and client.n_samples >= FEWEST_ROWS and not is_one_of_two:
        what = f"about {_times(1 / length)} smaller than"
    if what is not None:
        either = " It may as well be the other of the two." * is_one_of_two
        reasons.append(
            f"its features are {what} those of others: other units or another "
            f"encoder?{either}"
        )
    if figures.column is not None and not reasons:
        reasons.append(figures.column)
    if figures.class_distance > MOST_DISTANCE and not reasons:
        reasons.append(
            f"its mean of class {figures.worst_class!r} is "
            f"{_number(figures.class_distance)} standard deviations within a class "
            "away from where it should be: wrong labels, or a forged message?"
        )
    if figures.row_ratio > MOST_ROWS:
        reasons.append(
            f"it says that it has {_number(client.n_samples)} rows, "
            f"{_times(figures.row_ratio)} as many as all others together: a wrong "
            "count?"
        )
    ratio = figures.head_ratio
    if ratio > MOST_WEIGHTS or 0 < ratio < 1 / MOST_WEIGHTS:
        how = "larger" if ratio > 1 else "smaller"
        reasons.append(
            f"its weights are {_times(max(ratio, 1 / ratio))} {how} than those of "
            "others: other units, or training that diverged?"
        )
    return reasons


def _measure(clients, kept):
    """Figures of each client, measured by those that are kept."""
    distances, lengths, traces, unit = _measure_features(clients, kept)
    class_distances, worst = _measure_classes(clients, kept, unit)
    rows = np.array([each.n_samples for each in clients], dtype=np.float64)
    least = np.where(kept, np.maximum(rows, FEWEST_ROWS), 0.0)
    rest = np.sum(least) - least
    figures = {
        "distance": distances,
        "length_ratio": lengths,
        "trace_ratio": traces,
        "class_distance": class_distances,
        "worst_class": worst,
        "head_ratio": _measure_heads(clients, kept),
        "row_ratio": np.divide(rows, rest, out=np.zeros_like(rows), where=rest > 0),
        "column": _judge_columns(clients, kept),
    }
    values = zip(*figures.values(), strict=True)
    return [SimpleNamespace(**dict(zip(figures, each, strict=True))) for each in values]


def _without_gaps(clients):
    """Fill columns without a value by the medians over other clients."""
    if not clients or any(each.n_values is None for each in clients):
        return clients
    absent = np.array([each.n_values == 0 for each in clients])
    if not absent.any():
        return clients
    filled = []
    for name in ("mean", "variances"):
        values = np.array([getattr(each, name) for each in clients])
        held = np.ma.array(values, mask=absent)
        middle = np.ma.median(held, axis=0).filled(0.0)
        filled.append(np.where(absent, middle, values))
    return [
        replace(each, mean=mean, variances=variances)
        for each, mean, variances in zip(clients, *filled, strict=True)
    ]


def _judge_columns(clients, kept):
    """Describe what is wrong with a column of each client, in words, or None."""
    verdicts = [None] * len(clients)
    if not all(each.is_of_table for each in clients):
        return verdicts
    # what was made of a column, such as ones for a category, may be anywhere honestly
    are_raw = all(each.n_values is not None for each in clients)
    means = np.array([each.mean for each in clients])
    n_values = np.array(
        [
            each.n_values if are_raw else np.full(len(each.mean), each.n_samples)
            for each in clients
        ]
    )
    variances = np.maximum([each.variances for each in clients], 0.0)
    deviations = np.sqrt(variances)
    # of zeros and ones, which may be as rare at one site as they are common at another
    is_binary = np.isclose(variances, means * (1 - means), rtol=0.01, atol=1e-6)
    for column in range(n_values.shape[1]):
        judged = n_values[:, column] >= FEWEST_ROWS
        ordinary = kept & judged
        # of three, two are left to compare with once one stands out
        if judged.sum() < FEWEST_HOLDERS or ordinary.sum() < 2:
            continue
        if is_binary[ordinary, column].mean() >= 0.5:
            judged &= ~is_binary[:, column]
        of_column = means[:, column], deviations[:, column]
        words = _judge_column(*of_column, ordinary, are_raw)
        for index, how in words.items():
            if judged[index] and verdicts[index] is None:
                verdicts[index] = f"its {clients[index].name_of(column)} is {how}"
    return verdicts


def _judge_column(means, deviations, ordinary, is_raw):
    """Describe the clients that stand out in one column, in words.

    They differ in its unit or, if the column was not transformed, in its mean.
    """
    varying = deviations[ordinary & (deviations > 0)]
    if len(varying) < 2:
        return {}
    deviation, size = np.median(varying), np.median(np.abs(means[ordinary]))
    shifts = np.abs(means - np.median(means[ordinary]))
    least = max(deviation, _ordinary(shifts[ordinary]))
    shifts /= np.maximum(least, deviations)
    ratios = deviations / deviation
    # features around zero do not show their unit in the mean, and what is nearly always
    # zero varies with how often it is not
    has_unit = np.zeros(len(means), dtype=bool)
    if size >= deviation / 2:
        of_means = np.abs(means) / size
        is_large = np.minimum(ratios, of_means) >= MOST_DISTANCE
        is_small = np.maximum(ratios, of_means) <= 1 / MOST_DISTANCE
        alike = (of_means <= ALIKE * ratios) & (ratios <= ALIKE * of_means)
        has_unit = (is_large | is_small) & (ratios > 0) & alike
    words = {}
    is_away = (shifts > MOST_DISTANCE) & is_raw
    for index in np.flatnonzero(has_unit | is_away):
        ratio = ratios[index]
        if has_unit[index]:
            how = f"{_times(max(ratio, 1 / ratio))} {'larg' if ratio > 1 else 'small'}"
            words[index] = f"about {how}er than that of others: other units?"
        else:
            words[index] = (
                f"{_number(shifts[index])} standard deviations away from that of "
                "others: other units, or a number that stands for missing values?"
            )
    return words


def _measure_features(clients, kept):
    """Distance, length and trace of each client, and the unit of distances."""
    distances, lengths, traces = np.full((3, len(clients)), np.nan)
    known = np.array([each.mean is not None for each in clients], dtype=bool)
    if np.sum(known & kept) < 2:
        return distances, lengths, traces, 0.0
    described = [each for each in clients if each.mean is not None]
    means = np.array([each.mean for each in described])
    deviations = np.zeros_like(means)
    for row, each in zip(deviations, described, strict=True):
        if each.variances is not None:
            row[:] = np.sqrt(np.maximum(each.variances, 0.0))
    size = np.array([each.trace for each in described])
    length = np.array([each.length for each in described])
    within = kept[known]
    if within.sum() == 2:  # each by the other, as there is no ordinary distance
        first, second = np.flatnonzero(within)
        apart = _distances(means, deviations, means[first], deviations[first])
        apart[first] = apart[second]
        units = np.full(len(length), length[within].mean())
        units[first], units[second] = length[second], length[first]
    else:
        centre = np.median(means[within], axis=0)
        apart = _distances(
            means, deviations, centre, np.median(deviations[within], axis=0)
        )
        spread = np.sqrt(_median(size[within]))
        units = np.full(len(size), max(_ordinary(apart[within]), spread))
    distances[known] = np.divide(
        apart, units, out=np.full_like(apart, np.nan), where=units > 0
    )
    lengths[known] = _ratios(length, within)
    traces[known] = _ratios(size, within)
    return distances, lengths, traces, float(np.max(units))


def _distances(means, deviations, mean, deviation):
    """2-Wasserstein distance of Gaussians with independent features from one."""
    return np.sqrt(
        np.square(means - mean).sum(axis=1)
        + np.square(deviations - deviation).sum(axis=1)
    )


def _measure_classes(clients, kept, unit):
    """Largest distance of a class mean of each client, and the class.

    The distance is measured from the median over clients with the class, if there are
    enough, and from the mean of the client, which works for any class.
    """
    n_clients = len(clients)
    largest, worst = np.full(n_clients, np.nan), [None] * n_clients
    holders = [each for each in clients if each.classes]
    if not holders:
        return largest, worst
    owners = np.repeat(np.arange(n_clients), [len(each.classes) for each in clients])
    labels = [label for each in holders for label in each.classes]
    numbers = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    codes = np.array([numbers[label] for label in labels])
    means = np.concatenate([each.sketches for each in holders])
    from_own = np.concatenate([each.offsets for each in holders])
    from_others, is_kept = np.zeros(len(codes)), kept[owners]
    ends = np.cumsum(np.bincount(codes))
    for cells in np.split(np.argsort(codes, kind="stable"), ends)[:-1]:
        ordinary = cells[is_kept[cells]]
        if len(ordinary) >= FEWEST_HOLDERS:
            centre = np.median(means[ordinary], axis=0)
            from_others[cells] = np.linalg.norm(means[cells] - centre, axis=1)
    spreads = [f.within for f, is_in in zip(clients, kept, strict=True) if is_in]
    spreads = [each for each in spreads if each]
    within = np.sqrt(np.median(spreads)) if spreads else 0.0
    holds = np.bincount(owners, minlength=n_clients) > 0
    relative = np.zeros(len(codes))
    for apart, least in ((from_others, within), (from_own, max(within, unit))):
        by_client = np.zeros(n_clients)
        np.maximum.at(by_client, owners, apart)
        one = max(least, _ordinary(by_client[holds & kept]))
        if one > 0:
            relative = np.maximum(relative, apart / one)
    for index in np.argsort(relative, kind="stable"):  # the largest comes last
        largest[owners[index]] = relative[index]
        worst[owners[index]] = labels[index]
    return largest, worst


def _measure_heads(clients, kept):
    """Size of the weights of each client, or of intercepts if these stand out."""
    norms = [each.head_norms or (np.nan, np.nan) for each in clients]
    weights, intercepts = (
        _ratios(np.array(each), kept) for each in zip(*norms, strict=True)
    )
    return np.where(intercepts > np.fmax(weights, MOST_WEIGHTS), intercepts, weights)


def _ordinary(values):
    """Compute an ordinary distance: median plus median absolute deviation."""
    if not len(values):
        return 0.0
    middle = _median(values)
    return float(middle + MAD * _median(np.abs(values - middle)))


def _ratios(values, kept):
    """Values in units of their median over those that are kept and not zero."""
    positive = values[kept & (values > 0)]
    return values / (_median(positive) if len(positive) else np.nan)


def _median(values):
    """Median of a number for each client, in a tenth of the time that numpy takes."""
    return median(values.tolist())


def _times(ratio):
    return f"{_number(ratio)} times"


def _number(value):
    """A number in two digits, with commas, or as a power of ten if it is huge."""
    if value >= 1e7:
        return f"{value:.0e}"
    rounded = float(f"{value:.2g}")
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:g}"
