"""Messages of any kind, from bytes and from many files."""

from collections import Counter
from os import PathLike
from pathlib import Path

from ._classification import ClassMixtures, ClassStatistics
from ._errors import MessageError, short
from ._messages import AlignmentReference, ClientStatistics
from ._models import AlignedModel, LinearModel
from ._storage import read_file
from ._training import FeatureScale, FeatureSummary, HeadWeights
from ._wire import decode

KINDS = {
    message.kind: message
    for message in (
        AlignedModel,
        AlignmentReference,
        ClassMixtures,
        ClassStatistics,
        ClientStatistics,
        FeatureScale,
        FeatureSummary,
        HeadWeights,
        LinearModel,
    )
}


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
    messages : MessageFiles
        The messages. Each loop over them reads the files anew, so that as many as one
        likes can be aggregated in the memory for one.

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
    ...     aligner.server_aggregate(load_messages(paths))
    AlignmentReference(n_features=3, n_iter=..., residual=...)
    """
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error must be 'raise' or 'skip', got {on_error!r}.")
    paths = [Path(path) for path in paths]
    twice = [path for path, count in Counter(paths).items() if count > 1]
    if twice:
        raise ValueError(f"paths names {short([str(path) for path in twice])} twice.")
    return MessageFiles(paths, on_error == "skip", progress)


class MessageFiles:
    """Messages in files, read one at a time on each loop over them.

    Made by :func:`load_messages`. A file is checked when it is first read. It must not
    change until the last loop.

    Parameters
    ----------
    paths : list of Path
        The files.
    skip_refused : bool
        Whether to go on after a file that is refused.
    progress : callable or None
        Called as ``progress(done, total)`` after each file.

    Attributes
    ----------
    refused : dict
        For each file that was left out, the error that says why.

    See Also
    --------
    load_messages : Makes it.

    Examples
    --------
    >>> from skslot.exchange import load_messages
    >>> messages = load_messages(["missing.slot"], on_error="skip")
    >>> list(messages)
    []
    >>> messages.refused
    {...Path('missing.slot'): FileNotFoundError(2, 'No such file or directory')}
    """

    def __init__(self, paths, skip_refused, progress):
        self.paths = paths
        self.skip_refused = skip_refused
        self.progress = progress
        self.refused = {}
        self._checksums = {}
        self._senders = {}

    def __iter__(self):
        for done, path in enumerate(self.paths, start=1):
            message = None if path in self.refused else self._read(path)
            if message is not None:
                yield message
            if self.progress is not None:
                self.progress(done, len(self.paths))

    def _read(self, path):
        try:
            return read_file(path, lambda data: self._message(path, *decode(data)))
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
            return KINDS[header["kind"]]._build(arrays, header)
        message = _message_of(arrays, header)
        self._refuse_second(message, path)
        self._checksums[path] = checksum
        return message

    def _refuse_second(self, message, path):
        client = getattr(message, "client", None)
        if client is None:
            return
        # one client may send several kinds, and heads of several rounds
        sender = message.kind, client, getattr(message, "n_rounds", None)
        first = self._senders.setdefault(sender, path)
        if first != path:
            raise MessageError(f"{first} is from the same client already.", client)


def _message_of(arrays, header):
    kind = header.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise MessageError(f"no message is of the kind {short(kind)}.")
    return KINDS[kind]._from_decoded(arrays, header)
