"""
=================================
One bad message, and how it shows
=================================

One site of four sends its statistics in other units. The model of the three others is
no better than chance, although nothing is wrong with their data. The server sees it in
the messages alone, and can go on without the site.
"""

# %%
# Four sites, one of them in other units
# --------------------------------------
#
# Digits seen through four devices. From "phone" come pixels from 0 to 16,000 instead of
# 0 to 16: a well-formed message, with the numbers of a real client.

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import train_test_split

from skslot import FedCGSClassifier
from skslot.datasets import load_digit_scanners
from skslot.inspection import ClientOutlierDisplay

data = load_digit_scanners()
X, y, site = data.data, data.target, data.client_ids
X_train, X_test, y_train, y_test, site_train, site_test = train_test_split(
    X, y, site, test_size=0.3, stratify=site, random_state=0
)
poisoned = np.where((site_train == "phone")[:, None], 1000 * X_train, X_train)

# %%
# What it does
# ------------
#
# The default, ``screen="warn"``, issues a warning and does not change the model.
# ``"exclude"`` drops the site.


def fit(rows, screen):
    """Classifier of all sites, and the warnings about them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        classifier = FedCGSClassifier(screen=screen)
        classifier.fit(rows, y_train, client_ids=site_train)
    return classifier, [str(each.message) for each in caught]


models = {
    "honest": fit(X_train, "warn"),
    "poisoned, warned of": fit(poisoned, "warn"),
    "poisoned, excluded": fit(poisoned, "exclude"),
}
names = [name for name in np.unique(site) if name != "phone"]
scores = {
    name: [
        model.score(X_test[site_test == each], y_test[site_test == each])
        for each in names
    ]
    for name, (model, _) in models.items()
}
for name, (_, said) in models.items():
    print(f"{name}: {np.mean(scores[name]):.1%}", *said, sep="\n  ")

# %%
# How it shows
# ------------
#
# Every server step measures how far each client is from the others, in distances that
# are ordinary among them.

guarded, _ = models["poisoned, excluded"]
print(guarded.clients_report_)

figure, (left, right) = plt.subplots(
    1, 2, figsize=(10.5, 3.4), layout="constrained", width_ratios=[3, 4]
)
for shift, (name, values) in enumerate(scores.items()):
    left.bar(np.arange(3) + 0.27 * (shift - 1), values, 0.25, label=name)
left.set_xticks(range(3), names)
left.set_ylim(0, 1)
left.set_ylabel("accuracy of the other sites")
left.legend(loc="lower center", bbox_to_anchor=(0.5, 1), frameon=False)
ClientOutlierDisplay.from_estimator(guarded, ax=right)
plt.show()

# %%
# On the left, one site in other units takes the three others to chance, and leaving it
# out gives them back what they had. On the right, it lies more than a hundred times
# beyond the line, while the honest sites, whose devices do differ, are far below it.
