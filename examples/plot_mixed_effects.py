"""
===========================================================
What the site does to the features, and what its labels do
===========================================================

A site differs from the others because of its device and because of its labels. Only the
first should be taken out. The class means that sites send anyway are enough to tell the
two apart: mixed effects do it by three variances, and there is no strength to choose.
"""

# %%
# Three label mixes
# -----------------
# Digits at four sites. Labels of the training rows are not skewed, skewed such that
# half of all (site, digit) cells are empty, or so skewed that a site holds three digits
# on average. The devices are the same in all three.

import warnings

import matplotlib.pyplot as plt
import numpy as np

from skslot import FedCGSClassifier, FederatedOTAligner, MixedEffectsClassifier
from skslot.alignment import AlignmentWarning
from skslot.datasets import load_digit_scanners
from skslot.inspection import VarianceComponentsDisplay
from skslot.metrics import client_scores
from skslot.model_selection import paper_split

data = load_digit_scanners()
X, y, site = data.data, data.target, data.client_ids


def split(alpha, number=0):
    """Training rows with labels skewed by alpha, and test rows that are not."""
    return paper_split(
        y, site, alpha, test_size=0.5, min_samples=20, random_state=number
    )


mixes = {"labels not skewed": None, "alpha = 0.1": 0.1, "alpha = 0.01": 0.01}
models = {}
for name, alpha in mixes.items():
    train, _ = split(alpha)
    classifier = MixedEffectsClassifier()
    models[name] = classifier.fit(X[train], y[train], client_ids=site[train])
print(models["alpha = 0.1"].summary())

# %%
# The shares of the variance of rows that come from the class, the site, and both
# together. The devices are the same in all bars, so the *site* part should be too,
# whatever the labels. So it is at 0.1. At 0.01, hardly a digit is at two sites, and the
# difference between digits is partly taken for one between sites.

VarianceComponentsDisplay.from_estimators(models)

# %%
# Against SLOT at every strength
# ------------------------------
# FedCGS, SLOT before it and mixed effects are made of the same message: class counts,
# class means and a covariance. SLOT moves the whole site towards the others, its labels
# included, and its strength is to be chosen. Accuracy over two random partitions:

# SLOT warns of labels that are not skewed; that is the case on the left
warnings.filterwarnings("ignore", category=AlignmentWarning)
taus = [0.0, 0.25, 0.5, 0.75, 1.0]


def test_accuracy(classifier, alpha):
    """Mean over sites and partitions, in percent."""
    means = []
    for number in range(2):
        train, test = split(alpha, number)
        classifier.fit(X[train], y[train], client_ids=site[train])
        labels = classifier.predict(X[test], client_ids=site[test])
        means.append(client_scores(y[test], labels, site[test]).mean)
    return 100 * np.mean(means)


slot, mixed = {}, {}
for name, alpha in mixes.items():
    aligners = [FederatedOTAligner(tau) for tau in taus]
    slot[name] = [
        test_accuracy(FedCGSClassifier("within", aligner=aligner), alpha)
        for aligner in aligners
    ]
    mixed[name] = test_accuracy(MixedEffectsClassifier(), alpha)
    scores = ", ".join(f"{value:.1f}" for value in slot[name])
    print(f"{name}: mixed effects {mixed[name]:.1f}, SLOT {scores}")

# %%

figure, panels = plt.subplots(
    1, 3, figsize=(9, 3.4), sharey=True, sharex=True, layout="constrained"
)
for axes, name in zip(panels, mixes, strict=True):
    axes.axhline(mixed[name], color="#00507d", linewidth=2, label="mixed effects")
    axes.plot(taus, slot[name], "o-", color="#56b4e9", label="SLOT and FedCGS")
    axes.plot(0, slot[name][0], "o", color="#808080", label="FedCGS alone")
    axes.set(title=name, xlabel="strength of SLOT, tau")
    axes.spines[["top", "right"]].set_visible(False)
panels[0].set_ylabel("test accuracy in %")
panels[0].legend(loc="lower left", frameon=False)
plt.show()
# sphinx_gallery_thumbnail_number = -1

# %%
# The same messages, and no strength of SLOT reaches mixed effects, whatever the labels.
