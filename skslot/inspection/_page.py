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
from ..classifiers import FedCGSClassifier
from ..model_selection import FederatedGridSearchCV
from ._alignment import AlignmentDisplay
from ._distances import ClientDistanceDisplay
from ._drawing import pyplot
from ._label_shift import LabelShiftDisplay
from ._report import alignment_report
from ._tau_path import TAUS, TauPathDisplay

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

CODE = Template("""\
import sklearn
from sklearn.pipeline import Pipeline
from skslot import FedCGSClassifier, FederatedOTAligner
from skslot.experiments import load_features

sklearn.set_config(enable_metadata_routing=True)
X, y, client_ids = load_features($path)
model = Pipeline(
    [
        ("align", FederatedOTAligner(tau=$tau)),
        ("classify", FedCGSClassifier("within")),
    ]
)
model.fit(X, y, client_ids=client_ids)
""")


def render_page(name, path, X, y, client_ids, tau=None):
    """The page as text; without a ``tau``, it is searched for."""
    if len(np.unique(client_ids)) < 2:
        raise ValueError(f"{name} has one client only; there is nothing to align.")
    path_of_tau = None
    if tau is None:
        aligner, path_of_tau = _search(X, y, client_ids)
    else:
        aligner = FederatedOTAligner(tau=tau).fit(X, y, client_ids)
    labels = LabelShiftDisplay.from_labels(y, client_ids)
    distances = ClientDistanceDisplay.from_estimator(aligner)
    points = AlignmentDisplay.from_estimator(aligner, X, y, client_ids)
    sections = [
        _section("Clients", _table(aligner)),
        _section("Which client has which classes", _label_figure(labels)),
        _section("How far clients are apart", _distance_figure(distances)),
        _section("Features before and after alignment", _point_figure(points)),
    ]
    if path_of_tau is not None:
        sections.append(_section("Choosing tau", _path_figure(path_of_tau)))
    code = CODE.substitute(path=repr(str(path)), tau=f"{aligner.tau_:.4g}")
    code = f"<pre><code>{escape(code)}</code></pre>"
    sections.append(_section("Recommended pipeline", _scrolling("Code", code)))
    return PAGE.substitute(
        title=escape(f"Alignment report: {name}"),
        summary=escape(_summary(labels.table, distances, path_of_tau)),
        sections="\n".join(sections),
        version=__version__,
    )


def _search(X, y, client_ids):
    """Aligner with the best tau for held-out cells, and the scores over tau."""
    with (
        tempfile.TemporaryDirectory() as memory,
        config_context(enable_metadata_routing=True),
        warnings.catch_warnings(),
    ):
        # of clients that are small in some fold; the report tells of all rows
        warnings.simplefilter("ignore", UserWarning)
        aligner = FederatedOTAligner(memory=memory)
        pipeline = Pipeline(
            [("align", aligner), ("classify", FedCGSClassifier("within"))]
        )
        search = FederatedGridSearchCV(pipeline, {"align__tau": TAUS})
        search.fit(X, y, client_ids=client_ids)
        path = TauPathDisplay.from_search(search, X, y, client_ids=client_ids)
    return search.best_estimator_["align"].set_params(memory=None), path


def _summary(table, distances, path):
    """What to see, in a few sentences."""
    pairs = np.triu_indices(len(distances.clients), 1)
    before, after = distances.before[pairs].mean(), distances.after[pairs].mean()
    text = (
        f"{len(table.clients)} clients hold {table.counts.sum():,} rows of "
        f"{len(table.classes)} classes. {table.n_absent} of {table.counts.size} "
        "(client, class) cells are empty: the more, the more a classifier takes the "
        "client for the class, and the more alignment can help. With tau = "
        f"{distances.tau:.2g}, the mean distance between two clients goes from "
        f"{before:.3g} to {after:.3g}."
    )
    if path is None:
        return text
    chosen = path.taus.index(path.chosen_tau)
    if chosen == 0:
        return f"{text} The search found that these clients are best left as they are."
    return (
        f"{text} On folds some of which hold out whole cells, the mean accuracy of a "
        f"FedCGS classifier goes from {path.mean[0]:.1%} without alignment to "
        f"{path.mean[chosen]:.1%}, that of the worst client from {path.worst[0]:.1%} "
        f"to {path.worst[chosen]:.1%}."
    )


def _table(aligner):
    return _scrolling("Clients", alignment_report(aligner)._repr_html_()) + (
        "<p>W2 is the 2-Wasserstein distance to the reference, before and after "
        "alignment. Shrinkage is the weight of the identity in the covariance, "
        "condition the condition number of the result. Bytes are those of one message "
        "in float32.</p>"
    )


def _label_figure(display):
    return _figure(
        display,
        f"Heat map of the number of rows of {len(display.table.classes)} classes at "
        f"{len(display.table.clients)} clients.",
        "Hatched cells are empty. Test rows of such a class come as a surprise to the "
        "client.",
    )


def _distance_figure(display):
    return _figure(
        display,
        "Two heat maps of the distance between any two clients, before and after "
        "alignment.",
        "2-Wasserstein distances between the Gaussians of the clients, on one colour "
        "scale. A client that stays dark in its whole row is unlike all others.",
    )


def _point_figure(display):
    return _figure(
        display,
        f"Scatter plots of all rows for {len(display.taus)} values of tau, coloured by "
        "client and by class.",
        "Two principal components, the same in all panels. Clients should come "
        "together from left to right while classes stay apart; where classes run "
        "into each other, tau is too large.",
    )


def _path_figure(display):
    return _figure(
        display,
        f"Lines of the {display.metric} over tau: each client, their mean and the "
        "worst.",
        "Accuracy on folds some of which hold out whole (client, class) cells. This "
        "asks the right question if every client will meet every class. If each "
        "client keeps its label mix, expect a smaller tau to be better. The choice "
        "also prefers a tau close to the automatic one.",
    )


def _figure(display, alt, caption):
    """A picture inside the page, with a text for those who do not see it."""
    plt, file = pyplot(), BytesIO()
    options = {"svg.hashsalt": "skslot"}  # the same page on every call
    with plt.rc_context(options):
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


def _section(title, content):
    return f"<section>\n<h2>{escape(title)}</h2>\n{content}\n</section>"
