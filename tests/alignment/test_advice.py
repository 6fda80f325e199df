"""When FederatedOTAligner.fit warns that alignment is likely to cost accuracy."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skslot import (
    FedCGSClassifier,
    FederatedOTAligner,
    FedPFTClassifier,
    MixedEffectsAligner,
    MixedEffectsClassifier,
)
from skslot.alignment import AlignmentWarning
from skslot.inspection import diagnose
from skslot.model_selection import FederatedGridSearchCV, StratifiedClientKFold
from skslot.privacy import PrivacyBudget

RNG = np.random.default_rng(0)
IDS, Y = (a.ravel().repeat(15) for a in np.mgrid[:4, :5])
X = RNG.normal(size=(len(Y), 3)) + Y[:, None]
LIKELY = "alignment is likely to cost accuracy"
FULL = slice(None)
ONE_EMPTY = ~((IDS == 0) & (Y == 0))  # of 20 cells
TWO_EMPTY = ONE_EMPTY & ~((IDS == 1) & (Y == 1))


@pytest.fixture(autouse=True)
def _advice_is_an_error():
    """The tests of the package ignore it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", AlignmentWarning)
        yield


def fit(estimator, rows=FULL, y=Y):
    return estimator.fit(X[rows], y[rows], client_ids=IDS[rows])


def test_no_empty_cell_is_told_with_figures_and_remedies():
    with pytest.warns(AlignmentWarning, match=LIKELY) as caught:
        fit(FederatedOTAligner())
    (text,) = [str(each.message) for each in caught]
    assert "0 of 20 (client, class) cells are empty" in text
    remedies = "MixedEffectsClassifier", "tau='auto'", "FederatedGridSearchCV"
    assert all(remedy in text for remedy in (*remedies, "diagnose"))


@pytest.mark.parametrize("rows", [ONE_EMPTY, TWO_EMPTY])
def test_a_twentieth_of_empty_cells_is_enough_for_silence(rows):
    fit(FederatedOTAligner(), rows)


def test_one_empty_cell_of_many_is_not_enough():
    ids, y = (a.ravel().repeat(4) for a in np.mgrid[:5, :5])
    kept = np.arange(len(y)) >= 4
    rows = RNG.normal(size=(len(y), 2))
    with pytest.warns(AlignmentWarning, match="1 of 25"):
        FederatedOTAligner().fit(rows[kept], y[kept], client_ids=ids[kept])


@pytest.mark.parametrize("tau", [0, "auto"])
def test_no_strength_and_one_that_labels_choose_are_not_warned_of(tau):
    fit(FederatedOTAligner(tau))


def test_without_labels_or_without_classes_nothing_is_known():
    FederatedOTAligner().fit(X, client_ids=IDS)
    fit(FederatedOTAligner(), y=np.zeros(len(Y)))
    fit(FederatedOTAligner(), y=X[:, 0])  # a target that is no class
    fit(FederatedOTAligner(), y=np.array([None, "a"], dtype=object)[IDS % 2])
    FederatedOTAligner().fit(X[IDS == 0], Y[IDS == 0], client_ids=IDS[IDS == 0])


def test_client_with_hardly_a_row_per_twenty_features_is_named():
    wide = RNG.normal(size=(200, 100))
    for n_few, match in ((4, r"\[1\] has 0.04 rows per feature"), (5, None)):
        ids = np.repeat([0, 1], [200 - n_few, n_few])
        if match:
            with pytest.warns(AlignmentWarning, match=match):
                FederatedOTAligner().fit(wide, client_ids=ids)
        else:
            FederatedOTAligner().fit(wide, client_ids=ids)


@pytest.mark.parametrize(
    "make", [FedCGSClassifier, lambda **how: FedPFTClassifier(random_state=0, **how)]
)
def test_classifier_with_an_aligner_knows_the_counts_from_its_messages(make):
    with pytest.warns(AlignmentWarning, match="0 of 20") as caught:
        fit(make(aligner=FederatedOTAligner()))
    assert len(caught) == 1
    fit(make(aligner=FederatedOTAligner()), TWO_EMPTY)
    fit(make(aligner=FederatedOTAligner("auto")))


def test_messages_tell_the_same():
    step = FederatedOTAligner("auto")
    messages = [
        step.client_update(X[IDS == k], Y[IDS == k], client=k) for k in range(4)
    ]
    with pytest.warns(AlignmentWarning, match="0 of 20"):
        FederatedOTAligner().server_aggregate(messages)
    step.server_aggregate(messages)


def test_noisy_messages_are_warned_of_once():
    pytest.importorskip("opendp")
    budget = PrivacyBudget(1e4, 1e-5, clip_norm=20)
    with pytest.warns(AlignmentWarning) as caught:
        fit(FederatedOTAligner(privacy=budget))
    assert sum(each.category is AlignmentWarning for each in caught) == 1


def test_mixed_effects_and_later_steps_are_silent():
    fit(MixedEffectsAligner())
    fit(MixedEffectsClassifier())
    with pytest.warns(AlignmentWarning):
        aligner = fit(FederatedOTAligner())
    aligner.add_client(X[:20] + 1, "later").transform(X[:2], client_ids=[0, "later"])


def test_client_column_is_read_too():
    table = pd.DataFrame(X, columns=list("abc")).assign(site=IDS)
    with pytest.warns(AlignmentWarning, match="0 of 20"):
        FederatedOTAligner(client_column="site").fit(table, Y)


def test_search_diagnosis_and_what_they_compare_are_silent():
    model = FedCGSClassifier(aligner=FederatedOTAligner())
    with config_context(enable_metadata_routing=True):
        search = FederatedGridSearchCV(model, {"aligner__tau": [0, 0.4]}, cv=3)
        search.fit(X, Y, client_ids=IDS)
    diagnose(X, Y, IDS)


def test_plain_search_says_it_of_each_fit():
    model = make_pipeline(FederatedOTAligner(), FedCGSClassifier())
    grid = {"federatedotaligner__tau": [0.2, 0.4, 0.6]}
    cv = StratifiedClientKFold(3)
    with (
        warnings.catch_warnings(record=True) as caught,
        config_context(enable_metadata_routing=True),
    ):
        warnings.simplefilter("always")
        GridSearchCV(model, grid, cv=cv).fit(X, Y, client_ids=IDS)
    assert [each.category for each in caught] == [AlignmentWarning] * 10


def test_category_is_a_user_warning_that_can_be_ignored():
    assert issubclass(AlignmentWarning, UserWarning)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", AlignmentWarning)
        fit(FederatedOTAligner())
