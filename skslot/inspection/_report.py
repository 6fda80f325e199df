"""One HTML page about clients, from their samples or from their messages."""

import re
from base64 import b64encode
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from importlib.resources import files
from io import StringIO
from math import isnan, nan
from string import Template

import numpy as np

from .. import __version__
from .._utils import ignored, printable, warn_user
from ..alignment import AlignmentWarning, FederatedOTAligner, automatic_tau
from ..base import clients_array, number_clients
from ..classifiers import FedCGSClassifier, MixedEffectsClassifier
from ..exchange import ClassStatistics, receive
from ..model_selection import class_table
from ._alignment import (
    AlignmentDisplay,
    ClientDistanceDisplay,
    alignment_report,
    html_table,
)
from ._clients import (
    ClientOutlierDisplay,
    LabelShiftDisplay,
    VarianceComponentsDisplay,
)
from ._diagnose import (
    ASSUMED,
    MIXED,
    PER_CLASS,
    PLAIN,
    SURE,
    TRANSPORT,
    code_of,
    diagnose,
    read_rows,
)
from ._tau_path import TauPathDisplay

DEFAULT_TAU = 0.4
ROUGHLY = 1e-4  # residual of the reference; a smaller one does not change any picture
# Distances between any two of more clients would take hours if there are thousands.
MOST_CLIENTS = 40
STANDS_STILL = 1e-6  # offsets below this part of a standard deviation move nothing
WORTH_A_WORD = 0.02  # smaller differences of the accuracy are not mentioned
FEW_ROWS = 30
MOST_NAMES = 5  # of classes in a sentence


def client_report(
    X, y=None, client_ids=None, *, tau=None, name="clients", reading="", progress=None
):
    """Write an HTML page about clients for the people who run them.

    The page begins with a box for each client in plain words. Pictures of the classes,
    of the variance, of outliers, of distances and of the features follow. The page ends
    with the code of the recommended model. It is a single file without scripts. It
    contains a dot for each sample, so treat it like the features.

    Read more in the :doc:`User Guide </user_guide/inspection>`.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Features.
    y : array-like of shape (n_samples,), default=None
        Labels. If None, the page describes only the features.
    client_ids : array-like of shape (n_samples,)
        Client of each sample.
    tau : float or "auto", default=None
        Alignment strength to show. If None, the page shows the model that
        :func:`diagnose` recommends, or without labels, a ``tau`` of 0.4.
    name : str, default="clients"
        Name of the data for the title.
    reading : str, default=""
        Code that defines ``X``, ``y`` and ``client_ids``, to begin the code on the page
        with.
    progress : callable, default=None
        Called with the number of parts that are done, the number of all parts, and the
        name of the next part.

    Returns
    -------
    page : str
        The HTML page.

    See Also
    --------
    message_report : Page about clients from their messages.
    diagnose : The figures and the recommendation, as text.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot.inspection import client_report
    >>> rng = np.random.default_rng(0)
    >>> X, site = rng.normal(size=(60, 1)), np.repeat(["A", "B", "C"], 20)
    >>> page = client_report(X, client_ids=site)
    >>> page[:15], "<h3>A</h3>" in page
    ('<!DOCTYPE html>', True)
    """
    tell = progress or (lambda done, total, part: None)
    X, client_ids = read_rows(X, client_ids)
    clients, _ = number_clients(client_ids, len(X))
    if len(clients) < 2:
        raise ValueError(
            f"all rows are of one client, {clients[0]!r}: there is nothing to align. "
            "Pass the rows of all clients."
        )
    is_asked, diagnosis, table, mixed = tau is not None, None, None, None
    with ignored(AlignmentWarning):  # the page contains the advice
        if y is not None:
            y, table = np.ravel(y), class_table(y, client_ids)
            if not is_asked:
                diagnosis = diagnose(
                    X,
                    y,
                    client_ids,
                    progress=lambda done, total: tell(
                        0, 4, f"trying models, {done} of {total}"
                    ),
                )
                tau = strength_in(diagnosis.chosen)
            tell(1, 4, "fitting")
            mixed = MixedEffectsClassifier(screen=None).fit(X, y, client_ids)
        if diagnosis is not None and diagnosis.chosen == MIXED:
            model = mixed
        else:
            tau = DEFAULT_TAU if tau is None else tau
            aligner = FederatedOTAligner(tau, tol=ROUGHLY, screen=None)
            model = aligner.fit(X, y, client_ids)
        tell(2, 4, "drawing rows")
        clients = getattr(model, "aligner_", model).clients_.tolist()
        findings = Findings(
            model,
            [int(np.sum(client_ids == client)) for client in clients],
            X.shape[1],
            is_asked=is_asked,
            table=table,
            mixed=mixed,
            diagnosis=diagnosis,
        )
        if diagnosis is not None:
            path = path_of(diagnosis, automatic_tau(X, y, client_ids))
            findings = replace(findings, path=path)
        if X.shape[1] > 1:  # one feature has no picture in two dimensions
            taus = {} if findings.is_moved else {"taus": [0.0]}
            points = AlignmentDisplay.from_estimator(model, X, y, client_ids, **taus)
            findings = replace(findings, points=points)
        tell(3, 4, "writing the page")
        page = _page(
            findings,
            name,
            code_title="Recommended model" if diagnosis else "Model to try",
            code_note=None,
            code_place="In the folder of the file of features:" if reading else None,
            code=reading + _code(findings),
        )
    tell(4, 4, "")
    return page


def message_report(messages, *, tau=None, command=None, note=None, progress=None):
    """Write an HTML page about clients from their messages.

    The page of :func:`client_report`, without the accuracy and without pictures of the
    features. It shows what the messages contain, and where numbers carry the noise of
    differential privacy.

    Read more in the :doc:`User Guide </user_guide/inspection>`.

    Parameters
    ----------
    messages : iterable of Message
        The message of each client, in memory or from
        :func:`~skslot.exchange.load_messages`.
    tau : float or "auto", default=None
        Alignment strength to show. If None, the page shows mixed effects, or if not all
        messages contain class statistics, optimal transport with ``tau="auto"``, or
        0.4 if some have no labels.
    command : str, default=None
        Command that computes a model from the messages, to end the page with.
    note : str, default=None
        Sentence to print before the command.
    progress : callable, default=None
        Called with the number of parts that are done, the number of all parts, and the
        name of the next part.

    Returns
    -------
    page : str
        The HTML page.

    See Also
    --------
    client_report : Page about clients from their samples.

    Examples
    --------
    >>> import numpy as np
    >>> from skslot import FederatedOTAligner
    >>> from skslot.inspection import message_report
    >>> rng, aligner = np.random.default_rng(0), FederatedOTAligner()
    >>> messages = [
    ...     aligner.client_update(rng.normal(size=(20, 2)), client=name)
    ...     for name in ("A", "B", "C")
    ... ]
    >>> page = message_report(messages)
    >>> "3 clients hold 60 rows without labels." in page
    True
    """
    tell = progress or (lambda done, total, part: None)
    tell(0, 2, "reading messages")
    received = receive(messages)
    senders = received.senders
    if len(senders) < 2:
        raise ValueError("there is only one message; pass the messages of all clients.")
    is_asked, mixed = tau is not None, None
    if not is_asked:
        are_labelled = all(sender.has_labels for sender in senders)
        tau = "auto" if are_labelled else DEFAULT_TAU
    is_complete = all(issubclass(sender.kind, ClassStatistics) for sender in senders)
    with ignored(AlignmentWarning):
        if is_complete:
            mixed = MixedEffectsClassifier(screen=None).server_aggregate(received)
        model = mixed
        if is_asked or not is_complete:
            aligner = FederatedOTAligner(tau, tol=ROUGHLY, screen=None)
            model = aligner.server_aggregate(received)
        tell(1, 2, "writing the page")
        findings = Findings(
            model,
            [sender.n_samples for sender in senders],
            senders[0].n_features,
            is_asked=is_asked,
            table=_table_of(senders),
            mixed=mixed,
            messages=list(zip(senders, received, strict=True)),
        )
        page = _page(
            findings,
            f"messages of {len(senders)} clients",
            code_title="What to run next" if command or note else None,
            code_note=note,
            code_place="In the folder of these files:" if command else None,
            code=command,
        )
    tell(2, 2, "")
    return page


def _table_of(senders):
    """Count the samples of each class at each client with labels, if there is one."""
    cells = [
        (label, sender.client, count)
        for sender in senders
        for label, count in sender.class_counts.items()
    ]
    if not cells:
        return None
    labels, clients, counts = zip(*cells, strict=True)
    counts = np.rint(counts).astype(int).clip(0)  # noise makes fractions of samples
    return class_table(labels, clients_array(clients), counts)


# ------------------------------------------------------------------ findings


@dataclass(frozen=True, eq=False)
class Findings:
    """Facts about clients, and about the effect of alignment.

    ``model`` is the recommended or requested one; ``mixed`` has the parts of the
    variance if labels are known. ``messages`` are pairs of facts and message. If
    ``is_asked``, the user chose the alignment strength.
    """

    model: object
    n_samples: list
    n_features: int
    is_asked: bool = False
    table: object = None
    mixed: MixedEffectsClassifier | None = None
    diagnosis: object = None
    path: TauPathDisplay | None = None
    points: AlignmentDisplay | None = None
    messages: list | None = None

    @property
    def is_mixed(self):
        """Whether the model is mixed effects."""
        return self.model is self.mixed

    @property
    def aligner(self):
        """The aligner of the model."""
        return self.model.aligner_ if self.is_mixed else self.model

    @property
    def clients(self):
        """Names of all clients."""
        return self.aligner.clients_.tolist()

    @property
    def clients_report(self):
        """Report on outliers."""
        return (self.mixed or self.model).clients_report_

    @property
    def is_default(self):
        """Whether there is no evidence for the alignment strength."""
        is_chosen = self.is_asked or self.is_mixed or self.diagnosis is not None
        return not is_chosen and self.model.tau != "auto"

    @property
    def guarantees(self):
        """Guarantees of the messages that carry the noise of differential privacy."""
        found = (message.privacy for _, message in self.messages or [])
        return [each for each in found if each is not None]

    @cached_property
    def is_moved(self):
        """Whether alignment changes the features of any client."""
        if np.any(self.aligner.tau_ > 0):
            return True
        if not self.is_mixed:
            return False
        covariance = self.model.covariance_
        unit = np.sqrt(np.trace(covariance) / len(covariance))
        return bool(np.abs(self.model.client_offsets_).max() > STANDS_STILL * unit)

    @cached_property
    def report(self):
        """The alignment report, None if there are too many clients."""
        is_small = len(self.clients) <= MOST_CLIENTS
        return alignment_report(self.model) if is_small else None

    def sites(self):
        """Return what is known about each client, as ``Site`` objects."""
        found = self.diagnosis
        figures, weak = {}, []
        if self.path is not None:
            gap = found.accuracy - np.nanmean(found.accuracy)
            gap[np.abs(gap) < np.maximum(WORTH_A_WORD, SURE * found.error)] = 0.0
            # a covariance per class is another classifier, not an alignment
            is_comparable = self.is_moved and found.chosen != PER_CLASS
            unaligned = found.accuracies[PLAIN] if is_comparable else gap * nan
            columns = zip(found.accuracy, gap, unaligned, strict=True)
            figures = dict(zip(found.clients.tolist(), columns, strict=True))
            weak = found.weak
        absent, n_classes = {}, None
        if self.table is not None:
            n_classes = len(self.table.classes)
            rows = zip(self.table.clients.tolist(), self.table.counts, strict=True)
            absent = {k: self.table.classes[row == 0].tolist() for k, row in rows}
        mean_absent = np.mean([len(each) for each in absent.values()] or [0])
        outliers = {each.client: each for each in self.clients_report}
        farthest = max((each.distance for each in self.clients_report), default=nan)
        for position, client in enumerate(self.clients):
            accuracy, gap, unaligned = figures.get(client, (nan, nan, nan))
            distance = outliers[client].distance
            lacks_more = len(absent.get(client, [])) > mean_absent
            yield Site(
                client,
                self.n_samples[position],
                self.n_features,
                n_classes=n_classes if client in absent else None,
                absent=absent.get(client, []),
                lacks_more=lacks_more,
                accuracy=accuracy,
                gap=gap,
                is_weak=client in weak,
                unaligned=unaligned,
                distance=distance,
                is_farthest=distance == farthest,
                outlier=outliers[client].reason,
                noise=self.messages and self.messages[position][1].privacy,
            )


def strength_in(name):
    """Return the ``tau`` in the name of a model: a number, or "auto"."""
    if not name.startswith(TRANSPORT):
        return 0.0
    tau = name.removeprefix(TRANSPORT)
    return tau if tau == "auto" else float(tau)


def path_of(diagnosis, automatic):
    """Draw the accuracy over tau of the models that were tried.

    ``automatic`` is the value of "auto". Return None if no accuracy is known.
    """
    known = ~np.isnan(diagnosis.accuracy)
    if not known.any():
        return None
    by_name = {name: each[known] for name, each in diagnosis.accuracies.items()}
    aligned = [name for name in by_name if name.startswith(TRANSPORT)]
    taus = {name: strength_in(name) for name in (PLAIN, *aligned)}
    taus = {name: automatic if tau == "auto" else tau for name, tau in taus.items()}
    by_tau = {tau: by_name[name] for name, tau in taus.items()}
    best = next(name for name in diagnosis.scores if name in aligned)
    return TauPathDisplay(
        sorted(by_tau),
        np.array([by_tau[tau] for tau in sorted(by_tau)]),
        diagnosis.clients[known],
        taus[best],
        "accuracy",
        other_scores={
            MIXED: by_name[MIXED],
            "class covariance": by_name[PER_CLASS],  # short enough for a legend
        },
    ).plot()


# ------------------------------------------------------------------ the page


def _page(findings, name, **closing):
    """Collect all that the page shows, and fill the template."""
    template = files(__package__).joinpath("report.html").read_text(encoding="utf-8")
    page, _, box = template.partition("<!-- box of a site -->\n")
    table, report = findings.table, findings.report
    for client, reason in findings.clients_report.outliers.items():
        warn_user(f"client {client!r} stands out: {reason} The page contains more.")
    sites = list(findings.sites())
    outliers = [
        _sentence(f"Client {site.name} stands out: {site.outlier}")
        for site in sites
        if site.outlier
    ]
    notes = [] if findings.diagnosis is None else findings.diagnosis.warnings
    notes = dict.fromkeys([*notes, *(report.warnings if report is not None else [])])
    advice = findings.mixed.summary().partition("\n\n")[2] if findings.mixed else ""
    what_to_see = " Clients should come together from panel to panel"
    if table is not None:
        what_to_see += ", and classes should stay apart"
    boxes = (_box(findings, k, site) for k, site in enumerate(sites))
    values = {
        "title": f"Alignment report: {printable(name)}",
        "version": __version__,
        "summary": " ".join(_summary(findings)),
        "default_tau": f"{findings.model.tau:.2g}" if findings.is_default else None,
        "sites_html": "".join(_fill(box, each) for each in boxes),
        "notes_html": _list(map(printable, notes)) if notes else None,
        "empty_cells": _empty_cells(findings),
        "models_html": _models(findings),
        "components_html": _paragraphs(advice.splitlines()),
        "outliers_html": _paragraphs(outliers or ["No client stands out."]),
        "when": " before and after alignment" if findings.is_moved else "",
        "colours": "client" if table is None else "client and by class",
        "what_to_see": f"{what_to_see}." if findings.is_moved else "",
        "most_clients": MOST_CLIENTS,
        "if_many": "" if report is None else None,
        "if_noise": "" if findings.guarantees else None,
        "if_messages": None if findings.messages is None else "",
        "if_unlabelled": "" if findings.messages is table is None else None,
        **_pictures(findings),
        **closing,
    }
    return _fill(page, values)


def _fill(template, values):
    """Fill in values, escaped unless their names end in ``_html``.

    An element p, pre, details or section is omitted if one of its values is None,
    inner elements first.
    """
    missing = {name for name, value in values.items() if value is None}
    for tag in ("p", "pre", "details", "section"):
        for found in re.findall(rf"<{tag}\b.*?</{tag}>\n", template, flags=re.S):
            if missing.intersection(Template(found).get_identifiers()):
                template = template.replace(found, "")
    texts = {
        name: value if name.endswith("_html") else escape(str(value))
        for name, value in values.items()
    }
    return Template(template).substitute(texts)


def _paragraphs(texts):
    return "".join(f"<p>{escape(text)}</p>\n" for text in texts)


def _list(texts):
    return f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in texts)}</ul>"


def _empty_cells(findings):
    table = findings.table
    if table is None:
        return None
    are = "seem to be" if findings.guarantees else "are"
    return f"{table.n_absent} of {table.counts.size} (client, class) cells {are} empty"


def _models(findings):
    if findings.path is None:
        return None
    heads, *models = findings.diagnosis.models()
    return html_table(models, heads)


def _code(findings):
    """Return the code of the recommended model, or of the one to try."""
    if findings.diagnosis is not None:
        return findings.diagnosis.code
    aligner = FederatedOTAligner(findings.model.tau)
    if findings.table is not None:
        return code_of(FedCGSClassifier("within", aligner=aligner))
    code = code_of(aligner, has_labels=False)
    return f"{code}aligned = model.transform(X, client_ids=client_ids)\n"


# ------------------------------------------------------------------ summary


def _summary(findings):
    """Yield the sentences at the top of the page."""
    table, n_clients = findings.table, len(findings.clients)
    guarantees, found = findings.guarantees, findings.diagnosis
    about = "about " if guarantees else ""
    text = f"{n_clients} clients hold {about}{round(sum(findings.n_samples)):,} rows"
    if table is None:
        yield f"{text} without labels."
    else:
        yield f"{text} of {len(table.classes)} classes."
        if len(table.clients) < n_clients:
            yield f"{n_clients - len(table.clients)} sent no labels."
        if found is None:
            yield f"{_empty_cells(findings)}."
    if guarantees:
        some = f"{len(guarantees)} of the {n_clients} clients"
        whose = "all clients" if len(guarantees) == n_clients else some
        yield (
            f"The numbers of {whose} carry noise ({in_short(guarantees)}). Counts, "
            "distances and all conclusions are estimates, above all for clients with "
            "few rows."
        )
    how = MIXED if findings.is_mixed else f"tau = {findings.aligner.tau_:.2g}"
    if not findings.is_moved:
        yield f"With {how}, the features stay unchanged."
    elif findings.report is not None:
        pairs, distances = np.triu_indices(n_clients, 1), findings.report.distances
        yield (
            f"With {how}, the mean distance between two clients changes from "
            f"{distances.before[pairs].mean():.3g} to "
            f"{distances.after[pairs].mean():.3g}."
        )
    if findings.messages is not None:
        yield "This page is based on messages, so the accuracy of a model is unknown."
    if found is not None:
        yield f"{found.recommendation} This holds if {ASSUMED[found.labels_at_use]}."
        yield from found.more_warnings


# ------------------------------------------------------------------ boxes of sites


@dataclass(frozen=True)
class Site:
    """Facts about one site; None or NaN if unknown.

    ``gap`` is the difference between its accuracy and the mean, 0 if it may be chance.
    ``absent`` are the classes that it has no samples of; ``lacks_more`` states whether
    these are more than at the other sites. ``outlier`` is the reason why it stands out,
    and ``noise`` the guarantee of differential privacy of its message.
    """

    client: object
    n_samples: float
    n_features: int
    n_classes: int | None = None
    absent: list = field(default_factory=list)
    lacks_more: bool = False
    accuracy: float = nan
    gap: float = 0.0
    is_weak: bool = False
    unaligned: float = nan
    distance: float = nan
    is_farthest: bool = False
    outlier: str | None = None
    noise: dict | None = None

    @property
    def name(self):
        """Name of the site, as text of one line."""
        return printable(self.client)

    @property
    def rows(self):
        """Number of rows, in words."""
        count, about = round(self.n_samples), "" if self.noise is None else "about "
        return f"{about}{count:,} row{'s' * (count != 1)}"

    @property
    def holding(self):
        """Number of rows and classes, in words."""
        if self.n_classes is None:
            return self.rows
        held = self.n_classes - len(self.absent)
        return f"{self.rows} of {held} class{'es' * (held != 1)}"


def describe_site(site):
    """Return a level ("good", "ordinary" or "look"), a headline and notes on a site."""
    level, reasons = "ordinary", list(_reasons(site))
    if isnan(site.accuracy):
        headline = site.holding
        if site.outlier:
            level, headline = "look", f"{headline}: {reasons.pop(0)}"
        elif not isnan(site.distance):
            headline += f", at distance {site.distance:.2f} from the other clients"
    else:
        rank = "about" if site.gap == 0 else "above" if site.gap > 0 else "below"
        headline = f"{site.accuracy:.0%} correct, {rank} average"
        if site.is_weak:
            headline = f"{site.accuracy:.0%} correct, far below average"
            reasons = reasons or [
                "no reason was found; check its rows, and how their labels were made"
            ]
        if site.is_weak or site.outlier or (reasons and site.gap < 0):
            level, headline = "look", f"{headline}: {reasons.pop(0)}"
        elif site.gap > 0:
            level = "good"
    notes = [_sentence(reason) for reason in reasons]
    if site.absent and not site.lacks_more:
        notes.append(_sentence(_lacking(site)))
    if abs(site.accuracy - site.unaligned) >= 0.005:
        notes.append(f"Without alignment, {site.unaligned:.0%} would be correct.")
    if not isnan(site.accuracy):
        notes.append(f"It has {site.holding}.")
    if site.noise is not None:
        notes.append(f"All of its numbers carry noise ({in_short([site.noise])}).")
    return level, _sentence(headline), notes


def _reasons(site):
    """Yield reasons for a low accuracy, the most likely first."""
    if site.outlier:
        yield f"it stands out, as {site.outlier}"
    elif site.gap < 0 and site.is_farthest:
        yield (
            "its features are the farthest from the other clients (distance "
            f"{site.distance:.2f}); check how they were made"
        )
    if site.n_samples < FEW_ROWS:
        yield f"it has only {site.rows}, so all of its figures are rough"
    elif site.n_samples <= site.n_features:
        yield (
            f"it has no more rows than the {site.n_features} features, so its "
            "estimates are coarse; more rows help"
        )
    if site.lacks_more:
        yield _lacking(site)


def _lacking(site):
    names = [printable(label) for label in site.absent[:MOST_NAMES]]
    more = len(site.absent) - MOST_NAMES
    names += [f"{more} more"] * (more > 0)
    has = "has" if site.noise is None else "seems to have"
    return (
        f"it {has} no rows of {len(site.absent)} of {site.n_classes} classes "
        f"({', '.join(names)}) and learns them from others"
    )


def in_short(guarantees):
    """Describe the noise of guarantees of differential privacy in a few words."""
    parts = []
    for name in ("epsilon", "delta"):
        values = {guarantee[name] for guarantee in guarantees}
        low, high = f"{min(values):g}", f"{max(values):g}"
        parts.append(f"{name} {low}" + f" to {high}" * (low != high))
    return f"differential privacy with {' and '.join(parts)}"


def _sentence(text):
    """Begin a text with a capital letter, and end it with a full stop if needed."""
    return f"{text[0].upper()}{text[1:]}{'.' * (not text.endswith(('.', '?')))}"


def _box(findings, position, site):
    """Collect the values of the box of one site."""
    level, headline, notes = describe_site(site)
    message = None
    if findings.messages is not None:
        message = _describe_message(*findings.messages[position])
    return {
        "name": site.name,
        "level": level,
        "headline": headline,
        "words_html": _paragraphs(notes),
        "with_noise": "" if site.noise is None else " (with noise)",
        "numbers_html": html_table(_numbers(findings, position, site)),
        "message_html": message,
    }


def _numbers(findings, position, site):
    """Yield the words for each number of a site, and the number as text."""
    found, report = findings.clients_report[site.client], findings.report
    yield "share of all rows", f"{found.share:.1%}"
    for words, value, form in (
        ("correct on held-out rows", site.accuracy, ".1%"),
        ("correct without alignment", site.unaligned, ".1%"),
        ("distance from the others", found.distance, ".2f"),
        ("farthest class mean", found.class_distance, ".2f"),
    ):
        if not isnan(value):
            yield words, format(value, form)
    omitted = {"clients", "n_samples", "n_classes"}
    omitted |= set() if findings.is_moved else {"after"}
    omitted |= set() if findings.messages is None else {"n_bytes"}
    for name, (words, as_text) in report.columns.items() if report else ():
        if name not in omitted:
            yield words, as_text(getattr(report, name)[position])
    if findings.messages is not None:
        yield "bytes of the file", f"{_size(*findings.messages[position]):,}"


def _size(sender, message):
    return message.nbytes() if sender.path is None else sender.path.stat().st_size


def _describe_message(sender, message):
    """Describe the contents of a message, and what it reveals, as HTML."""
    contents = {key: str(value) for key, value in message.contents().items()}
    if message.privacy is not None:
        guarantee = in_short([message.privacy])
        contents["guarantee of differential privacy"] = guarantee
    words = message.describe().split("\n\n")[-1].splitlines()
    place = [] if sender.path is None else [f"In {printable(sender.path.name)}:"]
    return _paragraphs(place) + html_table(contents.items()) + _paragraphs(words)


# ------------------------------------------------------------------ pictures

NAMES = "classes components outliers distances points path".split()
NARROW = 3.7  # inches: the width of a telephone at the size of the text
SMALL_TEXT = {"axes.titlesize": 9, "legend.fontsize": "small"}
# Pure black is the text colour of the page.
STYLE = (
    "<style>svg{color:#1b1b1b;fill:currentColor}"
    "@media (prefers-color-scheme:dark){svg{color:#e8e8e8}}</style>"
)


def _pictures(findings):
    """Draw each picture for wide and for narrow screens; None where there is none."""
    table, report, points = findings.table, findings.report, findings.points
    values = {f"{name}_{width}": None for name in NAMES for width in ("wide", "narrow")}
    if table is not None:
        values |= _picture_of_classes(table)
    if findings.mixed is not None:
        shares = VarianceComponentsDisplay.from_estimator(findings.mixed)
        values |= _picture("components", shares, 2.1)
    outliers = ClientOutlierDisplay.from_report(findings.clients_report)
    n_clients = len(outliers.report.clients)
    values |= _picture("outliers", outliers, 1.6 + 0.28 * n_clients)
    if report is not None:
        distances = ClientDistanceDisplay(
            report.distances.before,
            report.distances.after if findings.is_moved else None,
            report.clients,
            report.tau,
        ).plot()
        values |= _picture("distances", distances, 3.1 * len(distances.axes_))
    if points is not None:
        if not findings.is_moved:
            points.titles = [""]
            points.axes_[0, 0].set_title("")
        n_colourings, n_taus = points.axes_.shape
        n_names = [len(np.unique(points.client_ids))]
        n_names += [] if points.y is None else [min(len(np.unique(points.y)), 11)]
        legend = 0.2 * (max(n_names) // 2 + 2)
        values |= _picture("points", points, n_taus * 3.4 / n_colourings + legend)
    if findings.path is not None:
        values |= _picture("path", findings.path, 4.4)
    return values


def _picture_of_classes(table):
    """Draw the classes of each client, with the longer side upright if narrow."""
    wide = LabelShiftDisplay(table).plot()
    upright = table
    if len(table.classes) > len(table.clients):
        upright = replace(
            table, counts=table.counts.T, clients=table.classes, classes=table.clients
        )
    height = 1.5 + 0.3 * min(max(len(upright.counts), 3), 30)
    narrow = _plot_narrow(LabelShiftDisplay(upright), (1, 1), height)
    if upright is not table:
        narrow.ax_.set(xlabel="client", ylabel="class")
    for display in (wide, narrow):
        display.ax_.set_title(
            ""
        )  # the caption contains it, with care if there is noise
    return {
        "classes_wide": _as_source(wide.figure_),
        "classes_narrow": _as_source(narrow.figure_),
    }


def _picture(name, display, height):
    """Return a drawn display as two images, the second of some height in inches."""
    wide = _as_source(display.figure_)
    shape = np.atleast_2d(getattr(display, "axes_", [None])).shape
    narrow = _plot_narrow(display, shape, height)
    return {f"{name}_wide": wide, f"{name}_narrow": _as_source(narrow.figure_)}


def _plot_narrow(display, shape, height):
    """Draw a display on a narrow figure, with columns of panels as rows."""
    import matplotlib.pyplot as plt  # which the display has used

    with plt.rc_context(SMALL_TEXT):
        size = NARROW, height
        axes = plt.subplots(
            *shape[::-1], figsize=size, layout="constrained", squeeze=False
        )[1].T
        return display.plot(ax=axes[0, 0] if axes.size == 1 else axes)


def _as_source(figure):
    """Return a figure as the address of an image that contains all of it."""
    import matplotlib.pyplot as plt
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    figure.patch.set_visible(False)
    for axis in figure.axes:
        axis.patch.set_facecolor("none")
    file = StringIO()
    figure.set_dpi(150)  # of the points, which are a bitmap in the picture
    with plt.rc_context({"svg.hashsalt": "skslot"}):  # the same page on every call
        # savefig would draw all of it a first time for the layout
        FigureCanvasSVG(figure).print_svg(file, metadata={"Date": None})
    plt.close(figure)
    text = file.getvalue()
    root_end = text.index(">", text.index("<svg")) + 1
    text = text[:root_end] + STYLE + text[root_end:]
    text = text.replace("#000000", "currentColor")
    return f"data:image/svg+xml;base64,{b64encode(text.encode()).decode()}"
