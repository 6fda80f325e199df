"""
========================
Privacy against accuracy
========================

With ``privacy=PrivacyBudget(...)`` what a client sends hardly depends on any one of its
rows. *The noise that this takes does not depend on the number of rows*: what it costs
is a matter of how many rows each site has.
"""

# %%
# Four sites
# ----------
# The digits of four scanners. Each row is made to have mean 0 and norm 1, by itself, so
# that rows can be clipped to norm 1 without a look at the others.

import warnings

import matplotlib.pyplot as plt
import numpy as np
import opendp  # noqa: F401  (draws the noise)

from skslot import FedCGSClassifier
from skslot.datasets import load_digit_scanners
from skslot.privacy import PrivacyBudget

data = load_digit_scanners()
X = data.data - data.data.mean(axis=1, keepdims=True)
X /= np.linalg.norm(X, axis=1, keepdims=True)
y, site = data.target, data.client_ids
is_test = np.random.default_rng(0).random(len(y)) < 0.3

# %%
# The guarantee
# -------------
# The message says what is guaranteed, and what is not. The classes are agreed on
# beforehand, and numbers of rows are noisy too.

budget = PrivacyBudget(epsilon=3.0, delta=1e-5, clip_norm=1.0)
rows = (site == "fax") & ~is_test
classifier = FedCGSClassifier("within", privacy=budget)
message = classifier.client_update(X[rows], y[rows], classes=range(10), client="fax")
print(message.describe().split("\n\n")[-1])
print(f"\n{rows.sum()} rows; the message says {message.n_samples}")

# %%
# What it costs
# -------------
# Accuracy on rows that nobody learned from, with all training rows of the sites and
# with a fourth of them. Every fit draws new noise, so we take the mean of two. Noise
# may leave no rows of a class, which is a part of the cost: no warning of it here.

warnings.filterwarnings("ignore", "classes .* were agreed on")


def accuracy(epsilon, train):
    """Mean accuracy of two releases, each with noise of its own."""
    privacy = None if epsilon is None else PrivacyBudget(epsilon, 1e-5, 1.0)
    classifier = FedCGSClassifier("within", privacy=privacy)
    repeats = 1 if epsilon is None else 2
    scores = [
        classifier.fit(X[train], y[train], client_ids=site[train]).score(
            X[is_test], y[is_test]
        )
        for _ in range(repeats)
    ]
    return 100 * np.mean(scores)


train = np.flatnonzero(~is_test)
sizes = {"all rows": train, "a fourth of them": train[::4]}
epsilons = [1.0, 2.0, 4.0, 8.0]
curves = {}
print(f"{'epsilon':20}" + "".join(f"{e:>7g}" for e in epsilons) + "   none")
for name, rows in sizes.items():
    curves[name] = [accuracy(epsilon, rows) for epsilon in [*epsilons, None]]
    print(f"{name:20}" + "".join(f"{score:7.1f}" for score in curves[name]))

# %%

figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
for name, scores in curves.items():
    per_site = round(len(sizes[name]) / 4)
    (line,) = axes.plot(epsilons, scores[:-1], "o-", label=f"{per_site} rows per site")
    axes.axhline(scores[-1], color=line.get_color(), linestyle=":")
axes.set(xscale="log", xlabel="epsilon", ylabel="accuracy (%)", ylim=(0, 100))
axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
axes.legend(loc="lower right")
plt.show()

# %%
# Dotted lines are without noise. The guarantee that costs sites with some 300 rows
# about five points at epsilon 4 costs those with a fourth of them more than twenty:
# privacy is paid for in rows.
