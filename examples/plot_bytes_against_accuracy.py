"""
===================================
Bytes against accuracy: all methods
===================================

A larger message does not make a better classifier. Of all methods, on the same sites
with skewed labels, only three are worth their bytes: no other is more accurate and
sends as little.
"""

# %%
# All methods on the same partitions
# ----------------------------------
# Four sites with a few digits each; test rows are not skewed. ``compare_methods`` runs
# every method on the same two partitions and counts the bytes that a site sends, in
# float32. FedAvg is left out, for it takes longer than all others together.

import matplotlib.pyplot as plt

from skslot.experiments import FeatureSet, compare_methods

FAMILIES = {
    "class statistics": [
        *("FedCGS", "FedCGS within", "nearest mean", "FedRidge", "AFL", "Fed3R"),
        *("FedCOF", "FedQDA", "naive Bayes", "mixed effects"),
    ],
    "rows drawn from mixtures": [
        *("FedPFT", "FedPFT diag", "FedPFT lowrank", "FedPFT 100 draws", "CCVR"),
    ],
    "heads of the sites": [
        *("head average", "RegMean", "Fisher merging", "FedLPA", "ensemble"),
        *("ensemble weighted", "ensemble vote", "ensemble stack"),
    ],
    "a few rows per class": ["FedCoreset", "FedCoreset herding"],
    "not federated": ["local training", "rows pooled"],
}
methods = [name for family in FAMILIES.values() for name in family]
board = compare_methods(
    FeatureSet.embedded(), methods, alphas=[0.1], n_runs=2, alignments=["none"]
)
rows = {row.method: row for row in board.rows()}
print(f"{'':<20}{'bytes':>8}{'accuracy':>10}{'worst site':>12}")
for row in sorted(rows.values(), key=lambda row: -row.mean):
    print(f"{row.method:<20}{row.sent:>8,.0f}{row.mean:>10.1f}{row.worst:>12.1f}")

# %%
# Those worth their bytes
# -----------------------
# A method is worth its bytes if no other is more accurate and sends as little.


def is_worth_it(row):
    return not any(
        other.sent <= row.sent and other.mean > row.mean for other in rows.values()
    )


front = sorted(filter(is_worth_it, rows.values()), key=lambda row: row.sent)
print(", then ".join(f"{row.method} ({row.sent:,.0f} bytes)" for row in front))

# %%

figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
colours = ["#0072b2", "#e69f00", "#cc79a7", "#009e73", "#808080"]
for (family, names), colour in zip(FAMILIES.items(), colours, strict=True):
    sent = [max(rows[name].sent, 600) for name in names]  # none at all: on the left
    axes.scatter(sent, [rows[name].mean for name in names], color=colour, label=family)
steps = [max(row.sent, 600) for row in front]
axes.step(steps, [row.mean for row in front], where="post", color="black", zorder=0)
named = {"FedQDA", "CCVR", "rows pooled", "FedPFT lowrank", "FedRidge"}
for row in [*front, *(rows[name] for name in named)]:
    place = max(row.sent, 600), row.mean
    axes.annotate(row.method, place, (5, 5), textcoords="offset points", size="small")
axes.set_xscale("log")
axes.set_xticks([600, 2000, 5000, 10_000, 40_000], ["0", "2", "5", "10", "40"])
axes.minorticks_off()
axes.set(xlabel="kB that a site sends", ylabel="test accuracy in %, mean over sites")
axes.spines[["top", "right"]].set_visible(False)
axes.legend(frameon=False, loc="lower right", fontsize="small")
plt.show()

# %%
# The black line joins the three that are worth their bytes: sites that train alone,
# FedCOF from class means, and mixed effects, which has the one covariance that FedCGS
# sends as well, and gets more out of it. Four times as many bytes, for a covariance per
# class, buy nothing here. Nor do the rows themselves: pooled as if they came from one
# site, they are worth less than a summary that tells the sites apart.
