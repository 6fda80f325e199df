"""
========================================================
The same grid search over tau, done wrong and done right
========================================================

Under label shift an ordinary cross-validated search chooses ``tau=0`` and so throws the
alignment away, although on new data a classifier is better with it. The folds are the
reason: they repeat the label mix of the training rows. With folds that hold out whole
(site, class) cells, the same search finds an alignment that helps.
"""

# %%
# Digits at four sites
# --------------------
# Real handwritten digits seen by four simulated devices. Of the training rows each site
# keeps a random share of each digit, so most digits are left at one or two sites. Test
# rows are not skewed: after deployment every site meets every digit.

import tempfile

import matplotlib.pyplot as plt
import numpy as np
from sklearn import set_config
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import Pipeline

from skslot import FedCGSClassifier, FederatedOTAligner
from skslot.datasets import load_digit_scanners
from skslot.metrics import ClientScorer, client_scores
from skslot.model_selection import (
    CellHoldoutKFold,
    FederatedGridSearchCV,
    class_table,
    paper_split,
)

set_config(enable_metadata_routing=True)
data = load_digit_scanners()


def split(partition):
    """Training rows, whose label mix differs from site to site, and test rows."""
    rows = paper_split(
        data.target,
        data.client_ids,
        alpha=0.1,
        test_size=0.5,
        min_samples=20,
        random_state=partition,
    )
    return [
        {"X": data.data[r], "y": data.target[r], "client_ids": data.client_ids[r]}
        for r in rows
    ]


training, testing = split(0)
print(class_table(training["y"], training["client_ids"]))

# %%
# One pipeline and one grid serve all searches. ``memory`` keeps what does not depend on
# ``tau``, so that it is computed once for all six values.

memory = tempfile.TemporaryDirectory()
pipeline = Pipeline(
    [
        ("align", FederatedOTAligner(memory=memory.name)),
        ("classify", FedCGSClassifier("within")),
    ]
)
taus = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
grid = {"align__tau": taus}

# %%
# Wrong: stratified folds
# -----------------------
# In a validation fold each digit is found where it was found in training. To know the
# site is then half the answer, and alignment, which hides the site, seems to do harm.

wrong = GridSearchCV(pipeline, grid, cv=StratifiedKFold(5)).fit(**training)
print(f"stratified folds choose tau = {wrong.best_params_['align__tau']:g}")

# %%
# A scorer by name goes wrong in another way. scikit-learn does not hand the ids on to
# it, so it cannot tell which map a row needs. The aligner says so instead of letting
# a wrong score pass.

blind = GridSearchCV(
    pipeline, grid, cv=StratifiedKFold(5), scoring="accuracy", error_score="raise"
)
try:
    blind.fit(**training)
except ValueError as error:
    print(error)

# %%
# Right: folds that hold out cells
# --------------------------------
# Some folds hold out all rows of a digit at a site, in the proportion in which digits
# are absent from sites. The search also prefers a ``tau`` close to the automatic one.

right = FederatedGridSearchCV(pipeline, grid).fit(**training)
print(right.summary())

# %%
# By hand the folds and the score are the same, without that preference:

by_hand = GridSearchCV(
    pipeline, grid, cv=CellHoldoutKFold(), scoring=ClientScorer(average="cell")
).fit(**training)
print(f"by hand, tau = {by_hand.best_params_['align__tau']:g}")
assert np.array_equal(
    by_hand.cv_results_["mean_test_score"], right.cv_results_["mean_test_score"]
)

# %%
# What the test rows say
# ----------------------


def test_accuracy(training, testing):
    """Mean over sites of the accuracy on test rows, for each tau."""
    accuracy = {}
    for tau in taus:
        pipeline.set_params(align__tau=tau).fit(**training)
        ids = testing["client_ids"]
        predicted = pipeline.predict(testing["X"], client_ids=ids)
        accuracy[tau] = client_scores(testing["y"], predicted, ids).mean
    return accuracy


def report(partition, wrong, right, accuracy):
    best = max(accuracy, key=accuracy.get)
    choices = {
        "wrong": wrong.best_params_["align__tau"],
        "right": right.best_tau_,
        "best": best,
    }
    cells = (f"{name} {tau:g} ({accuracy[tau]:.3f})" for name, tau in choices.items())
    print(f"partition {partition}: {', '.join(cells)}, auto {right.tau_auto_:.2f}")


accuracy = test_accuracy(training, testing)
print("tau that was chosen, and its test accuracy:")
report(0, wrong, right, accuracy)

# %%
# One partition may be luck. Another one:

rows = split(1)
report(
    1,
    GridSearchCV(pipeline, grid, cv=StratifiedKFold(5)).fit(**rows[0]),
    FederatedGridSearchCV(pipeline, grid).fit(**rows[0]),
    test_accuracy(*rows),
)
memory.cleanup()

# %%
# The automatic ``tau`` is too low on this data, 0.22 to 0.27 where 0.4 to 0.6 is best.
# It counts the rows of a site against the features, and here there are 56 against 64.
# The search prefers values close to it but is not bound to them.
#
# The first partition as a figure; dots mark the largest value of each curve.

figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
for values, label, colour in (
    (wrong.cv_results_["mean_test_score"], "stratified folds (wrong)", "C3"),
    (right.cv_results_["mean_test_score"], "folds that hold out cells (right)", "C0"),
    (list(accuracy.values()), "test rows, labels not skewed", "black"),
):
    best = int(np.argmax(values))
    axes.plot(taus, values, color=colour, label=label)
    axes.plot(taus[best], values[best], "o", color=colour)
automatic = f"automatic tau ({right.tau_auto_:.2f})"
axes.axvline(right.tau_auto_, color="grey", linestyle=":", label=automatic)
axes.set(xlabel="tau", ylabel="accuracy", title="What a search over tau gets to see")
axes.legend()
plt.show()

# %%
# The red curve falls where the black one rises: stratified folds promise 92 % at
# ``tau=0``, and the test rows give 71 %. The blue curve has its top where the black one
# has, and the search that follows it gains eleven points.
