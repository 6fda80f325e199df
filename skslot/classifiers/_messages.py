"""What a server checks of messages before it combines them."""

from typing import NamedTuple

from .._clients import shorten
from ..exchange._checks import kind_of_label
from ..exchange._features import check_same_features


class Sender(NamedTuple):
    """What is kept of a message, so that messages need not stay in memory."""

    client: object
    classes: list
    n_features: int
    encoder: str | None
    n_bytes: int

    @classmethod
    def of(cls, message, wire_dtype):
        """Facts about a message that came with this precision."""
        classes = getattr(message, "classes", [])  # some describe no classes
        facts = message.n_features, message.encoder, message._nbytes(wire_dtype)
        return cls(message.client, classes, *facts)


def read_senders(messages, expected, wire_dtype):
    """One pass over messages of classifiers: who sent what, when it fits together.

    ``expected`` are the kinds of message that are allowed, the first on classes.
    """
    senders = [
        Sender.of(message, wire_dtype) for message in checked(messages, *expected)
    ]
    _check_names(senders)
    if not any(sender.classes for sender in senders):
        raise ValueError("no client sent labels: there is nothing to learn from.")
    kinds = {kind_of_label(label) for sender in senders for label in sender.classes}
    if len(kinds) > 1:
        first, *others = sorted(kinds, reverse=True)
        labels = {sender.client: sender.classes for sender in senders}
        raise ValueError(
            f"some clients sent labels as {first}, others as {' or '.join(others)}: "
            f"{labels}."
        )
    return senders


def check_messages(messages, expected):
    """A list of messages of one exchange, one per client."""
    messages = list(checked(messages, expected))
    _check_names(messages)
    return messages


def checked(messages, *expected):
    """Hand messages on one by one; refuse those that do not go with the first."""
    yield from check_same_features(_of_kind(messages, expected))


def names_of(senders):
    """Clients of messages; those without a name are numbered."""
    return [
        index if sender.client is None and len(senders) > 1 else sender.client
        for index, sender in enumerate(senders)
    ]


def _of_kind(messages, expected):
    message = None
    for message in messages:
        if not isinstance(message, expected):
            names = " or ".join(kind.__name__ for kind in expected)
            raise TypeError(
                f"messages must be {names}, got a {type(message).__name__}; bytes are "
                "read by skslot.exchange.load_message."
            )
        yield message
    if message is None:
        raise ValueError("messages is empty: there is no client to learn from.")


def _check_names(senders):
    """Refuse two messages of one client, and some with a name among others without."""
    names = [sender.client for sender in senders]
    named = [name for name in names if name is not None]
    if len(set(named)) < len(named) or 0 < len(named) < len(names):
        raise ValueError(
            f"messages came from clients {shorten(names)}; give each client a name "
            "of its own in client_update(..., client=...)."
        )
