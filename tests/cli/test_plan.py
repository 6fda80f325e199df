"""``skslot plan``, and the commands that follow a plan."""

import html
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from four_sites import error_of, run

from skslot.datasets import StudyPlan, load_features
from skslot.exchange import load_message
from skslot.experiments import FeatureSet

NOISE = "skslot.privacy._budget.opendp_noise"

SITES = {"A": 80, "B": 60, "C": 50}


@pytest.fixture
def study(tmp_path, monkeypatch):
    """A folder with tables of three sites, some values missing, and a plan."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for shift, (site, n) in enumerate(SITES.items()):
        ill = np.arange(n) % 3 == 0
        age = rng.normal(50 + 10 * ill, 8, n)
        chol = rng.normal(220 + 40 * ill + 20 * shift, 30, n)
        lines = ["patient,age,chol,sex,diagnosis"]
        for k in range(n):
            shown = "" if k % 9 == shift else f"{chol[k]:.1f}"
            label = "ill" if ill[k] else "healthy"
            lines.append(f"{k},{age[k]:.1f},{shown},{'fm'[k % 2]},{label}")
        Path(f"{site}.csv").write_text("\n".join(lines))
    assert run("plan A.csv --labels diagnosis --ignore patient -o study.toml") == 0
    return tmp_path


def summarize(plan="study.toml", options="", end=""):
    for site in SITES:
        command = f"summarize {site}.csv --plan {plan} --client {site} {options}"
        assert run(f"{command} -o {site}{end}.slot") == 0


def test_plan_is_drafted_and_all_features_are_named(study, capsys):
    draft = "plan A.csv --labels diagnosis --ignore patient -o study.toml --force"
    assert run(draft) == 0
    out = capsys.readouterr().out
    assert "4 features: age, chol, sex=f, sex=m" in out
    assert "labels: diagnosis: healthy, ill" in out
    assert "missing values, filled by the median of each site: chol" in out
    plan = StudyPlan.load("study.toml")
    assert plan == StudyPlan.draft("A.csv", label="diagnosis", ignore="patient")


def test_files_of_one_plan_make_a_model_that_predicts(study, capsys):
    summarize()
    assert "medians of this site, for missing values: chol " in capsys.readouterr().out
    assert run("aggregate ?.slot --model global.slot") == 0
    assert run("plan B.csv --plan study.toml --client B -o B.toml") == 0
    predict = "predict B.csv --model global.slot --statistics B.slot --labels"
    assert run(f"{predict} --plan B.toml -o B.predictions.csv") == 0
    out = capsys.readouterr().out
    assert "client B: 60 rows" in out
    accuracy = float(out.split("accuracy: ")[1].split("%")[0])
    assert accuracy > 70
    first = Path("B.predictions.csv").read_text().splitlines()[0]
    assert first.startswith("row,patient,diagnosis,prediction,probability_healthy")


def test_rows_of_all_sites_are_not_summarized_as_one_site(study, capsys):
    frames = [pd.read_csv(f"{site}.csv").assign(hospital=site) for site in SITES]
    pd.concat(frames).to_csv("all.csv", index=False)
    command = "summarize all.csv --plan study.toml --client B -o B.slot"
    assert "column 'hospital' names several sites" in error_of(command, capsys)
    assert run(f"{command} --client-column hospital") == 0
    assert load_message("B.slot").n_samples == SITES["B"]
    assert run(f"{command} --force --ignore hospital") == 0
    assert load_message("B.slot").n_samples == sum(SITES.values())


def test_plan_and_statistics_of_different_sites_are_refused(study, capsys):
    summarize()
    assert run("aggregate ?.slot --model global.slot") == 0
    assert run("plan B.csv --plan study.toml --client B -o B.toml") == 0
    command = "predict B.csv --plan B.toml --model global.slot --statistics A.slot"
    error = error_of(f"{command} -o B.predictions.csv", capsys)
    assert "A.slot is from client 'A', not from 'B'" in error


def test_later_rows_are_filled_by_the_medians_of_the_site(study, capsys):
    """Not by those of the rows at hand, which may be few."""
    summarize()
    assert run("aggregate ?.slot --model global.slot") == 0
    Path("new.csv").write_text("age,chol,sex\n61,,f\n")
    predict = "predict new.csv --model global.slot --statistics A.slot"
    error = error_of(f"{predict} --plan study.toml -o new.out.csv", capsys)
    assert "fills in the median of the site, which it does not know" in error
    assert run("plan A.csv --plan study.toml --client A -o A.toml") == 0
    assert run(f"{predict} --plan A.toml -o missing.csv") == 0
    median = next(c.median for c in StudyPlan.load("A.toml").columns if c.fill)
    Path("new.csv").write_text(f"age,chol,sex\n61,{median},f\n")
    assert run(f"{predict} --plan A.toml -o filled.csv") == 0
    assert Path("missing.csv").read_text() == Path("filled.csv").read_text()


def test_adapt_and_align_follow_the_plan(study, capsys):
    summarize()
    assert run("aggregate ?.slot --model global.slot") == 0
    options = "--client A --plan study.toml --statistics A.slot"
    assert run(f"adapt A.csv {options} --model global.slot -o A.model.slot") == 0
    assert run(f"align A.csv {options} --reference global.slot -o A.npz") == 0
    assert np.load("A.npz")["X"].shape == (80, 4)


def test_settings_are_those_of_the_plan_unless_given(study):
    text = Path("study.toml").read_text().replace('"float32"', '"float64"')
    Path("study.toml").write_text(text.replace('"mixed"', '"fedpft"'))
    summarize()
    summarize(options="--dtype float16 --method fedcgs", end=".other")
    assert type(load_message("A.slot")).__name__ == "ClassMixtures"
    assert type(load_message("A.other.slot")).__name__ == "ClassStatistics"
    sizes = [Path(f"{name}.slot").stat().st_size for name in ("A", "A.other")]
    assert sizes[0] > sizes[1]


def test_server_refuses_two_plans(study, capsys):
    summarize()
    text = Path("study.toml").read_text()
    for name, old, new in [
        ("fill", 'fill = "median"', "fill = 200.0"),
        ("width", 'unknown = "refuse"', 'unknown = "column"'),
    ]:
        assert old in text
        Path("other.toml").write_text(text.replace(old, new))
        command = "summarize C.csv --plan other.toml --client C --force -o C.slot"
        assert run(command) == 0
        error = error_of("aggregate ?.slot --model global.slot", capsys)
        assert "C.slot" in error, name
        assert "A.slot" in error
        assert "the same --plan" in error


def test_scaling_is_agreed_in_a_round_of_its_own(study, capsys):
    summarize(options="--scaling", end=".scaling")
    command = "plan --plan study.toml --scaling *.scaling.slot -o scaled.toml"
    assert run(command) == 0
    out = capsys.readouterr().out
    assert "clients: 3, rows: 190" in out
    assert "no client stands out" in out
    plan = StudyPlan.load("scaled.toml")
    assert [column.scale is None for column in plan.columns] == [False, False, True]
    summarize("scaled.toml")
    total = sum(
        load_message(f"{site}.slot").means.T @ load_message(f"{site}.slot").counts
        for site in SITES
    )
    np.testing.assert_allclose(total[:2] / 190, 0, atol=1e-6)
    command = "summarize A.csv --plan scaled.toml --client A --scaling -o new.slot"
    error = error_of(command, capsys)
    assert "scaled.toml has means and scales already" in error


@pytest.mark.parametrize("outliers", ["warn", "exclude"])
def test_site_in_other_units_is_seen_before_scaling_hides_it(outliers, study, capsys):
    lines = [line.split(",") for line in Path("C.csv").read_text().splitlines()]
    for line in lines[1:]:
        line[1] = f"{1000 * float(line[1]):.0f}"  # age
    Path("C.csv").write_text("\n".join(map(",".join, lines)))
    summarize(options="--scaling", end=".scaling")
    capsys.readouterr()
    command = "plan --plan study.toml --scaling *.scaling.slot -o scaled.toml"
    assert run(f"{command} --screen {outliers}") == 0
    out, error = capsys.readouterr()
    said = "was left out" if outliers == "exclude" else "stands out"
    assert f"client 'C' {said}: its features are about" in error
    assert "what each client adds:\nclient" in out
    assert "client 'C' stands out" in out
    assert ("clients: 2, rows: 140" in out) == (outliers == "exclude")
    age = StudyPlan.load("scaled.toml").columns[0]
    assert (age.scale < 15) == (outliers == "exclude")


def test_scaling_of_other_files_is_refused(study, capsys):
    summarize(end=".labels")
    command = "plan --plan study.toml --scaling {} -o scaled.toml"
    error = error_of(command.format("*.labels.slot"), capsys)
    assert "not what skslot summarize --scaling writes" in error
    assert "no file matches ?.none" in error_of(command.format("?.none"), capsys)
    summarize(options="--scaling", end=".scaling")
    text = Path("study.toml").read_text().replace('"refuse"', '"column"')
    Path("other.toml").write_text(text)
    summarize_c = "summarize C.csv --plan other.toml --client C --scaling --force"
    assert run(f"{summarize_c} -o C.scaling.slot") == 0
    error = error_of(command.format("*.scaling.slot"), capsys)
    assert "C.scaling.slot has columns ['sex=other'] that A.scaling.slot has" in error


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("plan -o new.toml", "give TABLE to draft a plan"),
        ("plan A.csv --plan study.toml -o new.toml", "give TABLE to draft a plan"),
        ("plan A.csv -o new.csv", "must end in .toml"),
        ("plan A.csv --labels ill -o new.toml", "has no column 'ill'"),
        ("plan A.npz -o new.toml", "a plan is for tables"),
        ("plan B.csv --plan B.toml --client C -o new.toml", "No such file"),
        ("summarize A.csv --client A --scaling -o new.slot", "--scaling is for a plan"),
        (
            "summarize A.csv --plan study.toml --client A --encoder x -o new.slot",
            "study.toml defines the features: leave --encoder out",
        ),
        (
            "summarize A.csv --plan study.toml --client A --labels sex -o new.slot",
            "which --labels sex contradicts",
        ),
        (
            "summarize A.csv --plan study.toml --client A -o study.toml --force",
            "study.toml is read as an input and would be overwritten",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(study, command, expected, capsys):
    np.savez("A.npz", X=np.ones((3, 3)))
    assert expected in error_of(command, capsys)
    assert not list(study.glob("new.*"))


def test_plan_of_another_site_is_refused(study, capsys):
    assert run("plan A.csv --plan study.toml --client A -o A.toml") == 0
    error = error_of("summarize B.csv --plan A.toml --client B -o B.slot", capsys)
    assert "A.toml is the plan of client 'A', with its medians, not of 'B'" in error


def test_unknown_method_in_a_plan_is_refused(study, capsys):
    text = Path("study.toml").read_text().replace('"mixed"', '"magic"')
    Path("study.toml").write_text(text)
    error = error_of("summarize A.csv --plan study.toml --client A -o A.slot", capsys)
    assert "study.toml: method must be one of mixed, fedcgs" in error


def test_model_and_table_must_be_of_the_same_plan(study, capsys):
    summarize()
    assert run("aggregate ?.slot --model global.slot") == 0
    predict = "predict A.csv --model global.slot --client A -o new.csv"
    columns = "--ignore patient --ignore sex --ignore chol --ignore diagnosis"
    error = error_of(f"{predict} {columns}", capsys)
    assert "--plan FILE.toml" in error
    assert error_of(predict, capsys) == error  # whatever else the columns look like
    text = Path("study.toml").read_text().replace('fill = "median"', "fill = 200.0")
    Path("other.toml").write_text(text)
    error = error_of(f"{predict} --plan other.toml", capsys)
    assert "was made by another --plan" in error


def test_model_without_a_plan_wants_none(study, capsys):
    Path("study.toml").write_text(
        Path("study.toml").read_text().replace('fill = "median"', "fill = 200.0")
    )
    columns = "--ignore patient --ignore sex --ignore chol --labels diagnosis"
    for site in SITES:
        command = f"summarize {site}.csv --client {site} {columns} -o {site}.slot"
        assert run(command) == 0
    assert run("aggregate ?.slot --model global.slot") == 0
    predict = "predict A.csv --model global.slot --client A --plan study.toml"
    error = error_of(f"{predict} -o new.csv", capsys)
    assert "was made without a plan; omit --plan" in error


PRIVACY = "--epsilon 3 --delta 1e-5 --clip 300"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("", "fills chol with medians of the site"),
        ("--scaling", "--scaling has no guarantee of differential privacy"),
    ],
)
def test_what_depends_on_other_rows_is_refused_with_noise(
    study, monkeypatch, capsys, options, words
):
    monkeypatch.setenv("XDG_STATE_HOME", str(study))
    command = f"summarize A.csv --plan study.toml --client A {PRIVACY} {options}"
    assert words in error_of(f"{command} -o A.slot", capsys)


def test_means_and_scales_of_rows_are_refused_with_noise(study, monkeypatch, capsys):
    monkeypatch.setenv("XDG_STATE_HOME", str(study))
    text = Path("study.toml").read_text().replace('fill = "median"', "fill = 220.0")
    Path("study.toml").write_text(text)
    summarize(options="--scaling", end=".scaling")
    assert run("plan --plan study.toml --scaling *.scaling.slot -o scaled.toml") == 0
    command = f"summarize A.csv --plan scaled.toml --client A {PRIVACY} -o A.slot"
    error = error_of(command, capsys)
    assert "scaled.toml has means and scales that were computed from rows" in error
    # the same numbers, if everybody knew them before
    marked = Path("scaled.toml").read_text().splitlines()
    agreed = [line for line in marked if not line.startswith("scaling = ")]
    assert len(agreed) == len(marked) - 1
    Path("scaled.toml").write_text("\n".join(agreed))
    with patch(NOISE, lambda numbers, scale: numbers):
        assert run(command) == 0


def test_classes_of_the_plan_are_those_of_a_release(study, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(study))
    text = Path("study.toml").read_text().replace('fill = "median"', "fill = 220.0")
    Path("study.toml").write_text(text)
    command = f"summarize A.csv --plan study.toml --client A {PRIVACY} -o A.slot"
    with patch(NOISE, lambda numbers, scale: numbers):
        assert run(command) == 0
    message = load_message("A.slot")
    assert message.classes == ["healthy", "ill"]
    assert message.privacy["epsilon"] == 3


def test_privacy_is_that_of_the_plan_unless_given(study, monkeypatch, capsys):
    monkeypatch.setenv("XDG_STATE_HOME", str(study))
    text = Path("study.toml").read_text().replace('fill = "median"', "fill = 220.0")
    for name in ("epsilon", "delta", "clip"):
        text = text.replace(f"# {name} =", f"{name} =")
    Path("study.toml").write_text(text)
    command = "summarize A.csv --plan study.toml --client A"
    with patch(NOISE, lambda numbers, scale: numbers):
        assert run(f"{command} -o A.slot") == 0
        assert (
            "epsilon 3, delta 1e-05, rows clipped to norm 1;" in capsys.readouterr().out
        )
        assert run(f"{command} --clip 300 --epsilon 1 --again -o B.slot") == 0
    assert load_message("A.slot").privacy["clip_norm"] == 1.0
    assert load_message("B.slot").privacy["epsilon"] == 1.0
    error = error_of(f"{command} --scaling -o C.slot", capsys)
    assert "--scaling has no guarantee of differential privacy" in error


# ------------------------------------------------------------- rows of all sites


@pytest.fixture
def joined(study):
    """The same with the rows of all sites in one table."""
    tables = [pd.read_csv(f"{site}.csv").assign(hospital=site) for site in SITES]
    pd.concat(tables).sample(frac=1, random_state=0).to_csv("joined.csv", index=False)
    options = "--labels diagnosis --id-column patient --client-column hospital"
    assert run(f"plan joined.csv {options} -o joined.toml") == 0
    return study


def test_each_site_of_a_joined_table_has_its_own_medians(joined):
    data = FeatureSet.from_file("joined.csv", plan="joined.toml")
    plan = StudyPlan.load("joined.toml")
    for site, n_rows in SITES.items():
        mine = load_features(f"{site}.csv", plan=plan.at_site(f"{site}.csv", site))
        rows = np.flatnonzero(data.client_ids == site)
        assert len(rows) == n_rows
        found, expected = (
            sorted(zip(X.tolist(), y.tolist(), strict=True))
            for X, y in [(data.X[rows], data.y[rows]), (mine.X, mine.y)]
        )
        assert found == expected


def test_medians_of_a_joined_table_are_those_of_training_rows(joined):
    table = pd.read_csv("joined.csv")
    is_test = np.arange(len(table)) % 2 == 0
    table["split"] = np.where(is_test, "test", "train")
    table.loc[is_test & table["chol"].notna(), "chol"] = 9e9
    table.to_csv("split.csv", index=False)
    data = FeatureSet.from_file("split.csv", plan="joined.toml")
    filled = data.X[table["chol"].isna(), 1]
    assert len(filled)
    assert filled.max() < 1000


def test_site_without_any_value_is_named(joined):
    table = pd.read_csv("joined.csv")
    table.loc[table["hospital"] == "B", "chol"] = np.nan
    table.to_csv("gap.csv", index=False)
    words = "gap.csv, client 'B': column 'chol' has no value at all"
    with pytest.raises(ValueError, match=words):
        FeatureSet.from_file("gap.csv", plan="joined.toml")


def test_diagnose_follows_a_plan_and_its_code_reads_by_it(joined, capsys):
    error = error_of("diagnose joined.csv --labels diagnosis", capsys)
    assert "looks like" in error
    options = "--labels diagnosis --id-column patient --client-column hospital"
    assert "skslot plan" in error_of(f"diagnose joined.csv {options}", capsys)
    assert run("diagnose joined.csv --plan joined.toml") == 0
    out = capsys.readouterr().out
    assert "3 clients, 190 rows, 4 features, 2 classes" in out
    assert "FeatureSet.from_file('joined.csv', plan='joined.toml')" in out


@pytest.mark.usefixtures("words_only")
def test_report_follows_a_plan_and_its_code_names_no_folder(joined):
    pytest.importorskip("matplotlib").use("Agg")
    plan = Path("joined.toml").resolve()
    assert run(f"report joined.csv --plan {plan} --tau 0 -o page.html") == 0
    page = html.unescape(Path("page.html").read_text())
    assert "FeatureSet.from_file('joined.csv', plan='joined.toml')" in page
    assert str(plan.parent) not in page


def test_noise_that_a_plan_adds_later_is_told_of_before(joined, capsys):
    text = Path("joined.toml").read_text().replace('fill = "median"', "fill = 220.0")
    for name in ("epsilon", "delta", "clip"):
        text = text.replace(f"# {name} =", f"{name} =")
    Path("noise.toml").write_text(text)
    capsys.readouterr()
    assert run("diagnose joined.csv --plan noise.toml") == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("skslot: warning: noise.toml makes sites clip rows to ")
    assert "noise (epsilon 3), which is not done here" in line


@pytest.mark.parametrize(
    "command", ["diagnose joined.csv", "report joined.csv -o p.html"]
)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--features age", "leave --features out"),
        (
            "--labels sex",
            "which --labels sex contradicts",
        ),
        ("--plan B.toml", "B.toml is the plan of client 'B', with its medians: take"),
        ("--ignore age", "'age' is a feature of the plan"),
    ],
)
def test_what_contradicts_the_plan_is_refused(joined, command, options, words, capsys):
    assert run("plan B.csv --plan joined.toml --client B -o B.toml") == 0
    capsys.readouterr()
    assert words in error_of(f"{command} --plan joined.toml {options}", capsys)


def test_messages_need_no_plan(joined, capsys):
    summarize()
    capsys.readouterr()
    error = error_of("report A.slot B.slot --plan study.toml -o page.html", capsys)
    assert "--plan is about columns of features" in error


# ----------------------------------------------------------------- what drafts say


def test_gap_at_another_site_is_agreed_on_from_the_start(study, capsys):
    table = pd.read_csv("B.csv")
    table.loc[3, "age"] = np.nan
    table.to_csv("D.csv", index=False)
    command = "summarize D.csv --client D -o D.slot --plan"
    error = error_of(f"{command} study.toml", capsys)
    assert "values of ['age'] are missing" in error
    assert "skslot plan --fill median" in error
    draft = "plan A.csv --labels diagnosis --ignore patient -o filled.toml --fill"
    assert run(f"{draft} median") == 0
    out = capsys.readouterr().out
    assert "filled by the median of each site: age, chol\n" in out
    assert "may miss more" not in out
    assert run(f"{command} filled.toml") == 0
    assert run(f"{draft} -1.5 --force") == 0
    assert "filled by -1.5: age, chol\n" in capsys.readouterr().out
    assert [c.fill for c in StudyPlan.load("filled.toml").columns] == [-1.5, -1.5, None]
    with pytest.raises(SystemExit):
        run(f"{draft} mean --force")
    assert "'mean' is not a number or median" in capsys.readouterr().err
    command = "plan A.csv --plan study.toml --client A --fill median -o A.toml"
    assert "--fill is for a draft" in error_of(command, capsys)


def test_spellings_and_small_classes_are_warned_of(study, capsys):
    table = pd.read_csv("A.csv", keep_default_na=False)
    table.loc[:3, "diagnosis"] = "Ill"
    table.loc[4:6, "sex"] = "F"
    table.to_csv("A.csv", index=False)
    capsys.readouterr()
    assert run("plan A.csv --labels diagnosis --ignore patient -o warned.toml") == 0
    first, second, third = capsys.readouterr().err.splitlines()
    assert "warning: 'Ill' and 'ill' in column 'diagnosis' are different" in first
    assert "warning: 'F' and 'f' in column 'sex' are different" in second
    assert "warning: A.csv: Ill with 4 rows: a site sends no class with fewer" in third
    assert "--drop-small-classes" in third


def test_honest_labels_are_not_warned_of(study, capsys):
    capsys.readouterr()
    assert run("plan B.csv --labels diagnosis --ignore patient -o quiet.toml") == 0
    assert capsys.readouterr().err == ""
