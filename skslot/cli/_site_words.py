"""What somebody who runs a site wants to know of it, in plain words: pure functions."""

from dataclasses import dataclass, field
from math import inf, isnan, nan, sqrt

import numpy as np

from .._utils import printable

# Differences of accuracy that are worth a word, and that are worth a look. Smaller ones
# than twice the standard error of the site's own figure are chance.
WORTH_A_WORD = 0.02
FAR_BELOW = 0.15
# If a site does badly, features that lie farther than usual may explain it.
FARTHER = 1.2
MANY_TIMES = 1e6  # which rounding makes of others that are the same
FEW_ROWS = 30
MOST_NAMES = 5  # of classes in a sentence


@dataclass(frozen=True)
class Site:
    """What is known of one site; None or NaN stands for what is not.

    ``accuracy`` is the share of held-out rows that the recommended model gets right,
    ``others`` the mean of it over the other sites, ``unaligned`` what it is without
    alignment. ``apart`` is how far the site is from the others, in mean distances of
    these from each other. ``absent`` has the classes of which it has no rows,
    ``absent_elsewhere`` how many that are at the others on average, ``stands_out`` why
    something must be wrong with it, and ``noise`` the guarantee of differential privacy
    whose noise is in its numbers.
    """

    client: object
    n_samples: int
    n_features: int
    n_classes: int | None = None
    absent: list = field(default_factory=list)
    absent_elsewhere: float = 0.0
    accuracy: float = nan
    others: float = nan
    unaligned: float = nan
    apart: float = nan
    stands_out: str | None = None
    noise: dict | None = None

    @property
    def name(self):
        """Name of the site, as text of one line."""
        return printable(self.client)

    @property
    def distance(self):
        """Distance of its features from those of the other sites, in words."""
        usual = "far from the others, which coincide"
        if self.apart < MANY_TIMES:
            usual = f"{self.apart:.1f} times as far from the others as these from each "
            usual += "other"
        noise = "" if self.noise is None else ", as far as noise lets one see"
        return f"its features lie {usual}{noise}"

    @property
    def gap(self):
        """How much more accurate it is than the others; 0 if that may be chance."""
        gap, share = self.accuracy - self.others, self.accuracy
        if isnan(gap):
            return 0.0
        chance = 2 * sqrt(share * (1 - share) / self.n_samples)
        return gap if abs(gap) >= max(WORTH_A_WORD, chance) else 0.0


@dataclass(frozen=True)
class Verdict:
    """One site in words: ``level`` is "good", "ordinary" or "look"."""

    level: str
    headline: str
    notes: list


def describe_site(site):
    """Say how a site does, why, and what to do about it."""
    reasons = list(_reasons(site))
    if isnan(site.accuracy):
        level = "look" if site.stands_out else "ordinary"
        reason = reasons.pop(0) if level == "look" else _ordinary(site)
        headline = f"{_holding(site)}: {reason}"
    else:
        level, headline = _compare(site)
        if site.gap <= -FAR_BELOW and not reasons:
            reasons = [UNEXPLAINED]
        if reasons and (level == "look" or site.gap < 0):
            level, headline = "look", f"{headline}: {reasons.pop(0)}"
    notes = [*map(sentence, reasons), *_notes(site)]
    return Verdict(level, sentence(headline), notes)


UNEXPLAINED = (
    "nothing here explains that, so look at its rows, and at how their labels were made"
)


def _compare(site):
    """Level and words for the accuracy of a site among the others."""
    right = f"{site.accuracy:.0%} right"
    if isnan(site.others):
        return "ordinary", right
    if site.gap <= -FAR_BELOW:
        return "look", f"{right}, far below the others"
    rank = "about" if site.gap == 0 else "better than" if site.gap > 0 else "below"
    level = "look" if site.stands_out else "good" if site.gap > 0 else "ordinary"
    return level, f"{right}, {rank} average"


def _reasons(site):
    """Why a site may do badly, the most telling first."""
    if site.stands_out:
        yield f"it stands out, as {reason_of(site)}"
    elif site.gap < 0 and site.apart >= FARTHER:
        yield f"{site.distance}; look at its label mix and at how they were made"
    if site.n_samples < FEW_ROWS:
        yield f"it has {_rows(site)} only, which makes all figures on it rough"
    elif site.n_samples <= site.n_features:
        yield (
            f"it has no more rows than the {site.n_features} features, so that little "
            "is known of how these vary; more rows help"
        )
    if len(site.absent) > site.absent_elsewhere:
        yield _lacking(site)


def reason_of(site):
    """Why a site stands out, without a full stop at the end."""
    if site.noise is None:
        return site.stands_out.rstrip(".")
    return f"{site.stands_out} Where rows are few, noise alone may do that"


def _lacking(site):
    lacking = f"{len(site.absent)} of {site.n_classes} classes"
    names = _named(site.absent)
    has = "has" if site.noise is None else "seems to have"
    return f"it {has} no rows of {lacking} ({names}) and knows them from others"


def _notes(site):
    """What else the person who runs the site may want to know."""
    if 0 < len(site.absent) <= site.absent_elsewhere:
        yield sentence(_lacking(site))
    gained = site.accuracy - site.unaligned
    if abs(gained) >= 0.005:
        yield f"Without alignment it would be {site.unaligned:.0%}."
    if not isnan(site.accuracy):
        yield f"It has {_holding(site)}."
    if site.noise is not None:
        yield f"All of its numbers carry noise ({in_short([site.noise])})."


def _ordinary(site):
    if isnan(site.apart):
        return "of two sites, nobody can say which one is unusual"
    return site.distance


def _holding(site):
    rows = _rows(site)
    if site.n_classes is None:
        return rows
    held = site.n_classes - len(site.absent)
    return f"{rows} of {held} class{'es' * (held != 1)}"


def _rows(site):
    count = round(site.n_samples)
    about = "" if site.noise is None else "about "
    return f"{about}{count:,} row{'s' * (count != 1)}"


def in_short(guarantees):
    """What guarantees of differential privacy say of the noise, in a few words."""
    parts = []
    for name in ("epsilon", "delta"):
        values = {guarantee[name] for guarantee in guarantees}
        least, most = f"{min(values):g}", f"{max(values):g}"
        parts.append(f"{name} {least}" + f" to {most}" * (least != most))
    return f"differential privacy with {' and '.join(parts)}"


def _named(labels):
    names = [printable(label) for label in labels[:MOST_NAMES]]
    more = [f"{len(labels) - MOST_NAMES} more"] if len(labels) > MOST_NAMES else []
    return ", ".join(names + more)


def sentence(text):
    """A text as a sentence; a question stays one."""
    return f"{text[0].upper()}{text[1:]}{'' if text.endswith('?') else '.'}"


def times_apart(distances):
    """How far each client is from the others, in mean distances between these.

    NaN for fewer than three clients; 1 for one among others that coincide with it.
    """
    n_clients = len(distances)
    ratios = np.full(n_clients, np.nan)
    if n_clients < 3:
        return ratios
    sums = distances.sum(axis=1)
    for k in range(n_clients):
        among = sums.sum() - 2 * sums[k]  # each pair twice
        usual = among / ((n_clients - 1) * (n_clients - 2))
        ratios[k] = ratio_to(usual, sums[k] / (n_clients - 1))
    return ratios


def ratio_to(usual, value):
    """A value in units of the usual one, of which both may be zero."""
    if usual > 0:
        return value / usual
    return inf if value > 0 else 1.0


def mean_of_others(values):
    """Mean of all known values but each; NaN where there is no other."""
    values = np.asarray(values, dtype=float)
    known = ~np.isnan(values)
    n_others = known.sum() - known
    sums = np.nansum(values) - np.where(known, values, 0)
    return np.divide(sums, n_others, out=np.full(len(values), nan), where=n_others > 0)
