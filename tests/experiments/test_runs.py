"""The paper's experiments on a small feature set."""

import json
from dataclasses import replace
from shutil import copy

import numpy as np
import pytest

from skslot.datasets import make_shifted_clients
from skslot.experiments import (
    FeatureSet,
    _experiments,
    paper_results,
    run_experiment,
)
from skslot.experiments._measures import (
    LocalDiscriminant,
    at_known_sites,
    at_new_sites,
    set_aside,
)
from skslot.experiments._results import PLANS

pytest.importorskip("skorch")  # most experiments compare with FedAvgClassifier


def small_data(n_clients=3):
    data = make_shifted_clients(
        900, n_clients=n_clients, n_features=4, n_classes=6, random_state=0
    )
    return FeatureSet("small", data.data, data.target, data.client_ids, min_samples=40)


DATA = small_data()


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = tmp_path_factory.mktemp("results") / "runs.jsonl"
    return run_experiment("main", DATA, 2, results=path), path


def rows_of(result):
    return list(result.to_frame().itertuples(index=False))


def test_main_has_the_rows_of_the_paper_and_ours_below(stored):
    result, _ = stored
    paper = [("FedAvg", 0.0)]
    paper += [(m, t) for m in ("O-FedAvg", "FedCGS", "FedPFT") for t in (0.0, 0.4)]
    ours = [("local training", 0.0), ("mixed effects", 0.0), ("mixed effects", "auto")]
    rows = [(row.source, row.method, row.tau) for row in rows_of(result)]
    assert rows == [("skslot", *row) for row in paper] + [("ours", *r) for r in ours]
    texts = [line.split() for line in str(result).splitlines()[-3:]]
    assert texts[0][:3] == ["ours", "local", "training"]


def test_ours_gain_on_fedcgs_without_alignment(stored):
    result, _ = stored
    rows = rows_of(result)
    means = {(row.method, row.tau): row.mean for row in rows}
    assert np.isnan(rows[1].gain)
    for row in rows[-3:]:
        assert row.gain == pytest.approx(row.mean - means["FedCGS", 0.0])


def test_mean_std_and_gain_follow_from_the_runs(stored):
    result, _ = stored
    plain, aligned = (row for row in rows_of(result) if row.method == "FedCGS")
    runs = {
        run.partition: found["accuracy"]
        for run, found in result.runs.items()
        if (run.method, run.alignment) == ("fedcgs", 0.4)
    }
    values = np.array([runs[0], runs[1]])
    assert aligned.mean == pytest.approx(values.mean())
    assert aligned.std == pytest.approx(values.std(axis=1).mean())
    assert aligned.gain == pytest.approx(aligned.mean - plain.mean)
    means = values.mean(axis=1)
    assert aligned.error_partitions == pytest.approx(abs(means[0] - means[1]) / 2)


def test_errors_over_seeds_are_there_for_methods_with_a_seed(stored):
    result, _ = stored
    table = result.to_frame().set_index("method")
    seeded = set(table.index[table["error_seeds"].notna()])
    assert seeded == {"O-FedAvg", "FedPFT"}


def test_same_seed_same_digits(stored):
    result, _ = stored
    assert run_experiment("main", DATA, 2).runs == result.runs


def test_what_is_stored_is_not_run_again(stored):
    result, path = stored
    seen = []
    again = run_experiment(
        "main", DATA, 2, results=path, progress=lambda *counts: seen.append(counts)
    )
    assert again.runs == result.runs
    assert seen == [(len(result.runs),) * 2]


def test_what_is_stored_needs_no_torch(stored, tmp_path, monkeypatch):
    result, path = stored
    path = copy(path, tmp_path)
    monkeypatch.setattr(_experiments, "can_train_nets", lambda: False)
    assert str(run_experiment("main", DATA, 2, results=path)) == str(result)
    longer = run_experiment("main", DATA, 3, results=path)
    assert sorted(longer.left_out) == ["fedavg", "o-fedavg"]
    assert {"FedAvg", "O-FedAvg"}.isdisjoint(longer.to_frame()["method"])


def test_a_run_that_was_killed_while_it_wrote_goes_on(stored, tmp_path):
    result, path = stored
    text = path.read_text()
    torn = tmp_path / "torn.jsonl"
    torn.write_text(text[: len(text) * 2 // 3])
    again = run_experiment("main", DATA, 2, results=torn)
    assert str(again) == str(result)
    runs = [json.loads(line)["run"] for line in text.splitlines()]
    complete = []
    for line in torn.read_text().splitlines():
        try:
            complete.append(json.loads(line)["run"])
        except ValueError:
            continue
    assert sorted(map(str, complete)) == sorted(map(str, runs))


def test_runs_of_other_data_do_not_count(stored):
    _, path = stored
    other = small_data(n_clients=2)
    seen = []
    run_experiment(
        "domain-only", other, 1, results=path, progress=lambda *c: seen.append(c)
    )
    assert seen[0][0] == 0


@pytest.mark.parametrize("name", ["skew", "tau", "scalability"])
def test_other_experiments_run(name):
    result = run_experiment(name, DATA, 1)
    plan = PLANS[name]
    assert len(rows_of(result)) == len(plan.alphas) * len(plan.rows)
    assert len(result.clients) == 3 * PLANS[name].n_parts
    for found in result.runs.values():
        assert all(0 <= value <= 100 for value in found["accuracy"])


def test_unlabelled_measures_known_and_new_sites(tmp_path):
    path = tmp_path / "runs.jsonl"
    result = run_experiment("unlabelled", DATA, 1, results=path)
    rows = {row.method: row for row in rows_of(result) if row.alpha == 0.1}
    runs = {run.method: run for run in result.runs if run.alpha == 0.1}
    train, test = (DATA.select(rows) for rows in DATA.partition(0.1, 0))
    found = at_known_sites(train, test, 0) | at_new_sites(train, test, 0)
    assert rows.keys() == found.keys()
    assert {name: result.runs[run]["accuracy"] for name, run in runs.items()} == found
    after, before = rows["+ 200 unlabelled"], rows["labelled rows only"]
    assert after.gain == pytest.approx(after.mean - before.mean)
    moved, fedcgs = rows["mixed, 200 unlabelled"], rows["new site, FedCGS"]
    assert moved.gain == pytest.approx(moved.mean - fedcgs.mean)
    seen = []
    run_experiment(
        "unlabelled", DATA, 1, results=path, progress=lambda *c: seen.append(c)
    )
    assert seen == [(len(result.runs),) * 2]


def test_sites_are_tested_on_other_rows_than_they_learn_from():
    numbered = replace(DATA, X=np.arange(900.0).reshape(-1, 1))
    aside, rest = set_aside(numbered, np.random.default_rng(0))
    assert not np.intersect1d(aside.X, rest.X).size
    assert len(aside.X) + len(rest.X) == 900
    sizes = [
        np.unique(rows.client_ids, return_counts=True)[1] for rows in (aside, rest)
    ]
    assert np.abs(sizes[0] - sizes[1]).max() <= 1


def test_local_training_uses_the_rows_of_a_site_alone():
    X, y = np.array([[0.0], [1], [5], [6], [0], [9]]), np.array(list("aabbcd"))
    ids = np.array([0, 0, 0, 0, 1, 1])
    local = LocalDiscriminant().fit(X, y, ids)
    assert local.predict(X, ids).tolist() == y.tolist()
    assert local.predict(X[[0, 4]], ids[[4, 0]]).tolist() == ["c", "a"]
    one = LocalDiscriminant().fit(X[:2], y[:2], ids[:2])
    assert one.predict(X[2:4], ids[2:4]).tolist() == ["a", "a"]


def as_dataset(name):
    """The small data, as if it were one of the paper's."""
    domains = np.array(list(paper_results("main", name)["accuracy"][0]))[::-1]
    data = small_data(len(domains))
    ids = domains[data.client_ids]
    return replace(data, client_ids=ids, dataset=name, min_samples=10)


def test_rows_of_the_paper_stand_beside_its_data_sets():
    result = run_experiment("domain-only", as_dataset("Office-Home"), 1)
    table = result.to_frame()
    paper = table[table["source"] == "paper, CLIP ViT-B/32"]
    expected = paper_results("domain-only", "Office-Home")["mean"]
    assert paper["mean"].tolist() == expected.tolist()
    assert result.title == "domain-only: domain shift only, on small (Office-Home)"
    assert "paper, CLIP ViT-B/32" in str(result)


def test_numbers_of_the_paper_stand_below_their_domains():
    """Clients are sorted by name, and the paper's columns are not."""
    result = run_experiment("main", as_dataset("Digits"), 1)
    header, *lines = (line.rsplit(",", 11) for line in result.to_csv().splitlines())
    line = next(line for line in lines if "paper" in line[0])
    found = {name: line[header.index(name)] for name in result.clients}
    expected = paper_results("main", "Digits")["accuracy"][0]
    assert found == {name: str(value) for name, value in expected.items()}


def test_both_encoders_of_the_paper_stand_beside_backbones():
    result = run_experiment("backbones", as_dataset("Office-Home"), 1)
    table, expected = result.to_frame(), paper_results("backbones", "Office-Home")
    for backbone in ("ViT-B/32", "ResNet-18"):
        means = table.loc[table["source"] == f"paper, {backbone}", "mean"]
        assert len(means) == 7
        paper = expected.loc[expected["backbone"] == backbone, "mean"]
        assert means.tolist() == paper.tolist()


def test_formats_agree(stored):
    result, _ = stored
    rows = rows_of(result)
    facts = json.loads(result.to_json())
    assert [row["mean"] for row in facts["rows"]] == [row.mean for row in rows]
    assert len(facts["runs"]) == len(result.runs)
    lines = result.to_csv().splitlines()
    header = lines[0].split(",")
    last = dict(zip(header, lines[-1].split(","), strict=True))
    assert float(last["mean"]) == rows[-1].mean
    assert result.to_latex().count(r"\\") == len(rows) + 1
    assert f"({rows[-1].gain:+.2f})" in result.to_latex()
    assert result.to_latex().startswith(f"% {result.title}\n")
    assert {line.split(",")[0] for line in lines[1:]} == {"small"}


def test_a_client_may_be_called_as_a_column():
    data = replace(DATA, client_ids=np.array(["mean", "tau", "Z"])[DATA.client_ids])
    result = run_experiment("skew", replace(data, dataset="Digits"), 1)
    assert result.to_frame().columns.tolist().count("mean") == 2
    header = str(result).splitlines()[4].split()
    assert header == "tau Z mean tau mean gain std P S".split()


def test_data_without_labels_is_refused():
    with pytest.raises(ValueError, match="small has no labels, which every experiment"):
        run_experiment("main", replace(DATA, y=None), 1)
