"""What the mixed-effects model says about sites, in words."""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from .._text import printable, shorten
from .._warnings import warn_user

# Set by looking at reports on PACS and the embedded digits.
# Below this many rows, guesses of their classes say little.
FEW_ROWS = 30
# Rows further than this from all classes, in variances within classes per feature, look
# unlike those of the other clients. Ordinary ones were at 0.3 to 3; those of known
# sites three times as large as they should be, at 5 to 30.
FAR = 3.0
# A class with a smaller share of its share at all clients is hardly there: some rows of
# others are taken for it.
HARDLY_THERE = 0.3


@dataclass(frozen=True)
class SiteReport:
    """What :class:`MixedEffectsClassifier` found out about one site."""

    client: object
    n_samples: int
    label_mix: dict
    moved: float
    n_passes: int
    certainty: float | None
    distance: float | None
    warnings: tuple

    @classmethod
    def of_guesses(cls, classifier, client, n_samples, fit):
        """Report on a site that guessed the classes of its rows."""
        mix = dict(zip(classifier.classes_.tolist(), fit.label_mix, strict=True))
        notes = _notes(client, n_samples, fit, classifier)
        mix = {label: round(float(share), 3) for label, share in mix.items()}
        facts = fit.moved, fit.n_passes, fit.certainty, fit.distance
        return cls(client, n_samples, mix, *facts, notes)

    @classmethod
    def of_labels(cls, classifier, client, y):
        """Report on a site that joined with labels."""
        labels, counts = np.unique(y, return_counts=True)
        shares = (counts / counts.sum()).round(3).tolist()
        offset = classifier.aligner_._map_of(client).offset
        factor = classifier._factor
        moved = 0.0
        if factor is not None:
            moved = np.linalg.norm(solve_triangular(factor, offset, lower=True))
        mix = dict(zip(labels.tolist(), shares, strict=True))
        return cls(client, int(counts.sum()), mix, float(moved), 0, None, None, ())

    def warn(self):
        """Warn of what may be wrong with the rows."""
        for note in self.warnings:
            warn_user(note)

    def __repr__(self):
        shares = self.label_mix.items()
        mix = ", ".join(f"{printable(c)}: {share:.0%}" for c, share in shares)
        lines = [
            f"client {self.client!r}: {self.n_samples} rows, offset moved by "
            f"{self.moved:.2f} standard deviations within a class",
        ]
        if self.certainty is None:
            lines.append(f"labels: {mix}")
        else:
            lines += [
                f"estimated label mix after {self.n_passes} passes: {mix}",
                f"mean probability of the most likely class: {self.certainty:.2f}",
                f"distance from the classes: {self.distance:.2f} (about 1 for rows "
                "like those of the other clients)",
            ]
        return "\n".join([*lines, *(f"! {note}" for note in self.warnings)])


def _notes(client, n_samples, fit, classifier):
    """Sentences on rows that guesses should not be trusted for."""
    notes = []
    if n_samples < FEW_ROWS:
        notes.append(
            f"client {client!r} gave {n_samples} rows without labels, which say "
            f"little; {FEW_ROWS} or more are worth it."
        )
    if fit.distance > FAR:
        notes.append(
            f"the rows of client {client!r} lie {fit.distance:.1f} times as far from "
            "all classes as those of the other clients: are they made in the same way? "
            "Guesses of their classes may be wrong."
        )
    shares = classifier.aligner_._aligned().model.class_shares
    there = fit.label_mix >= HARDLY_THERE * shares
    if there.sum() <= len(there) / 2:
        labels = classifier.classes_[there].tolist()
        notes.append(
            f"the unlabelled rows of client {client!r} seem to be of {labels} only; "
            "they should be an ordinary sample of what the site sees, as the offset is "
            "estimated from these classes alone."
        )
    return tuple(notes)


def describe_components(components, taus, by_client, alone=()):
    """Shares of the variance between rows, and what they mean for the user.

    ``alone`` are clients that share no class with any other.
    """
    total = 1 + sum(components.values())
    names = {
        "class": "what class a row is of",
        "client": "what site it comes from, whatever the class",
        "interaction": "how a site shows this class, beyond the two",
        "within": "the row itself",
    }
    values = {**components, "within": 1.0}
    lines = ["Differences between rows come from"]
    lines += [f"{values[k] / total:6.1%}  {words}" for k, words in names.items()]
    lines += ["", *_advice(components, taus)]
    if alone:
        lines.append(
            f"No other site has a class of {shorten(alone)}: what such a site does "
            "cannot be told from what its classes do, so only a part of it is taken "
            "out."
        )
    if by_client:
        lines.append(
            "Predictions expect the label mix that each site had; rows with other "
            "labels than usual are recognised less well."
        )
    else:
        lines.append(
            "Predictions expect the same label mix at all sites; if each keeps its "
            "own, priors='client' is better."
        )
    return "\n".join(lines)


def _advice(components, taus):
    """Sentences on how far sites are apart."""
    site, label = components["client"], components["class"]
    interaction = components["interaction"]
    if site + interaction < 0.01:
        yield "Sites hardly differ: this is nearly a classifier of all rows pooled."
    elif site + interaction < label:
        yield (
            "Sites differ, but less than classes: their offsets are taken out, and "
            "classes stay apart."
        )
    else:
        yield (
            "Sites differ more than classes do: without the offsets, rows would be "
            "recognised by their site."
        )
    if interaction > max(site, 0.01):
        yield (
            "Most of that differs from class to class, which an offset cannot take "
            "out: sites with labels of few classes gain by unlabelled rows, see "
            "adapt_client."
        )
    if taus.max(initial=0.0) > 0:
        yield (
            "Covariances are moved towards each other by linear maps, of strength "
            f"{taus.min():.2f} to {taus.max():.2f}."
        )
