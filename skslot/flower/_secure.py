"""Secure aggregation: class statistics of all clients together, and of none alone."""

import logging
from dataclasses import asdict, dataclass, fields
from math import ceil, log2

import numpy as np

from .._linalg import pack_triangle, unpack_triangle
from ..exchange import ClassStatistics, Message, MessageError
from ._exchanges import Exchanges, RunAborted
from ._masked_sum import KEY, SEALED, SEED, Member, UnmaskError, unmask

# Steps of one sum, in their order.
STEPS = ("keys", "shares", "masked", "reveal")
# Where a client keeps its secrets until it has revealed its shares.
SECRETS = "skslot secure aggregation"
# Sums stay below this power of two, and the sign needs one more of the 64 bits.
BITS = 62
# Features whose products still fit in memory.
MAX_FEATURES = 2**16
# The server needs seconds for a hundred clients, and eight times as long for twice as
# many.
MAX_CLIENTS = 200
# Sums of floating-point numbers are off by less than this part of them.
FLOAT_ROUNDING = 1e-9
# Fixed-point numbers may be off by this part of the squares of a feature.
MOST_ROUNDING = 1e-3

logger = logging.getLogger("skslot.flower")


@dataclass(frozen=True)
class SecureAggregation:
    """Settings by which a Flower server learns sums over all clients, and no message.

    Clients send class counts, class sums and second moments under masks that cancel
    when they are added up. All clients and the server must have the same settings, and
    all of it must be known without looking at the rows.

    Read more in the :doc:`User Guide </user_guide/deployment>`.

    Parameters
    ----------
    clip_norm : float
        Longer rows are shortened to this norm. Take a bound that holds for the encoder:
        what is shortened changes the result. The report says how many rows were.
    max_samples : int
        Most rows that a client may have; one with more does not take part.
    min_clients : int, default=3
        Fewest clients that a sum is made of, at least 3: of two, each knows the other
        from the sum. More than half of all clients must answer in any case.

    See Also
    --------
    make_server_app : Takes the settings at the server.
    make_client_app : Takes them at each site.

    Notes
    -----
    Sums are whole numbers of a unit, a power of two that is as small as the bounds
    allow: with n clients, the sum of all rows of a class, in norm, is at most n times
    ``max_samples`` times ``clip_norm``, and has to stay below 2**62 units.

    Examples
    --------
    >>> from skslot.flower import SecureAggregation
    >>> settings = SecureAggregation(clip_norm=80.0, max_samples=10_000)
    >>> settings.rounding(n_clients=4)  # of sums with up to 80 * 10,000 * 4
    {'class sums': 3.6...e-12, 'second moments': 4.6...e-10}
    """

    clip_norm: float
    max_samples: int
    min_clients: int = 3

    def __post_init__(self):
        if not 0 < self.clip_norm < np.inf:
            raise ValueError(f"clip_norm must be positive, got {self.clip_norm!r}.")
        if not 1 <= self.max_samples <= 2**40:
            raise ValueError(
                f"max_samples must be from 1 to 2**40, got {self.max_samples!r}."
            )
        if not 3 <= self.min_clients <= MAX_CLIENTS:
            raise ValueError(
                f"min_clients must be from 3 to {MAX_CLIENTS}, got "
                f"{self.min_clients!r}: of two clients, each knows the other's numbers "
                "from the sum."
            )

    def rounding(self, n_clients):
        """Compute how far a sum can be off because of fixed-point numbers.

        Parameters
        ----------
        n_clients : int
            Number of clients.

        Returns
        -------
        bounds : dict
            Largest error of a number in the sums over the rows of a class and in the
            sum of ``z z^T`` over all rows ``z``. Counts are exact.
        """
        first, second = self._exponents(n_clients)
        # each client is off by half a unit
        return {
            "class sums": n_clients / 2 * 2.0**first,
            "second moments": n_clients / 2 * 2.0**second,
        }

    def _exponents(self, n_clients):
        """Units of class sums and of second moments, as powers of two."""
        bits = BITS - ceil(log2(n_clients * self.max_samples))
        norm = ceil(log2(self.clip_norm))
        return norm - bits, 2 * norm - bits

    def _facts(self):
        """The settings as they are sent and compared."""
        return {
            "clip_norm": float(self.clip_norm),
            "max_samples": int(self.max_samples),
            "min_clients": int(self.min_clients),
        }

    def _threshold(self, n_clients):
        """How many of the clients it takes to take off masks."""
        return max(self.min_clients, n_clients // 2 + 1)


def check_sums_suffice(aligner, classifier):
    """Refuse what needs more at the server than sums over all rows."""
    if aligner is None:
        aligner = getattr(classifier, "aligner", None)
    if aligner is not None:
        raise ValueError(
            f"secure_aggregation does not go with {type(aligner).__name__}: alignment "
            "needs mean and covariance of every single client, of which the server "
            "would have the sums only. Leave out the aligner, or secure_aggregation."
        )
    sends_sums = classifier._message_type is ClassStatistics
    if not sends_sums or classifier._ids_matter:
        raise ValueError(
            f"secure_aggregation does not go with {type(classifier).__name__}: its "
            "server step needs the message of every single client, of which the "
            "server would have sums only. FedCGSClassifier and FedRidgeClassifier "
            "need no more."
        )
    caps = classifier.max_client_share not in (None, 1)
    if caps or classifier.outliers == "leave_out":
        raise ValueError(
            "secure_aggregation does not go with outliers='leave_out' or "
            "max_client_share: the server sees no single client. Leave out one of the "
            "two."
        )
    if classifier.privacy is not None:
        raise ValueError(
            "secure_aggregation does not go with privacy: with noise, sums may leave "
            "the range that they are masked in. Leave out one of the two."
        )


@dataclass(frozen=True)
class FixedPoint:
    """Sums of so many clients as one vector of whole numbers, and back."""

    settings: SecureAggregation
    n_clients: int
    n_classes: int
    n_features: int

    @property
    def sizes(self):
        """Length of counts, number of clipped rows, class sums and second moments."""
        n_classes, n_features = self.n_classes, self.n_features
        triangle = n_features * (n_features + 1) // 2
        return n_classes, 1, n_classes * n_features, triangle

    def encode(self, statistics, n_clipped):
        """Sums over the rows of one client."""
        counts, sums, moment = statistics.sums()
        first, second = self.settings._exponents(self.n_clients)
        parts = [
            counts,
            [n_clipped],
            np.ldexp(sums.ravel(), -first),
            np.ldexp(pack_triangle(moment), -second),
        ]
        whole = [np.rint(part).astype(np.int64) for part in parts]
        return np.concatenate(whole).view(np.uint64)

    def decode(self, total):
        """Counts, number of clipped rows, class sums and second moments."""
        first, second = self.settings._exponents(self.n_clients)
        parts = np.split(total.view(np.int64), np.cumsum(self.sizes)[:-1])
        counts, (n_clipped,), sums, moment = parts
        most = self.n_clients * self.settings.max_samples
        are_counts = 0 <= counts.min() and counts.max() <= most
        if not are_counts or not 0 <= n_clipped <= counts.sum() <= most:
            raise UnmaskError("the sums are not those of rows.")
        sums = np.ldexp(sums.astype(np.float64), first).reshape(self.n_classes, -1)
        moment = unpack_triangle(np.ldexp(moment.astype(np.float64), second))
        self._check_lengths(counts, sums, moment)
        return counts, int(n_clipped), sums, moment

    def _check_lengths(self, counts, sums, moment):
        """Refuse sums of rows longer than they may be."""
        norm, bounds = self.settings.clip_norm, self.settings.rounding(self.n_clients)
        most = counts * norm * (1 + FLOAT_ROUNDING)
        most += np.sqrt(self.n_features) * bounds["class sums"]
        most_squares = counts.sum() * norm**2 * (1 + FLOAT_ROUNDING)
        most_squares += self.n_features * bounds["second moments"]
        lengths = np.linalg.norm(sums, axis=1)
        if np.any(lengths > most) or moment.trace() > most_squares:
            raise UnmaskError(
                f"they are of rows longer than clip_norm={norm:g}, so some client has "
                "not shortened its rows."
            )

    def pooled(self, classes, counts, sums, moment):
        """Message on the rows of all clients, if sums are exact enough for it."""
        bounds = self.settings.rounding(self.n_clients)
        first, second = bounds["class sums"], bounds["second moments"]
        # squares of class sums, which are at most clip_norm times a count, over counts
        of_means = self.n_classes * first * (2 * self.settings.clip_norm + first)
        tolerance = second + of_means + FLOAT_ROUNDING * np.abs(moment.diagonal())
        pooled = ClassStatistics.from_sums(classes, counts, sums, moment, tolerance)
        squares = pooled.n_samples * pooled.covariance.trace() / self.n_features
        if second > MOST_ROUNDING * squares:
            raise UnmaskError(
                f"rounding may be {second:.1e} in sums of squares that are "
                f"{squares:.1e} on average. Take a clip_norm and max_samples that are "
                "closer to what rows have."
            )
        return pooled


# ------------------------------------------------------------------ what is sent


class Joining(Message):
    """What a client takes part with; it has no kind, as it is never a file."""

    numbers: np.ndarray = Message.array(
        3, KEY, kinds="u", meaning="public keys of the client"
    )
    classes: list = Message.fact("labels that may occur")
    n_features: int = Message.fact("number of features")
    clip_norm: float = Message.fact("norm that rows are shortened to")
    max_samples: int = Message.fact("most rows of a client")
    min_clients: int = Message.fact("fewest clients in a sum")
    client: object = Message.fact("name of the client", default=None)
    encoder: str | None = Message.fact("fingerprint of the encoder", default=None)

    @property
    def settings(self):
        """The settings of the client, whatever they are, as text."""
        names = [each.name for each in fields(SecureAggregation)]
        return in_words({name: getattr(self, name) for name in names})

    def _traits(self):
        own = {"list of classes": tuple(self.classes), "settings": self.settings}
        return {**super()._traits(), **own}

    def _check_values(self, sizes, deep):
        is_number = type(self.n_features) is int
        if not is_number or not 0 < self.n_features <= MAX_FEATURES:
            raise MessageError("n_features is no number of features.")


def in_words(facts):
    """Facts as text, by which they are compared and shown."""
    return ", ".join(f"{name}={value!r}" for name, value in facts.items())


class Rows:
    """Rows of numbers as bytes; how many there are is not known beforehand."""

    def __init__(self, dtype, *shape):
        self.dtype, self.shape = dtype, shape

    def from_bytes(self, data):
        """Rows from bytes."""
        try:
            return np.frombuffer(data, self.dtype).reshape(-1, *self.shape)
        except ValueError as error:
            raise MessageError("these bytes are not rows of numbers.") from error


MEMBERS = Rows(np.uint8, 3, KEY)
SHARES = Rows(np.uint8, SEALED)
VECTOR = Rows("<u8")
ARRIVED = Rows(np.bool_)
REVEALED = Rows(np.uint8, SEED)


# ------------------------------------------------------------------- the client


class SecureSteps:
    """What one client answers in the steps of a sum."""

    # What may stand in a request, by the name it has there.
    contents = {"members": MEMBERS, "sealed": SHARES, "arrived": ARRIVED}

    def __init__(self, settings, classes):
        if classes is None:
            raise ValueError(
                "secure_aggregation needs classes=, the labels of all clients, the "
                "same at each of them."
            )
        self.settings = settings
        self.allowed = dict.fromkeys((*STEPS, "result"), 1)

    def clip(self, X):
        """Rows of no more than the norm, and how many were longer."""
        X = np.asarray(X, dtype=np.float64)
        clip_norm = self.settings.clip_norm
        with np.errstate(over="ignore"):
            norms = np.linalg.norm(X, axis=1, keepdims=True)
        factors = clip_norm / np.maximum(norms, clip_norm)
        # rows whose squares are too large for a number
        far = np.isinf(norms[:, 0])
        largest = np.abs(X[far]).max(axis=1, keepdims=True)
        directions = X[far] / largest
        factors[far] = clip_norm / largest
        factors[far] /= np.linalg.norm(directions, axis=1, keepdims=True)
        return X * factors, int((factors < 1).sum())

    def check_size(self, statistics):
        """Refuse more rows than sums have room for."""
        if statistics.n_samples > self.settings.max_samples:
            raise ValueError(
                f"there are {statistics.n_samples} rows, but max_samples is "
                f"{self.settings.max_samples}."
            )

    def answer(self, step, contents, summarize, state, new_record):
        """Bytes to the server.

        ``summarize`` returns the class statistics of the clipped rows and how many were
        clipped. ``state`` keeps the secrets from one message to the next.
        """
        if step == "keys":
            statistics, _ = summarize()
            member = Member.new()
            answer = Joining(
                member.public_numbers(),
                statistics.classes,
                statistics.n_features,
                **self.settings._facts(),
                client=statistics.client,
                encoder=statistics.encoder,
            ).to_bytes()
        else:
            member = Member(**state.pop(SECRETS))
            answer = self._answer(step, contents, summarize, member).tobytes()
        if step != "reveal":
            state[SECRETS] = new_record(asdict(member))
        return answer

    def _answer(self, step, contents, summarize, member):
        if step == "shares":
            members = contents["members"]
            if not self.settings.min_clients <= len(members) <= MAX_CLIENTS:
                raise ValueError(f"the sum would be of {len(members)} clients.")
            return member.share(members, self.settings._threshold(len(members)))
        threshold = self.settings._threshold(member.n_members)
        if step == "reveal":
            return member.reveal(contents["arrived"], threshold)
        statistics, n_clipped = summarize()
        if n_clipped:
            logger.warning(
                "%d of %d rows were longer than clip_norm=%g and were shortened",
                n_clipped,
                statistics.n_samples,
                self.settings.clip_norm,
            )
        numbers = FixedPoint(
            self.settings,
            member.n_members,
            len(statistics.classes),
            statistics.n_features,
        )
        vector = numbers.encode(statistics, n_clipped)
        return member.mask(vector, contents["sealed"], threshold)


# ------------------------------------------------------------------- the server


class SecureExchanges(Exchanges):
    """Asks for a sum where others ask for messages.

    The answer to a request is then a single message, on the rows of all clients.
    """

    def __init__(self, nodes, send, settings, min_clients=None):
        types = dict(zip(STEPS, (Joining, SHARES, VECTOR, REVEALED), strict=True))
        super().__init__(nodes, send, types, min_clients)
        self.settings = settings
        self.min_clients = max(self.min_clients, settings.min_clients)
        if not self.min_clients <= len(self.records) <= MAX_CLIENTS:
            raise RunAborted(
                f"secure aggregation takes {self.min_clients} to {MAX_CLIENTS} "
                f"clients, but {len(self.records)} are there."
            )

    def ask(self, request, dtype):
        """One message on the rows of all clients, in a list."""
        joined = self._join()
        nodes, first = sorted(joined), next(iter(joined.values()))
        position = {node: index for index, node in enumerate(nodes)}
        classes, n_members = first.classes, len(nodes)
        numbers = FixedPoint(self.settings, n_members, len(classes), first.n_features)
        threshold = self.settings._threshold(n_members)
        self.min_clients = max(self.min_clients, threshold)

        members = np.stack([joined[node].numbers for node in nodes])
        to_all = {"members": members.tobytes()}
        sealed = self._ask_each("shares", dict.fromkeys(nodes, to_all), n_members)

        inboxes = np.zeros((n_members, n_members, SEALED), dtype=np.uint8)
        for node, shares in sealed.items():
            inboxes[:, position[node]] = shares
        to_each = {n: {"sealed": inboxes[position[n]].tobytes()} for n in sealed}
        masked = self._ask_each("masked", to_each, sum(numbers.sizes))

        arrived = np.isin(nodes, list(masked))
        to_all = {"arrived": arrived.tobytes()}
        revealed = self._ask_each("reveal", dict.fromkeys(masked, to_all), n_members)

        sealed, masked, revealed = (
            {position[node]: answer for node, answer in answers.items()}
            for answers in (sealed, masked, revealed)
        )
        try:
            total = unmask(masked, members, sealed, revealed, threshold)
            counts, n_clipped, sums, moment = numbers.decode(total)
            pooled = numbers.pooled(classes, counts, sums, moment)
        except (UnmaskError, MessageError) as error:
            raise RunAborted(f"the sums could not be read: {error}") from error
        self._take_note(counts.sum(), n_clipped, len(masked), n_members)
        return [pooled.with_encoder(first.encoder)]

    def _join(self):
        """Those who take part, if their settings are those of the server."""
        joined = self._ask_named("keys", dict.fromkeys(self._taking_part(), {}))
        theirs = next(iter(joined.values())).settings
        own = in_words(self.settings._facts())
        if theirs != own:
            raise RunAborted(
                f"secure_aggregation of the clients has {theirs}, that of the server "
                f"has {own}; all must have the same."
            )
        return joined

    def _ask_each(self, step, contents, length):
        """Answers of this length, by their nodes."""
        answers = {}
        for node, answer in self._exchange(step, contents).items():
            if len(answer) == length:
                answers[node] = answer
            else:
                self.records[node].leave_out(step, "malformed")
        self._check_enough(step, answers)
        return answers

    def _least_in_words(self):
        return f"{self.min_clients} are needed to add up and to take off masks"

    def _take_note(self, n_samples, n_clipped, n_summed, n_members):
        bounds = self.settings.rounding(n_members).items()
        errors = " and ".join(f"{name} by {bound:.1e}" for name, bound in bounds)
        self.note = (
            f"secure aggregation: {n_samples} rows of {n_summed} clients, {n_clipped} "
            f"of them shortened to norm {self.settings.clip_norm:g}; off by rounding: "
            f"{errors} at most"
        )
