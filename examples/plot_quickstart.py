"""
===========================================
One classifier for four sites, in one round
===========================================

Four sites see handwritten digits through different scanners, and each was only ever
shown a few of the ten digits. Each site sends one small message. With the features
aligned on the way, the classifier that comes back also recognises digits at sites that
never had them.
"""

# %%
# Three arrays
# ------------
# All that is needed are features, labels, and the site of each row. Half of the rows
# are for testing. In the other half most digits are left at one or two sites.

import matplotlib.pyplot as plt
import numpy as np

from skslot import FedCGSClassifier, FederatedOTAligner
from skslot.datasets import load_digit_scanners
from skslot.inspection import LabelShiftDisplay, alignment_report
from skslot.metrics import client_scores
from skslot.model_selection import class_table, paper_split

data = load_digit_scanners()
X, y, site = data.data, data.target, data.client_ids
train, test = paper_split(y, site, alpha=0.1, test_size=0.5, min_samples=20)

# %%
# Fit and predict
# ---------------
# ``FedCGSClassifier`` makes one message per site out of its class counts, class sums
# and second moments. ``aligner`` moves the sites towards each other, in the same round.

model = FedCGSClassifier("within", aligner=FederatedOTAligner(tau=0.4))
model.fit(X[train], y[train], client_ids=site[train])
predicted = model.predict(X[test], client_ids=site[test])
print(client_scores(y[test], predicted, site[test]))

# %%
# Without alignment everything else is the same.

plain = FedCGSClassifier("within").fit(X[train], y[train], client_ids=site[train])
unaligned = plain.predict(X[test])
print(client_scores(y[test], unaligned, site[test]))

# %%
# What each site told about its features, and how far it was moved:

aligner = FederatedOTAligner(tau=0.4).fit(X[train], client_ids=site[train])
print(alignment_report(aligner))

# %%
# Digits that a site had, and digits that it never had
# ----------------------------------------------------

table = class_table(y[train], site[train])
row = np.searchsorted(table.clients, site[test])
is_seen = table.counts[row, np.searchsorted(table.classes, y[test])] > 0
figure, (left, right) = plt.subplots(
    1, 2, figsize=(10, 3.6), width_ratios=[2, 1], layout="constrained"
)
LabelShiftDisplay.from_labels(y[train], site[train], ax=left)
for offset, labels, name, colour in (
    (-0.2, unaligned, "not aligned", "#b0b0b0"),
    (0.2, predicted, "aligned", "#0072b2"),
):
    accuracy = [np.mean((labels == y[test])[rows]) for rows in (is_seen, ~is_seen)]
    bars = right.bar(np.arange(2) + offset, accuracy, 0.38, label=name, color=colour)
    right.bar_label(bars, fmt="{:.2f}", padding=2)
    print(f"{name}: seen {accuracy[0]:.3f}, never seen {accuracy[1]:.3f}")
right.set_xticks([0, 1], ["digits the\nsite had", "digits it\nnever had"])
right.set(ylabel="test accuracy", ylim=(0, 1.15))
right.legend(frameon=False, loc="upper right", ncols=2, fontsize="small")
right.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Half of the (site, digit) cells on the left are empty. On the right, alignment costs
# nearly nothing for digits that a site had, and it wins more than twenty points for
# those that it never had.
