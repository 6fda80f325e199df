"""What a server does with messages: read them, check that they go together, keep track.

Messages may be more than fits in memory, so they are read one by one, as often as it
takes. All that is needed of them in between is kept in a :class:`Sender` each.
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .._utils import (
    column_differences,
    number_unnamed,
    shorten,
    warn_of_lost_classes,
    warn_user,
)
from ..trust import ClientScreen, cap_shares, guard_clients
from ._facts import facts_of, fingerprint_names, weigh
from ._message import Message
from ._wire import MessageError, decode, open_regular, read_file, read_header, short

# Traits that messages of one exchange may differ in when one server step reads them.
MAY_DIFFER = ("part for alignment", "covariance_type")


# ----------------------------------------------------------------------- who sent


@dataclass(frozen=True)
class Sender:
    """What is kept of a message once it is gone.

    ``class_counts`` has the number of rows of each class, if the message says it, and
    ``n_samples`` is None in those of a server. ``traits`` is what must be the same in
    all messages, by the words for it; ``is_private`` need not be.
    """

    kind: type
    client: object
    n_samples: int | None
    class_counts: dict
    traits: dict
    path: Path | None = None
    is_private: bool = False

    @classmethod
    def of(cls, message, path=None):
        """Facts about a message."""
        counts = getattr(message, "counts", None)
        classes = getattr(message, "classes", [])
        return cls(
            type(message),
            getattr(message, "client", None),
            getattr(message, "n_samples", None),
            {} if counts is None else dict(zip(classes, counts.tolist(), strict=True)),
            message._traits(),
            path,
            getattr(message, "privacy", None) is not None,
        )

    @property
    def n_features(self):
        """Number of features."""
        return self.traits["number of features"]

    @property
    def encoder(self):
        """Fingerprint of what made the features."""
        return self.traits["encoder"]

    @property
    def has_labels(self):
        """Whether the message describes classes."""
        return "kind of labels" in self.traits

    @property
    def words(self):
        """Words for whose message it is; that of a server has no rows."""
        if self.n_samples is None and self.client is None:
            return "the model" if self.has_labels else "the reference"
        return f"client {short(self.client)}"


# ------------------------------------------------------------- what goes together


class Disagreement(NamedTuple):
    """What two messages do not agree on."""

    trait: str
    value: object
    other_value: object
    other: Sender


def check_same_features(first, second):
    """Refuse two messages on features of different encoders or dimensions.

    Parameters
    ----------
    first : Message
        The message to compare with.
    second : Message
        The one that is refused, by a :class:`MessageError`, if it does not fit.

    See Also
    --------
    Message.with_encoder : Says what made the features.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.exchange import FeatureScale, check_same_features
    >>> here, there = FeatureScale(np.zeros(3), 1.0), FeatureScale(np.ones(3), 2.0)
    >>> check_same_features(here, there)
    """
    first, second = Sender.of(first), Sender.of(second)
    check_agreement(first, second, ("number of features", "encoder"))


def check_agreement(first, second, traits):
    """Refuse the second of two senders if one of the traits that both have differs."""
    # what made the features explains their number
    for trait in sorted(traits, key=lambda trait: trait != "encoder"):
        if trait not in first.traits or trait not in second.traits:
            continue
        value, other = second.traits[trait], first.traits[trait]
        if value != other:
            raise MessageError(
                f"{second.words} {_difference(trait, value, other, first.words)}",
                path=second.path,
                disagreement=Disagreement(trait, value, other, first),
            )


def find_misfits(messages):
    """Find the messages that do not fit the others.

    One trait after the other, the value that most messages have counts, and of values
    that equally many have, the first. What is wrong with each is by its key.
    """
    misfits = {}
    senders = {key: Sender.of(message) for key, message in messages.items()}
    for trait in next(iter(senders.values())).traits if senders else ():
        values = {
            key: sender.traits.get(trait)
            for key, sender in senders.items()
            if key not in misfits
        }
        common = Counter(values.values()).most_common(1)[0][0]
        owner = next(key for key, value in values.items() if value == common)
        for key, value in values.items():
            if value != common:
                misfits[key] = (
                    f"its {trait} is {short(value)}, that of {senders[owner].words} "
                    f"is {short(common)}."
                )
    return misfits


def _difference(trait, value, other, whose):
    """How a message differs from another one, and what to do about it."""
    same_encoder = "All clients must use the same encoder."
    if trait == "number of features":
        return f"has {value} features, {whose} {other}. {same_encoder}"
    if trait == "encoder":
        names = map(fingerprint_names, (value, other))
        differences = column_differences(*names, whose)
        if differences is not None:
            return f"{differences}. {same_encoder}"
        remedy = (
            "If it is the same, say so everywhere by message.with_encoder(...)."
            if None in (value, other)
            else same_encoder
        )
        encoders = f"of the encoder {short(value)}, {whose} of {short(other)}"
        return f"has features {encoders}. {remedy}"
    if trait == "kind of labels":
        return f"sent labels as {value}, {whose} as {other}; write them alike."
    if trait == "list of classes":
        return (
            f"trained a head for the classes {list(value)}, {whose} for {list(other)}. "
            "Pass the same classes to every client_update."
        )
    if trait == "round of training":
        return f"sent a head after {value} rounds of training, {whose} after {other}."
    return (
        f"sent another {trait} than {whose}, {short(value)} and not {short(other)}; "
        "all must have the same."
    )


class ReceivedMessages:
    """Messages of one exchange, one per client, read anew on each loop.

    The first loop checks each of them and that all go together; ``senders`` is what
    was learned about them, in their order. If outliers are excluded or shares capped,
    that loop comes before any message is handed out. ``screen`` is a ClientScreen, or
    None if clients are not examined. Made by :func:`receive`.
    """

    def __init__(self, messages, kinds, screen):
        self.messages = messages
        self.kinds = kinds
        self.screen = screen
        self._senders = self._factors = self._report = None
        self._is_final = False

    def for_aligner(self):
        """The same messages for an aligner, which is not to judge them once more."""
        self._is_final = True
        return self

    @property
    def is_read(self):
        """Whether it is settled already what each message counts."""
        return self._senders is not None

    @property
    def in_memory(self):
        """Whether all messages are held in memory anyway."""
        return isinstance(self.messages, list)

    @property
    def senders(self):
        """One Sender for each message; reads all of them if nobody has yet."""
        self._read_all()
        factors = zip(self._senders, self._factors, strict=True)
        return [sender for sender, factor in factors if factor > 0]

    @property
    def names(self):
        """Name of each sender; a number if there are several without a name."""
        names = number_unnamed([sender.client for sender in self.all_senders])
        factors = zip(names, self._factors, strict=True)
        return [name for name, factor in factors if factor > 0]

    @property
    def all_senders(self):
        """Those who were left out too."""
        self._read_all()
        return self._senders

    @property
    def clients_report(self):
        """What stands out among the clients; None if nobody asked for it."""
        self._read_all()
        return self._report

    def __iter__(self):
        if self._senders is None and not self._acts:
            return self._first_loop()
        self._read_all()
        return self._weighted_loop()

    def of_client(self, client):
        """The message of one client, read again, with the counts that it is given."""
        return weigh(self.sent_by(client), self._factors[self._position(client)])

    def sent_by(self, client):
        """The same as it was sent."""
        position = self._position(client)
        if hasattr(self.messages, "read"):
            return self.messages.read(self._senders[position].path)
        return next(m for i, m in enumerate(self.messages) if i == position)

    def _position(self, client):
        return [sender.client for sender in self.all_senders].index(client)

    def _read_all(self):
        if self._senders is None:
            for _ in self._first_loop():
                pass

    def _weighted_loop(self):
        for message, factor in zip(self.messages, self._factors, strict=True):
            if factor > 0:
                yield weigh(message, factor)

    @property
    def _acts(self):
        """Whether any client may count less than it says."""
        screen = self.screen
        if screen is None:
            return False
        return screen.action == "exclude" or screen.max_share is not None

    def _conclude(self, senders, facts):
        """Look at all clients, and decide what each of them counts."""
        factors, is_known = np.ones(len(senders)), None not in facts
        if self._acts and not is_known:
            raise ValueError(
                "screen='exclude' and max_share need to know how many rows each client "
                "has, which these messages do not contain: give them counts or "
                "n_samples."
            )
        if facts and is_known:
            names = number_unnamed([each.client for each in facts])
            facts = list(map(_renamed, facts, names))
            self._report = guard_clients(facts, self.screen.action)
            factors[[each.left_out for each in self._report]] = 0.0
            max_share = self.screen.max_share
            if max_share is not None:
                kept, rows = factors > 0, np.array([each.n_samples for each in facts])
                learned = np.array([issubclass(s.kind, self.kinds[0]) for s in senders])
                weights = _capped(rows[kept], learned[kept], max_share)
                factors[kept] = weights / rows[kept]
        self._senders, self._factors = senders, factors.tolist()

    def _first_loop(self):
        senders, facts, names, labelled = [], [], set(), None
        pairs = getattr(self.messages, "items", None)
        for path, message in pairs() if pairs else ((None, m) for m in self.messages):
            if not isinstance(message, self.kinds):
                kinds = " or ".join(kind.__name__ for kind in self.kinds)
                raise TypeError(
                    f"messages must be {kinds}, got a {type(message).__name__}; bytes "
                    "are read by skslot.exchange.load_message."
                )
            message._check()
            sender = Sender.of(message, path)
            senders.append(sender)
            if self.screen is not None:
                facts.append(facts_of(message))
            if labelled is None and sender.has_labels:
                labelled = sender
            traits = [t for t in sender.traits if t not in MAY_DIFFER]
            # the first may have no labels to compare
            for other in (senders[0], labelled or sender):
                check_agreement(other, sender, traits)
            is_named = sender.client is not None
            if sender.client in names or is_named != (senders[0].client is not None):
                raise MessageError(
                    f"messages came from clients {shorten(s.client for s in senders)}; "
                    "give each client a name of its own in client_update(..., "
                    "client=...)."
                )
            names |= {sender.client} if is_named else set()
            yield message
        if not senders:
            raise ValueError("messages is empty: there is no client to learn from.")
        self._conclude(senders, facts)
        self._warn_if_some_are_private()
        self._warn_of_lost_classes()

    def _warn_if_some_are_private(self):
        """Say whose rows have a guarantee of privacy if others' have none."""
        others = [s.client for s in self._senders if not s.is_private]
        if others and len(others) < len(self._senders):
            warn_user(
                f"clients {shorten(others)} sent messages without differential "
                "privacy, the others with: what is learned keeps the guarantee of the "
                "others, and gives these clients none."
            )

    def _warn_of_lost_classes(self):
        """Say which classes of messages with noise have no rows at any client."""
        counts, agreed = Counter(), {}
        for sender in self._senders:
            counts.update(sender.class_counts)
            if sender.is_private:
                agreed |= sender.class_counts
        warn_of_lost_classes([label for label in agreed if not counts[label]])


def _capped(rows, is_learned, max_share):
    """Weights of clients, none too large among all or among those learned from.

    Once the latter are capped among themselves, only others can be too large among all.
    """
    if is_learned.any() and not is_learned.all():
        rows = rows.astype(np.float64)
        try:
            rows[is_learned] = cap_shares(rows[is_learned], max_share)
        except ValueError as error:
            raise ValueError(f"of the clients with labels: {error}") from None
    return cap_shares(rows, max_share)


def _renamed(facts, name):
    return replace(facts, client=name)


def receive(messages, *kinds, screen=False):
    """Take in messages of one exchange, which are checked on the first loop over them.

    Every server step begins with it: each message must be sound and of an allowed kind,
    all must be about the same features and kinds of labels, and no client may send two.

    Parameters
    ----------
    messages : iterable of Message
        One message per client. A generator is collected into a list; an iterable that
        can be restarted, such as one that reads files, is read again on each loop.
        What was received before, but not read yet, gets these settings; what was read
        already is looked at anew.
    *kinds : type
        Message classes that are allowed; what is learned from is of the first. If
        none is given, all are allowed.
    screen : False, None, "warn", "exclude" or ClientScreen, default=False
        How to handle clients whose statistics are implausible compared with all others.
        ``"warn"`` issues a warning, ``"exclude"`` drops the client, ``None`` only
        computes the report, ``False`` does not examine the clients. With a
        :class:`~skslot.trust.ClientScreen` that has a ``max_share``, messages of larger
        clients are returned with smaller counts. The limit applies to all samples, and
        to the samples in messages of the first kind. To exclude clients or apply a
        limit, all messages are read once before the first is returned.

    Returns
    -------
    received : iterable of Message
        The messages, read anew on each loop. ``received.senders`` has, for each of
        them, its ``client``, ``n_samples``, ``class_counts`` and so on;
        ``received.of_client(client)`` reads a single one again,
        ``received.sent_by(client)`` does so whatever it counts for, and
        ``received.clients_report`` is what stands out.

    See Also
    --------
    load_messages : Reads them from files.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot import FederatedOTAligner
    >>> from skslot.exchange import ClientStatistics, receive
    >>> rng, aligner = np.random.default_rng(0), FederatedOTAligner()
    >>> rows = {"A": rng.normal(size=(50, 3)), "B": rng.normal(size=(30, 3))}
    >>> sent = [aligner.client_update(X, client=name) for name, X in rows.items()]
    >>> received = receive(sent, ClientStatistics)
    >>> [(sender.client, sender.n_samples) for sender in received.senders]
    [('A', 50), ('B', 30)]
    """
    screen = None if screen is False else ClientScreen.of(screen)
    if isinstance(messages, ReceivedMessages):
        if messages._is_final:
            return messages
        if not messages.is_read:
            messages.kinds, messages.screen = kinds, screen
            return messages
        messages = messages.messages
    if iter(messages) is messages or isinstance(messages, tuple):
        messages = list(messages)
    return ReceivedMessages(messages, kinds or (Message,), screen)


# ---------------------------------------------------------------------- from files


def load_message(source):
    """Read a message of whatever kind it is and check it.

    Parameters
    ----------
    source : str, path-like, bytes, bytearray or memoryview
        A file, or what was in it.

    Returns
    -------
    message : Message
        The message, its numbers in float64.

    See Also
    --------
    load_messages : Many files at once.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.exchange import FeatureScale, load_message
    >>> load_message(FeatureScale(np.zeros(3), 2.0).to_bytes())
    FeatureScale(mean=<array of (3,)>, scale=2.0)
    """
    if isinstance(source, str | PathLike):
        return read_file(source, load_message)
    return _message_of(*decode(source))


def load_messages(paths, *, on_error="raise", progress=None):
    """Read messages from files, one at a time.

    Parameters
    ----------
    paths : iterable of str or path-like
        The files, one per client.
    on_error : {"raise", "skip"}, default="raise"
        What to do with a file that is refused: stop with its error, or note the error
        in ``refused`` and go on with the others.
    progress : callable, default=None
        Called as ``progress(done, total)`` after each file, in each pass.

    Returns
    -------
    messages : iterable of Message
        The messages. Each loop over them reads the files anew, so that as many as one
        likes can be aggregated in the memory for one; a file must not change until the
        last loop. ``messages.refused`` has, for each file that was left out, the error
        that says why.

    See Also
    --------
    load_message : A single file.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from skslot import FederatedOTAligner
    >>> from skslot.exchange import load_messages
    >>> rng, aligner = np.random.default_rng(0), FederatedOTAligner()
    >>> with TemporaryDirectory() as folder:
    ...     paths = [Path(folder, f"{site}.slot") for site in "AB"]
    ...     for path in paths:
    ...         rows = rng.normal(size=(50, 3))
    ...         aligner.client_update(rows, client=path.stem).save(path)
    ...     aligner.server_aggregate(load_messages(paths)).reference_
    AlignmentReference(n_features=3, n_iter=..., residual=...)
    """
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error must be 'raise' or 'skip', got {on_error!r}.")
    paths = [Path(path) for path in paths]
    twice = [path for path, count in Counter(paths).items() if count > 1]
    if twice:
        raise ValueError(f"paths names {short([str(path) for path in twice])} twice.")
    return MessageFiles(paths, on_error == "skip", progress)


@dataclass
class MessageFiles:
    """Messages in files, read one at a time on each loop; see :func:`load_messages`.

    A file is checked when it is first read, and refused if it is of the same client as
    an earlier one.
    """

    paths: list
    skip_refused: bool = False
    progress: object = None
    refused: dict = field(default_factory=dict)
    _checksums: dict = field(default_factory=dict)
    _senders: dict = field(default_factory=dict)

    def __iter__(self):
        return (message for _, message in self.items())

    def items(self):
        """Read all files: pairs of a path and its message."""
        for done, path in enumerate(self.paths, start=1):
            message = None if path in self.refused else self._read_or_refuse(path)
            if message is not None:
                yield path, message
            if self.progress is not None:
                self.progress(done, len(self.paths))

    def headers(self):
        """Read the beginning of each file, which has kind and client of its message.

        Nothing in it is checked; a header is empty if there is none to read.
        """
        return {path: _peek(path) for path in self.paths}

    def read(self, path):
        """Read one of the files."""
        return read_file(path, lambda data: self._message(path, *decode(data)))

    def _read_or_refuse(self, path):
        try:
            return self.read(path)
        except (MessageError, OSError) as error:
            if not self.skip_refused or path in self._checksums:
                raise
            self.refused[path] = error
            return None

    def _message(self, path, arrays, header):
        checksum = header["checksum"]
        if path in self._checksums:
            if checksum != self._checksums[path]:
                raise MessageError("the file was changed while it was in use.")
            return Message._kinds[header["kind"]]._build(arrays, header)
        message = _message_of(arrays, header)
        client = getattr(message, "client", None)
        # one client may send several kinds, and heads of several rounds
        sender = message.kind, client, getattr(message, "n_rounds", None)
        first = self._senders.setdefault(sender, path)
        if first != path and client is not None:
            raise MessageError(f"{first} is from the same client already.", client)
        self._checksums[path] = checksum
        return message


def _peek(path):
    try:
        with open_regular(path) as file:
            return read_header(file.read(8), file.read)
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return {}


def _message_of(arrays, header):
    kind = header.get("kind")
    if not isinstance(kind, str) or kind not in Message._kinds:
        raise MessageError(f"no message is of the kind {short(kind)}.")
    return Message._kinds[kind]._from_decoded(arrays, header)
