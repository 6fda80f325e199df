"""The error of all messages that are refused."""


class MessageError(ValueError):
    """A message was refused: damaged, inconsistent, or not fit to be sent.

    Parameters
    ----------
    reason : str
        What is wrong with it.
    client : object, default=None
        The client it came from, if known.
    path : str or path-like, default=None
        The file it was in, if any.
    disagreement : tuple, default=None
        If it does not go with another message: the ``trait`` in which they differ, the
        ``value`` here, the ``other_value``, and what is known of the ``other`` sender.
    small_groups : dict, default=None
        If it describes groups of too few rows: these, with the number of rows of each.

    See Also
    --------
    load_messages : Goes on with the other files.

    Examples
    --------
    >>> from skslot.exchange import MessageError, load_message
    >>> try:
    ...     load_message(b"no message")
    ... except MessageError as error:
    ...     print(error)
    these bytes are not a skslot message, or not all of it; ...
    """

    def __init__(
        self, reason, client=None, path=None, disagreement=None, small_groups=None
    ):
        super().__init__(reason, client, path, disagreement, small_groups)
        self.reason = reason
        self.client = client
        self.path = path
        self.disagreement = disagreement
        self.small_groups = small_groups

    def __str__(self):
        where = [] if self.path is None else [str(self.path)]
        where += [] if self.client is None else [f"client {short(self.client)}"]
        return ": ".join([*where, self.reason])


def short(value, length=60):
    """Representation of what somebody sent, no longer than it should be."""
    text = repr(value)
    return text if len(text) <= length else f"{text[: length - 3]}..."
