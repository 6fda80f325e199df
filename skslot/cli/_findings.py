"""What a page is about: what rows of clients, or their messages alone, can tell."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..alignment import FederatedOTAligner, automatic_tau
from ..base import clients_array
from ..classifiers import MixedEffectsClassifier
from ..exchange import (
    ClassStatistics,
    load_message,
    load_messages,
    receive,
)
from ..inspection import (
    AlignmentDisplay,
    TauPathDisplay,
    alignment_report,
    diagnose,
)
from ..model_selection import class_table
from ._server import look_at
from ._site import DEFAULT_TAU
from ._site_words import Site, in_short, mean_of_others, ratio_to, times_apart

# Models by the names that diagnose has for them; that of a tau follows at the end.
MIXED, PLAIN = "mixed effects", "no alignment"
PER_CLASS, TRANSPORT = "covariance per class", "optimal transport, tau="
ROUGHLY = 1e-4  # residual of the reference, which no score can tell from zero
# The distances of any two of more clients than this are not measured: they would take
# hours where there are thousands.
MOST_CLIENTS = 40
SILENT = {"screen": None}  # who stands out is told once
STANDS_STILL = 1e-6  # offsets and distances of this part of a standard deviation


@dataclass(frozen=True, eq=False)
class Findings:
    """What is known of clients and of what alignment does to them.

    ``model`` is the recommended one, or that which was asked for; ``mixed`` has the
    variance components, if labels are known. ``table`` has the classes of those clients
    who have labels, ``diagnosis`` what models did on held-out rows, and ``path`` that
    over tau; ``points`` rows in two dimensions, and ``messages`` those of the clients,
    if that is all there is. If ``is_asked``, somebody chose the strength of the
    alignment.
    """

    name: str
    model: object
    n_samples: list
    n_features: int
    table: object = None
    mixed: MixedEffectsClassifier | None = None
    diagnosis: object = None
    path: TauPathDisplay | None = None
    points: AlignmentDisplay | None = None
    messages: list | None = None
    is_asked: bool = False

    @property
    def is_guessed(self):
        """Whether nothing speaks for the strength of the alignment."""
        if self.is_asked or self.is_mixed or self.diagnosis is not None:
            return False
        return self.model.tau != "auto"

    @property
    def guarantees(self):
        """Guarantees of differential privacy: noise is in what these clients sent."""
        found = (message.privacy for message in self.messages or [])
        return [each for each in found if each is not None]

    @property
    def is_mixed(self):
        """Whether mixed effects are what is recommended."""
        return isinstance(self.model, MixedEffectsClassifier)

    @property
    def aligner(self):
        """The aligner in the model."""
        return self.model.aligner_ if self.is_mixed else self.model

    @property
    def clients(self):
        """Names of all clients."""
        return self.aligner.clients_.tolist()

    @property
    def clients_report(self):
        """Who stands out."""
        return (self.mixed or self.model).clients_report_

    @cached_property
    def is_moved(self):
        """Whether alignment moves anything at all."""
        return moves(self.model)

    @cached_property
    def report(self):
        """The alignment report, None if there are too many clients."""
        are_few = len(self.clients) <= MOST_CLIENTS
        return alignment_report(self.model) if are_few else None

    @property
    def accuracy(self):
        """Accuracy to expect of the recommended model, and without alignment.

        For each client; NaN where no rows tell.
        """
        found = self.diagnosis
        if found is None:
            return np.full((2, len(self.clients)), np.nan)
        unaligned = found.accuracies[PLAIN]
        if found.chosen == PER_CLASS:  # which is another classifier, not an alignment
            unaligned = np.full(len(unaligned), np.nan)
        pairs = zip(found.accuracy, unaligned, strict=True)
        by_client = dict(zip(found.clients.tolist(), pairs, strict=True))
        return np.transpose([by_client[client] for client in self.clients])

    def sites(self):
        """What is known of each client, for words about it."""
        accuracy, unaligned = self.accuracy
        findings = {each.client: each for each in self.clients_report}
        if self.report is None:
            distances = [findings[each].distance for each in self.clients]
            apart = [ratio_to(np.median(distances), each) for each in distances]
        else:
            distances = self.report.distances.before
            is_rounding = distances <= STANDS_STILL * self._size
            apart = times_apart(np.where(is_rounding, 0.0, distances))
        others = mean_of_others(accuracy)
        classes = [self._classes_of(client) for client in self.clients]
        elsewhere = mean_of_others([len(absent) for _, absent in classes])
        return [
            Site(
                client,
                self.n_samples[k],
                self.n_features,
                *classes[k],
                elsewhere[k],
                accuracy[k],
                others[k],
                unaligned[k],
                apart[k],
                findings[client].reason,
                None if self.messages is None else self.messages[k].privacy,
            )
            for k, client in enumerate(self.clients)
        ]

    @property
    def _size(self):
        """Root mean square of the features of all clients."""
        squares = np.square(self.aligner.means_).sum(axis=1)
        traces = np.trace(self.aligner.covariances_, axis1=1, axis2=2)
        return np.sqrt(np.mean(squares + traces))

    def _classes_of(self, client):
        """Number of classes and those that the client has no rows of."""
        if self.table is None or client not in self.table.clients.tolist():
            return None, []
        counts = self.table.counts[self.table.clients.tolist().index(client)]
        return len(counts), self.table.classes[counts == 0].tolist()


def moves(model):
    """Whether a fitted model moves the features of any client."""
    aligner = getattr(model, "aligner_", model)
    if np.any(aligner.tau_ > 0):
        return True
    if aligner is model:
        return False
    unit = np.sqrt(np.trace(model.covariance_) / len(model.covariance_))
    return bool(np.abs(model.client_offsets_).max() > STANDS_STILL * unit)


# ------------------------------------------------------------------- from rows


def findings_of_rows(data, tau=None, begin=lambda part: None, tried=None):
    """Findings on a FeatureSet.

    Without a ``tau``, the model is the one that :func:`skslot.inspection.diagnose`
    recommends; without labels, the tau is the default. ``begin`` is called with the
    name of each part of the work, ``tried`` with the number of models that were fitted
    on a part of the rows, and how many there will be.
    """
    if len(data.clients) < 2:
        raise ValueError(f"{data.name} has one client only; there is nothing to align.")
    X, y, client_ids = data.X, data.y, data.client_ids
    table = mixed = diagnosis = path = None
    is_asked = tau is not None
    if y is not None:
        table = class_table(y, client_ids)
        if tau is None:
            diagnosis = diagnose(X, y, client_ids, progress=tried)
            path = path_of(diagnosis, automatic_tau(X, y, client_ids))
            tau = strength_in(diagnosis.chosen)
        begin("fitting mixed effects")
        mixed = MixedEffectsClassifier(**SILENT).fit(X, y, client_ids)
    if diagnosis is not None and diagnosis.chosen == MIXED:
        model = mixed
    else:
        begin("aligning")
        tau = DEFAULT_TAU if tau is None else tau
        aligner = FederatedOTAligner(tau, tol=ROUGHLY, **SILENT)
        model = aligner.fit(X, y, client_ids)
    clients, points = getattr(model, "aligner_", model).clients_.tolist(), None
    if X.shape[1] > 1:  # one feature has no picture in two dimensions
        begin("drawing rows")
        taus = {} if moves(model) else {"taus": [0.0]}
        points = AlignmentDisplay.from_estimator(model, X, y, client_ids, **taus)
    return Findings(
        data.name,
        model,
        [int((client_ids == client).sum()) for client in clients],
        X.shape[1],
        table,
        mixed,
        diagnosis,
        path,
        points,
        is_asked=is_asked,
    )


def strength_in(name):
    """Strength of the optimal transport in a model: a number, or "auto"."""
    if not name.startswith(TRANSPORT):
        return 0.0
    tau = name.removeprefix(TRANSPORT)
    return tau if tau == "auto" else float(tau)


def path_of(diagnosis, automatic):
    """Accuracy at each client over tau and with other models, as they were tried.

    ``automatic`` is the tau that "auto" stands for. None if no rows tell of any client.
    """
    known = ~np.isnan(diagnosis.accuracy)
    if not known.any():
        return None
    by_name = {name: each[known] for name, each in diagnosis.accuracies.items()}
    aligned = [name for name in by_name if name.startswith(TRANSPORT)]
    taus = {name: strength_in(name) for name in (PLAIN, *aligned)}
    taus = {name: automatic if tau == "auto" else tau for name, tau in taus.items()}
    by_tau = {tau: by_name[name] for name, tau in taus.items()}
    best = next(name for name in diagnosis.scores if name in aligned)
    return TauPathDisplay(
        sorted(by_tau),
        np.array([by_tau[tau] for tau in sorted(by_tau)]),
        diagnosis.clients[known],
        taus[best],
        "accuracy",
        other_scores={
            MIXED: by_name[MIXED],
            "class covariance": by_name[PER_CLASS],  # short enough for a legend
        },
    ).plot()


# ----------------------------------------------------------- from messages alone


@dataclass(frozen=True)
class SentMessage:
    """What a client sent: the name and size of its file, and what is in it.

    ``contents`` are by their meaning; ``words`` say what is not in it, and what gives
    rows away, and ``privacy`` is the guarantee that its noise gives, if it has any.
    """

    file: str
    n_bytes: int
    contents: dict
    words: list
    kind: type
    privacy: dict | None = None

    @classmethod
    def of(cls, sender, message):
        """What is to be said of a message in a file."""
        words = message.describe().split("\n\n")[-1].splitlines()
        path, privacy = sender.path, message.privacy
        contents, size = message.contents(), path.stat().st_size
        if privacy is not None:
            contents["guarantee of differential privacy"] = in_short([privacy])
        return cls(path.name, size, contents, words, sender.kind, privacy)


def findings_of_messages(paths, tau=None, begin=lambda part: None):
    """Findings on what sites sent, without any of their rows."""
    if len(paths) < 2:
        load_message(paths[0])  # which says if it cannot be read
        raise ValueError(
            f"{paths[0]} is of one client only; there is nothing to compare. Name the "
            "files of all sites."
        )
    kinds, is_asked = look_at(paths), tau is not None
    plain = [
        path for path, kind in kinds.items() if kind and not kind.describes_classes
    ]
    if tau == "auto" and plain:
        raise ValueError(
            f"--tau auto needs the labels of all sites, but {plain[0]} was summarized "
            "without --labels."
        )
    if tau is None:
        tau = DEFAULT_TAU if plain else "auto"
    begin("reading files")
    received = receive(load_messages(kinds))
    has_classes = all(
        kind is not None and issubclass(kind, ClassStatistics)
        for kind in kinds.values()
    )
    mixed = None
    if has_classes:
        mixed = MixedEffectsClassifier(**SILENT).server_aggregate(received)
    model = mixed
    if is_asked or not has_classes:
        aligner = FederatedOTAligner(tau, tol=ROUGHLY, **SILENT)
        model = aligner.server_aggregate(received)
    senders = received.senders
    return Findings(
        f"messages of {len(senders)} clients",
        model,
        [sender.n_samples for sender in senders],
        senders[0].n_features,
        _table_of([sender for sender in senders if sender.class_counts]),
        mixed,
        messages=[
            SentMessage.of(sender, message)
            for sender, message in zip(senders, received, strict=True)
        ],
        is_asked=is_asked,
    )


def _table_of(senders):
    """Rows of each class at the clients who say it, None if nobody does."""
    cells = [
        (label, sender.client, count)
        for sender in senders
        for label, count in sender.class_counts.items()
    ]
    if not cells:
        return None
    labels, clients, counts = zip(*cells, strict=True)
    counts = np.rint(counts).astype(int).clip(0)  # noise makes parts of rows
    return class_table(labels, clients_array(clients), counts)
