"""The file workflow: sites and a server that have nothing in common but files."""

import csv
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.pipeline import make_pipeline

from skslot import FedCGSClassifier, FederatedOTAligner, FedPFTClassifier
from skslot.cli import main
from skslot.datasets import make_shifted_clients
from skslot.exchange import (
    AlignedModel,
    AlignmentReference,
    ClassMixtures,
    ClassStatistics,
    ClientStatistics,
    LinearModel,
    feature_fingerprint,
    load_message,
)

SITES = ["A", "B", "C", "D"]
DATA = make_shifted_clients(
    800, n_clients=4, n_classes=4, n_features=6, random_state=0, label_shift=3.0
)
X, CLIENTS = DATA.data, np.array(SITES)[DATA.client_ids]
Y = np.array(["cat", "dog", "horse", "owl"])[DATA.target]
NAMES = ["age", "weight", "height", "pulse", "dose", "score"]


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder with the features of client A, which commands run in."""
    monkeypatch.chdir(tmp_path)
    rows = CLIENTS == "A"
    np.savez("features.npz", X=X[rows], y=Y[rows], path=np.arange(rows.sum()))
    return tmp_path


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A folder with the files of four clients, with labels."""
    monkeypatch.chdir(tmp_path)
    for client in SITES:
        message_of(client).save(f"{client}.slot", min_samples=1)
    return tmp_path


def message_of(client, labels=True):
    rows = CLIENTS == client
    aligner = FederatedOTAligner()
    if not labels:
        return aligner.client_update(X[rows], client)
    return FedCGSClassifier(aligner=aligner).client_update(
        X[rows], Y[rows], client=client
    )


def run(command):
    """Exit code of a command line."""
    return main(command.split())


def read_predictions(path):
    """Labels and probabilities, in the order of the rows of the site."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = [name for name in rows[0] if name.startswith("probability_")]
    probabilities = [[float(row[name]) for name in names] for row in rows]
    return np.array([row["prediction"] for row in rows]), np.array(probabilities)


def write_table(path, client="A", columns=NAMES, **others):
    rows = CLIENTS == client
    frame = pd.DataFrame(X[rows], columns=NAMES)[list(columns)]
    for name, values in {"diagnosis": Y[rows], **others}.items():
        frame[name] = values
    if path.endswith(".csv"):
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path)


def error_of(command, capsys):
    """The one line that a command fails with."""
    assert run(command) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("skslot: error: ")
    assert printed.count("\n") == 1
    return printed


# ------------------------------------------------------------------ all of it


def in_process(*command, cwd):
    """Run a command in a folder, in this process."""
    before = Path.cwd()
    os.chdir(cwd)
    try:
        assert main(list(command)) == 0
    finally:
        os.chdir(before)


def in_own_process(*command, cwd):
    """Run a command in a folder as users do."""
    result = subprocess.run(
        [sys.executable, "-m", "skslot", *command],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr


def play(root, run, dtype, *options, site_models=False):
    """Four sites and a server, each in a folder; what is sent is copied by hand."""
    for name in [*SITES, "server"]:
        (root / name).mkdir()
    for name in SITES:
        rows = CLIENTS == name
        np.savez(root / name / "features.npz", X=X[rows], y=Y[rows])
        command = f"summarize features.npz --labels --client {name} -o {name}.slot"
        command += f" --dtype {dtype} --min-samples 1"
        run(*command.split(), *options, cwd=root / name)
        shutil.copy(root / name / f"{name}.slot", root / "server")
    model = "--site-models ." if site_models else "--model global.slot"
    command = f"aggregate *.slot -o reference.slot {model} --dtype {dtype}"
    run(*command.split(), cwd=root / "server")
    labels, probabilities = np.empty_like(Y), np.empty((len(X), 4))
    for name in SITES:
        model = f"{name}.model.slot" if site_models else "global.slot"
        shutil.copy(root / "server" / model, root / name)
        command = f"predict features.npz --model {model} -o predictions.csv"
        command += "" if site_models else f" --statistics {name}.slot"
        run(*command.split(), cwd=root / name)
        predicted = read_predictions(root / name / "predictions.csv")
        rows = CLIENTS == name
        labels[rows], probabilities[rows] = predicted
    return labels, probabilities


def pipeline_predictions():
    pipeline = make_pipeline(FederatedOTAligner(tau=0.4), FedCGSClassifier())
    with config_context(enable_metadata_routing=True):
        pipeline.fit(X, Y, client_ids=CLIENTS)
        return (
            pipeline.predict(X, client_ids=CLIENTS),
            pipeline.predict_proba(X, client_ids=CLIENTS),
        )


@pytest.mark.parametrize(("dtype", "atol"), [("float32", 1e-6), ("float64", 1e-12)])
def test_sites_in_processes_of_their_own_predict_as_one_pipeline(tmp_path, dtype, atol):
    labels, probabilities = play(tmp_path, in_own_process, dtype)
    expected_labels, expected = pipeline_predictions()
    assert np.array_equal(labels, expected_labels)
    np.testing.assert_allclose(probabilities, expected, rtol=0, atol=atol)


@pytest.mark.parametrize("site_models", [False, True])
def test_float64_files_give_the_numbers_of_one_process(tmp_path, site_models):
    labels, probabilities = play(
        tmp_path, in_process, "float64", site_models=site_models
    )
    expected_labels, expected = pipeline_predictions()
    assert np.array_equal(labels, expected_labels)
    np.testing.assert_allclose(probabilities, expected, rtol=0, atol=1e-12)
    classifier = FedCGSClassifier(aligner=FederatedOTAligner(tau=0.4))
    classifier.fit(X, Y, client_ids=CLIENTS)
    for name in SITES:
        own = classifier.client_classifier(name)
        expected = own.predict_proba(X[CLIENTS == name])
        assert np.array_equal(probabilities[CLIENTS == name], expected)


def test_fedpft_by_files(tmp_path):
    labels, probabilities = play(
        tmp_path, in_process, "float64", "--method", "fedpft", "--components", "2"
    )
    aligner = FederatedOTAligner(tau=0.4)
    classifier = FedPFTClassifier(
        2, aligner=aligner, wire_dtype="float64", random_state=0
    ).fit(X, Y, client_ids=CLIENTS)
    assert np.array_equal(labels, classifier.predict(X, client_ids=CLIENTS))
    np.testing.assert_allclose(
        probabilities, classifier.predict_proba(X, client_ids=CLIENTS), atol=1e-9
    )


# ------------------------------------------------------------------ summarize


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
    assert "class 'few' with 5 rows, but --min-samples 10" in error
    assert "--drop-small-classes leaves out" in error
    assert "min_samples" not in error
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


# ------------------------------------------------------------------ wrong input


def save(**arrays):
    return lambda: np.savez("bad.npz", **arrays)


def write(name, content):
    return lambda: Path(name).write_bytes(content)


NAN = np.where(np.arange(20)[:, None] == 7, np.nan, np.ones((20, 3)))

WRONG = {
    "missing": (lambda: None, "bad.npz", "error: bad.npz: No such file or directory."),
    "format": (write("bad.txt", b""), "bad.txt", "files that end in .npz, .npy, .csv"),
    "empty file": (write("bad.npz", b""), "bad.npz", "cannot be read"),
    "half a file": (write("bad.npz", b"PK\x03\x04half"), "bad.npz", "cannot be read"),
    "objects": (save(X=np.array([None])), "bad.npz", "holds Python objects"),
    "no X": (save(Y=np.ones((20, 3))), "bad.npz", "must hold an array X"),
    "no rows": (save(X=np.empty((0, 3))), "bad.npz", "has no rows"),
    "no matrix": (save(X=np.ones(3)), "bad.npz", "must be a matrix of numbers"),
    "text": (save(X=np.full((20, 3), "a")), "bad.npz", "must be a matrix of numbers"),
    "NaN": (save(X=NAN), "bad.npz", "1 of 20 rows have NaN or infinity.* is row 8;"),
    "no labels": (
        save(X=np.ones((20, 3)), z=[1]),
        "bad.npz --labels",
        "has no column 'y'; beside the features it has: z",
    ),
    "few labels": (
        save(X=np.ones((20, 3)), y=np.ones(19)),
        "bad.npz --labels",
        r"labels have the shape \(19,\), but there are 20 rows",
    ),
    "NaN as label": (
        save(X=np.ones((20, 3)), y=[1.0, np.nan] * 10),
        "bad.npz --labels",
        "10 of 20 rows have no label, the first is row 2",
    ),
    "wrong client": (
        save(X=np.ones((20, 3)), client=["B"] * 20),
        "bad.npz",
        "no row of client 'A', only of: B",
    ),
    "no training rows": (
        save(X=np.ones((20, 3)), split=["test"] * 20),
        "bad.npz",
        "no rows left to learn from: its column split.*only 'test'.*--ignore split",
    ),
    "empty table": (write("bad.csv", b""), "bad.csv", "begin with a line of column"),
    "no header": (write("bad.csv", b"1,2\n3,4\n"), "bad.csv", "begin with a line of"),
    "header only": (write("bad.csv", b"a,b\n\n"), "bad.csv", "has no rows"),
    "not UTF-8": (write("bad.csv", b"\xe4,b\n1,2\n"), "bad.csv", "CSV UTF-8"),
    "text in table": (
        write("bad.csv", b"a,name\n1,Eve\n"),
        "bad.csv",
        "line 2, column 'name': 'Eve' is no number.*--ignore",
    ),
    "gap in table": (
        write("bad.csv", b"a,b\n1,2\n,3\n"),
        "bad.csv",
        "line 3, column 'a': '' is no number.*filled in",
    ),
    "decimal commas": (
        write("bad.csv", b"a,b\n1,2\n\n1,5,2,5\n"),
        "bad.csv",
        "bad.csv: fields in line 4: 4, but columns: 2, separated by ','",
    ),
    "separator in text": (
        write("bad.csv", b'a;name\n1;"Eve; Eva"\n2;Adam; Ada\n'),
        "bad.csv --ignore name",
        "bad.csv: fields in line 3: 3, but columns: 2",
    ),
    "few fields": (
        write("bad.csv", b"a,b\n1\n"),
        "bad.csv",
        "bad.csv: fields in line 2: 1, but columns: 2",
    ),
    "field without end": (
        write("bad.csv", b'a,b\n"' + b"x" * 200_000),
        "bad.csv",
        "bad.csv: line 2: field larger than",
    ),
    "column twice": (write("bad.csv", b"a,a\n1,2\n"), "bad.csv", "more than one col"),
    "no features": (
        write("bad.csv", b"y,client\n1,A\n"),
        "bad.csv --labels",
        "has no features",
    ),
    "unknown column": (
        write("bad.csv", b"a , class,client\n1,cat,A\n"),
        "bad.csv --labels",
        "has no column 'y'; its columns are: a, class, client.$",
    ),
    "nothing beside": (
        save(X=np.ones((20, 3)), fingerprint="v1"),
        "bad.npz --labels",
        "has no column 'y'; beside the features it has: nothing",
    ),
    "text in parquet": (
        lambda: pd.DataFrame({"a": [1], "b": ["x"]}).to_parquet("bad.parquet"),
        "bad.parquet",
        "column 'b' is not numeric",
    ),
    "no parquet": (write("bad.parquet", b"no"), "bad.parquet", "bad.parquet"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_features_are_one_line(site, case, capsys):
    prepare, arguments, expected = WRONG[case]
    prepare()
    error = error_of(f"summarize {arguments} --client A -o A.slot", capsys)
    assert re.search(expected, error)
    assert "bad." in error
    assert not Path("A.slot").exists()


def test_parquet_without_pandas_names_what_to_install(site, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pandas", None)
    error = error_of("summarize table.parquet --client A -o A.slot", capsys)
    assert "pip install pandas pyarrow" in error


@pytest.mark.parametrize("option", ["--shrinkage 2", "--dtype int8", "--min-samples 0"])
def test_wrong_options_are_a_matter_of_usage(site, option, capsys):
    with pytest.raises(SystemExit) as exit_:
        run(f"summarize features.npz --client A -o A.slot {option}")
    assert exit_.value.code == 2
    assert f"argument {option.split()[0]}: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        "summarize features.npz --client A -o old.slot",
        "aggregate A.slot -o old.slot",
        "align features.npz --client A --reference A.slot -o old.npz",
        "predict features.npz --model A.slot -o old.csv",
    ],
)
def test_nothing_is_overwritten(site, command, capsys):
    output = Path(command.split()[-1])
    output.write_text("old")
    assert "exists already" in error_of(command, capsys)
    assert output.read_text() == "old"


def test_debug_shows_where_it_failed(site):
    with pytest.raises(FileNotFoundError):
        run("inspect nowhere.slot --debug")


@pytest.mark.parametrize(
    "command", ["summarize", "aggregate", "align", "predict", "inspect"]
)
def test_help_has_an_example(command, capsys):
    with pytest.raises(SystemExit) as exit_:
        main([command, "--help"])
    assert exit_.value.code == 0
    assert f"example: skslot {command} " in " ".join(capsys.readouterr().out.split())


# ------------------------------------------------------------------ aggregate


def test_reference_is_that_of_the_aligner(server, capsys):
    assert run("aggregate *.slot -o reference.slot --dtype float64") == 0
    messages = [load_message(f"{name}.slot") for name in SITES]
    expected = FederatedOTAligner().server_aggregate(messages)
    assert AlignmentReference.load("reference.slot") == expected
    printed = capsys.readouterr().out
    assert f"clients: 4, rows: {len(X)}, features: 6\n" in printed
    assert "--model FILE.slot makes a classifier" in printed


def test_tau_of_the_server_travels_with_the_reference(server, capsys):
    assert run("aggregate *.slot -o fixed.slot --tau 0.7") == 0
    assert load_message("fixed.slot").tau == 0.7
    assert run("aggregate A.slot B.slot C.slot D.slot -o auto.slot --tau auto") == 0
    assert f"tau: {load_message('auto.slot').tau:.3f}" in capsys.readouterr().out


def test_auto_tau_needs_labels(server, capsys):
    message_of("B", labels=False).save("B.slot")
    error = error_of("aggregate *.slot -o reference.slot --tau auto", capsys)
    assert "B.slot was summarized without --labels" in error


def test_site_without_labels_gets_a_model_too(server, capsys):
    message_of("D", labels=False).save("D.slot")
    assert run("aggregate *.slot --site-models models --dtype float64") == 0
    assert "clients without labels: D\n" in capsys.readouterr().out
    messages = [load_message(f"{name}.slot") for name in SITES]
    classifier = FedCGSClassifier(aligner=FederatedOTAligner())
    expected = classifier.server_aggregate(messages).client_classifier("D")
    assert np.array_equal(LinearModel.load("models/D.model.slot").coef, expected.coef_)
    assert sorted(path.name for path in Path("models").iterdir()) == [
        f"{name}.model.slot" for name in SITES
    ]


def test_reference_is_the_same_with_and_without_a_model(server):
    message_of("D", labels=False).save("D.slot")
    assert run("aggregate ?.slot -o alone.slot") == 0
    assert run("aggregate ?.slot -o beside.slot --model global.slot") == 0
    alone = AlignmentReference.load("alone.slot")
    assert alone == AlignmentReference.load("beside.slot")
    assert np.array_equal(AlignedModel.load("global.slot").mean, alone.mean)


def test_names_of_files_do_not_matter(server):
    rows = {name: CLIENTS == name for name in SITES}
    classifier = FedPFTClassifier(aligner=FederatedOTAligner(), wire_dtype="float64")
    for name, file in zip(SITES, "dcba", strict=True):
        message = classifier.client_update(X[rows[name]], Y[rows[name]], client=name)
        message.save(f"{file}.slot", "float64", min_samples=1)
    assert run("aggregate a.slot b.slot c.slot d.slot --model one.slot") == 0
    assert run("aggregate d.slot c.slot b.slot a.slot --model two.slot") == 0
    assert load_message("one.slot") == load_message("two.slot")


def test_server_writes_one_model_for_all(server, capsys):
    command = "aggregate A.slot B.slot C.slot D.slot --model global.slot"
    assert run(f"{command} --tau 0.7 --dtype float64") == 0
    assert "wrote global.slot" in capsys.readouterr().out
    classifier = FedCGSClassifier(aligner=FederatedOTAligner(tau=0.7))
    classifier.server_aggregate([load_message(f"{name}.slot") for name in SITES])
    model = AlignedModel.load("global.slot")
    assert np.array_equal(model.coef, classifier.coef_)
    assert model.tau == 0.7
    assert model.reference == replace(classifier.reference_, tau=0.7)
    assert run("aggregate *.slot --model global.slot") == 1
    assert "global.slot exists already" in capsys.readouterr().err
    assert run("aggregate *.slot --model global.slot --force") == 0
    assert AlignedModel.load("global.slot").tau == 0.4


def test_models_of_a_single_class_and_of_two(site):
    for method, labels in [("fedpft", ["a"]), ("fedpft", "ab"), ("fedcgs", "ab")]:
        y = np.resize(list(labels), 60)
        np.savez("two.npz", X=X[:60] + 3 * (y == "b")[:, None], y=y)
        command = f"summarize two.npz --client A --labels --method {method} -o A.slot"
        assert run(f"{command} --force") == 0
        assert run("aggregate A.slot --site-models models --force") == 0
        command = "predict two.npz --model models/A.model.slot -o two.csv --force"
        assert run(command) == 0
        predicted, probabilities = read_predictions("two.csv")
        np.testing.assert_allclose(probabilities.sum(axis=1), 1)
        assert np.mean(predicted == y) > 0.9


def test_refused_files_are_named_and_nothing_is_written(server, capsys):
    Path("A.slot").write_bytes(b"half a fi")
    Path("C.slot").unlink()
    command = "aggregate A.slot B.slot C.slot D.slot -o reference.slot"
    assert run(command) == 1
    first, second, last = capsys.readouterr().err.splitlines()
    assert first.startswith("skslot: refused: A.slot: these bytes are not")
    assert second.startswith("skslot: refused: ")
    assert "C.slot" in second
    assert "error: 2 of 4 files were refused, and nothing was written" in last
    assert not Path("reference.slot").exists()
    assert run(f"{command} --skip-refused") == 0
    assert "refused: A.slot" in capsys.readouterr().err
    messages = [load_message(f"{name}.slot") for name in "BD"]
    expected = FederatedOTAligner().server_aggregate(messages)
    np.testing.assert_allclose(
        AlignmentReference.load("reference.slot").mean, expected.mean, rtol=1e-6
    )


@pytest.mark.parametrize("labels", [True, False])
def test_two_files_of_one_client_are_never_skipped(server, labels, capsys):
    message_of("A", labels).save("again.slot", min_samples=1)
    error = error_of("aggregate *.slot -o r.slot --skip-refused", capsys)
    assert "A.slot and again.slot are from the same client 'A'" in error


def test_other_files_of_a_server_are_refused(server, capsys):
    assert run("aggregate *.slot -o reference.slot") == 0
    error = error_of("aggregate *.slot -o new.slot", capsys)
    assert "reference.slot: this is of the kind 'alignment reference'" in error
    assert run("aggregate *.slot -o reference.slot --force") == 0


def test_different_encoders_name_both_files(server, capsys):
    message_of("C").with_encoder("v2").save("C.slot", min_samples=1)
    error = error_of("aggregate *.slot -o reference.slot", capsys)
    assert "C.slot and A.slot: client 'C' has features of the encoder 'v2'" in error


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("A.slot", "nothing to write: give -o"),
        ("none*.slot -o r.slot", "no file matches none"),
        ("nowhere.slot -o r.slot --skip-refused", "all files were refused"),
        ("A.slot A.slot -o r.slot", "A.slot.* twice"),
        ("A.slot other/A.slot --site-models models", "same name in different folders"),
        ("A.slot --site-models nowhere/models", "does not exist"),
        ("A.slot --site-models B.slot", "exists already"),
        ("A.slot -o r.slot --model ./r.slot", "r.slot cannot be two outputs"),
        ("A.slot -o new --site-models new", "new cannot be two outputs"),
    ],
)
def test_wrong_arguments_of_the_server(server, options, expected, capsys):
    assert run(f"aggregate {options}") == 1
    assert re.search(expected, capsys.readouterr().err)


def test_labels_are_needed_for_models_and_of_one_method(server, capsys):
    message_of("A", labels=False).save("A.slot")
    assert "needs labels" in error_of("aggregate A.slot --site-models models", capsys)
    rows = CLIENTS == "A"
    classifier = FedPFTClassifier(aligner=FederatedOTAligner())
    message = classifier.client_update(X[rows], Y[rows], client="A")
    message.save("A.slot", min_samples=1)
    error = error_of("aggregate *.slot --site-models models", capsys)
    assert "B.slot and A.slot were summarized for different methods" in error
    assert not Path("models").exists()


# ---------------------------------------------------------------------- align


@pytest.fixture
def reference(site):
    """The reference of all, beside the features of A."""
    messages = [message_of(client, labels=False) for client in SITES]
    reference = FederatedOTAligner().server_aggregate(messages)
    reference.save("reference.slot", "float64")
    return reference


def aligned(reference, tau=0.4, rows=CLIENTS == "A"):
    aligner = FederatedOTAligner(tau)
    client_map = aligner.client_map(message_of("A", labels=False), reference)
    return client_map.transform(X[rows])


@pytest.mark.parametrize(("option", "tau"), [("", 0.4), ("--tau 1", 1.0)])
def test_aligned_features_keep_what_stood_beside_them(reference, option, tau):
    command = "align features.npz --reference reference.slot --client A -o out.npz"
    assert run(f"{command} {option}") == 0
    with np.load("out.npz") as file:
        assert set(file) == {"X", "y", "path", "fingerprint"}
        assert np.array_equal(file["X"], aligned(reference, tau))
        assert np.array_equal(file["y"], Y[CLIENTS == "A"])
        assert str(file["fingerprint"]).startswith("features+aligned:")


def test_later_rows_are_moved_by_the_map_of_what_was_sent(reference):
    message_of("A").save("A.slot", "float64", min_samples=1)
    rows = np.flatnonzero(CLIENTS == "A")[:3]
    np.save("new.npy", X[rows])
    command = "align new.npy --reference reference.slot --client A -o out.npz"
    assert run(f"{command} --statistics A.slot") == 0
    with np.load("out.npz") as file:
        np.testing.assert_allclose(file["X"], aligned(reference, rows=rows))


def test_aligned_features_are_not_aligned_again(reference, capsys):
    command = "align {} --reference reference.slot --client A -o {}"
    assert run(command.format("features.npz", "once.npz")) == 0
    error = error_of(command.format("once.npz", "twice.npz"), capsys)
    assert "once.npz holds features that skslot align wrote" in error


def test_float32_stays_float32(reference):
    np.savez("f.npz", X=X[CLIENTS == "A"].astype(np.float32))
    command = "align f.npz --reference reference.slot --client A -o out.npz"
    assert run(command) == 0
    with np.load("out.npz") as file:
        assert file["X"].dtype == np.float32


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            "features.npz --reference A.slot -o o.npz",
            "A.slot: .* not a reference, which skslot aggregate -o",
        ),
        ("features.npz --reference reference.slot -o o.csv", "must end in .npz"),
        ("narrow.npy --reference reference.slot -o o.npz", "2 features.* is for 6"),
        (
            "features.npz --encoder v2 --reference reference.slot -o o.npz",
            "the encoder 'v2', but reference.slot is for None",
        ),
        (
            "features.npz --reference reference.slot --statistics B.slot -o o.npz",
            "B.slot is from client 'B', not from 'A'",
        ),
        (
            "features.npz --reference reference.slot --statistics reference.slot "
            "-o o.npz",
            "reference.slot: this is of the kind 'alignment reference'",
        ),
    ],
)
def test_wrong_arguments_of_align(reference, options, expected, capsys):
    for client in "AB":
        message_of(client, labels=False).save(f"{client}.slot")
    np.save("narrow.npy", X[:, :2])
    assert re.search(expected, error_of(f"align {options} --client A", capsys))


# -------------------------------------------------------------------- predict


def test_labels_of_several_kinds_are_refused_at_the_server(server, capsys):
    rows = CLIENTS == "A"
    np.savez("A.npz", X=X[rows], y=np.unique(Y[rows], return_inverse=True)[1])
    command = "summarize A.npz --client A --labels --min-samples 1 -o A.slot --force"
    assert run(command) == 0
    capsys.readouterr()
    error = error_of("aggregate *.slot -o r.slot", capsys)
    assert "numbers in A.slot (0) and text in B.slot ('cat'); write them" in error


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


def test_reordered_columns_at_the_server(site, capsys):
    for client, columns in [("A", NAMES), ("B", NAMES[::-1])]:
        write_table(f"{client}.csv", client, columns)
        command = f"summarize {client}.csv --labels diagnosis --client {client}"
        assert run(f"{command} --min-samples 1 -o {client}.slot") == 0
    capsys.readouterr()
    error = error_of("aggregate A.slot B.slot -o r.slot", capsys)
    assert "B.slot and A.slot: their tables have different columns" in error


def test_reordered_columns_are_refused(server, capsys):
    for client in SITES:
        write_table(f"{client}.csv", client)
        command = f"summarize {client}.csv --labels diagnosis --client {client}"
        assert run(f"{command} --min-samples 1 -o {client}.slot --force") == 0
    assert run("aggregate ?.slot --site-models models") == 0
    command = "predict {} --labels diagnosis --model models/A.model.slot -o out.csv"
    write_table("new.csv", columns=NAMES[::-1])
    error = error_of(command.format("new.csv"), capsys)
    assert "same columns in the same order" in error
    assert run(command.format("A.csv")) == 0
    n_rows = (CLIENTS == "A").sum()
    assert re.search(
        rf"accuracy: \d\d\.\d\d% of {n_rows} rows", capsys.readouterr().out
    )


def test_predictions_stand_beside_what_identifies_the_rows(server):
    assert run("aggregate *.slot --site-models models") == 0
    np.savez("all.npz", X=X, client=CLIENTS, path=np.char.add("p", CLIENTS))
    assert run("predict all.npz --model models/B.model.slot -o out.csv") == 0
    frame = pd.read_csv("out.csv")
    assert list(frame)[:4] == ["row", "client", "path", "prediction"]
    assert list(frame)[4:] == [f"probability_{label}" for label in np.unique(Y)]
    assert np.array_equal(frame["row"], np.flatnonzero(CLIENTS == "B") + 1)
    assert set(frame["path"]) == {"pB"}


def test_names_of_columns_are_not_about_rows(server):
    """Although there may be as many."""
    assert run("aggregate *.slot --model global.slot --dtype float64") == 0
    np.savez("six.npz", X=X[:6], columns=np.array(NAMES))
    command = "predict six.npz --model global.slot --statistics A.slot -o six.csv"
    assert run(command) == 0
    assert "columns" not in pd.read_csv("six.csv")


@pytest.mark.parametrize("name", ["prediction", "probability_cat"])
def test_columns_of_the_predictions_are_not_taken_by_others(server, name, capsys):
    assert run("aggregate *.slot --site-models .") == 0
    capsys.readouterr()
    rows = CLIENTS == "A"
    np.savez("A.npz", X=X[rows], **{name: np.arange(rows.sum())})
    error = error_of("predict A.npz --model A.model.slot -o out.csv", capsys)
    assert f"has a column {name!r} already" in error


def test_clients_that_are_numbers_come_in_their_order(site):
    """As in fit: 10 after 2."""
    names = np.array([1, 2, 10])
    ids = np.repeat(names, [60, 50, 40])
    rows, y = X[:150], np.resize(["x", "y"], 150)
    aligner = FederatedOTAligner()
    classifier = FedPFTClassifier(
        aligner=aligner, wire_dtype="float64", random_state=0
    ).fit(rows, y, client_ids=ids)
    for client in names.tolist():
        message = classifier.client_update(
            rows[ids == client], y[ids == client], client=client
        )
        message.save(f"{client}.slot", "float64")
    assert run("aggregate 10.slot 1.slot 2.slot --model g.slot --dtype float64") == 0
    assert np.array_equal(load_message("g.slot").coef, classifier.estimator_.coef_)


def test_client_that_is_a_number(site):
    rows = CLIENTS == "A"
    classifier = FedCGSClassifier(aligner=FederatedOTAligner())
    message = classifier.client_update(X[rows], Y[rows], client=3)
    message.save("3.slot", min_samples=1)
    assert run("aggregate 3.slot --model global.slot --site-models .") == 0
    np.savez("all.npz", X=X[rows], client=np.full(rows.sum(), 3))
    command = "predict all.npz --client 3 -o {}.csv --model {}"
    assert run(command.format("a", "global.slot --statistics 3.slot")) == 0
    assert run(command.format("b", "3.model.slot")) == 0
    assert np.array_equal(read_predictions("a.csv")[0], read_predictions("b.csv")[0])


def test_model_of_another_client_is_refused(server, capsys):
    assert run("aggregate *.slot --site-models models") == 0
    capsys.readouterr()
    np.save("f.npy", X)
    command = "predict f.npy --model models/B.model.slot --client A -o out.csv"
    assert "is for client 'B', not for 'A'" in error_of(command, capsys)


@pytest.fixture
def global_model(server, capsys):
    """The model of all sites, beside the features of all of them."""
    assert run("aggregate ?.slot --model global.slot --dtype float64") == 0
    np.savez("all.npz", X=X, client=CLIENTS)
    capsys.readouterr()
    return AlignedModel.load("global.slot")


def test_model_of_all_sites_takes_the_map_of_the_rows(global_model, capsys):
    assert run("predict all.npz --model global.slot --client B -o rows.csv") == 0
    n_rows = (CLIENTS == "B").sum()
    assert f"alignment estimated from {n_rows} rows of all.npz" in (
        capsys.readouterr().out
    )
    command = "predict all.npz --model global.slot --statistics B.slot -o sent.csv"
    assert run(command) == 0
    assert "estimated" not in capsys.readouterr().out
    of_rows, of_sent = read_predictions("rows.csv"), read_predictions("sent.csv")
    np.testing.assert_allclose(of_rows[1], of_sent[1], atol=1e-6)
    assert len(of_rows[0]) == n_rows


def test_new_rows_are_moved_by_the_map_of_what_was_sent(global_model):
    rows = X[CLIENTS == "B"]
    np.savez("few.npz", X=rows[:3])
    np.savez("many.npz", X=rows)
    for name in ("few", "many"):
        command = f"predict {name}.npz --model global.slot --statistics B.slot"
        assert run(f"{command} -o {name}.csv") == 0
    few, many = read_predictions("few.csv"), read_predictions("many.csv")
    np.testing.assert_allclose(few[1], many[1][:3], atol=1e-12)


def test_rows_that_the_statistics_do_not_describe_are_noticed(global_model, capsys):
    np.savez("same.npz", X=X[CLIENTS == "B"])
    np.savez("other.npz", X=5 * X[CLIENTS == "B"])
    for name in ("same", "other"):
        command = f"predict {name}.npz --model global.slot --statistics B.slot"
        assert run(f"{command} -o {name}.csv") == 0
        printed = capsys.readouterr()
        assert f"client B: {(CLIENTS == 'B').sum()} rows\n" in printed.out
        assert ("times as much" in printed.err) == (name == "other")


def test_site_that_sent_nothing_uses_the_model_of_all(global_model):
    newcomer = X[CLIENTS == "A"] * 2 + 5
    np.savez("new.npz", X=newcomer)
    assert run("predict new.npz --model global.slot -o new.csv") == 0
    aligner = FederatedOTAligner(tau=0.4)
    statistics = aligner.client_update(newcomer)
    aligned = aligner.client_map(statistics, global_model.reference).transform(newcomer)
    scores = aligned @ global_model.coef.T + global_model.intercept
    expected = np.array(global_model.classes)[scores.argmax(axis=1)]
    assert np.array_equal(read_predictions("new.csv")[0], expected.astype(str))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("all.npz --model global.slot", "rows of several clients .*choose one by --cl"),
        ("few.npz --model global.slot", "has 3 rows to estimate .*--statistics FILE"),
        ("few.npz --model global.slot --statistics B.slot --client A", "from client"),
        ("few.npz --model B.slot", "kind 'class statistics', not a model"),
        ("few.npz --model B.model.slot --statistics B.slot", "leave --statistics out"),
        ("few.npz --model global.slot --statistics global.slot", "aligned model"),
    ],
)
def test_wrong_use_of_a_model(global_model, options, expected, capsys):
    np.savez("few.npz", X=X[:3])
    assert run("aggregate B.slot --site-models .") == 0
    capsys.readouterr()
    assert re.search(expected, error_of(f"predict {options} -o out.csv", capsys))
    assert not Path("out.csv").exists()


# -------------------------------------------------------------------- inspect


def test_inspect_says_what_is_in_a_file_and_what_is_not(server, capsys):
    assert run("inspect A.slot") == 0
    printed = capsys.readouterr().out
    n_bytes = Path("A.slot").stat().st_size
    assert printed.startswith(f"A.slot: {n_bytes:,} bytes in float32, format 2, skslot")
    assert "mean of each class" in printed
    assert "Not in it: rows" in printed


def test_inspect_refuses_damage(server, capsys):
    data = bytearray(Path("A.slot").read_bytes())
    data[-1] ^= 1
    Path("A.slot").write_bytes(data)
    assert "A.slot: the checksum is wrong" in error_of("inspect A.slot", capsys)
