"""One HTML page on the clients of a data set, with nothing outside of it."""

import tempfile
import warnings
from base64 import b64encode
from html import escape
from io import BytesIO

import numpy as np
from sklearn import config_context
from sklearn.pipeline import Pipeline

from .. import __version__
from ..alignment import FederatedOTAligner
from ..classifiers import FedCGSClassifier
from ..inspection import (
    AlignmentDisplay,
    ClientDistanceDisplay,
    LabelShiftDisplay,
    TauPathDisplay,
    alignment_report,
)
from ..inspection._drawing import pyplot
from ..inspection._tau_path import TAUS
from ..model_selection import FederatedGridSearchCV, class_table
from ._page_templates import CODE, CODE_WITHOUT_LABELS, PAGE


def render_page(data, path, tau=None):
    """The page on a FeatureSet from a path, as text.

    Without a ``tau``, it is searched for; without labels, it is the default.
    """
    if len(data.clients) < 2:
        raise ValueError(f"{data.name} has one client only; there is nothing to align.")
    X, y, client_ids = data.X, data.y, data.client_ids
    path_of_tau = None
    if tau is None and y is not None:
        aligner, path_of_tau = _search(X, y, client_ids)
    else:
        aligner = FederatedOTAligner() if tau is None else FederatedOTAligner(tau)
        aligner.fit(X, y, client_ids)
    distances = ClientDistanceDisplay.from_estimator(aligner)
    points = AlignmentDisplay.from_estimator(aligner, X, y, client_ids)
    sections = {
        "Clients": _table(aligner),
        "Which client has which classes": _label_figure(y, client_ids),
        "How far clients are apart": _distance_figure(distances),
        "Features before and after alignment": _point_figure(points),
        "Choosing tau": _path_figure(path_of_tau),
        "What labels would add": _missing_labels(y),
        "Recommended pipeline": _code(aligner, path, y),
    }
    return PAGE.substitute(
        title=escape(f"Alignment report: {data.name}"),
        summary=escape(_summary(data, distances, path_of_tau)),
        sections="\n".join(_section(*item) for item in sections.items() if item[1]),
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


def _summary(data, distances, path):
    """What to see, in a few sentences."""
    pairs = np.triu_indices(len(distances.clients), 1)
    before, after = distances.before[pairs].mean(), distances.after[pairs].mean()
    text = (
        f"{_holdings(data)} With tau = {distances.tau:.2g}, the mean distance between "
        f"two clients goes from {before:.3g} to {after:.3g}."
    )
    if path is None:
        return text
    chosen = path.taus.index(path.chosen_tau)
    if chosen == 0:
        return f"{text} The search found that these clients are best left as they are."
    return (
        f"{text} On rows that were held out, the mean accuracy of a "
        f"FedCGS classifier goes from {path.mean[0]:.1%} without alignment to "
        f"{path.mean[chosen]:.1%}, that of the worst client from {path.worst[0]:.1%} "
        f"to {path.worst[chosen]:.1%}."
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


def _table(aligner):
    return _scrolling("Clients", alignment_report(aligner)._repr_html_()) + (
        "<p>W2 is the 2-Wasserstein distance to the reference, before and after "
        "alignment. Shrinkage is the weight of the identity in the covariance, "
        "condition the condition number of the result. Bytes are those of one message "
        "in float32.</p>"
    )


def _label_figure(y, client_ids):
    if y is None:
        return None
    display = LabelShiftDisplay.from_labels(y, client_ids)
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
    coloured, classes = "client", "."
    if display.y is not None:
        coloured = "client and by class"
        classes = (
            " while classes stay apart; where classes run into each other, tau is too "
            "large."
        )
    return _figure(
        display,
        f"Scatter plots of all rows for {len(display.taus)} values of tau, coloured by "
        f"{coloured}.",
        "Two principal components, the same in all panels. Clients should come "
        f"together from left to right{classes}",
    )


def _path_figure(display):
    if display is None:
        return None
    return _figure(
        display,
        f"Lines of the {display.metric} over tau: each client, their mean and the "
        "worst.",
        "Accuracy on folds some of which hold out whole (client, class) cells. This "
        "asks the right question if every client will meet every class. If each "
        "client keeps its label mix, expect a smaller tau to be better. The choice "
        "also prefers a tau close to the automatic one.",
    )


def _missing_labels(y):
    if y is not None:
        return None
    return (
        "<p>Features alone cannot tell whether alignment helps a classifier, nor which "
        "tau is best. With labels, as an array y in the file, this page also shows "
        "which client has which classes, searches for tau, says what the accuracy is "
        "with and without alignment, and ends the pipeline with a classifier.</p>"
    )


def _code(aligner, path, y):
    template = CODE_WITHOUT_LABELS if y is None else CODE
    code = template.substitute(path=repr(str(path)), tau=f"{aligner.tau_:.4g}")
    return _scrolling("Code", f"<pre><code>{escape(code)}</code></pre>")


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
