"""Federated averaging as pure functions of messages."""

from dataclasses import dataclass, field

import numpy as np

from ..exchange import FeatureScale, FeatureSummary, HeadWeights, MessageError
from ..statistics import average_rows, is_constant
from ..trust import ClientsReport

# Whole numbers up to this are exact in float64; no message may claim more rows.
MAX_ROWS = 2**53


def summarize_rows(X, client):
    """Size, mean and variance of the rows of one client."""
    mean = average_rows(X)
    variance = float(np.square(X - mean).mean())
    return FeatureSummary(len(X), mean, variance, client)


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


def check_standardization(standardize, given, what, step):
    """Refuse what belongs to ``standardize=True`` without it, and its absence."""
    if standardize != given:
        raise ValueError(
            f"standardize={standardize}, but {what} was {'' if given else 'not '}"
            f"passed. It comes from {step} and is needed with standardize=True only."
        )


def check_start(start, classes, n_features):
    """Number of rounds behind weights that fit these classes and features."""
    if start is None:
        return 0
    if start.classes != classes.tolist() or start.n_features != n_features:
        raise ValueError(
            f"start is a head for {start.n_features} features and the classes "
            f"{start.classes}, but here are {n_features} features and the classes "
            f"{classes.tolist()}. Pass the same classes in every round."
        )
    return start.n_rounds


@dataclass
class TrainingRecord:
    """Loss of each round, and the report on the clients of all exchanges."""

    history: list = field(default_factory=list)
    clients_report: ClientsReport = ClientsReport([])

    @property
    def left_out(self):
        """Clients that were left out in any exchange."""
        return self.clients_report.left_out

    def add_exchange(self, clients_report):
        """Add the report on the clients of one exchange."""
        self.clients_report = self.clients_report.merged(clients_report)

    def add_round(self, average, clients_report):
        """Add the report and the loss of one round."""
        self.add_exchange(clients_report)
        before, after = average.losses
        self.history.append(
            {
                "round": average.n_rounds,
                "global_loss": float(before),
                "local_loss": float(after),
            }
        )


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
