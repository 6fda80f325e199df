"""Columns of tables at the command line: what is sent, and what does not fit."""

import csv
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from four_sites import CLIENTS, NAMES, SITES, X, Y, error_of, run, write_table

from skslot.exchange import fingerprint_names, load_message

COLUMNS = "--labels diagnosis --id-column patient"


@pytest.fixture
def hospital(tmp_path, monkeypatch):
    """A folder with a table of client A: numbers of patients, and a diagnosis."""
    monkeypatch.chdir(tmp_path)
    write_table("hospital.csv", patient=np.arange(np.sum(CLIENTS == "A")))
    return tmp_path


@pytest.fixture(scope="module")
def _sent(tmp_path_factory):
    """What all sites sent, and the model of it."""
    folder = tmp_path_factory.mktemp("sent")
    for site in SITES:
        table, patient = f"{folder}/table.csv", np.arange(np.sum(CLIENTS == site))
        write_table(table, site, patient=patient)
        command = f"summarize {table} --client {site} {COLUMNS} --min-samples 1"
        assert run(f"{command} -o {folder}/{site}.slot") == 0
    assert run(f"aggregate {folder}/?.slot --model {folder}/global.slot") == 0
    return folder


@pytest.fixture
def model(hospital, _sent):
    """The same with a model of all sites."""
    return shutil.copytree(_sent, hospital, dirs_exist_ok=True)


PREDICT = "predict hospital.csv --model global.slot --statistics A.slot -o out.csv"


def test_nothing_is_sent_of_patients_and_diagnoses_unseen(hospital, capsys):
    error = error_of("summarize hospital.csv --client A -o A.slot", capsys)
    assert "'diagnosis' looks like labels" in error
    assert "'patient' looks like an identifier" in error
    assert "--labels diagnosis --id-column patient" in error
    assert not Path("A.slot").exists()
    assert run(f"summarize hospital.csv --client A {COLUMNS} -o A.slot") == 0
    assert fingerprint_names(load_message("A.slot").encoder) == NAMES


def test_features_are_named_by_patterns_and_names(hospital, capsys):
    command = "summarize hospital.csv --features *ight age --client A -o A.slot"
    assert run(command) == 0
    assert "3 features: weight, height, age\n" in capsys.readouterr().out
    command = "summarize hospital.csv --client A --features age --features dose"
    assert run(f"{command} --labels diagnosis -o B.slot") == 0
    assert "2 features: age, dose\n" in capsys.readouterr().out
    command = "summarize hospital.csv --client A --features age patient -o C.slot"
    assert run(command) == 0  # somebody wants it
    assert load_message("C.slot").n_features == 2


def test_all_names_are_printed_however_many(hospital, capsys):
    names = [f"a-long-name-of-a-feature-{k}" for k in range(50)]
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(20, 50)), columns=names)
    frame.to_csv("wide.csv", index=False)
    for command in (
        "summarize wide.csv --client A -o A.slot",
        "plan wide.csv -o A.toml",
    ):
        assert run(command) == 0
        out = capsys.readouterr().out
        assert [name for name in names if name not in out] == []
        assert max(map(len, out.splitlines())) <= 88


def test_identifiers_stand_beside_predictions(model):
    assert run(f"{PREDICT} {COLUMNS}") == 0
    with open("out.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["patient"]) for row in rows] == list(range(len(rows)))
    assert {"row", "diagnosis", "prediction"} < rows[0].keys()


@pytest.mark.parametrize(
    ("changes", "columns", "words"),
    [
        (
            {"blood": np.linspace(0, 1, np.sum(CLIENTS == "A"))},
            COLUMNS,
            [
                "has columns ['blood'] that global.slot has not.",
                "Use --features age weight height pulse dose score, or a plan",
            ],
        ),
        (
            {"columns": NAMES[1:]},
            COLUMNS,
            ["lacks columns ['age'] of global.slot.", "must be renamed"],
        ),
        (
            {},
            f"{COLUMNS} --ignore age",
            [
                "lacks columns ['age']",
                "['age'] are in the file, but excluded",
                "--ignore",
            ],
        ),
        (
            {"columns": NAMES[::-1]},
            COLUMNS,
            [
                "has the columns of global.slot in another order, ['score', 'dose'",
                "Use --features age weight height pulse dose score, or",
            ],
        ),
        (
            {"columns": NAMES[:5], "points": X[CLIENTS == "A", 5]},
            COLUMNS,
            [
                "has columns ['points'] that global.slot has not and lacks columns "
                "['score'] of global.slot.",
                "must be renamed",
            ],
        ),
    ],
)
def test_columns_that_do_not_fit_the_model_are_named(
    model, changes, columns, words, capsys
):
    patient = np.arange(np.sum(CLIENTS == "A"))
    write_table("hospital.csv", patient=patient, **changes)
    capsys.readouterr()
    for command in (
        PREDICT,
        "align hospital.csv --reference global.slot --client A -o out.npz",
        "adapt hospital.csv --model global.slot --client A -o out.slot",
    ):
        error = error_of(f"{command} {columns}", capsys)
        assert "hospital.csv does not fit global.slot: they have different col" in error
        assert [each for each in words if each not in error] == []


def test_the_remedy_for_another_order_works(model):
    write_table("hospital.csv", columns=NAMES)
    assert run(f"{PREDICT} --labels diagnosis") == 0
    expected = Path("out.csv").read_text().splitlines()
    write_table("hospital.csv", columns=NAMES[::-1])
    command = f"{PREDICT} --force --labels diagnosis --features {' '.join(NAMES)}"
    assert run(command) == 0
    assert Path("out.csv").read_text().splitlines() == expected


def test_features_of_an_unknown_origin_are_listed_if_they_are_too_many(model, capsys):
    for site in SITES:
        write_table("table.csv", site)
        command = "summarize table.csv --labels diagnosis --encoder v1 --min-samples 1"
        assert run(f"{command} --client {site} --force -o {site}.slot") == 0
    assert run("aggregate ?.slot --model global.slot --force") == 0
    capsys.readouterr()
    command = f"{PREDICT} {COLUMNS} --ignore age --encoder v1"
    error = error_of(command, capsys)
    assert "it has 5 features, and global.slot has 6. Its columns are" in error
    assert "['weight', 'height', 'pulse', 'dose', 'score']. --features" in error


def test_server_names_columns_that_sites_do_not_share(model, capsys):
    write_table("table.csv", "B", NAMES[1:], patient=np.arange(np.sum(CLIENTS == "B")))
    command = f"summarize table.csv --client B {COLUMNS} --min-samples 1 --force"
    assert run(f"{command} -o B.slot") == 0
    capsys.readouterr()
    error = error_of("aggregate ?.slot --model other.slot", capsys)
    assert "B.slot lacks columns ['age'] of A.slot" in error
    assert "--features" in error


def test_sites_are_a_column_of_any_name(hospital, capsys):
    table = pd.DataFrame(X, columns=NAMES).assign(hospital=CLIENTS, diagnosis=Y)
    table.to_csv("all.csv", index=False)
    command = "summarize all.csv --client C --labels diagnosis --min-samples 1"
    assert "--client-column hospital" in error_of(f"{command} -o C.slot", capsys)
    assert run(f"{command} --client-column hospital -o C.slot") == 0
    assert load_message("C.slot").counts.sum() == np.sum(CLIENTS == "C")
    command = "plan all.csv --labels diagnosis --client-column hospital -o all.toml"
    assert run(command) == 0
    follow = "--client-column hospital --plan all.toml --min-samples 1"
    assert run(f"summarize all.csv --client C {follow} -o D.slot") == 0
    assert load_message("D.slot").counts.sum() == np.sum(CLIENTS == "C")


def test_bench_and_report_read_tables_by_the_same_rules(hospital, capsys):
    table = pd.DataFrame(X, columns=NAMES).assign(hospital=CLIENTS, diagnosis=Y)
    table.assign(patient=np.arange(len(X))).to_csv("all.csv", index=False)
    bench = "bench methods --features all.csv --methods fedcof --runs 1 --alphas none"
    report = "report all.csv -o page.html --tau 0"
    for command in (bench, report):
        error = error_of(command, capsys)
        assert "'patient' looks like an identifier" in error
        assert "--columns in bench" in error
    columns = "--labels diagnosis --client-column hospital"
    assert run(f"{bench} --columns age weight {columns}") == 0


def test_plan_says_which_columns_are_features(hospital, capsys):
    assert run(f"plan hospital.csv {COLUMNS} --features a* dose -o a.toml") == 0
    assert "2 features: age, dose" in capsys.readouterr().out
    command = "summarize hospital.csv --plan a.toml --client A --features age -o A.slot"
    assert "leave --features out" in error_of(command, capsys)
    command = "summarize hospital.csv --plan a.toml --client A --id-column patient"
    assert run(f"{command} --min-samples 1 -o A.slot") == 0
    write_table("hospital.csv", columns=NAMES[1:])
    error = error_of(f"{command} -o B.slot", capsys)
    assert "lacks columns of the plan: ['age']" in error
    assert "Rename those that are called otherwise" in error


def test_missing_values_and_text_lead_to_a_plan(hospital, capsys):
    write_table("hospital.csv", sex=np.resize(["f", "m"], np.sum(CLIENTS == "A")))
    command = "summarize hospital.csv --client A --labels diagnosis -o A.slot"
    error = error_of(command, capsys)
    assert "column 'sex': 'f' is no number" in error
    assert "skslot plan makes columns of categories" in error
    Path("hospital.csv").write_text("age,dose\n50,1\n,2\n")
    error = error_of("summarize hospital.csv --client A -o A.slot", capsys)
    assert "let skslot plan say what stands for them" in error


def test_columns_joined_by_a_comma_are_told_apart(hospital, capsys):
    command = "summarize hospital.csv --client A --ignore patient,diagnosis -o A.slot"
    error = error_of(command, capsys)
    assert "has no column 'patient,diagnosis', but ['patient', 'diagnosis']" in error
    assert "--ignore patient --ignore diagnosis" in error
    command = "summarize hospital.csv --client A --features age,dose -o A.slot"
    error = error_of(command, capsys)
    assert "at the command line as --features age dose, with spaces between" in error
    assert "--ignore" not in error


def test_a_second_name_after_ignore_gets_a_hint(hospital, capsys):
    for option in ("--ignore", "--id-column"):
        command = f"summarize hospital.csv --client A {option} patient diagnosis"
        with pytest.raises(SystemExit):
            run(f"{command} -o A.slot")
        error = capsys.readouterr().err
        assert f"diagnosis ({option} takes one name and may be repeated: " in error
    with pytest.raises(SystemExit):
        run("summarize hospital.csv --client A --wrong -o A.slot")
    assert "repeated" not in capsys.readouterr().err


def test_what_the_model_names_is_taken_whatever_it_looks_like(hospital, capsys):
    """Who made the model has named it; here nobody has to name it again."""
    options = "--labels diagnosis --min-samples 1"
    for site in SITES:
        number = np.arange(np.sum(CLIENTS == site))
        write_table(f"{site}.csv", site, patient=number)
        command = f"summarize {site}.csv --client {site} {options} --features * patient"
        assert run(f"{command} -o {site}.slot") == 0
    assert run("aggregate ?.slot --model global.slot") == 0
    write_table("new.csv", patient=np.arange(np.sum(CLIENTS == "A")))
    command = "predict new.csv --model global.slot --statistics A.slot"
    assert run(f"{command} --ignore diagnosis -o out.csv") == 0
    command = "align new.csv --reference global.slot --client A --ignore diagnosis"
    assert run(f"{command} -o out.npz") == 0
    command = "adapt new.csv --model global.slot --client A --ignore diagnosis"
    assert run(f"{command} -o A-model.slot") == 0
    write_table("new.csv", visit=np.arange(np.sum(CLIENTS == "A")))
    command = "predict new.csv --model global.slot --statistics A.slot"
    error = error_of(f"{command} --ignore diagnosis -o other.csv", capsys)
    assert "'visit' looks like an identifier" in error


@pytest.mark.parametrize("name", ["columns", "fingerprint", "dataset", "X", "domains"])
def test_columns_may_be_called_like_what_the_reader_knows_of_files(model, name, capsys):
    values = [f"{name}{k}" for k in range(np.sum(CLIENTS == "A"))]
    frame = pd.read_csv("hospital.csv").drop(columns="patient")
    frame.assign(**{name: values}).to_csv("hospital.csv", index=False)
    option = f"--labels diagnosis --id-column {name}"
    assert run(f"{PREDICT} {option}") == 0
    assert pd.read_csv("out.csv")[name].tolist() == values
    assert run(f"plan hospital.csv {option} -o study.toml") == 0
    command = "summarize hospital.csv --plan study.toml --min-samples 1 --client A"
    assert run(f"{command} -o plan.slot") == 0
    error = error_of(f"{command} --ignore other -o plan2.slot", capsys)
    assert f"has no column 'other'; it has: diagnosis, {name}, age, " in error
    command = f"align hospital.csv {option} --client A --reference global.slot"
    error = error_of(f"{command} -o out.npz", capsys)
    assert f"has a column {name!r}, which means something else in .npz files" in error


def test_labels_may_be_in_a_column_that_the_reader_has_a_use_for(hospital, capsys):
    write_table("hospital.csv", columns=NAMES, fingerprint=Y[CLIENTS == "A"])
    options = "--labels fingerprint --ignore diagnosis --min-samples 1"
    assert run(f"summarize hospital.csv --client A {options} -o A.slot") == 0
    assert load_message("A.slot").classes == np.unique(Y[CLIENTS == "A"]).tolist()


def test_a_feature_of_the_plan_cannot_be_left_out(hospital, capsys):
    assert run(f"plan hospital.csv {COLUMNS} -o study.toml") == 0
    command = "summarize hospital.csv --plan study.toml --client A --ignore age"
    error = error_of(f"{command} -o A.slot", capsys)
    assert "column 'age' is a feature of the plan" in error


def test_warnings_name_columns_and_options(hospital, capsys):
    rng = np.random.default_rng(0)
    for site in SITES:
        frame = pd.DataFrame(
            {"age": rng.normal(50, 9, 40), "salt": rng.normal(9, 1, 40)}
        )
        frame["salt"] /= 1000 if site == "C" else 1
        frame.to_csv(f"{site}.csv", index=False)
    assert run("plan A.csv -o study.toml") == 0
    for site in SITES:
        command = f"summarize {site}.csv --plan study.toml --client {site} --scaling"
        assert run(f"{command} -o {site}.slot") == 0
    capsys.readouterr()
    assert run("plan --plan study.toml --scaling ?.slot -o scaled.toml") == 0
    error = capsys.readouterr().err
    assert "client 'C' stands out: its column 'salt' is about" in error
    assert "screen='exclude' drops the client. (option --screen)" in error
