"""
==========================================
Four hospitals, as one column of the table
==========================================

A table of patients with a column for the hospital, gaps included, goes through an
ordinary Pipeline: ``client_column`` names the column, and every splitter, scorer and
wrapper of scikit-learn works without further settings. One classifier for all four
hospitals is better than one for each, and better than one that does not look at the
column.
"""

# %%
# The table
# ---------
# Made up, so that it can be shown: six measurements, a hospital, a diagnosis. The
# laboratories are calibrated differently, each hospital is known for one kind of
# patient, and cholesterol is often not measured.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.model_selection import cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skslot import FedCGSClassifier, MixedEffectsClassifier
from skslot.metrics import client_scores
from skslot.model_selection import class_table

DIAGNOSES = ["healthy", "angina", "infarct"]
# what is usual, how much patients vary, and the two diseases in these units
USUAL = {
    "age": (55, 9, [0.4, 0.9]),
    "pressure": (130, 15, [0.9, 0.2]),
    "cholesterol": (220, 40, [0.8, 1.0]),
    "heart_rate": (75, 10, [0.3, 1.2]),
    "troponin": (20, 8, [0.5, 2.2]),
    "st_depression": (0.6, 0.4, [1.6, 0.9]),
}
# shares of the diagnoses in the past
HOSPITALS = {
    "Altona": [0.80, 0.15, 0.05],
    "Basel": [0.10, 0.80, 0.10],
    "Como": [0.05, 0.15, 0.80],
    "Delft": [0.45, 0.10, 0.45],
}


def make_patients(n_rows, skewed, seed):
    """Patients of all hospitals; diagnoses as frequent as in the past, or equally."""
    rng = np.random.default_rng(seed)
    laboratory = np.random.default_rng(2)  # the same in the past and now
    tables = []
    for hospital, shares in HOSPITALS.items():
        kinds = rng.choice(3, n_rows, p=shares if skewed else None)
        table = pd.DataFrame(index=range(n_rows))
        for name, (usual, spread, effects) in USUAL.items():
            units = np.array([0, *effects])[kinds] + rng.normal(size=n_rows)
            if name != "age":
                units += laboratory.normal()
            table[name] = usual + spread * units
        table.loc[rng.random(n_rows) < 0.3, "cholesterol"] = np.nan
        table["hospital"] = hospital
        table["diagnosis"] = np.array(DIAGNOSES)[kinds]
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


past, now = make_patients(150, True, seed=0), make_patients(300, False, seed=1)
print(past.groupby("hospital").head(1).round(1).to_string(index=False))
print(class_table(past["diagnosis"], past["hospital"]))

# %%
# A Pipeline that sites could run
# -------------------------------
# A gap is filled with what is usual, and units are made comparable, by numbers that are
# agreed on before. No hospital needs rows of another for that, so what is evaluated
# here is what four real hospitals would compute.


def fill_and_scale(table):
    """Agreed constants, row by row; the hospital stays as it is."""
    table = table.copy()
    for name, (usual, spread, _) in USUAL.items():
        table[name] = (table[name].fillna(usual) - usual) / spread
    return table


def pipeline_of(classifier):
    return make_pipeline(FunctionTransformer(fill_and_scale), classifier)


X, y = past.drop(columns="diagnosis"), past["diagnosis"]
model = pipeline_of(MixedEffectsClassifier(client_column="hospital")).fit(X, y)
print(model[-1].summary())

# %%
# New patients come as they are, with the hospital in its column.

patients = now.drop(columns="diagnosis")
print(model.predict(patients.head(3)))

# %%
# Any scorer by name, any splitter: nothing has to be passed on beside the table.

names = ["accuracy", "balanced_accuracy", "roc_auc_ovr"]
found = cross_validate(model, X, y, scoring=names, cv=5)
for name in names:
    print(f"{name}: {found[f'test_{name}'].mean():.2f}")

# %%
# Those folds repeat the diagnoses of the past. What follows asks for all diagnoses at
# all hospitals.
#
# One for all, or each alone?
# ---------------------------

pooled = pipeline_of(FedCGSClassifier(client_column="hospital")).fit(X, y)
predictions = {"hospital not looked at": pooled.predict(patients)}
predictions["mixed effects"] = model.predict(patients)
alone = pd.Series(index=now.index, dtype=object)
for hospital in HOSPITALS:
    here, there = X["hospital"] == hospital, patients["hospital"] == hospital
    own = pipeline_of(FedCGSClassifier(client_column="hospital"))
    alone[there] = own.fit(X[here], y[here]).predict(patients[there])
predictions = {"each hospital alone": alone.astype(str), **predictions}
accuracy = {}
for name, predicted in predictions.items():
    accuracy[name] = client_scores(now["diagnosis"], predicted, now["hospital"])
    mean, worst = 100 * accuracy[name].mean, 100 * accuracy[name].worst
    print(f"{name}: mean {mean:.1f} %, worst hospital {worst:.1f} %")

# %%

figure, axes = plt.subplots(figsize=(7.2, 3.6), layout="constrained")
places = np.arange(len(HOSPITALS) + 1)
styles = zip(accuracy.items(), ["#b0b0b0", "#56b4e9", "#00507d"], strict=True)
for position, ((name, table), colour) in enumerate(styles):
    heights = 100 * np.append(table.scores, table.mean)
    bars = axes.bar(places + 0.27 * (position - 1), heights, 0.25, color=colour)
    bars.set_label(name)
    axes.bar_label(bars, fmt="%.0f", fontsize="small", padding=1)
axes.set_xticks(places, [*HOSPITALS, "mean"])
axes.tick_params(axis="x", length=0)
axes.set(ylim=(0, 100), ylabel="new patients: accuracy in %")
axes.spines[["top", "right"]].set_visible(False)
axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, frameon=False)
plt.show()

# %%
# Alone, a hospital takes everybody for its usual patient. Without the column, what a
# laboratory does is taken for what a disease does. With it, the one classifier is the
# best.
