"""The classifier of CONTRIBUTING.md works as it stands there."""

import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import NearestCentroid
from sklearn.utils.estimator_checks import parametrize_with_checks

from skslot.datasets import load_digit_scanners
from skslot.exchange import MessageError
from skslot.utils import check_estimator

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
DEFINITION, USE = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
PAGE_MODULE = sys.modules["contributing"] = ModuleType("contributing")  # for pickle
exec(compile(DEFINITION, "CONTRIBUTING.md", "exec"), vars(PAGE_MODULE))
CLASSIFIER, MESSAGE = PAGE_MODULE.NearestMeanClassifier, PAGE_MODULE.ClassCentres

data = load_digit_scanners()
X, Y, IDS = data.data, data.target, data.client_ids
CLIENTS = np.unique(IDS).tolist()


def messages_of(classifier):
    return [
        classifier.client_update(X[IDS == c], Y[IDS == c], client=c) for c in CLIENTS
    ]


def test_page_is_read_in_a_few_minutes():
    prose = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
    assert len(prose.splitlines()) <= 80


def test_classifier_takes_about_thirty_lines():
    assert len([line for line in DEFINITION.splitlines() if line]) <= 30


def test_use_runs_as_it_stands(capsys):
    exec(compile(USE, "CONTRIBUTING.md", "exec"), dict(vars(PAGE_MODULE)))
    printed = capsys.readouterr().out
    assert float(printed.split()[0]) > 0.7
    assert "mean of each class" in printed


def test_digits_are_recognised_well_above_chance():
    assert cross_val_score(CLASSIFIER(), X, Y, cv=3).min() > 0.6


def test_it_is_the_nearest_centroid_of_pooled_rows():
    """But for float32 on the wire."""
    fitted = CLASSIFIER().fit(X, Y, client_ids=IDS)
    pooled = NearestCentroid().fit(X, Y)
    np.testing.assert_allclose(fitted.coef_, pooled.centroids_, atol=1e-5)
    assert np.mean(fitted.predict(X) == pooled.predict(X)) > 0.999


def test_message_on_few_rows_is_not_saved(tmp_path):
    message = CLASSIFIER().client_update(X[:30], Y[:30], client="fax")
    with pytest.raises(MessageError, match="min_samples=10"):
        message.save(tmp_path / "fax.slot")


def test_ids_may_be_a_column():
    with_ids = np.column_stack([X, np.searchsorted(CLIENTS, IDS)])
    fitted = CLASSIFIER(client_column=-1).fit(with_ids, Y)
    expected = CLASSIFIER().fit(X, Y, client_ids=IDS)
    assert np.array_equal(fitted.predict(with_ids), expected.predict(X))
    assert fitted.n_features_in_ == X.shape[1] + 1


def test_message_with_counts_that_cannot_be_is_refused():
    message = messages_of(CLASSIFIER())[0]
    spoilt = replace(message, counts=-message.counts)
    with pytest.raises(MessageError, match="counts must be at least 0"):
        CLASSIFIER().server_aggregate([spoilt])


@pytest.mark.parametrize(
    "path", re.findall(r"`((?:tests|docs|\.ci)/[^`]*)`", PAGE) + ["Makefile"]
)
def test_files_that_the_page_names_exist(path):
    assert (ROOT / path).exists()


@pytest.mark.parametrize(
    ("path", "name"), sorted(set(re.findall(r"`([\w/]+\.py)(?:: (\w+))?`", PAGE)))
)
def test_modules_that_the_page_names_hold_what_it_says(path, name):
    if path.startswith("tests/"):
        assert (ROOT / path).exists()
        return
    found = [p for p in (ROOT / "skslot").rglob("*.py") if f"{p}".endswith(f"/{path}")]
    assert len(found) == 1
    source = found[0].read_text(encoding="utf-8")
    assert not name or re.search(rf"(def|class) {name}\b", source)


def test_packages_import_only_what_is_drawn_below_them():
    house = re.search(r"```text\n(.*?)```", PAGE, flags=re.DOTALL)[1].splitlines()
    rows = [line[:30].split() for line in house if line[:30].strip()]
    height = {name: -row for row, names in enumerate(rows) for name in names}
    packages = {path.parent for path in (ROOT / "skslot").glob("*/__init__.py")}
    assert {path.name for path in packages} <= height.keys()
    for path in packages:
        imported = {
            name
            for module in path.glob("*.py")
            for name in re.findall(r"^from \.\.(\w+)", module.read_text(), flags=re.M)
        }
        below = {name for name in height if height[name] < height[path.name]}
        assert imported & height.keys() <= below, path.name


def test_estimator_keeps_the_contract_of_this_package():
    check_estimator(CLASSIFIER())


@parametrize_with_checks([CLASSIFIER()])
def test_estimator_passes_the_checks_of_scikit_learn(estimator, check):
    check(clone(estimator))
