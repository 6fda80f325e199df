"""Plans: the same features at all sites, from tables that differ."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from skslot import FederatedScaler
from skslot.datasets import StudyPlan, load_features

TABLE = """\
patient,age,chol,pain,diagnosis
p1,50,230,mild,ill
p2,60,,severe,healthy
p3,71.5,250,mild,ill
p4,44,210,none,healthy
"""


NOISE = "epsilon = 3.0\ndelta = 1e-5\nclip = 1.0"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("A.csv").write_text(TABLE)
    return tmp_path


@pytest.fixture
def plan(folder):
    return StudyPlan.draft("A.csv", label="diagnosis", ignore="patient")


def column(plan, name, **changes):
    """The plan with another rule for a column."""
    columns = [replace(c, **changes) if c.name == name else c for c in plan.columns]
    return replace(plan, columns=tuple(columns))


def test_draft_says_what_the_table_has(plan):
    assert plan.feature_names == [
        "age",
        "chol",
        "pain=mild",
        "pain=none",
        "pain=severe",
    ]
    assert [c.fill for c in plan.columns] == [None, "median", None]
    assert (plan.label, plan.classes) == ("diagnosis", ("healthy", "ill"))
    assert plan.client is None


def test_features_are_those_of_scikit_learn(plan):
    table = load_features("A.csv", plan=plan.at_site("A.csv", "A"))
    numbers = [[50, 230], [60, np.nan], [71.5, 250], [44, 210]]
    filled = SimpleImputer(strategy="median").fit_transform(numbers)
    pain = [["mild"], ["severe"], ["mild"], ["none"]]
    shown = OneHotEncoder(sparse_output=False).fit_transform(pain)
    np.testing.assert_array_equal(table.X, np.hstack([filled, shown]))
    assert table.y.tolist() == ["ill", "healthy", "ill", "healthy"]
    assert table.encoder == plan.fingerprint
    assert table.feature_names == plan.feature_names
    assert table.others["patient"].tolist() == ["p1", "p2", "p3", "p4"]


@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_format_of_the_table_makes_no_difference(plan, kind):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.read_csv("A.csv")
    getattr(frame, f"to_{kind}")(f"A.{kind}")
    plan = plan.at_site("A.csv", "A")
    found = load_features(f"A.{kind}", plan=plan)
    expected = load_features("A.csv", plan=plan)
    np.testing.assert_array_equal(found.X, expected.X)
    np.testing.assert_array_equal(found.y, expected.y)


def test_order_of_columns_and_others_make_no_difference(plan):
    plan = plan.at_site("A.csv", "A")
    expected = load_features("A.csv", plan=plan)
    lines = [line.split(",")[::-1] for line in TABLE.splitlines()]
    text = "\n".join(",".join([*line, str(k)]) for k, line in enumerate(lines))
    Path("other.csv").write_text(text.replace(",0\n", ",extra\n", 1))
    found = load_features("other.csv", plan=plan)
    np.testing.assert_array_equal(found.X, expected.X)
    assert found.encoder == expected.encoder


def test_medians_are_of_the_training_rows_of_the_site(plan):
    lines = [
        "age,chol,pain,diagnosis,client,split",
        "50,1,mild,ill,A,train",
        "50,3,mild,ill,A,train",
        "50,100,mild,ill,A,test",
        "50,1000,mild,ill,B,train",
        "50,,mild,ill,A,train",
    ]
    Path("both.csv").write_text("\n".join(lines))
    at_site = plan.at_site("both.csv", "A")
    assert at_site.client == "A"
    assert [c.median for c in at_site.columns] == [None, 2.0, None]
    assert load_features("both.csv", plan=at_site).of_client("A").X[-1, 1] == 2.0
    assert at_site.fingerprint == plan.fingerprint
    all_sites = plan.load_sites("both.csv")
    assert all_sites.of_client("A").X[-1, 1] == 2.0
    assert all_sites.encoder == plan.fingerprint


def test_median_of_other_rows_is_not_taken(plan):
    with pytest.raises(ValueError, match="'chol' misses 1 of 4 values.*at_site"):
        load_features("A.csv", plan=plan)


def test_column_without_any_value_has_no_median(plan):
    Path("B.csv").write_text("age,chol,pain,diagnosis\n50,,mild,ill\n")
    with pytest.raises(ValueError, match="'chol' has no value at all"):
        plan.at_site("B.csv", "B")


@pytest.mark.parametrize("text", ["", "?", "NA", "nan"])
def test_missing_values_are_filled_by_a_constant(plan, text):
    Path("B.csv").write_text(f"age,chol,pain\n50,{text},mild\n")
    filled = load_features("B.csv", plan=column(plan, "chol", fill=246.0), labels=False)
    assert filled.X.tolist() == [[50, 246, 1, 0, 0]]


@pytest.mark.parametrize(
    ("cell", "changes", "expected"),
    [
        ("worst", {"unknown": "column"}, [0, 0, 0, 1]),
        ("", {"unknown": "column"}, [0, 0, 0, 1]),
        ("", {"fill": "none"}, [0, 1, 0]),
        ("2", {"categories": ("1", "2")}, [0, 1]),
        ("2.0", {"categories": ("1", "2")}, [0, 1]),
        ("NA", {"categories": ("NA", "mild")}, [1, 0]),
    ],
)
def test_categories_become_columns(plan, cell, changes, expected):
    Path("B.csv").write_text(f"age,chol,pain\n50,230,{cell}\n")
    table = load_features("B.csv", plan=column(plan, "pain", **changes), labels=False)
    assert table.X[0, 2:].tolist() == expected
    assert len(table.feature_names) == 2 + len(expected)


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ("50,230,worst,ill", "row 1, column 'pain': 'worst' is not among the"),
        ("50,230,,ill", "row 1, column 'pain': a missing value is not among"),
        ("old,230,mild,ill", "row 1, column 'age': 'old' is no number"),
        (",230,mild,ill", r"values of \['age'\] are missing, and the plan has no fill"),
        ("NAN,230,mild,ill", r"values of \['age'\] are missing"),
        ("50,230,mild,dead", r"labels \['dead'\] are not among the classes"),
    ],
)
def test_what_the_plan_does_not_foresee_is_refused(plan, line, match):
    Path("B.csv").write_text(f"age,chol,pain,diagnosis\n{line}\n")
    with pytest.raises(ValueError, match=f"B.csv: {match}"):
        load_features("B.csv", plan=plan)


def test_table_that_lacks_a_column_is_refused(plan):
    Path("B.csv").write_text("age,pain,diagnosis\n50,mild,ill\n")
    with pytest.raises(ValueError, match=r"lacks columns of the plan: \['chol'\]"):
        load_features("B.csv", plan=plan)


def test_new_rows_without_labels_say_how_they_are_read(plan):
    Path("new.csv").write_text("patient,age,chol,pain\np5,50,230,mild\n")
    with pytest.raises(ValueError, match="leave --labels out.* labels=False"):
        load_features("new.csv", plan=plan)
    assert load_features("new.csv", plan=plan, labels=False).y is None
    with pytest.raises(ValueError, match="no column 'nothing'; it has: .*age"):
        load_features("new.csv", plan=plan, labels=False, ignore="nothing")


def test_features_of_an_encoder_need_no_plan(plan):
    np.savez("A.npz", X=np.ones((3, 3)))
    with pytest.raises(ValueError, match="a plan is for tables, .csv, .parquet"):
        load_features("A.npz", plan=plan)


def test_all_values_that_are_no_category_are_named(folder):
    Path("B.csv").write_text("age,sex\n50,f\n60,m\n70,f\n")
    drafted = StudyPlan.draft("B.csv")
    Path("C.csv").write_text("age,sex\n50,f\n60,x\n70,diverse\n80,x\n")
    words = r"row 2, column 'sex': 'x' is not .* Nor are \['diverse'\] in later rows"
    with pytest.raises(ValueError, match=words):
        load_features("C.csv", plan=drafted)


def test_text_that_is_no_category_is_refused(folder):
    rows = "\n".join(f"{k % 9},name{k // 2}" for k in range(60))
    Path("B.csv").write_text(f"age,note\n{rows}\n")
    words = r"'note' has 30 different values, .* \['name0', 'name1', 'name10', \.\.\."
    with pytest.raises(ValueError, match=rf"{words}.*ignore"):
        StudyPlan.draft("B.csv")
    rows = "\n".join(f"{100 + k},5" if k % 9 else "<100,4" for k in range(60))
    Path("B.csv").write_text(f"crp,age\n{rows}\n")
    with pytest.raises(ValueError, match=r"'crp' .*\['<100'\] are no numbers"):
        StudyPlan.draft("B.csv")


def test_empty_column_is_said_to_be_empty(folder):
    Path("B.csv").write_text("age,note\n50,\n60,NA\n")
    with pytest.raises(ValueError, match="column 'note' is empty.*ignore"):
        StudyPlan.draft("B.csv")


@pytest.mark.parametrize(
    "copy", [lambda ill: "no yes".split()[ill], lambda ill: 7.5 - ill, str]
)
@pytest.mark.parametrize("gap", [None, 3])
def test_copy_of_the_labels_is_refused_by_whatever_names(folder, copy, gap):
    ill = [k % 3 == 0 for k in range(30)]
    lines = [
        f"{50 + k % 7},{'' if k == gap else copy(each)},{int(each)}"
        for k, each in enumerate(ill)
    ]
    Path("B.csv").write_text("\n".join(["age,sick,diagnosis", *lines]))
    words = "column 'sick' says the same as the labels, .* give them away.*ignore"
    with pytest.raises(ValueError, match=words):
        StudyPlan.draft("B.csv", label="diagnosis")
    plan = StudyPlan.draft("B.csv", label="diagnosis", features=["age", "sick"])
    assert plan.feature_names[0] == "age"
    assert StudyPlan.draft("B.csv", label="diagnosis", ignore="sick").classes == (0, 1)


def test_copy_of_the_labels_is_seen_through_their_spellings(folder):
    spellings = ["ill", "Healthy", "healthy", "ILL", "healthy", "healthy "]
    lines = [
        f"{50 + k % 7},{int(k % 3 == 0)},{spellings[k % 6]},{spellings[k % 6]}"
        for k in range(30)
    ]
    Path("B.csv").write_text("\n".join(["age,sick,seen,diagnosis", *lines]))
    with pytest.raises(ValueError, match="'sick' says the same as the labels, "):
        StudyPlan.draft("B.csv", label="diagnosis")
    with pytest.raises(ValueError, match="'seen' has the same values as the labels"):
        StudyPlan.draft("B.csv", label="diagnosis", ignore="sick")


def test_column_that_only_goes_with_the_labels_is_a_feature(folder):
    lines = [f"{k % 3},{k % 4},{int(k % 3 == 0)}" for k in range(30)]
    Path("B.csv").write_text("\n".join(["stage,arm,ill", *lines]))
    assert StudyPlan.draft("B.csv", label="ill").feature_names == ["stage", "arm"]


@pytest.mark.parametrize("fill", ["median", 0.0])
def test_fill_is_agreed_on_for_all_numbers(folder, fill):
    plan = StudyPlan.draft("A.csv", label="diagnosis", ignore="patient", fill=fill)
    assert [c.fill for c in plan.columns] == [fill, fill, None]
    Path("B.csv").write_text(TABLE.replace("60,,", ",,"))
    X = load_features("B.csv", plan=plan.at_site("B.csv", "B")).X
    assert X[1, 0] == (50 if fill == "median" else 0)


def test_fill_that_is_none_is_refused(folder):
    with pytest.raises(ValueError, match="'age': fill must be a number or 'median'"):
        StudyPlan.draft("A.csv", label="diagnosis", ignore="patient", fill="mean")


def test_plan_may_be_named_by_its_file(plan):
    plan = plan.at_site("A.csv", "A")
    plan.save("A.toml")
    table = load_features("A.csv", plan="A.toml")
    np.testing.assert_array_equal(table.X, load_features("A.csv", plan=plan).X)
    with pytest.raises(ValueError, match="A.csv is no plan of a study"):
        load_features("A.csv", plan="A.csv")


# --------------------------------------------------------------------------- files


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"client": "A", "encoder": 'a "device"', "dtype": "float64", "min_samples": 3},
        {"label": None, "classes": ()},
        {"classes": (0, 1, 2)},
        {"scaling": "from rows"},
        {"epsilon": 3.0, "delta": 1e-5, "clip": 1},
        {"classes": ("\x7f\n\t\\", "ü 😀")},
    ],
)
def test_plan_comes_back_from_its_file(plan, changes):
    plan = column(replace(plan, **changes), "chol", mean=1 / 3, scale=1e-7, median=2.0)
    plan.save("study.toml")
    assert StudyPlan.load("study.toml") == plan
    assert StudyPlan.load("study.toml").fingerprint == plan.fingerprint


@pytest.mark.parametrize(
    "changes",
    [
        {"label": "ill"},
        {"classes": ("healthy", "ill", "dead")},
        {"encoder": "other lab"},
    ],
)
def test_other_plan_has_another_fingerprint(plan, changes):
    assert replace(plan, **changes).fingerprint != plan.fingerprint


def test_other_rule_gives_another_fingerprint(plan):
    others = [
        column(plan, "chol", fill=246),
        column(plan, "pain", unknown="column"),
        column(plan, "age", mean=50.0, scale=10.0),
        replace(plan, columns=plan.columns[::-1]),
    ]
    found = {other.fingerprint for other in (plan, *others)}
    assert len(found) == 5


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("format = 1", "format = 2", "format = 1 is missing"),
        ("label =", "lbl =", "'lbl' is none of"),
        ('{name = "age"}', '{name = "age", fil = 1}', "'fil' is none of name, fill"),
        ('{name = "age"}', '{name = "age", fill = "mean"}', "fill must be a number or"),
        ('{name = "age"}', '{name = "age", scale = 2}', "mean and scale go together"),
        ('{name = "age"}', '{name = "chol"}', "features must be named once each"),
        ('"refuse"', '"ignore"', "unknown must be 'refuse' or 'column'"),
        ('"float32"', '"float8"', "dtype must be one of"),
        ("min_samples = 10", "min_samples = 0", "min_samples must be at least 1"),
        ("format = 1", 'format = 1\nscaling = "mine"', "scaling must be 'from rows'"),
        ("# epsilon = 3.0", "epsilon = 3.0", "epsilon, delta, clip are numbers and go"),
        ("min_samples = 10", NOISE.replace("3.0", "-1"), "epsilon"),
        ("min_samples = 10", NOISE.replace("3.0", '"much"'), "are numbers and go"),
        ("features = [", "features = ", "line "),
    ],
)
def test_mistake_in_a_plan_is_named(plan, old, new, match):
    plan.save("study.toml")
    text = Path("study.toml").read_text()
    assert old in text
    Path("study.toml").write_text(text.replace(old, new, 1))
    with pytest.raises(
        ValueError, match=f"study.toml is no plan of a study: .*{match}"
    ):
        StudyPlan.load("study.toml")


# ------------------------------------------------------------------------- scaling


def test_scaling_is_that_of_the_rows_of_all_sites(plan):
    lines = TABLE.splitlines()
    Path("B.csv").write_text("\n".join([*lines, "p5,90,400,none,ill"]))
    rows, messages = [], []
    for site in "AB":
        table = load_features(f"{site}.csv", plan=plan.at_site(f"{site}.csv", site))
        message = FederatedScaler().client_update(table.X, client=site)
        messages.append(message.with_encoder(table.encoder))
        rows.append(table.X)
    answer = FederatedScaler().server_aggregate(messages).statistics_
    scaled = plan.with_scaling(answer)
    found = load_features("B.csv", plan=scaled.at_site("B.csv", "B")).X
    expected = StandardScaler().fit(np.vstack(rows)).transform(rows[1])
    np.testing.assert_allclose(found[:, :2], expected[:, :2], rtol=0, atol=1e-12)
    np.testing.assert_array_equal(found[:, 2:], rows[1][:, 2:])
    assert scaled.fingerprint != plan.fingerprint
    assert (plan.scaling, scaled.scaling) == (None, "from rows")
    with pytest.raises(ValueError, match="not on features that this plan makes"):
        scaled.with_scaling(answer)


def test_a_plan_keeps_the_column_of_sites(tmp_path):
    both, alone = tmp_path / "both.csv", tmp_path / "alone.csv"
    rows = [f"{40 + k % 17}.5,{'no' if k % 2 else 'yes'}" for k in range(24)]
    sites = ["north" if k < 10 else "south" for k in range(24)]
    joined = [f"{row},{site}" for row, site in zip(rows, sites, strict=True)]
    both.write_text("\n".join(["age,ill,hospital", *joined]))
    alone.write_text("\n".join(["age,ill", *rows]))
    file = tmp_path / "study.toml"
    StudyPlan.draft(both, label="ill", client_column="hospital").save(file)
    plan = StudyPlan.load(file)
    assert plan.client_column == "hospital"
    table = load_features(both, plan=plan)
    assert len(table.of_client("north").X) == 10
    assert load_features(alone, plan=plan).client_ids is None
    with pytest.raises(ValueError, match="no row of client 'west'"):
        table.of_client("west")
