"""
====================
When alignment hurts
====================

Alignment helps when sites differ in device *and* labels, and every site will meet every
label. Take one of these conditions away and it gains little or does harm, most of all
at full strength. Four such cases, on the same digits.
"""

# %%
# One score for all cases
# -----------------------
# Each case is a set of features and a pair of training and test rows. What counts is
# accuracy with alignment less accuracy without, over three random partitions. ``fit``
# warns of the first and the last case, in which labels are not skewed.

import warnings

import matplotlib.pyplot as plt
import numpy as np

from skslot import FedCGSClassifier, FederatedOTAligner
from skslot.alignment import AlignmentWarning
from skslot.datasets import load_digit_scanners
from skslot.metrics import client_scores
from skslot.model_selection import dirichlet_label_shift, paper_split

warnings.filterwarnings("ignore", category=AlignmentWarning)
data = load_digit_scanners()
X, y, site = data.data, data.target, data.client_ids
taus = [0.0, 0.25, 0.5, 0.75, 1.0]


def gain(features, partition, where=None):
    """Points won over tau=0, for each tau, at all sites or at one."""
    accuracy = np.zeros((3, len(taus)))
    for number in range(3):
        train, test = partition(number)
        test = test if where is None else test[site[test] == where]
        for column, tau in enumerate(taus):
            aligner = FederatedOTAligner(tau=tau)
            model = FedCGSClassifier("within", aligner=aligner)
            model.fit(features[train], y[train], client_ids=site[train])
            labels = model.predict(features[test], client_ids=site[test])
            accuracy[number, column] = client_scores(y[test], labels, site[test]).mean
    print(", ".join(f"{100 * value:.1f}" for value in accuracy.mean(axis=0)))
    return 100 * (accuracy - accuracy[:, :1]).mean(axis=0)


# %%
# The case that alignment is made for: labels are skewed in training and not afterwards.


def skewed(number):
    return paper_split(y, site, 0.1, test_size=0.5, min_samples=20, random_state=number)


gains = {"labels skewed in training only": gain(X, skewed)}

# %%
# 1. Labels are not skewed. A classifier has seen every digit at every site, and has
# little left to win.


def balanced(number):
    return paper_split(y, site, None, test_size=0.5, random_state=number)


gains["labels not skewed"] = gain(X, balanced)

# %%
# 2. Each site keeps its labels. What a site never had it will never have, so the site
# is a hint at the digit, and alignment takes the hint away.


def same_labels(number):
    kept = dirichlet_label_shift(y, site, 0.1, min_samples=40, random_state=number)
    return kept[::2], kept[1::2]


gains["each site keeps its labels"] = gain(X, same_labels)

# %%
# 3. One site stores negatives. The map of a site stretches and moves but never
# reflects, so that black on white and white on black stay apart. At that site:

negatives = np.where((site == "phone")[:, None], 16 - X, X)
gains["at a site with negatives"] = gain(negatives, skewed, where="phone")

# %%
# 4. Five rows per site. A covariance of 64 features cannot be told from five rows; the
# map follows their chance pattern.


def tiny(number):
    train, test = balanced(number)
    return np.concatenate([train[site[train] == s][:5] for s in np.unique(site)]), test


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it does say that there are few rows
    gains["five rows per site"] = gain(X, tiny)

# %%

colours = ["black", "#009e73", "#d55e00", "#cc79a7", "#0072b2"]
figure, axes = plt.subplots(figsize=(8, 4.2), layout="constrained")
axes.axhline(0, color="#b0b0b0", linewidth=1)
for (label, points), colour in zip(gains.items(), colours, strict=True):
    width = 2.5 if colour == "black" else 1.5
    axes.plot(taus, points, marker="o", color=colour, linewidth=width, label=label)
axes.set(xlabel="tau", ylabel="points won over no alignment")
axes.spines[["top", "right"]].set_visible(False)
axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
plt.show()

# %%
# The black line is the case for alignment. Without label skew there is a point to win;
# with labels that stay or a reflection, every ``tau`` costs. Five rows per site bear a
# weak alignment, by this average, but full alignment costs eleven points. Before you
# align, look at the label table of your sites, and ask whether it will stay as it is.
