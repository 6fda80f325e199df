"""One HTML page on the clients of a data set, with nothing outside of it."""

import tempfile
import warnings
from base64 import b64encode
from html import escape
from io import BytesIO
from string import Template

import numpy as np
from sklearn import config_context
from sklearn.pipeline import Pipeline

from .. import __version__
from ..alignment import FederatedOTAligner
from ..classifiers import FedCGSClassifier, MixedEffectsClassifier
from ..inspection import (
    AlignmentDisplay,
    ClientDistanceDisplay,
    ClientOutlierDisplay,
    LabelShiftDisplay,
    TauPathDisplay,
    VarianceComponentsDisplay,
    alignment_report,
)
from ..model_selection import FederatedGridSearchCV, class_table

MIXED = "mixed effects"  # as the page names MixedEffectsClassifier
TAUS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
# Fewer than a search has: enough to tell models apart on a page, in less than a minute.
N_FOLDS = 4
ROUGHLY = 1e-4  # residual of the reference, which no score can tell from zero

PAGE = Template("""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 1rem/1.55 system-ui, sans-serif; max-width: 58rem; margin: 0 auto;
  padding: 1rem; }
h1 { line-height: 1.2; overflow-wrap: anywhere; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
.lead { font-size: 1.1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: .5rem; font-weight: 600; }
th, td { padding: .3rem .8rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
th:first-child { text-align: left; }
figure { margin: 1rem 0; }
img { display: block; max-width: 100%; height: auto; background: white;
  border-radius: .4rem; padding: .4rem; box-sizing: border-box; }
figcaption { margin-top: .5rem; }
pre { padding: 1rem; border-radius: .4rem; background: var(--soft);
  user-select: all; }
footer { margin-top: 3rem; font-size: .85rem; }
@media (max-width: 40rem) { img { max-width: none; width: 32rem; }
  th, td { padding: .3rem .5rem; } }
@media print { body { max-width: none; } figure, table { break-inside: avoid; }
  h2 { break-after: avoid; } pre { white-space: pre-wrap; } }
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
has which classes, searches for tau, says what the accuracy is with and without
alignment, and ends the pipeline with a classifier.</p>"""

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


PARTS = (
    "searching for tau",
    "comparing with mixed effects",
    "fitting mixed effects",
    "measuring distances",
    "drawing",
)


def render_page(data, source, tau=None, progress=None):
    """The page on a FeatureSet, as text; ``source`` is what read it, as code.

    Without a ``tau``, it is searched for and compared with mixed effects; without
    labels, it is the default. ``progress`` is called with the number of parts that are
    done, that of all, and what comes next.
    """

    def begin(part):
        if progress is not None:
            progress(PARTS.index(part), len(PARTS), part)

    if len(data.clients) < 2:
        raise ValueError(f"{data.name} has one client only; there is nothing to align.")
    X, y, client_ids = data.X, data.y, data.client_ids
    path_of_tau = None
    if tau is None and y is not None:
        model, path_of_tau = _search(X, y, client_ids, begin)
    else:
        model = FederatedOTAligner() if tau is None else FederatedOTAligner(tau)
        model.fit(X, y, client_ids)
    mixed = None
    if y is not None:
        begin("fitting mixed effects")
        mixed = MixedEffectsClassifier().fit(X, y, client_ids)
        if _is_mixed_better(path_of_tau):
            model = mixed
    begin("measuring distances")
    distances = ClientDistanceDisplay.from_estimator(model)
    table = _table(model)
    begin("drawing")
    points = AlignmentDisplay.from_estimator(model, X, y, client_ids)
    sections = {"Clients": table}
    if y is not None:
        labels = LabelShiftDisplay.from_labels(y, client_ids)
        sections["Which client has which classes"] = _figure(
            labels,
            f"Heat map of the number of rows of {len(labels.table.classes)} classes at "
            f"{len(labels.table.clients)} clients.",
            "Hatched cells are empty. Test rows of such a class come as a surprise to "
            "the client.",
        )
        sections["Where the differences between rows come from"] = _components(mixed)
    sections["Whether a client stands out"] = _outliers(mixed or model)
    sections["How far clients are apart"] = _figure(
        distances,
        "Two heat maps of the distance between any two clients, before and after "
        "alignment.",
        "2-Wasserstein distances between the Gaussians of the clients, on one colour "
        "scale. A client that stays dark in its whole row is unlike all others.",
    )
    sections["Features before and after alignment"] = _point_figure(points)
    if path_of_tau is not None:
        sections["Choosing tau, or mixed effects"] = _figure(
            path_of_tau,
            f"Lines of the {path_of_tau.metric} over tau: each client, their mean, the "
            f"worst, and the mean of {MIXED}.",
            "Accuracy on folds some of which hold out whole (client, class) cells. "
            "This asks the right question if every client will meet every class. If "
            "each client keeps its label mix, expect a smaller tau to be better, and "
            "give mixed effects priors='client'. The choice of tau also prefers one "
            "close to the automatic one. Mixed effects have no tau to choose: the "
            "dashed line.",
        )
    if y is None:
        sections["What labels would add"] = WITHOUT_LABELS
    sections["Recommended pipeline"] = _code(model, source, y)
    if progress is not None:
        progress(len(PARTS), len(PARTS))
    return PAGE.substitute(
        title=escape(f"Alignment report: {data.name}"),
        summary=escape(_summary(data, model, distances, path_of_tau)),
        sections="\n".join(
            f"<section>\n<h2>{escape(title)}</h2>\n{content}\n</section>"
            for title, content in sections.items()
        ),
        version=__version__,
    )


def _search(X, y, client_ids, begin):
    """Aligner with the best tau for held-out cells, and the scores over tau."""
    with (
        tempfile.TemporaryDirectory() as memory,
        config_context(enable_metadata_routing=True),
        warnings.catch_warnings(),
    ):
        # of clients that are small in some fold; the report tells of all rows
        warnings.simplefilter("ignore", UserWarning)
        aligner = FederatedOTAligner(memory=memory, tol=ROUGHLY)
        pipeline = Pipeline(
            [("align", aligner), ("classify", FedCGSClassifier("within"))]
        )
        search = FederatedGridSearchCV(pipeline, {"align__tau": TAUS}, cv=N_FOLDS)
        begin("searching for tau")
        search.fit(X, y, client_ids=client_ids)
        begin("comparing with mixed effects")
        path = TauPathDisplay.from_search(
            search,
            X,
            y,
            client_ids=client_ids,
            others={MIXED: MixedEffectsClassifier()},
        )
    return search.best_estimator_["align"].set_params(memory=None), path


def _is_mixed_better(path):
    """Whether mixed effects are at least as accurate as the best tau, if known."""
    if path is None:
        return False
    chosen = path.mean[path.taus.index(path.chosen_tau)]
    return path.other_scores[MIXED].mean() >= chosen


def _summary(data, model, distances, path):
    """What to see, in a few sentences."""
    pairs = np.triu_indices(len(distances.clients), 1)
    before, after = distances.before[pairs].mean(), distances.after[pairs].mean()
    is_mixed = isinstance(model, MixedEffectsClassifier)
    how = MIXED if is_mixed else f"tau = {distances.tau:.2g}"
    text = (
        f"{_holdings(data)} With {how}, the mean distance between two clients goes "
        f"from {before:.3g} to {after:.3g}."
    )
    if path is None:
        return text
    chosen, mixed = path.taus.index(path.chosen_tau), path.other_scores[MIXED]
    searched = f"tau = {path.chosen_tau:.2g}, which the search chose"
    scores = {"without alignment": path.scores[0]}
    if chosen > 0:
        scores[f"with {searched}"] = path.scores[chosen]
    means = ", and ".join(f"{v.mean():.1%} {words}" for words, v in scores.items())
    worst = " and ".join(f"{values.min():.1%}" for values in scores.values())
    if is_mixed:
        advice = "Mixed effects are recommended."
    elif chosen > 0:
        advice = f"Alignment with tau = {path.chosen_tau:.2g} is recommended."
    else:
        advice = "These clients are best left as they are."
    return (
        f"{text} On rows that were held out, the mean accuracy over clients is "
        f"{mixed.mean():.1%} with {MIXED}; a FedCGS classifier has {means}. That of "
        f"the worst client is {mixed.min():.1%}, against {worst}. {advice}"
    )


def _holdings(data):
    """How much the clients have."""
    text = f"{len(data.clients)} clients hold {len(data.X):,} rows"
    if data.y is None:
        return f"{text} without labels."
    table = class_table(data.y, data.client_ids)
    return (
        f"{text} of {len(table.classes)} classes. {table.n_absent} of "
        f"{table.counts.size} (client, class) cells are empty: the more, the more a "
        "classifier takes the client for the class, and the more alignment can help."
    )


def _table(model):
    if isinstance(model, MixedEffectsClassifier):
        notes = (
            "Offset is the length of what is taken out of the features of the client, "
            "in standard deviations within a class; tau is the strength of its linear "
            "map. W2 is the mean 2-Wasserstein distance to the other clients, before "
            "and after."
        )
    else:
        notes = (
            "W2 is the 2-Wasserstein distance to the reference, before and after "
            "alignment. Shrinkage is the weight of the identity in the covariance, "
            "condition the condition number of the result."
        )
    return _scrolling("Clients", alignment_report(model)._repr_html_()) + (
        f"<p>{notes} Bytes are those of one message in float32.</p>"
    )


def _outliers(model):
    report = model.clients_report_
    picture = _figure(
        ClientOutlierDisplay.from_report(report),
        "One dot for each client at its distance from the others, and a line beyond "
        "which it stands out.",
        "Distance of the features of each client from those of others, in ordinary "
        "distances between clients, and of its farthest class mean, in standard "
        "deviations within a class. Honest clients are at about 1; beyond the line, "
        "look for other units, another encoder or wrong labels first.",
    )
    return picture + _scrolling("Outliers", f"<pre>{escape(str(report))}</pre>")


def _components(mixed):
    picture = _figure(
        VarianceComponentsDisplay.from_estimator(mixed),
        "One bar of the shares of class, site, site by class and within in the "
        "variance of rows.",
        "The site part can be taken out of the features. The part by class cannot: "
        "only labelled or unlabelled rows of that class at that site tell of it.",
    )
    advice = mixed.summary().partition("\n\n")[2].splitlines()
    return picture + "".join(f"<p>{escape(line)}</p>" for line in advice)


def _point_figure(display):
    coloured, classes = "client", "."
    is_mixed = display.titles is not None
    if display.y is not None:
        coloured = "client and by class"
        classes = " while classes stay apart"
        classes += (
            "."
            if is_mixed
            else "; where classes run into each other, tau is too large."
        )
    panels = (
        "before and after" if is_mixed else f"for {len(display.taus)} values of tau"
    )
    return _figure(
        display,
        f"Scatter plots of all rows {panels}, coloured by {coloured}.",
        "Two principal components, the same in all panels. Clients should come "
        f"together from left to right{classes}",
    )


def _code(model, source, y):
    if isinstance(model, MixedEffectsClassifier):
        code = CODE_OF_MIXED_EFFECTS.substitute(source=source)
    else:
        template = CODE_WITHOUT_LABELS if y is None else CODE
        code = template.substitute(source=source, tau=f"{model.tau_:.4g}")
    return _scrolling("Code", f"<pre><code>{escape(code)}</code></pre>")


def _figure(display, alt, caption):
    """A picture inside the page, with a text for those who do not see it."""
    import matplotlib.pyplot as plt  # which the display has used

    file = BytesIO()
    with plt.rc_context({"svg.hashsalt": "skslot"}):  # the same page on every call
        display.figure_.savefig(file, format="svg", dpi=150, metadata={"Date": None})
    plt.close(display.figure_)
    data = b64encode(file.getvalue()).decode()
    image = f'<img alt="{escape(alt)}" src="data:image/svg+xml;base64,{data}">'
    return (
        f"<figure>{_scrolling('Picture', image)}"
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _scrolling(name, content):
    """Content that scrolls on its own where the page is narrow, also by keyboard."""
    return (
        f'<div class="wide" role="region" aria-label="{name}" tabindex="0">'
        f"{content}</div>"
    )
