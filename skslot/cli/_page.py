"""One HTML page on the clients of a data set, with nothing outside of it."""

from html import escape
from math import isfinite
from shlex import quote
from string import Template

import numpy as np

from .. import __version__
from .._utils import printable
from ..inspection import (
    ClientDistanceDisplay,
    ClientOutlierDisplay,
    LabelShiftDisplay,
    VarianceComponentsDisplay,
)
from ._findings import MIXED, MOST_CLIENTS, PER_CLASS, PLAIN, strength_in
from ._pictures import (
    narrow_bar,
    narrow_classes,
    narrow_distances,
    narrow_dots,
    narrow_lines,
    narrow_points,
    picture,
    untitled,
    untitled_classes,
)
from ._server import method_of
from ._site_words import (
    WORTH_A_WORD,
    describe_site,
    in_short,
    reason_of,
    sentence,
)

PAGE = Template("""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #fff; --quiet: #555;
  --line: #c8c8c8; --soft: #f3f3f1; --good: #00795a; --look: #b34700; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e8; --paper: #161616;
  --quiet: #b0b0b0; --line: #4a4a4a; --soft: #232323; --good: #35c196;
  --look: #ff9a52; } }
body { font: 1rem/1.55 system-ui, sans-serif; max-width: 58rem; margin: 0 auto;
  padding: 1rem; color: var(--ink); background: var(--paper);
  overflow-wrap: anywhere; }
h1, h3 { line-height: 1.2; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
.lead { font-size: 1.1rem; }
.sites { display: grid; gap: 1rem; padding: 0;
  grid-template-columns: repeat(auto-fill, minmax(min(19rem, 100%), 1fr)); }
.site { border: 1px solid var(--line); border-left: .4rem solid var(--line);
  border-radius: .4rem; padding: .2rem 1rem 1rem; }
.site h3 { margin: .8rem 0 .4rem; }
.site p { margin: .4rem 0; }
.site .verdict { font-weight: 600; }
.good { border-left-color: var(--good); }
.look { border-left-color: var(--look); }
.look .verdict { color: var(--look); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; }
th, td { padding: .2rem .4rem; border-bottom: 1px solid var(--line); }
th { text-align: left; font-weight: 400; }
td { text-align: right; min-width: 6rem; }
summary { cursor: pointer; margin-top: .6rem; }
dt { font-weight: 600; margin-top: .6rem; }
dd { margin: 0; }
.noise { border-left: .25rem solid var(--look); padding-left: .6rem; }
figure { margin: 1rem 0; }
img { display: block; max-width: 100%; height: auto; }
figcaption { margin-top: .5rem; color: var(--quiet); }
pre { padding: 1rem; border-radius: .4rem; background: var(--soft);
  overflow-wrap: normal; margin: .5rem 0; width: max-content; min-width: 100%;
  box-sizing: border-box; }
.code pre { user-select: all; }
footer { margin-top: 3rem; font-size: .85rem; color: var(--quiet); }
@media print { body { max-width: none; } figure, .site { break-inside: avoid; }
  h2 { break-after: avoid; } pre { white-space: pre-wrap; width: auto; } }
</style>
</head>
<body>
<main>
<h1>$title</h1>
<p class="lead">$summary</p>
$sections
</main>
<footer>Written by skslot $version.</footer>
</body>
</html>
""")

WITHOUT_LABELS = """\
<p>Features alone cannot tell whether alignment helps a classifier, nor which tau is
best. With labels, as y in the file or by --labels, this page also shows which client
has which classes, tries models, says what the accuracy is with and without
alignment, and ends the pipeline with a classifier.</p>"""

GUESSED = (
    "Nothing here tells whether alignment helps, nor how strong it should be: "
    "tau = {tau:.2g} is the default, and no more than that."
)

UNTIL_THERE_ARE_LABELS = (
    "Leave features as they are until labels of some rows tell; this is how they would "
    "be aligned."
)

LATER = (
    "{files} came without labels, and mixed effects need those of all sites: this "
    "makes a model of the others, which a site without labels joins by skslot adapt. "
    "--method fedcgs would take the files of all sites, with a tau that nothing here "
    "speaks for."
)

# What noise does to the numbers of a section, by its title.
NOISE = {
    "Which client has which classes": "Counts carry noise: a cell that looks empty may "
    "have rows, and one with few may have none.",
    "Where the differences between rows come from": "These shares are of numbers with "
    "noise, and rough: part of the differences is the noise.",
    "Whether a client stands out": "Distances carry noise: it may make a client with "
    "few rows stand out, and hide one that would.",
    "How far clients are apart": "Distances carry noise, and rows were cut down to a "
    "norm before: small differences are chance, most of all at clients with few rows.",
}

WITHOUT_ROWS = """\
<p>How many rows of each site would be recognised: the rows stayed at the sites, and
nothing here was tried on any. A site can tell by skslot predict with the model that
comes back, on rows whose labels it knows. Nor can features be drawn, or a tau be
searched for. Where files came without labels, nothing is said of their classes, nor of
where differences between rows come from, which takes the labels of all sites.</p>"""

CODE = Template("""\
import sklearn
from sklearn.pipeline import Pipeline
from skslot import FedCGSClassifier, FederatedOTAligner
from skslot.experiments import FeatureSet

sklearn.set_config(enable_metadata_routing=True)
data = FeatureSet.from_file($source).training_rows()
model = Pipeline(
    [
        ("align", FederatedOTAligner(tau=$tau)),
        ("classify", FedCGSClassifier("within")),
    ]
)
model.fit(data.X, data.y, client_ids=data.client_ids)
""")

CODE_OF_MIXED_EFFECTS = Template("""\
from skslot import MixedEffectsClassifier
from skslot.experiments import FeatureSet

data = FeatureSet.from_file($source).training_rows()
model = MixedEffectsClassifier()
model.fit(data.X, data.y, client_ids=data.client_ids)
print(model.summary())
""")

CODE_PER_CLASS = Template("""\
from skslot import FedQDAClassifier
from skslot.experiments import FeatureSet

data = FeatureSet.from_file($source).training_rows()
model = FedQDAClassifier()
model.fit(data.X, data.y, client_ids=data.client_ids)
""")

CODE_WITHOUT_LABELS = Template("""\
import sklearn
from sklearn.pipeline import Pipeline
from skslot import FederatedOTAligner
from skslot.experiments import FeatureSet

sklearn.set_config(enable_metadata_routing=True)
data = FeatureSet.from_file($source).training_rows()
model = Pipeline([("align", FederatedOTAligner(tau=$tau))])
aligned = model.fit_transform(data.X, client_ids=data.client_ids)
""")

# Numbers of each client, by the words for them on the page; see MEANINGS.
OF_OUTLIERS = {
    "distance": "distance from the others",
    "class_distance": "farthest class mean",
}
MEANINGS = {
    "share of all rows": "How much the client counts for in all that is estimated from "
    "all clients together.",
    "right on held-out rows": "Share of rows that were recognised by a model that had "
    "not seen them, with classes counted as all clients together have them. For "
    "classes that the client lacks, all rows of a class at a client were held out.",
    "right without alignment": "The same for a classifier of all features as they are.",
    "times as far as usual": "Distance of the client from the others, by the distance "
    "of these from each other. 1 is usual.",
    OF_OUTLIERS["distance"]: "How far its features are from a typical client, in "
    "ordinary distances between clients. Honest clients are at about 1; it stands out "
    "beyond 10.",
    OF_OUTLIERS["class_distance"]: "How far its most unusual class mean is from where "
    "other clients have that class, in standard deviations within a class. Wrong "
    "labels show here.",
    "W2 before": "2-Wasserstein distance, in the unit of the features: how far rows "
    "would have to be moved, as a root mean square, to make one Gaussian of another. "
    "$w2",
    "W2 after": "The same after alignment. It does not fall to 0 unless tau is 1.",
    "shrinkage": "Weight of the identity in the covariance of the client, from 0 to 1. "
    "It is large where there are few rows for the number of features, and the map of "
    "the client is coarse then.",
    "condition": "Largest by smallest variance of its features in any direction, after "
    "shrinkage. Above 10,000 some directions hardly vary, and the map may magnify "
    "their noise.",
    "tau": "Strength of the linear map of the client: 0 leaves covariances as they "
    "are, 1 makes those of all clients the same.",
    "offset": "Length of what is taken out of the features of the client, in standard "
    "deviations within a class. 0 means that the site does nothing to its features.",
    "bytes sent": "Size of its message to the server in float32; rows are not in it.",
    "bytes of the file": "Size of what the client sent.",
}


def render_page(findings, source=None):
    """The page on some findings, as text; ``source`` is what read rows, as code."""
    sections = {
        "Each site": _sites(findings),
        "Which client has which classes": _classes(findings),
        "Where the differences between rows come from": _components(findings.mixed),
        "Whether a client stands out": _outliers(findings),
        "How far clients are apart": _distances(findings),
        _title_of_points(findings): _points(findings),
        "Choosing tau, or mixed effects": _path(findings.path),
    }
    if findings.messages is not None:
        sections["What cannot be said without rows"] = WITHOUT_ROWS
        sections["What to run next"] = command_section(findings)
    else:
        if findings.table is None:
            sections["What labels would add"] = WITHOUT_LABELS
        is_tried = findings.diagnosis is not None
        title = "Recommended pipeline" if is_tried else "A pipeline to try"
        sections[title] = _code(findings, source)
    return PAGE.substitute(
        title=escape(f"Alignment report: {printable(findings.name)}"),
        summary=escape(_summary(findings)),
        sections="\n".join(
            f"<section>\n<h2>{escape(title)}</h2>\n"
            f"{_on_noise(findings, title)}{content}\n</section>"
            for title, content in sections.items()
            if content
        ),
        version=__version__,
    )


# ----------------------------------------------------------------- the first words


def _summary(findings):
    """What to see, in a few sentences."""
    parts = _holdings, _noise, _moved, _scores
    return " ".join(text for part in parts for text in part(findings))


def _holdings(findings):
    """How much the clients have."""
    table, n_clients = findings.table, len(findings.clients)
    about, seems = ("about ", " seem to be") if findings.guarantees else ("", " are")
    text = f"{n_clients} clients hold {about}{round(sum(findings.n_samples)):,} rows"
    if table is None:
        yield f"{text} without labels."
        return
    yield f"{text} of {len(table.classes)} classes."
    without = n_clients - len(table.clients)
    if without:
        yield f"{without} sent no labels."
    if table.n_absent:
        yield (
            f"{table.n_absent} of {table.counts.size} (client, class) cells{seems} "
            "empty: the more, the more a classifier takes the client for the class, "
            "and the more alignment can help."
        )
    elif findings.guarantees:
        yield "No (client, class) cell seems to be empty."
    else:
        whose = "that sent labels " * bool(without)
        yield f"Every client {whose}has rows of every class."


def _noise(findings):
    """Whose numbers carry noise, and how much."""
    guarantees, n_clients = findings.guarantees, len(findings.clients)
    if guarantees:
        some = f"{len(guarantees)} of the {n_clients} clients"
        whose = "all clients" if len(guarantees) == n_clients else some
        yield (
            f"The numbers of {whose} carry noise ({in_short(guarantees)}): counts, "
            "distances and what is concluded from them are estimates, which are the "
            "rougher the fewer rows a client has."
        )


def _moved(findings):
    """How much nearer clients come to each other."""
    how = MIXED if findings.is_mixed else f"tau = {findings.aligner.tau_:.2g}"
    how += ", the default" * findings.is_guessed
    if not findings.is_moved:
        yield f"With {how}, features stay as they are."
    elif findings.report is not None:
        pairs = np.triu_indices(len(findings.clients), 1)
        distances = findings.report.distances
        before, after = distances.before, distances.after
        yield (
            f"With {how}, the mean distance between two clients goes from "
            f"{before[pairs].mean():.3g} to {after[pairs].mean():.3g}."
        )


def _scores(findings):
    """Accuracy with and without alignment, and what is recommended."""
    found = findings.diagnosis
    if findings.messages is not None:
        yield (
            "This page is made of what the sites sent; it cannot say how many rows "
            "will be recognised."
        )
    if found is None:
        return
    if findings.path is None:
        yield (
            "No rows could be held out that tell how models will do: there are too "
            "few, or each class is at one client only. Mixed effects are recommended, "
            "the safest choice where nothing can be tried."
        )
        return
    means = {name: mean for name, (mean, _, _) in found.scores.items()}
    compared = dict.fromkeys([found.chosen, MIXED, PLAIN])
    worst = {name: np.nanmin(found.accuracies[name]) for name in compared}
    yield (
        "On rows that were held out, the mean accuracy over clients is "
        f"{_listed(means)}, if every client will meet the classes as all together have "
        f"them; skslot diagnose finds the same. At the worst client it is "
        f"{_listed(worst)}."
    )
    yield from recommendation(findings)
    yield from found.more_warnings


def _listed(shares):
    """Shares of right answers, each with its model."""
    *texts, last = (f"{share:.1%} {_with(name)}" for name, share in shares.items())
    return f"{', '.join(texts)} and {last}"


def _with(name):
    """A model that was tried, as a part of a sentence."""
    tau = strength_in(name)
    if tau != 0:
        strength = "the automatic tau" if tau == "auto" else f"tau = {tau:.2g}"
        return f"with alignment at {strength}"
    words = {PLAIN: "without alignment", PER_CLASS: "with a covariance per class"}
    return words.get(name, f"with {name}")


def recommendation(findings):
    """What is recommended, and what else may be as good."""
    scores, chosen = findings.diagnosis.scores, findings.diagnosis.chosen
    if findings.is_mixed:
        for name, (_, ahead, error) in scores.items():
            if ahead > min(error, WORTH_A_WORD):
                around = f"{100 * error:.1f}" if isfinite(error) else "?"
                yield (
                    f"The mean is {100 * ahead:.1f} +/- {around} points higher "
                    f"{_with(name)} than with mixed effects, which is not enough to be "
                    "sure."
                )
        yield "Mixed effects are recommended."
    elif chosen == PER_CLASS:
        yield "A covariance per class is recommended, without alignment."
    elif findings.is_moved:
        yield f"Alignment with tau = {findings.model.tau_:.2g} is recommended."
    else:
        yield "These clients are best left as they are."


# ---------------------------------------------------------------- a box per site


def _sites(findings):
    """A box for each site, what to look at, and what the numbers mean."""
    boxes, used = [], {}
    for position, site in enumerate(findings.sites()):
        numbers = dict(_numbers(findings, site, position))
        used |= dict.fromkeys(numbers)
        verdict = describe_site(site)
        notes = "".join(f"<p>{escape(note)}</p>" for note in verdict.notes)
        boxes.append(
            f'<article class="site {verdict.level}">'
            f"<h3>{escape(site.name)}</h3>"
            f'<p class="verdict">{escape(verdict.headline)}</p>{notes}'
            f"{_folded(_title_of_numbers(site), _number_table(numbers))}"
            f"{_disclosure(findings, position)}</article>"
        )
    warnings = findings.report.warnings if findings.report is not None else []
    notes = "".join(f"<li>{escape(printable(text))}</li>" for text in warnings)
    return (
        f'<div class="sites">{"".join(boxes)}</div>'
        + (_folded("Notes on the alignment", f"<ul>{notes}</ul>") if notes else "")
        + _folded("What the numbers mean", _glossary(findings, used))
    )


def _numbers(findings, site, position):
    """Pairs of words and numbers on a site."""
    found = findings.clients_report[site.client]
    yield "share of all rows", f"{found.share:.1%}"
    if not np.isnan(site.accuracy):
        yield "right on held-out rows", f"{site.accuracy:.1%}"
        if findings.is_moved:
            yield "right without alignment", f"{site.unaligned:.1%}"
    if not np.isnan(site.apart):
        yield "times as far as usual", f"{site.apart:.2f}"
    for name, words in OF_OUTLIERS.items():
        if not np.isnan(getattr(found, name)):
            yield words, f"{getattr(found, name):.2f}"
    report = findings.report
    for name, (head, as_text) in report.columns.items() if report else ():
        is_said = head in ("client", "rows", "classes")
        if is_said or (head == "W2 after" and not findings.is_moved):
            continue
        if head == "bytes sent" and findings.messages is not None:
            continue
        yield head, as_text(getattr(report, name)[position])
    if findings.messages is not None:
        yield "bytes of the file", f"{findings.messages[position].n_bytes:,}"


def _title_of_numbers(site):
    return "Numbers" + " (with noise)" * (site.noise is not None)


def _number_table(numbers):
    rows = (
        f'<tr><th scope="row">{escape(words)}</th><td>{escape(number)}</td></tr>'
        for words, number in numbers.items()
    )
    return f"<table><tbody>{''.join(rows)}</tbody></table>"


def _glossary(findings, used):
    """What numbers mean, of those that are on the page."""
    w2 = (
        "Here it is the mean over the other clients."
        if findings.is_mixed
        else "Here it is the distance to the reference, which all clients move to."
    )
    terms = (
        f"<dt>{escape(words)}</dt><dd>{escape(Template(meaning).substitute(w2=w2))}</dd>"
        for words, meaning in MEANINGS.items()
        if words in used
    )
    return f"<dl>{''.join(terms)}</dl>"


def _on_noise(findings, title):
    """What noise does to the numbers of a section, if there is any."""
    if not findings.guarantees or title not in NOISE:
        return ""
    return f'<p class="noise">{escape(NOISE[title])}</p>'


def _disclosure(findings, position):
    """What the message of a client gives away, if that is all there is of it."""
    if findings.messages is None:
        return ""
    message = findings.messages[position]
    text = f"<p>In {escape(printable(message.file))}:</p>"
    text += _number_table(message.contents)
    text += "".join(f"<p>{escape(line)}</p>" for line in message.words)
    return _folded("What its message says of it", text)


# --------------------------------------------------------- one section each


def _classes(findings):
    table = findings.table
    if table is None:
        return ""
    are, full = "are", "No cell is empty: every client knows every class."
    display, narrow = LabelShiftDisplay(table).plot(), narrow_classes
    if findings.guarantees:  # the title says how many cells are empty
        are, full = "seem to be", "No cell seems to be empty."
        display, narrow = untitled(display), untitled_classes
    return picture(
        display,
        narrow,
        f"Heat map of the number of rows of {len(table.classes)} classes at "
        f"{len(table.clients)} clients.",
        f"Hatched cells {are} empty. Test rows of such a class come as a surprise to "
        "the client."
        if table.n_absent
        else full,
    )


def _components(mixed):
    if mixed is None:
        return ""
    bar = picture(
        VarianceComponentsDisplay.from_estimator(mixed),
        narrow_bar,
        "One bar of the shares of class, site, site by class and within in the "
        "variance of rows.",
        "The site part can be taken out of the features. The part by class cannot: "
        "only labelled or unlabelled rows of that class at that site tell of it.",
    )
    advice = mixed.summary().partition("\n\n")[2].splitlines()
    return bar + "".join(f"<p>{escape(line)}</p>" for line in advice)


def _outliers(findings):
    report = findings.clients_report
    drawn = picture(
        ClientOutlierDisplay.from_report(report),
        narrow_dots,
        "One dot for each client at its distance from the others, and a line beyond "
        "which it stands out.",
        "Distance of the features of each client from those of others, in ordinary "
        "distances between clients, and of its farthest class mean, in standard "
        "deviations within a class. Honest clients are at about 1; beyond the line, "
        "look for other units, another encoder or wrong labels first.",
    )
    words = [
        sentence(f"Client {site.name} stands out: {reason_of(site)}")
        for site in findings.sites()
        if site.stands_out
    ]
    words = words or ["No client stands out."]
    return drawn + "".join(f"<p>{escape(text)}</p>" for text in words)


def _distances(findings):
    if findings.report is None:
        return (
            f"<p>With more than {MOST_CLIENTS} clients, distances between any two are "
            "not measured; the picture above shows who is far from all.</p>"
        )
    distances, aligner = findings.report.distances, findings.aligner
    display = ClientDistanceDisplay(
        distances.before,
        distances.after if findings.is_moved else None,
        aligner.clients_,
        aligner.tau_,
    )
    maps = "Two heat maps" if findings.is_moved else "Heat map"
    when = ", before and after alignment" if findings.is_moved else ""
    scale = ", on one colour scale" if findings.is_moved else ""
    still = "" if findings.is_moved else " Nothing is moved, so this is all."
    if findings.is_guessed:
        still += f" {GUESSED.format(tau=findings.model.tau_)}"
    return picture(
        display.plot(),
        narrow_distances,
        f"{maps} of the distance between any two clients{when}.",
        f"2-Wasserstein distances between the Gaussians of the clients{scale}. A "
        f"client that stays dark in its whole row is unlike all others.{still}",
    )


def _title_of_points(findings):
    return "Features" + " before and after alignment" * findings.is_moved


def _points(findings):
    display = findings.points
    if display is None:
        return ""
    coloured = "client" if display.y is None else "client and by class"
    panels = "before and after"
    if not findings.is_moved:
        display.titles = [""]
        display.axes_[0, 0].set_title("")
        panels = "as they are"
        caption = "Two principal components, the same in all panels."
    else:
        if not findings.is_mixed:
            panels = f"for {len(display.taus)} values of tau"
        caption = _what_to_see(findings, display)
    return picture(
        display,
        narrow_points,
        f"Scatter plots of all rows {panels}, coloured by {coloured}.",
        caption,
    )


def _what_to_see(findings, display):
    classes = "."
    if display.y is not None:
        classes = " while classes stay apart"
        too_far = "; where classes run into each other, tau is too large."
        classes += "." if findings.is_mixed else too_far
    return (
        "Two principal components, the same in all panels. Clients should come "
        f"together from panel to panel{classes}"
    )


def _path(path):
    if path is None:
        return ""
    return picture(
        path,
        narrow_lines,
        f"Lines of the {path.metric} over tau: each client, their mean, the worst, and "
        f"the means of {MIXED} and of a covariance per class.",
        "Accuracy on rows that were held out, some as whole (client, class) cells. "
        "This asks the right question if every client will meet the classes as all "
        "together have them. If each keeps its label mix, ask skslot diagnose "
        "--labels-at-use as_now. Mixed effects have no tau to choose, nor has a "
        "covariance per class without alignment: the lines that are level. Mixed "
        "effects are recommended unless another model is better by a point and by two "
        "standard errors. More than 128 features are replaced by as many principal "
        "components for this.",
    )


def _code(findings, source):
    found = findings.diagnosis
    if findings.is_mixed:
        code = CODE_OF_MIXED_EFFECTS.substitute(source=source)
    elif found is not None and found.chosen == PER_CLASS:
        code = CODE_PER_CLASS.substitute(source=source)
    else:
        template = CODE_WITHOUT_LABELS if findings.table is None else CODE
        tau = f"{findings.model.tau_:.4g}"
        code = template.substitute(source=source, tau=tau)
    words = ""
    if findings.is_guessed:
        tau = findings.model.tau_
        words = f"<p>{GUESSED.format(tau=tau)} {UNTIL_THERE_ARE_LABELS}</p>"
    where = "In the folder of the file of features:"
    return f"{words}<p>{where}</p>{_listing('Code', code)}"


def command_section(findings):
    """The command that makes a model, or a reference, of these files."""
    messages = findings.messages
    labelled = {
        each.file: each.kind for each in messages if each.kind.describes_classes
    }
    without = [each.file for each in messages if each.file not in labelled]
    try:
        method = method_of(labelled) if labelled else None
    except ValueError as error:
        text = f"No model can be made of these files: {error}"
        return f"<p>{escape(printable(text))}</p>"
    names, words = [each.file for each in messages], []
    if method == "mixed" and without and findings.is_guessed:
        names, output = list(labelled), "--model model.slot"
        words = [LATER.format(files=", ".join(map(printable, without)))]
    elif findings.is_mixed:
        output = "--model model.slot"
    else:
        output = "-o reference.slot" if method is None else "--model model.slot"
        output += " --method fedcgs" * (method == "mixed")
        tau = findings.model.tau
        output += f" --tau {tau if tau == 'auto' else format(tau, '.4g')}"
        if findings.is_guessed:
            words = [GUESSED.format(tau=tau)]
    is_pattern = len(names) == len(messages) > 6 and all(
        name.endswith(".slot") for name in names
    )
    files = "*.slot" if is_pattern else " ".join(map(quote, names))
    words = "".join(f"<p>{escape(text)}</p>" for text in words)
    command = f"skslot aggregate {files} {output}\n"
    where = "In the folder of these files:"
    return f"{words}<p>{where}</p>{_listing('Command', command)}"


# ------------------------------------------------------------------------- parts


def _listing(name, code):
    block = f"<pre><code>{escape(code)}</code></pre>"
    return f'<div class="code">{_scrolling(name, block)}</div>'


def _folded(title, content):
    return f"<details><summary>{escape(title)}</summary>{content}</details>"


def _scrolling(name, content):
    """Content that scrolls on its own where the page is narrow, also by keyboard."""
    return (
        f'<div class="wide" role="region" aria-label="{name}" tabindex="0">'
        f"{content}</div>"
    )
