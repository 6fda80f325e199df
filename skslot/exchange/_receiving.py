"""What a server does with messages: read them, check that they go together, keep track.

Messages may need more memory than there is, so they are read one by one, as often as
necessary. In between, only the :class:`~skslot.trust.ClientFacts` of each are kept.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .._utils import (
    about,
    column_differences,
    number_unnamed,
    short,
    shorten,
    warn_of_lost_classes,
    warn_user,
)
from ..trust import ClientFacts, ClientScreen, cap_shares, examine_clients
from ._message import Message, fingerprint_names
from ._wire import MessageError, decode, open_regular, read_file, read_header

# Traits that messages of one exchange may differ in when one server step reads them.
MAY_DIFFER = ("part for alignment", "covariance_type")


# ------------------------------------------------------------- what goes together


class Disagreement(NamedTuple):
    """Trait in which two messages differ."""

    trait: str
    value: object
    other_value: object
    other: ClientFacts


def check_same_features(first, second):
    """Refuse two messages on features of different encoders or dimensions.

    Parameters
    ----------
    first : Message
        The message to compare with.
    second : Message
        The message that a :class:`MessageError` refuses if it does not fit.

    See Also
    --------
    Message.with_encoder : Add the fingerprint of the encoder to a message.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.exchange import FeatureScale, check_same_features
    >>> here, there = FeatureScale(np.zeros(3), 1.0), FeatureScale(np.ones(3), 2.0)
    >>> check_same_features(here, there)
    """
    for message in (first, second):
        _check_kind(message, Message)
    check_agreement(first.facts(), second.facts(), ("number of features", "encoder"))


def _check_kind(message, *kinds):
    if not isinstance(message, kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(
            f"messages must be {names}, got a {type(message).__name__}; bytes are read "
            "by skslot.exchange.load_message, files by load_messages."
        )


def check_agreement(first, second, traits):
    """Refuse the second of two clients if one of the traits that both have differs."""
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

    Messages must agree on the number of features, the encoder, the kind of labels and
    so on. These traits are compared one after the other. The most frequent value
    counts, and the first of several that are equally frequent.

    Parameters
    ----------
    messages : dict
        Messages by any key, such as the number of a node.

    Returns
    -------
    misfits : dict of str
        Reason why a message does not fit, by its key.

    See Also
    --------
    receive : Refuse the first message that does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.exchange import FeatureScale, find_misfits
    >>> sizes = {"A": 3, "B": 3, "C": 4}
    >>> find_misfits({key: FeatureScale(np.zeros(m), 1.0) for key, m in sizes.items()})
    {'C': 'its number of features is 4, that of the reference is 3.'}
    """
    misfits = {}
    facts = {key: message.facts() for key, message in messages.items()}
    for trait in next(iter(facts.values())).traits if facts else ():
        values = {
            key: each.traits.get(trait)
            for key, each in facts.items()
            if key not in misfits
        }
        common = Counter(values.values()).most_common(1)[0][0]
        owner = next(key for key, value in values.items() if value == common)
        for key, value in values.items():
            if value != common:
                misfits[key] = (
                    f"its {trait} is {short(value)}, that of {facts[owner].words} "
                    f"is {short(common)}."
                )
    return misfits


def _difference(trait, value, other, whose):
    """Describe how a message differs from another one, with a remedy."""
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


# -------------------------------------------------------------------- receiving


class ReceivedMessages:
    """Messages of one exchange, one per client, read anew on each loop.

    The first loop checks each message and that all fit together. If outliers are
    excluded or shares are limited, all messages are read before the first is returned.
    ``screen`` is a ClientScreen, or None if clients are not examined. Made by
    :func:`receive`.
    """

    def __init__(self, messages, kinds, screen):
        self.messages = messages
        self.kinds = kinds
        self.screen = screen
        self._facts = self._factors = self._report = None
        self._is_final = False

    def for_aligner(self):
        """Return the messages for an aligner, which does not examine them again."""
        self._is_final = True
        return self

    @property
    def is_read(self):
        """Whether all messages were read and examined."""
        return self._facts is not None

    @property
    def in_memory(self):
        """Whether all messages are held in memory."""
        return isinstance(self.messages, list)

    @property
    def senders(self):
        """Facts on each client that was not excluded, in the order of the messages."""
        return self._kept(self.all_senders)

    @property
    def names(self):
        """Name of each client in ``senders``; a number if several have no name."""
        return self._kept(number_unnamed([each.client for each in self.all_senders]))

    @property
    def all_senders(self):
        """Facts on each client, including those that were excluded."""
        self._read_all()
        return self._facts

    @property
    def clients_report(self):
        """Report on the clients; None if they were not examined."""
        self._read_all()
        return self._report

    def __iter__(self):
        if not self.is_read and not self._acts:
            return self._first_loop()
        self._read_all()
        return self._weighted_loop()

    def of_client(self, client):
        """Read the message of one client, with the counts that it is given."""
        return self.sent_by(client).weighted(self._factors[self._position(client)])

    def sent_by(self, client):
        """Read the message of one client as it was sent."""
        position = self._position(client)
        if isinstance(self.messages, MessageFiles):
            path = self._facts[position].path
            try:
                return self.messages.read(path)
            except FileNotFoundError as error:
                raise FileNotFoundError(
                    f"{path}, the message of client {client!r}, is needed again to "
                    "make the map of the client. Keep the files for as long as the "
                    "estimator is used, or fit it to list(load_messages(...))."
                ) from error
        return next(m for i, m in enumerate(self.messages) if i == position)

    def _position(self, client):
        return [each.client for each in self.all_senders].index(client)

    def _kept(self, values):
        return [v for v, f in zip(values, self._factors, strict=True) if f > 0]

    def _read_all(self):
        if not self.is_read:
            for _ in self._first_loop():
                pass

    def _weighted_loop(self):
        for message, factor in zip(self.messages, self._factors, strict=True):
            if factor > 0:
                yield message.weighted(factor)

    @property
    def _acts(self):
        """Whether any client may count less than its message states."""
        screen = self.screen
        if screen is None:
            return False
        return screen.action == "exclude" or screen.max_share is not None

    def _first_loop(self):
        facts, names, labelled = [], set(), None
        from_files = isinstance(self.messages, MessageFiles)
        pairs = ((None, message) for message in self.messages)
        for path, message in self.messages.items() if from_files else pairs:
            _check_kind(message, *self.kinds)
            message._check()
            new = message.facts(path)
            facts.append(new)
            if labelled is None and new.has_labels:
                labelled = new
            traits = [trait for trait in new.traits if trait not in MAY_DIFFER]
            # the first may have no labels to compare
            for other in (facts[0], labelled or new):
                check_agreement(other, new, traits)
            is_named = new.client is not None
            if new.client in names or is_named != (facts[0].client is not None):
                raise MessageError(
                    f"messages came from clients {shorten(f.client for f in facts)}; "
                    "give each client a name of its own in client_update(..., "
                    "client=...)."
                )
            names |= {new.client} if is_named else set()
            yield message
        if not facts:
            raise ValueError("messages is empty: there is no client to learn from.")
        self._examine(facts)
        self._warn_if_some_are_private()
        self._warn_of_lost_classes()

    def _examine(self, facts):
        """Examine all clients, and decide how much each of them counts."""
        factors, rows = np.ones(len(facts)), [each.n_samples for each in facts]
        if None in rows:
            if self._acts:
                raise ValueError(
                    "screen='exclude' and max_share need to know how many rows each "
                    "client has, which these messages do not contain: give them counts "
                    "or n_samples."
                )
        elif self.screen is not None:
            self._report = examine_clients(facts, self.screen.action)
            factors[[each.left_out for each in self._report]] = 0.0
            if self.screen.max_share is not None:
                kept, rows = factors > 0, np.array(rows)
                learned = np.array([issubclass(f.kind, self.kinds[0]) for f in facts])
                capped = _capped(rows[kept], learned[kept], self.screen.max_share)
                factors[kept] = capped / rows[kept]
        self._facts, self._factors = facts, factors.tolist()

    def _warn_if_some_are_private(self):
        """Warn of clients without a guarantee of privacy if others have one."""
        others = [each.client for each in self._facts if not each.is_private]
        if others and len(others) < len(self._facts):
            warn_user(
                f"clients {shorten(others)} sent messages without differential "
                "privacy, the others with: what is learned keeps the guarantee of the "
                "others, and gives these clients none."
            )

    def _warn_of_lost_classes(self):
        """Warn of classes in messages with noise that no client has samples of."""
        counts, agreed = Counter(), {}
        for each in self._facts:
            counts.update(each.class_counts)
            if each.is_private:
                agreed |= each.class_counts
        warn_of_lost_classes([label for label in agreed if not counts[label]])


def _capped(rows, is_learned, max_share):
    """Compute weights under a limit, among all clients and among those with labels.

    Once clients with labels are within the limit among themselves, only other clients
    can exceed it among all.
    """
    if is_learned.any() and not is_learned.all():
        rows = rows.astype(np.float64)
        try:
            rows[is_learned] = cap_shares(rows[is_learned], max_share)
        except ValueError as error:
            error = ValueError(f"of the clients with labels: {error}")
            raise about(error, "max_share") from None
    return cap_shares(rows, max_share)


def receive(messages, *kinds, screen=False):
    """Receive messages of one exchange, which are checked on the first loop over them.

    Every server step begins with this function. Each message must be valid and of an
    allowed kind, all must describe the same features and kind of labels, and no client
    may send two.

    Parameters
    ----------
    messages : iterable of Message
        One message per client. A generator is collected into a list. An iterable that
        can be restarted, such as one that reads files, is read again on each loop.
        Messages that were received before get these settings.
    *kinds : type, default=Message
        Message classes that are allowed. Models are learned from the first kind.
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
        The messages, read anew on each loop. ``received.senders`` contains a
        :class:`~skslot.trust.ClientFacts` for each of them.
        ``received.clients_report`` is the :class:`~skslot.trust.ClientsReport`.
        ``received.of_client(client)`` reads a single message again, and
        ``received.sent_by(client)`` reads it with the counts that were sent.

    See Also
    --------
    load_messages : Read messages from files.
    skslot.trust.examine_clients : Examine clients without a server step.

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
    kinds = kinds or (Message,)
    screen = None if screen is False else ClientScreen.of(screen)
    if isinstance(messages, ReceivedMessages):
        if messages._is_final:
            return messages
        if not messages.is_read:
            messages.kinds, messages.screen = kinds, screen
            return messages
        messages = messages.messages
    if isinstance(messages, Message) or not isinstance(messages, Iterable):
        raise TypeError(
            "messages must be an iterable of messages, one per client, got a "
            f"{type(messages).__name__}."
        )
    if iter(messages) is messages or isinstance(messages, tuple):
        messages = list(messages)
    return ReceivedMessages(messages, kinds, screen)


# ---------------------------------------------------------------------- from files


def load_message(source):
    """Read a message of any kind and check it.

    Parameters
    ----------
    source : str, path-like, bytes, bytearray or memoryview
        A file, or its content.

    Returns
    -------
    message : Message
        The message, its numbers in float64.

    See Also
    --------
    load_messages : Read many files.

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
        How to handle a file that is refused: raise its error, or keep the error in
        ``refused`` and read the other files.
    progress : callable, default=None
        Called as ``progress(done, total)`` after each file, in each pass.

    Returns
    -------
    messages : iterable of Message
        The messages. Each loop over them reads the files again, one at a time, so any
        number can be aggregated. A file must not change until the last loop.
        ``messages.refused`` contains the error of each file that was skipped.

    See Also
    --------
    load_message : Read a single file.

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
    if isinstance(paths, str | bytes | PathLike):
        raise TypeError(
            f"paths must be a list of files, got {paths!r}. Use load_message to read "
            "one file."
        )
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
        """Read the header of each file, such as kind and client of the message.

        Headers are not checked. The header of a file that cannot be read is empty.
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
        # one client may send several kinds, and heads of several rounds
        sender = message.kind, message.client, message.n_rounds
        first = self._senders.setdefault(sender, path)
        if first != path and message.client is not None:
            raise MessageError(
                f"{first} is from the same client already.", message.client
            )
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
