"""Whether messages are about the same features."""

import hashlib
import json

from ._errors import MessageError, short


def feature_fingerprint(names):
    """Fingerprint of the columns of a table, for messages on its rows.

    Sites whose columns differ in name, number or order get different ones.

    Parameters
    ----------
    names : iterable of str
        Names of the feature columns, in their order.

    Returns
    -------
    fingerprint : str
        To be passed to ``with_encoder`` of a message.

    Examples
    --------
    >>> from skslot.exchange import feature_fingerprint
    >>> feature_fingerprint(["age", "weight"])
    'columns:f4f5b7f73149a985'
    >>> feature_fingerprint(["weight", "age"])
    'columns:...'
    """
    text = json.dumps([str(name) for name in names])
    return f"columns:{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def check_same_features(messages):
    """Hand messages on one by one; refuse those that do not go with the first."""
    first = None
    for message in messages:
        message._check()
        first = message if first is None else first
        check_pair(first, message)
        yield message


def check_pair(first, second):
    """Refuse two messages on features of different encoders or dimensions."""
    sites = _site(first), _site(second)
    if first.n_features != second.n_features:
        raise MessageError(
            f"{sites[1]} has {second.n_features} features, {sites[0]} "
            f"{first.n_features}. All clients must use the same encoder."
        )
    if first.encoder != second.encoder:
        remedy = (
            "If it is the same, say so everywhere by message.with_encoder(...)."
            if None in (first.encoder, second.encoder)
            else "All clients must use the same encoder."
        )
        raise MessageError(
            f"{sites[1]} has features of the encoder {short(second.encoder)}, "
            f"{sites[0]} of {short(first.encoder)}. {remedy}"
        )


def _site(message):
    """Words for whose message it is; that of all has no client."""
    if not hasattr(message, "client"):
        return "the reference"
    if message.client is None and not hasattr(message, "n_samples"):
        return "the model"
    return f"client {short(message.client)}"
