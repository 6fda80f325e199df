"""``skslot summarize``: what a site sends, and what it does not."""

from pathlib import Path

import numpy as np
import pytest
from four_sites import (
    CLIENTS,
    DATA,
    NAMES,
    SITES,
    X,
    Y,
    error_of,
    message_of,
    run,
    write_table,
)

from skslot._methods import FILE_METHODS, METHODS
from skslot.classifiers import OneShotClassifier
from skslot.exchange import (
    ClassMixtures,
    ClassStatistics,
    ClientStatistics,
    feature_fingerprint,
    load_message,
)


def test_without_labels_statistics_are_written(site, capsys):
    assert run("summarize features.npz --client A -o A.slot --dtype float64") == 0
    message = ClientStatistics.load("A.slot")
    assert message == message_of("A", labels=False)
    printed = capsys.readouterr().out
    assert f"client A: {message.n_samples} rows, 6 features\n" in printed
    assert f"wrote A.slot, {Path('A.slot').stat().st_size:,} bytes: send" in printed


@pytest.mark.parametrize(
    ("method", "kind"), [("fedcgs", ClassStatistics), ("fedpft", ClassMixtures)]
)
def test_with_labels_the_message_of_the_method_is_written(site, method, kind):
    command = "summarize features.npz --client A --labels --min-samples 1 -o A.slot"
    assert run(f"{command} --method {method}") == 0
    assert kind.load("A.slot").client_statistics().client == "A"


@pytest.mark.parametrize("method", FILE_METHODS)
def test_the_client_step_of_the_method_runs(site, method, monkeypatch):
    ran, update = [], OneShotClassifier.client_update

    def record(classifier, *arguments, **options):
        ran.append(type(classifier).__name__)
        return update(classifier, *arguments, **options)

    monkeypatch.setattr(OneShotClassifier, "client_update", record)
    command = "summarize features.npz --client A --labels --min-samples 1 -o A.slot"
    assert run(f"{command} --method {method}") == 0
    assert ran == [METHODS[method].maker]


def test_rows_of_the_client_are_selected(site):
    np.savez("all.npz", X=X, client=CLIENTS, fingerprint="encoder 1")
    assert run("summarize all.npz --client B -o B.slot --dtype float64") == 0
    message = load_message("B.slot")
    assert message == message_of("B", labels=False).with_encoder("encoder 1")


def test_clients_may_be_domains(site):
    np.savez("all.npz", X=X, domain=DATA.client_ids, domains=SITES)
    assert run("summarize all.npz --client C -o C.slot --dtype float64") == 0
    assert load_message("C.slot") == message_of("C", labels=False)


@pytest.mark.parametrize("spelling", ["train", "Train", " TRAIN "])
def test_of_a_split_the_training_rows_are_summarized(site, spelling, capsys):
    split = np.where(CLIENTS == "D", "train", "test").astype("U8")
    split[np.flatnonzero(CLIENTS == "D")[::2]] = spelling
    np.savez("split.npz", X=X, split=split)
    assert run("summarize split.npz --client D -o D.slot --dtype float64") == 0
    assert load_message("D.slot") == message_of("D", labels=False)
    n_others = (CLIENTS != "D").sum()
    assert f"left out: {n_others} rows that are not" in capsys.readouterr().out
    assert run("summarize split.npz --client D --ignore split -o all.slot") == 0
    assert load_message("all.slot").n_samples == len(X)


@pytest.mark.parametrize("labels", ["labels.npy", "labels.txt"])
def test_array_with_labels_in_another_file(site, labels):
    rows = CLIENTS == "A"
    np.save("features.npy", X[rows])
    np.save("labels.npy", Y[rows])
    Path("labels.txt").write_text("\n".join(Y[rows]) + "\n")
    command = f"summarize features.npy --labels-file {labels} --client A -o A.slot"
    assert run(f"{command} --dtype float64 --min-samples 1") == 0
    assert load_message("A.slot") == message_of("A")


@pytest.mark.parametrize("name", ["table.csv", "table.parquet"])
def test_tables_are_fingerprinted_by_their_columns(site, name, capsys):
    write_table(name, patient=[f"P{i}" for i in range((CLIENTS == "A").sum())])
    command = f"summarize {name} --labels diagnosis --ignore patient --client A"
    assert run(f"{command} -o A.slot --dtype float64 --min-samples 1") == 0
    expected = message_of("A").with_encoder(feature_fingerprint(NAMES))
    assert load_message("A.slot") == expected
    assert f"6 features: {', '.join(NAMES)}\n" in capsys.readouterr().out


def test_csv_as_excel_writes_it(site):
    write_table("table.csv")
    text = Path("table.csv").read_text().replace(",", ";")
    Path("excel.csv").write_text(text, encoding="utf-8-sig")
    for name in ("table", "excel"):
        command = f"summarize {name}.csv --labels diagnosis --client A --min-samples 1"
        assert run(f"{command} -o {name}.slot") == 0
    assert Path("table.slot").read_bytes() == Path("excel.slot").read_bytes()


def test_whole_numbers_in_text_are_numbers(site):
    np.savez("a.npz", X=X, y=DATA.target.astype(str))
    assert run("summarize a.npz --labels --client A -o A.slot") == 0
    assert load_message("A.slot").classes == [0, 1, 2, 3]


def test_small_groups_are_refused_or_left_out(site, capsys):
    labels = np.repeat(["many", "few"], [60, 5])
    np.savez("small.npz", X=X[:65], label=labels)
    command = "summarize small.npz --client A --labels label -o A.slot"
    error = error_of(command, capsys)
    assert "class 'few' with 5 rows, but min_samples=10" in error
    assert "--drop-small-classes and --min-samples" in error
    assert not Path("A.slot").exists()
    assert run(f"{command} --drop-small-classes") == 0
    assert load_message("A.slot").classes == ["many"]
    assert "left out: class 'few', rows: 5" in capsys.readouterr().out
    error = error_of(f"{command} --force --min-samples 70", capsys)
    assert "many' with 60 rows" in error
    assert "no rows left" in error_of(
        f"{command} --force --min-samples 70 --drop-small-classes", capsys
    )


def test_warnings_are_one_line(site, capsys):
    np.savez("flat.npz", X=np.ones((20, 3)))
    assert run("summarize flat.npz --client A -o A.slot") == 0
    printed = capsys.readouterr().err
    assert printed.startswith("skslot: warning: The rows of client 'A' do not vary")
    assert printed.count("\n") == 1


@pytest.mark.parametrize("labels", [["0", "1"], ["0.0", "1.0"]])
def test_whole_numbers_are_the_same_labels_however_written(site, labels):
    write_table("A.csv", diagnosis=np.resize(labels, (CLIENTS == "A").sum()))
    assert run("summarize A.csv --client A --labels diagnosis -o A.slot") == 0
    assert load_message("A.slot").classes == [0, 1]


def test_similar_labels_of_one_site_are_noticed(site, capsys):
    labels = np.resize(["mild", "Mild"], (CLIENTS == "A").sum())
    write_table("A.csv", diagnosis=labels)
    assert run("summarize A.csv --client A --labels diagnosis -o A.slot") == 0
    assert "'Mild' (client A) and 'mild' (client A) are" in capsys.readouterr().err


def test_lines_without_a_word_are_no_rows(site, capsys):
    write_table("A.csv")
    Path("blank.csv").write_text(Path("A.csv").read_text() + "\n\n")
    for name in ("A", "blank"):
        command = f"summarize {name}.csv --client A --labels diagnosis --min-samples 1"
        assert run(f"{command} -o {name}.slot") == 0
    assert capsys.readouterr().err == ""
    assert load_message("blank.slot") == load_message("A.slot")


@pytest.mark.parametrize("option", ["--shrinkage 2", "--dtype int8", "--min-samples 0"])
def test_wrong_options_are_a_matter_of_usage(site, option, capsys):
    with pytest.raises(SystemExit) as exit_:
        run(f"summarize features.npz --client A -o A.slot {option}")
    assert exit_.value.code == 2
    assert f"argument {option.split()[0]}: " in capsys.readouterr().err
