"""The paper's experiments on a small feature set."""

import json
from dataclasses import replace

import numpy as np
import pytest

from skslot.datasets import make_shifted_clients
from skslot.experiments import FeatureSet, paper_results, run_experiment
from skslot.experiments._plans import ONE_SHOT, PLANS, SEEDED


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


def test_main_has_the_rows_of_the_paper(stored):
    result, _ = stored
    rows = [(row.method, row.tau) for row in result.rows()]
    assert rows == [("FedAvg", 0.0)] + [(m, t) for m in ONE_SHOT for t in (0.0, 0.4)]


def test_mean_std_and_gain_follow_from_the_runs(stored):
    result, _ = stored
    plain, aligned = (row for row in result.rows() if row.method == "FedCGS")
    runs = {
        run.partition: values
        for run, values in result.accuracy.items()
        if (run.method, run.tau) == ("FedCGS", 0.4)
    }
    values = np.array([runs[0], runs[1]])
    assert aligned.mean == pytest.approx(values.mean())
    assert aligned.std == pytest.approx(values.std(axis=1).mean())
    assert aligned.gain == pytest.approx(aligned.mean - plain.mean)
    means = values.mean(axis=1)
    assert aligned.error_partitions == pytest.approx(abs(means[0] - means[1]) / 2)


def test_errors_over_seeds_are_there_for_methods_with_a_seed(stored):
    result, _ = stored
    for row in result.rows():
        assert (row.error_seeds is not None) == (row.method in SEEDED)


def test_same_seed_same_digits(stored):
    result, _ = stored
    assert run_experiment("main", DATA, 2).accuracy == result.accuracy


def test_what_is_stored_is_not_run_again(stored):
    result, path = stored
    seen = []
    again = run_experiment(
        "main", DATA, 2, results=path, progress=lambda *counts: seen.append(counts)
    )
    assert again.accuracy == result.accuracy
    assert seen == [(len(result.accuracy),) * 2]


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
    assert len(result.rows()) == len(PLANS[name].rows)
    assert len(result.clients) == 3 * PLANS[name].n_parts
    assert all(0 <= v <= 100 for values in result.accuracy.values() for v in values)


def as_dataset(name):
    """The small data, as if it were one of the paper's."""
    domains = np.array(list(paper_results("main", name)[0].accuracy))[::-1]
    data = small_data(len(domains))
    ids = domains[data.client_ids]
    return replace(data, client_ids=ids, dataset=name, min_samples=10)


def test_rows_of_the_paper_stand_beside_its_data_sets():
    result = run_experiment("domain-only", as_dataset("Office-Home"), 1)
    paper = [row for row in result.rows() if row.source == "paper"]
    expected = [row.mean for row in paper_results("domain-only", "Office-Home")]
    assert [row.mean for row in paper] == expected
    assert result.title == "domain-only: domain shift only, on small (Office-Home)"
    assert str(result).count("paper, CLIP ViT-B/32") == len(paper)


def test_numbers_of_the_paper_stand_below_their_domains():
    """Clients are sorted by name, and the paper's columns are not."""
    result = run_experiment("main", as_dataset("Digits"), 1)
    header, *lines = (line.split(",") for line in result.to_csv().splitlines())
    line = next(line for line in lines if line[1] == "paper")
    found = {name: line[header.index(name)] for name in result.clients}
    expected = paper_results("main", "Digits")[0].accuracy
    assert found == {name: str(value) for name, value in expected.items()}


def test_both_encoders_of_the_paper_stand_beside_backbones():
    result = run_experiment("backbones", as_dataset("Office-Home"), 1)
    paper = [row for row in result.rows() if row.source == "paper"]
    for backbone in ("ViT-B/32", "ResNet-18"):
        means = [row.mean for row in paper if row.backbone == backbone]
        expected = paper_results("backbones", "Office-Home")
        assert means == [row.mean for row in expected if row.backbone == backbone]
        assert str(result).count(f"paper, {backbone} ") == 7


def test_formats_agree(stored):
    result, _ = stored
    rows = result.rows()
    facts = json.loads(result.to_json())
    assert [row["mean"] for row in facts["rows"]] == [row.mean for row in rows]
    assert len(facts["runs"]) == len(result.accuracy)
    lines = result.to_csv().splitlines()
    header = lines[0].split(",")
    last = dict(zip(header, lines[-1].split(","), strict=True))
    assert float(last["mean"]) == rows[-1].mean
    assert result.to_latex().count(r"\\") == len(rows) + 1
    assert f"({rows[-1].gain:+.2f})" in result.to_latex()
    assert result.to_latex().startswith(f"% {result.title}\n")
    assert {line.split(",")[0] for line in lines[1:]} == {"small"}


def test_data_without_labels_is_refused():
    with pytest.raises(ValueError, match="small has no labels, which every experiment"):
        run_experiment("main", replace(DATA, y=None), 1)
