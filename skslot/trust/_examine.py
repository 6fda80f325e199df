"""Compare the clients of one server step: pure functions of what is known of each.

Everything is measured in what is ordinary among the clients themselves, by medians,
which one client cannot move beyond the others. Whoever stands out is no part of what
the others and itself are measured by.
"""

from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from ._report import ClientFinding, ClientsReport

MOST_DISTANCE = ClientsReport.MOST_DISTANCE
# Heads of sites with other classes differ by more than features do.
MOST_WEIGHTS = 100.0
# Rows, against those of all others together; these are taken to have ten at least, as
# fewer say nothing about what is ordinary.
MOST_ROWS = 1000.0
FEWEST_ROWS = 10
# Fewest clients that hold a class, for one of them to be measured by the others.
FEWEST_HOLDERS = 3
# A unit changes mean and deviation of a feature alike, up to what sites differ by.
ALIKE = 1.5
# Makes the median absolute deviation of normal numbers their standard deviation.
MAD = 1.4826


def examine_clients(facts):
    """Find out which clients stand out among all.

    Parameters
    ----------
    facts : list of ClientFacts
        What is known of each client.

    Returns
    -------
    report : ClientsReport
        What was found of each client, and why it stands out if it does.

    See Also
    --------
    ClientsReport : What the numbers mean.

    Notes
    -----
    The distance of a client is the 2-Wasserstein distance of Gaussians with the mean
    and the variances of its features from one with the medians of these over clients.
    Correlations of features are not looked at, so that a thousand clients need no more
    memory than their means. Its unit is an ordinary distance (median plus median
    absolute deviation over clients) or the median spread of rows around the mean of
    their client, whichever is larger. Those that stand out are taken out of these
    medians, and all are measured again, until nobody else stands out or no majority is
    left. Features of a table are looked at one by one too: one whose mean and deviation
    are both ten times those of others, or a tenth, has another unit, and one whose mean
    is ten deviations away stands out as well, unless it has only zeros and ones. Of two
    clients, each is measured by the size of the other's rows, as there is no ordinary
    distance.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.trust import ClientFacts, examine_clients
    >>> units = {"A": 1, "B": 1, "C": 1, "D": 1000}
    >>> facts = [
    ...     ClientFacts(name, 50, mean=np.full(4, unit), variances=np.full(4, unit**2))
    ...     for name, unit in units.items()
    ... ]
    >>> examine_clients(facts).outliers["D"]
    'its features are about 1,000 times larger than those of others: other units ...'
    """
    n_clients, facts = len(facts), _without_gaps(facts)
    fewest = max(2, n_clients // 2 + 1)
    stands_out = np.zeros(n_clients, dtype=bool)
    while True:
        figures = [
            _Figures(*each) for each in zip(*_measure(facts, ~stands_out), strict=True)
        ]
        reasons = [
            each.reasons(known, n_clients == 2)
            for each, known in zip(figures, facts, strict=True)
        ]
        found = stands_out | np.array([bool(each) for each in reasons])
        if n_clients < 3 or (found == stands_out).all():
            break
        stands_out = found
        if np.sum(~stands_out) < fewest:
            break
    total = sum(each.n_samples for each in facts)
    return ClientsReport(
        [
            ClientFinding(
                known.client,
                known.n_samples,
                known.n_samples / total,
                each.distance,
                each.trace_ratio,
                each.class_distance,
                each.head_ratio,
                "; ".join(why) or None,
            )
            for known, each, why in zip(facts, figures, reasons, strict=True)
        ]
    )


@dataclass
class _Figures:
    """What is measured of one client."""

    distance: float
    length_ratio: float
    trace_ratio: float
    class_distance: float
    worst_class: object
    head_ratio: float
    row_ratio: float
    column: str | None

    def reasons(self, facts, is_one_of_two):
        """Why the client stands out, in words."""
        reasons, what = [], None
        # another unit changes the spread of rows as well, and a shift does not
        sizes = self.length_ratio, np.sqrt(self.trace_ratio)
        size, is_judged = self.length_ratio, facts.n_samples >= FEWEST_ROWS
        is_large = np.fmin(*sizes) >= MOST_DISTANCE
        is_small = np.fmax(*sizes) < 1 / MOST_DISTANCE and np.fmin(*sizes) > 0
        if self.distance > MOST_DISTANCE:
            what = f"{_number(self.distance)} ordinary distances away from"
            if is_large:
                what = f"about {_times(size)} larger than"
        elif is_small and is_judged and not is_one_of_two:
            what = f"about {_times(1 / size)} smaller than"
        if what is not None:
            either = " It may as well be the other of the two." * is_one_of_two
            reasons.append(
                f"its features are {what} those of others: other units or another "
                f"encoder?{either}"
            )
        if self.column is not None and not reasons:
            reasons.append(self.column)
        if self.class_distance > MOST_DISTANCE and not reasons:
            reasons.append(
                f"its mean of class {self.worst_class!r} is "
                f"{_number(self.class_distance)} standard deviations within a class "
                "away from where it should be: wrong labels, or a forged message?"
            )
        if self.row_ratio > MOST_ROWS:
            reasons.append(
                f"it says that it has {_number(facts.n_samples)} rows, "
                f"{_times(self.row_ratio)} as many as all others together: a wrong "
                "count?"
            )
        if self.head_ratio > MOST_WEIGHTS or 0 < self.head_ratio < 1 / MOST_WEIGHTS:
            is_larger = self.head_ratio > 1
            ratio = self.head_ratio if is_larger else 1 / self.head_ratio
            reasons.append(
                f"its weights are {_times(ratio)} {'larg' if is_larger else 'small'}er "
                "than those of others: other units, or training that diverged?"
            )
        return reasons


def _measure(facts, kept):
    """Figures of all clients, by those that are kept."""
    distances, lengths, traces, unit = _measure_features(facts, kept)
    class_distances, worst = _measure_classes(facts, kept, unit)
    rows = np.array([each.n_samples for each in facts], dtype=np.float64)
    least = np.where(kept, np.maximum(rows, FEWEST_ROWS), 0.0)
    rest = np.sum(least) - least
    return (
        distances,
        lengths,
        traces,
        class_distances,
        worst,
        _measure_heads(facts, kept),
        np.divide(rows, rest, out=np.zeros_like(rows), where=rest > 0),
        _judge_columns(facts, kept),
    )


def _without_gaps(facts):
    """The same, where columns without a value have what is ordinary among others."""
    if not facts or any(each.n_values is None for each in facts):
        return facts
    absent = np.array([each.n_values == 0 for each in facts])
    if not absent.any():
        return facts
    filled = []
    for name in ("mean", "variances"):
        values = np.array([getattr(each, name) for each in facts])
        held = np.ma.array(values, mask=absent)
        middle = np.ma.median(held, axis=0).filled(0.0)
        filled.append(np.where(absent, middle, values))
    return [
        replace(each, mean=mean, variances=variances)
        for each, mean, variances in zip(facts, *filled, strict=True)
    ]


def _judge_columns(facts, kept):
    """What is wrong with a column of each client, in words, or None."""
    verdicts = [None] * len(facts)
    if not all(each.is_of_table for each in facts):
        return verdicts
    # what was made of a column, such as ones for a category, may be anywhere honestly
    are_raw = all(each.n_values is not None for each in facts)
    means = np.array([each.mean for each in facts])
    n_values = np.array(
        [
            each.n_values if are_raw else np.full(len(each.mean), each.n_samples)
            for each in facts
        ]
    )
    variances = np.maximum([each.variances for each in facts], 0.0)
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
                verdicts[index] = f"its {facts[index].name_of(column)} is {how}"
    return verdicts


def _judge_column(means, deviations, ordinary, is_raw):
    """How far those clients are off that stand out in one column, in words.

    By its unit and, if the column is as it was recorded, by where it lies.
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


def _measure_features(facts, kept):
    """Distance, length and trace of each client, and the unit of distances."""
    n_clients = len(facts)
    distances, lengths, traces = np.full((3, n_clients), np.nan)
    known = np.array([each.mean is not None for each in facts])
    if np.sum(known & kept) < 2:
        return distances, lengths, traces, 0.0
    means = np.array([each.mean for each in facts if each.mean is not None])
    deviations = np.array(
        [
            np.zeros_like(each.mean)
            if each.variances is None
            else np.sqrt(np.maximum(each.variances, 0.0))
            for each in facts
            if each.mean is not None
        ]
    )
    within = kept[known]
    size = np.array([each.trace for each in facts if each.mean is not None])
    length = np.array([each.length for each in facts if each.mean is not None])
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


def _measure_classes(facts, kept, unit):
    """Largest distance of a class mean of each client, and the class.

    From the median of all holders of the class, if there are enough; and from the mean
    of the client, which also tells where nobody else holds the class.
    """
    n_clients = len(facts)
    largest, worst = np.full(n_clients, np.nan), [None] * n_clients
    holders = [each for each in facts if each.classes]
    if not holders:
        return largest, worst
    owners = np.repeat(np.arange(n_clients), [len(each.classes) for each in facts])
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
    spreads = [f.within for f, is_in in zip(facts, kept, strict=True) if is_in]
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


def _measure_heads(facts, kept):
    """Size of the weights of each client; that of its intercepts if it stands out."""
    norms = [each.head_norms or (np.nan, np.nan) for each in facts]
    weights, intercepts = (
        _ratios(np.array(each), kept) for each in zip(*norms, strict=True)
    )
    return np.where(intercepts > np.fmax(weights, MOST_WEIGHTS), intercepts, weights)


def _ordinary(values):
    """A distance that is still ordinary: median plus median absolute deviation."""
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
