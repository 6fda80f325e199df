"""
============================================
A site learns from rows that nobody labelled
============================================

A site with labels of few classes still sees all of them. Its unlabelled rows say how
the other classes look there, and a site that joins later needs no label at all. Nothing
is sent, and nobody else is affected. The rows should be an ordinary sample, though.
"""

# %%
# Rows with labels, rows without, and rows to test on
# ---------------------------------------------------
# Four sites, each with labels of three digits on average. What a site sees is not
# skewed: half of these rows come without labels, the other half is for testing.

import warnings

import matplotlib.pyplot as plt
import numpy as np

from skslot import MixedEffectsClassifier
from skslot.datasets import load_digit_scanners
from skslot.model_selection import paper_split

data = load_digit_scanners()
X, y, site = data.data, data.target, data.client_ids
sites = np.unique(site)


def split(number):
    """Labelled rows, unlabelled rows and test rows."""
    train, rest = paper_split(
        y, site, 0.01, test_size=0.5, min_samples=20, random_state=number
    )
    rest = np.random.default_rng(number).permutation(rest)
    return train, rest[::2], rest[1::2]


def rows_of(client, rows):
    return rows[site[rows] == client]


def accuracy_at(client, model, test):
    rows = rows_of(client, test)
    return np.mean(model.predict(X[rows], client_ids=client) == y[rows])


# %%
# A known site
# ------------
# ``adapt_client`` returns what it found out; ``reset_client`` undoes it.

train, unlabelled, test = split(0)
model = MixedEffectsClassifier().fit(X[train], y[train], client_ids=site[train])
before = accuracy_at("phone", model, test)
print(model.adapt_client(X[rows_of("phone", unlabelled)], "phone"))
after = accuracy_at("phone", model, test)
print(f"accuracy at the phone: {before:.3f} before, {after:.3f} after")

# %%
# The same for all sites and five partitions, with more and more unlabelled rows: an
# ordinary sample, or rows of two digits only, such as a site might collect in a quiet
# week; twenty rows are all that there are of those. A model warns of them.

sizes = {"all digits": [10, 25, 50, 100], "two digits": [10, 20]}


def repeat(fit, learn):
    """Accuracy without unlabelled rows, and with each kind of them, in 20 cases."""
    before, after = [], {kind: [] for kind in sizes}
    for number in range(5):
        train, unlabelled, test = split(number)
        pair = np.random.default_rng(number).choice(10, 2, replace=False)
        for client, model in fit(train).items():
            before.append(accuracy_at(client, model, test))
            rows = rows_of(client, unlabelled)
            kinds = {"all digits": rows, "two digits": rows[np.isin(y[rows], pair)]}
            for kind, rows in kinds.items():
                line = []
                for size in sizes[kind]:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")  # of few rows, few classes
                        learn(model, X[rows[:size]], client)
                    line.append(accuracy_at(client, model, test))
                    model.reset_client(client)
                after[kind].append(line)
    print(f"no unlabelled rows: {np.mean(before):.3f}")
    for kind, lines in after.items():
        means = ", ".join(f"{mean:.3f}" for mean in np.mean(lines, axis=0))
        losses = np.sum(np.array(lines)[:, -1] < before)
        print(f"{kind}: {means}; in the end worse in {losses} of {len(before)} cases")
    return np.mean(before), {k: np.mean(lines, axis=0) for k, lines in after.items()}


def fit_all(train):
    """The model of each site, which is the same at all of them."""
    model = MixedEffectsClassifier().fit(X[train], y[train], client_ids=site[train])
    return dict.fromkeys(sites, model)


known = repeat(fit_all, MixedEffectsClassifier.adapt_client)

# %%
# A new site
# ----------
# One site is left out of the fit and joins by ``add_client`` without a label. Before
# that, its rows are taken as they are.


def fit_others(train):
    """For each site a model of all others."""
    models = {}
    for client in sites:
        rows = train[site[train] != client]
        model = MixedEffectsClassifier(unknown_client="identity")
        models[client] = model.fit(X[rows], y[rows], client_ids=site[rows])
    return models


new = repeat(fit_others, MixedEffectsClassifier.add_client)

# %%

figure, panels = plt.subplots(1, 2, figsize=(8, 3.8), sharey=True, layout="constrained")
titles = "a known site: adapt_client", "a new site: add_client"
styles = {"all digits": ("o-", "#00507d"), "two digits": ("s--", "#d55e00")}
for axes, title, (before, after) in zip(panels, titles, (known, new), strict=True):
    for kind, (style, colour) in styles.items():
        label = f"unlabelled rows of {kind}"
        axes.plot(sizes[kind], 100 * after[kind], style, color=colour, label=label)
    axes.axhline(100 * before, color="#707070", linestyle=":", label="none")
    axes.set_xscale("log")
    axes.set_xticks([10, 25, 50, 100], ["10", "25", "50", "100"])
    axes.minorticks_off()
    axes.set(title=title, xlabel="unlabelled rows")
    axes.spines[["top", "right"]].set_visible(False)
panels[0].set_ylabel("test accuracy at the site in %")
panels[0].legend(loc="center left", bbox_to_anchor=(0, 0.35), frameon=False)
plt.show()

# %%
# A hundred unlabelled rows lift a known site by four points and a new one by eight,
# which leaves it far below a site that sent labels. Rows of two digits gain two and
# five points on average, and make four of twenty known sites worse, an ordinary sample
# one. A new site has less to go by: four of twenty lose whatever the sample, so a few
# labelled rows to check with are worth their price.
