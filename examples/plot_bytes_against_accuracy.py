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
import pandas as pd

from skslot.experiments import FeatureSet, compare_methods

FAMILIES = {
    "class statistics": [
        *("fedcgs", "fedcgs-within", "nearest-mean", "fedridge", "afl", "fed3r"),
        *("fedcof", "fedqda", "naive-bayes", "mixed"),
    ],
    "rows drawn from mixtures": [
        *("fedpft", "fedpft-diag", "fedpft-lowrank", "fedpft-100", "ccvr"),
    ],
    "heads of the sites": [
        *("head-average", "fedmerge", "fisher", "fedlpa", "ensemble"),
        *("weighted", "vote", "fedensemble"),
    ],
    "a few rows per class": ["fedcoreset", "herding"],
    "not federated": ["local", "pooled"],
}
data = FeatureSet.embedded()
tables = []
for family, methods in FAMILIES.items():
    board = compare_methods(data, methods, [0.1], n_runs=2, alignments=["none"])
    tables.append(board.to_frame().assign(family=family))
# FedCGS is in every comparison
table = pd.concat(tables).drop_duplicates("method").sort_values("mean")
columns = ["method", "sent", "mean", "worst"]
print(table[columns][::-1].round(1).to_string(index=False))

# %%
# Those worth their bytes
# -----------------------
# A method is worth its bytes if no other is more accurate and sends as little.

table = table.sort_values(["sent", "mean"], ascending=[True, False])
front = table[table["mean"] > table["mean"].cummax().shift(fill_value=0)]
print(", then ".join(f"{r.method} ({r.sent:,.0f} bytes)" for r in front.itertuples()))

# %%

figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
colours = ["#0072b2", "#e69f00", "#cc79a7", "#009e73", "#808080"]
table["place"] = table["sent"].clip(lower=600)  # none at all: on the left
for family, colour in zip(FAMILIES, colours, strict=True):
    rows = table[table["family"] == family]
    axes.scatter(rows["place"], rows["mean"], color=colour, label=family)
front = table.loc[table["method"].isin(front["method"])]
axes.step(front["place"], front["mean"], where="post", color="black", zorder=0)
named = ["FedQDA", "CCVR", "rows pooled", "FedPFT lowrank", "FedRidge"]
for row in table[table["method"].isin([*front["method"], *named])].itertuples():
    place = row.place, row.mean
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
