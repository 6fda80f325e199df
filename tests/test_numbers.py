"""Results of all estimators stay as they are recorded in ``numbers.npz``.

Each estimator is fitted to rows, to messages and to files of messages, which must give
the same numbers. ``python tests/test_numbers.py`` records them anew; do that only for a
change of results that is meant, and say so where the change is described.
"""

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from sklearn.base import clone, is_classifier

from skslot import (
    FedAvgClassifier,
    FedCGSClassifier,
    FedCOFClassifier,
    FedCoresetClassifier,
    FedEnsembleClassifier,
    FederatedOTAligner,
    FedMergeClassifier,
    FedPFTClassifier,
    FedQDAClassifier,
    FedRidgeClassifier,
    MixedEffectsAligner,
    MixedEffectsClassifier,
)
from skslot.alignment import automatic_tau
from skslot.datasets import load_digit_scanners
from skslot.exchange import load_messages
from skslot.model_selection import dirichlet_label_shift
from skslot.preprocessing import FederatedScaler
from skslot.privacy import gaussian_noise_scale
from skslot.trust import ClientScreen

FILE = Path(__file__).with_name("numbers.npz")
OT, MIXED = FederatedOTAligner, MixedEffectsAligner

ALIGNERS = {
    "ot": OT(),
    "ot, tau 1, oas": OT(1.0, shrinkage="oas"),
    "ot, tau 0": OT(0),
    "ot, auto": OT("auto"),
    "ot, uniform": OT(weights="uniform", shrinkage=0.2),
    "ot, fixed point": OT(solver="fixed_point", tol=1e-10),
    "ot, capped": OT(screen=ClientScreen(max_share=0.36)),
    "mixed": MIXED(),
    "mixed, auto": MIXED("auto"),
    "mixed, tau 0.5": MIXED(0.5),
}
CLASSIFIERS = {
    "mixed effects": MixedEffectsClassifier(),
    "mixed effects, tau 0": MixedEffectsClassifier(0),
    "mixed effects, client": MixedEffectsClassifier(0.3, priors="client"),
    "mixed effects, oas": MixedEffectsClassifier(
        0, priors="uniform", shrinkage="oas", screen=ClientScreen(max_share=0.36)
    ),
    "cgs": FedCGSClassifier(),
    "cgs, within": FedCGSClassifier("within", ridge=0.1, priors="uniform"),
    "cgs, ot": FedCGSClassifier(aligner=OT()),
    "cgs, ot auto": FedCGSClassifier("within", aligner=OT("auto")),
    "cgs, mixed": FedCGSClassifier(aligner=MIXED()),
    "cgs, mixed auto": FedCGSClassifier(aligner=MIXED("auto")),
    "cgs, capped": FedCGSClassifier(aligner=OT(), screen=ClientScreen(max_share=0.36)),
    "ridge": FedRidgeClassifier(),
    "ridge, afl": FedRidgeClassifier.as_afl(alpha=1e-3),
    "ridge, fed3r": FedRidgeClassifier.as_fed3r(class_weight="balanced"),
    "ridge, ot": FedRidgeClassifier(aligner=OT()),
    "cof": FedCOFClassifier(),
    "cof, ot": FedCOFClassifier(aligner=OT()),
    "qda": FedQDAClassifier(),
    "qda, diag": FedQDAClassifier("diag"),
    "qda, ot": FedQDAClassifier(aligner=OT()),
}
# Their solvers stop by a tolerance of their own. OpenBLAS kernels for Prescott, Haswell
# and SkylakeX give results that differ by 3e-12 of the largest entry.
ITERATIVE = {
    "pft": FedPFTClassifier(random_state=0),
    "pft, em": FedPFTClassifier(2, covariance_type="diag", random_state=0),
    "pft, full": FedPFTClassifier(covariance_type="full", random_state=0),
    "pft, lowrank": FedPFTClassifier(
        covariance_type="lowrank", n_loadings=2, draws=20, random_state=0
    ),
    "pft, class": FedPFTClassifier(pool="class", random_state=0),
    "pft, ot": FedPFTClassifier(aligner=OT(), random_state=0),
    "pft, mixed": FedPFTClassifier(aligner=MIXED(), random_state=0),
    "coreset": FedCoresetClassifier(random_state=0),
    "coreset, soft": FedCoresetClassifier(soft_labels=True, random_state=0),
    "coreset, herding": FedCoresetClassifier(
        method="herding", allow_real_rows=True, random_state=0
    ),
    "coreset, ot": FedCoresetClassifier(aligner=OT(), random_state=0),
    "ensemble": FedEnsembleClassifier(),
    "ensemble, vote": FedEnsembleClassifier("vote"),
    "ensemble, stack": FedEnsembleClassifier("stack"),
    "ensemble, ot": FedEnsembleClassifier(aligner=OT()),
    "merge": FedMergeClassifier(),
    "merge, none": FedMergeClassifier("none"),
    "merge, diag": FedMergeClassifier("diag", local_softmax="held"),
    "merge, kfac": FedMergeClassifier("kfac"),
    "merge, ot": FedMergeClassifier(aligner=OT()),
    "merge, mixed": FedMergeClassifier(aligner=MIXED()),
}
# Trained in float32: 1e-7 between torch's kernels with and without AVX.
TRAINED = {
    "avg": FedAvgClassifier(random_state=0, net__max_epochs=3),
    "avg, rounds": FedAvgClassifier(
        random_state=0, n_rounds=2, averaging="samples", net__max_epochs=2
    ),
}


# ------------------------------------------------------------------ what is fitted


@cache
def digits():
    """Some pixels of digits, of which each site has other labels; one site joins later.

    Rows to fit to, those of the site that joins, and some rows to look at.
    """
    data = load_digit_scanners()
    X, y, client_ids = data.data[:, 18:31], data.target, data.client_ids
    rows = dirichlet_label_shift(y, client_ids, 0.3, min_samples=30, random_state=0)
    joins = client_ids[rows] == "phone"
    known = np.flatnonzero(client_ids != "phone")
    return tuple(
        (X[each], y[each], client_ids[each])
        for each in (rows[~joins], rows[joins], known[::40])
    )


def messages_of(estimator):
    X, y, client_ids = digits()[0]
    classes = {"classes": np.unique(y)} if is_classifier(estimator) else {}
    return [
        estimator.client_update(X[own], y[own], client=client, **classes)
        for client in np.unique(client_ids).tolist()
        for own in [client_ids == client]
    ]


def aggregate(estimator, messages):
    """Fit to messages."""
    fit = getattr(estimator, "fit_messages", None) or estimator.server_aggregate
    return fit(messages)


def fit_rows(estimator):
    X, y, client_ids = digits()[0]
    return estimator.fit(X, y, client_ids=client_ids)


def fit_messages(estimator):
    return aggregate(estimator, messages_of(estimator))


def fit_files(estimator):
    """Fit to files, which must be there as long as the estimator is."""
    folder = TemporaryDirectory()
    paths = []
    for message in messages_of(estimator):
        paths.append(Path(folder.name, f"{message.client}.slot"))
        message.save(paths[-1], dtype="float64", min_samples=1)
    fitted = aggregate(estimator, load_messages(paths))
    fitted._folder = folder
    return fitted


SOURCES = {"rows": fit_rows, "messages": fit_messages, "files": fit_files}


# -------------------------------------------------------------- what is looked at


def aligner_numbers(aligner):
    X, _, client_ids = digits()[2]
    yield "aligned", aligner.transform(X, client_ids=client_ids)
    yield "tau", np.atleast_1d(aligner.tau_)
    if isinstance(aligner, MixedEffectsAligner):
        yield "components", np.array(list(aligner.variance_components_.values()))
        yield "class means", aligner.class_means_
        yield "offsets", aligner.client_offsets_
    else:
        yield "reference mean", aligner.reference_.mean
        covariance = aligner.reference_.covariance
        yield "reference", covariance[np.triu_indices_from(covariance)]
        yield "weights", aligner.weights_


def classifier_numbers(classifier):
    X, _, client_ids = digits()[2]
    yield "probabilities", classifier.predict_proba(X, client_ids=client_ids)
    if isinstance(classifier, MixedEffectsClassifier):
        yield "components", np.array(list(classifier.variance_components_.values()))
        yield "covariance", classifier.covariance_
        yield "offsets", classifier.client_offsets_
    if hasattr(classifier, "coef_") and not hasattr(classifier, "estimator_"):
        yield "coef", classifier.coef_
        yield "intercept", classifier.intercept_


def scaler_numbers(scaler):
    yield "mean", scaler.mean_
    yield "scale", scaler.scale_


def joined_numbers(name):
    """A site that joins later, with and without labels, and one that adapts."""
    X, y, _ = digits()[1]
    shown = X[::20]
    if name in ALIGNERS:
        aligner = fit_rows(clone(ALIGNERS[name])).add_client(X, "phone")
        yield "joined", aligner.transform(shown, client_ids="phone")
        if isinstance(aligner, MixedEffectsAligner):
            aligner = fit_rows(clone(ALIGNERS[name])).add_client(X, "phone", y)
            yield "joined with labels", aligner.transform(shown, client_ids="phone")
        unknown = clone(ALIGNERS[name]).set_params(unknown_client="adapt")
        adapted = fit_rows(unknown).transform(shown, client_ids="phone")
        yield "unknown", adapted
        return
    classifier = fit_rows(clone(CLASSIFIERS[name]))
    classifier.add_client(X, "phone")
    yield "joined", classifier.predict_proba(shown, client_ids="phone")
    if isinstance(classifier, MixedEffectsClassifier):
        classifier = fit_rows(clone(CLASSIFIERS[name]))
        classifier.add_client(X, "phone", y)
        yield "joined with labels", classifier.predict_proba(shown, client_ids="phone")
        rows, _, client_ids = digits()[0]
        own = rows[client_ids == "fax"]
        classifier.adapt_client(own[::2], "fax")
        yield "adapted", classifier.predict_proba(own[::20], client_ids="fax")


JOINED = [
    *("ot", "ot, auto", "mixed", "mixed, auto"),
    *("mixed effects", "mixed effects, tau 0", "cgs, ot", "cgs, mixed"),
]


def partial_numbers(name):
    """Rows in three chunks."""
    X, y, client_ids = digits()[0]
    aligner = clone(ALIGNERS[name])
    for chunk in range(3):
        part = slice(chunk, None, 3)
        aligner.partial_fit(X[part], y[part], client_ids=client_ids[part])
    return aligner_numbers(aligner)


def function_numbers():
    """Calibration of noise, and the strength in closed form."""
    settings = [(0.1, 1e-6), (1.0, 1e-5), (4.0, 1e-5), (10.0, 1e-3)]
    yield "noise scale", np.array([gaussian_noise_scale(*each) for each in settings])
    X, y, client_ids = digits()[0]
    yield "automatic tau", np.array([automatic_tau(X, y, client_ids)])


def numbers_of(group, name, source):
    """Named numbers of one estimator, fitted to one source."""
    estimator = clone(GROUPS[group][name])
    fitted = SOURCES[source](estimator)
    if group == "aligner":
        return aligner_numbers(fitted)
    return scaler_numbers(fitted) if group == "scaler" else classifier_numbers(fitted)


GROUPS = {
    "aligner": ALIGNERS,
    "classifier": CLASSIFIERS,
    "iterative": ITERATIVE,
    "trained": TRAINED,
    "scaler": {"scaler": FederatedScaler()},
}
TOLERANCE = {"iterative": 1e-6, "trained": 1e-6}
EVERY = [(group, name) for group, members in GROUPS.items() for name in members]


def recorded():
    """All that is recorded, by a name for each array."""
    for group, name in EVERY:
        for what, value in numbers_of(group, name, "rows"):
            yield f"{name}: {what}", value
    for name in JOINED:
        for what, value in joined_numbers(name):
            yield f"{name}: {what}", value
    for what, value in function_numbers():
        yield what, value


# ------------------------------------------------------------------------ tests

pytestmark = pytest.mark.filterwarnings("ignore")  # of few rows, of classes missing


@cache
def golden():
    with np.load(FILE) as file:
        return dict(file)


def assert_golden(prefix, numbers, tolerance=1e-9):
    """Compare with what is recorded, relative to the largest entry of each array."""
    numbers = dict(numbers)
    assert numbers
    for what, value in numbers.items():
        expected = golden()[prefix + what]
        atol = tolerance * np.abs(expected).max()
        np.testing.assert_allclose(value, expected, rtol=0, atol=atol, err_msg=what)


# FedAvg takes several exchanges, which the tests of its steps show.
CASES = [(*each, source) for each in EVERY for source in SOURCES]
CASES = [each for each in CASES if each[0] != "trained" or each[2] == "rows"]


@pytest.mark.parametrize(("group", "name", "source"), CASES)
def test_numbers_are_as_recorded(group, name, source):
    if group == "trained" and find_spec("torch") is None:
        pytest.skip("torch is missing")
    numbers = numbers_of(group, name, source)
    assert_golden(f"{name}: ", numbers, TOLERANCE.get(group, 1e-9))


@pytest.mark.parametrize("name", JOINED)
def test_numbers_of_sites_that_join_or_adapt(name):
    assert_golden(f"{name}: ", joined_numbers(name))


@pytest.mark.parametrize("name", ALIGNERS)
def test_numbers_of_rows_in_chunks(name):
    assert_golden(f"{name}: ", partial_numbers(name))


def test_numbers_of_functions():
    assert_golden("", function_numbers())


def test_nothing_else_is_recorded():
    names = {name for _, name in EVERY} | {"noise scale", "automatic tau"}
    assert {key.split(":")[0] for key in golden()} == names


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore")
    np.savez_compressed(FILE, **dict(recorded()))
