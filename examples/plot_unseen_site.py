"""
===============================
A site that was not there joins
===============================

A site that joins after training needs no labels and changes nothing for the others: its
unlabelled features are enough for a map to the reference. How many rows of them?
"""

# %%
# Three sites, then a fourth
# --------------------------
# The classifier is made by the flatbed scanner, the fax machine and the microfilm. The
# phone comes later.

import warnings

import matplotlib.pyplot as plt
import numpy as np

from skslot import FedCGSClassifier, FederatedOTAligner
from skslot.alignment import AlignmentWarning
from skslot.datasets import load_digit_scanners
from skslot.model_selection import paper_split

# the three sites have like labels and need no map themselves; the fourth does
warnings.filterwarnings("ignore", category=AlignmentWarning)
data = load_digit_scanners()
X, y, site = data.data, data.target, data.client_ids


def fit_without_phone(train, unknown_client="error"):
    """A classifier of the three sites."""
    rows = train[site[train] != "phone"]
    aligner = FederatedOTAligner(unknown_client=unknown_client)
    model = FedCGSClassifier("within", aligner=aligner)
    return model.fit(X[rows], y[rows], client_ids=site[rows])


def accuracy_at_phone(model, test):
    rows = test[site[test] == "phone"]
    return np.mean(model.predict(X[rows], client_ids="phone") == y[rows])


train, test = paper_split(y, site, alpha=None, test_size=0.5)

# %%
# Unknown sites are refused, rather than given wrong answers in silence.

try:
    accuracy_at_phone(fit_without_phone(train), test)
except ValueError as error:
    print(error)

# %%
# Two policies accept them. "identity" leaves their rows as they are; "adapt" estimates
# a map from the rows that come to ``predict`` together, and forgets it.

for policy in ("identity", "adapt"):
    accuracy = accuracy_at_phone(fit_without_phone(train, policy), test)
    print(f"unknown_client={policy!r}: {accuracy:.3f}")

# %%
# Joining for good
# ----------------
# ``add_client`` takes rows without labels, before there is anything to predict. Five
# random splits, each with more and more rows of the phone:

sizes = [10, 20, 40, 80, 160, 225]
joined, left_alone = [], []
for number in range(5):
    train, test = paper_split(y, site, None, test_size=0.5, random_state=number)
    phone = train[site[train] == "phone"]
    left_alone.append(accuracy_at_phone(fit_without_phone(train, "identity"), test))
    line = []
    for size in sizes:
        model = fit_without_phone(train).add_client(X[phone[:size]], "phone")
        line.append(accuracy_at_phone(model, test))
    joined.append(line)
print(f"  no map at all: {np.mean(left_alone):.3f}")
mean, error = np.mean(joined, axis=0), np.std(joined, axis=0, ddof=1) / np.sqrt(5)
for size, value in zip(sizes, mean, strict=True):
    print(f"{size:>4} unlabelled rows: {value:.3f}")

# %%

figure, axes = plt.subplots(figsize=(6.4, 4), layout="constrained")
axes.errorbar(
    sizes, mean, error, marker="o", color="#0072b2", capsize=3, label="add_client"
)
axes.axhline(np.mean(left_alone), color="#707070", linestyle="--", label="no map")
axes.legend(loc="lower right", bbox_to_anchor=(1, 0.1), frameon=False)
axes.set_xscale("log")
axes.set_xticks(sizes, [str(size) for size in sizes])
axes.minorticks_off()
axes.set(
    xlabel="unlabelled rows of the new site", ylabel="test accuracy at the new site"
)
axes.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Twenty unlabelled rows lift the new site well above the dashed line, where its rows
# are left as they are, and more of them change little.
