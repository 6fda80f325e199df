"""Which columns of a table become features, and which are refused."""

import numpy as np
import pandas as pd
import pytest

from skslot.datasets import StudyPlan, load_features

RNG = np.random.default_rng(0)
N_ROWS = 40
MEASURED = {
    "age": RNG.integers(30, 80, N_ROWS),
    "chol": RNG.normal(200, 30, N_ROWS).round(1),
}


@pytest.fixture(params=["csv", "parquet", "feather"])
def save(request, tmp_path):
    """Write a table with two measurements and more columns."""

    def write(**more):
        path = tmp_path / f"site.{request.param}"
        frame = pd.DataFrame({**MEASURED, **more})
        getattr(frame, f"to_{request.param}")(
            path, **({"index": False} if request.param == "csv" else {})
        )
        return path

    return write


def refusal(path, **options):
    with pytest.raises(ValueError, match=r"site\.") as caught:
        load_features(path, **options)
    return str(caught.value)


IDENTIFIERS = {
    "consecutive": ("visited", np.arange(N_ROWS)),
    "shuffled": ("number", RNG.permutation(N_ROWS) + 500),
    "with gaps": ("entry", RNG.permutation(120)[:N_ROWS]),
    "large": ("entry", RNG.permutation(10**6)[:N_ROWS] + 10**6),
    "text": ("entry", [f"p{k}" for k in range(N_ROWS)]),
    "padded": ("entry", [f"{k:05}" for k in range(N_ROWS)]),
    "by name": ("patient_id", RNG.permutation(90_000)[:N_ROWS]),
    "twice each": ("PatientID", np.repeat(RNG.permutation(90_000)[: N_ROWS // 2], 2)),
    "many rows each": ("patient_no", np.repeat(RNG.permutation(90_000)[:10], 4)),
    "long": ("entry", 10**17 + np.arange(N_ROWS)),
    "long text": ("entry", [f"{10**25 + k}" for k in range(N_ROWS)]),
    "participants": ("SUBJID", RNG.permutation(90_000)[:N_ROWS]),
    "capitals": ("MRN", RNG.permutation(90_000)[:N_ROWS]),
    "written as floats": ("entry", np.arange(N_ROWS, dtype=float)),
}
MEASUREMENTS = {
    "all different and no whole numbers": RNG.normal(size=N_ROWS),
    "whole numbers of a wide range": RNG.permutation(5000)[:N_ROWS] + 1000,
    "whole numbers, some equal": RNG.integers(0, 200, N_ROWS),
    "zeros and ones": RNG.integers(0, 2, N_ROWS),
    "constant": np.ones(N_ROWS),
}


@pytest.mark.parametrize(("name", "values"), IDENTIFIERS.values(), ids=IDENTIFIERS)
def test_identifiers_are_no_features(save, name, values):
    path = save(**{name: values})
    error = refusal(path)
    assert f"column {name!r} looks like an identifier" in error
    assert f"--id-column {name}, in Python id_column={name!r}" in error
    features = load_features(path, id_column=name)
    assert features.feature_names == ["age", "chol"]
    assert len(features.per_row()[name]) == N_ROWS  # for predictions


@pytest.mark.parametrize("values", MEASUREMENTS.values(), ids=MEASUREMENTS)
def test_measurements_are_features(save, values):
    assert load_features(save(dose=values)).feature_names == ["age", "chol", "dose"]


@pytest.mark.parametrize("name", ["lipid", "covid", "thyroid", "number_of_vessels"])
def test_names_that_sound_like_identifiers_are_features(save, name):
    values = RNG.permutation(90_000)[:N_ROWS]
    assert name in load_features(save(**{name: values})).feature_names


def test_few_rows_have_no_identifiers(tmp_path):
    path = tmp_path / "site.csv"
    path.write_text("age,patient\n" + "".join(f"{k}.5,{k}\n" for k in range(9)))
    assert load_features(path).feature_names == ["age", "patient"]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("diagnosis", RNG.integers(0, 2, N_ROWS)),
        ("Diagnosis", RNG.choice(["ill", "healthy"], N_ROWS)),
        ("target", RNG.integers(0, 20, N_ROWS)),
        ("class_label", RNG.integers(0, 3, N_ROWS)),
        ("num", RNG.integers(0, 5, N_ROWS)),
    ],
)
def test_labels_are_no_features(save, name, values):
    path = save(**{name: values})
    error = refusal(path, labels=False)
    assert f"column {name!r} looks like labels" in error
    assert f"--labels {name}" in error
    assert f"ignore=[{name!r}] or --ignore {name}" in error
    assert load_features(path, labels=name).feature_names == ["age", "chol"]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("diagnosis", RNG.normal(size=N_ROWS)),
        ("nyha_class", RNG.integers(1, 5, N_ROWS)),
        ("treated", RNG.integers(0, 2, N_ROWS)),
        ("tumor_site", RNG.integers(0, 2, N_ROWS)),
    ],
)
def test_other_measurements_with_few_values_are_features(save, name, values):
    assert name in load_features(save(**{name: values})).feature_names


def test_column_that_is_the_labels_once_more_is_refused(save, tmp_path):
    y = RNG.integers(0, 2, N_ROWS)
    path = save(ill=y, sick=y)
    assert "'sick' has the same values as the labels" in refusal(path, labels="ill")
    np.save(tmp_path / "y.npy", y)
    error = refusal(path, labels_file=tmp_path / "y.npy", ignore="sick")
    assert "'ill' has the same values as the labels" in error
    names = ["age", "ill"]
    assert load_features(path, labels="sick", features=names).feature_names == names
    path = save(ill=np.where(y, "yes", "no"), sick=3 - y)
    error = refusal(path, labels="ill")
    assert "'sick' says the same as the labels, " in error
    assert "2 for yes" in error
    load_features(path, labels="ill", features=["*", "sick"])


@pytest.mark.parametrize("y", [[0, 1] * 5, [0] * 59 + [1], [0] * 10 + [1] * 2])
def test_column_that_is_the_labels_by_chance_is_a_feature(tmp_path, y):
    """Few rows or one of a class: many a flag of a small site is the labels there."""
    path = tmp_path / "small.csv"
    lines = [f"{50.5 + 2 * k % 7},{each},{each}" for k, each in enumerate(y)]
    path.write_text("\n".join(["age,smoker,ill", *lines]))
    assert load_features(path, labels="ill").feature_names == ["age", "smoker"]


@pytest.mark.parametrize("values", [["Rome", "Oslo"], [1, 2]])
def test_sites_are_no_features(save, values):
    path = save(hospital=np.resize(values, N_ROWS))
    assert "'hospital' looks like the sites of rows" in refusal(path)
    assert "--client-column hospital" in refusal(path)
    features = load_features(path, client_column="hospital")
    assert features.feature_names == ["age", "chol"]
    assert features.client_ids.tolist() == np.resize(values, N_ROWS).tolist()
    assert len(features.of_client(values[0]).X) == N_ROWS / 2
    assert "no column 'clinic'" in refusal(path, client_column="clinic")


def test_all_that_is_wrong_is_said_at_once(save):
    path = save(id=np.arange(N_ROWS), site=np.resize([1, 2], N_ROWS), dx=[1] * N_ROWS)
    assert "--id-column id --client-column site --labels dx, in" in refusal(path)
    found = load_features(path, id_column="id", client_column="site", labels="dx")
    assert found.feature_names == ["age", "chol"]


# ------------------------------------------------------------ features by their names


def test_features_come_in_the_order_in_which_they_are_named(save):
    path = save(f2=MEASURED["chol"] + 1, f1=MEASURED["chol"] * 2, note=["x"] * N_ROWS)
    features = load_features(path, features=["f*", "age"])
    assert features.feature_names == ["f2", "f1", "age"]
    np.testing.assert_array_equal(features.X[:, 2], MEASURED["age"])
    assert set(features.per_row()) == {"chol", "note"}
    one = load_features(path, features="chol")
    assert one.feature_names == ["chol"]
    assert one.encoder != features.encoder
    assert load_features(path, features=["f?", "f1", "age"]).X.shape == (N_ROWS, 3)


@pytest.mark.parametrize("sequence", [list, tuple, np.array, pd.Index, pd.Series])
def test_names_are_any_sequence(save, sequence):
    path = save(note=np.arange(N_ROWS), y=RNG.integers(0, 2, N_ROWS))
    table = load_features(path, features=sequence(["chol", "age"]))
    assert table.feature_names == ["chol", "age"]
    table = load_features(path, ignore=sequence(["note", "age"]))
    assert table.feature_names == ["chol"]
    plan = StudyPlan.draft(path, label="y", id_column=sequence(["note", "age"]))
    assert plan.feature_names == ["chol"]


def test_known_features_are_not_questioned(save):
    path = save(patient=np.arange(N_ROWS))
    assert "looks like an identifier" in refusal(path, known_features=["age", "height"])
    table = load_features(path, known_features=["patient", "height"])
    assert table.feature_names == ["age", "chol", "patient"]


def test_who_names_a_column_wants_it(save):
    path = save(patient=np.arange(N_ROWS), num=RNG.integers(0, 5, N_ROWS))
    assert "'patient'" in refusal(path, features="*")  # a pattern may match too much
    assert "features=['*', 'patient'] or --features \"*\" patient" in refusal(path)
    everything = load_features(path, features=["*", "patient", "num"])
    assert everything.feature_names == ["age", "chol", "patient", "num"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"features": "f*"}, "no column that is 'f*' or matches it; it has: age, chol"),
        ({"features": ["age", "Chol"]}, "no column that is 'Chol'"),
        ({"features": "age,chol"}, "but ['age', 'chol']: name them one by one"),
        ({"ignore": "age,chol"}, "at the command line as --ignore age --ignore chol"),
        ({"ignore": "age;height"}, "has no column 'age;height'; it has"),
        ({"features": ["age", "y"]}, "'y' is named as a feature, but"),
        ({"features": ["age"], "ignore": "age"}, "'age' is named as a feature, but"),
        ({"features": ["age"], "labels": "age"}, "'age' is named as a feature, but"),
        ({"features": []}, "has no features, only the columns"),
    ],
)
def test_features_that_cannot_be_are_refused(save, options, words):
    assert words in refusal(save(y=["a", "b"] * (N_ROWS // 2)), **options)


def test_column_without_a_name_is_a_feature_if_somebody_says_so(tmp_path):
    path = tmp_path / "site.csv"
    path.write_text(",age\n0,50\n1,60\n")
    assert "column 1 has no name" in refusal(path)
    assert "column 1 has no name" in refusal(path, features="*")
    assert load_features(path, features=["age"]).feature_names == ["age"]
    assert load_features(path, features=["", "age"]).feature_names == ["", "age"]


def test_arrays_are_taken_as_they_are(tmp_path):
    path = tmp_path / "site.npz"
    np.savez(path, X=np.arange(40.0).reshape(20, 2), columns=["patient", "diagnosis"])
    assert load_features(path).X.shape == (20, 2)
    assert "choose columns of a table" in refusal(path, features="patient")
    np.savez(path, X=np.eye(12), hospital=["A", "B"] * 6)
    assert load_features(path, client_column="hospital").of_client("B").X.shape[0] == 6


# ------------------------------------------------------------------------ with a plan


def test_plan_is_drafted_by_the_same_rules(save):
    site = np.resize(["Rome", "Oslo"], N_ROWS)
    path = save(patient=[f"p{k}" for k in range(N_ROWS)], site=site, ill=["y"] * N_ROWS)
    with pytest.raises(ValueError, match="'patient' looks like an identifier"):
        StudyPlan.draft(path, label="ill")
    options = {"label": "ill", "id_column": "patient", "client_column": "site"}
    plan = StudyPlan.draft(path, **options)
    assert plan.feature_names == ["age", "chol"]
    assert StudyPlan.draft(path, features="c*", label="ill").feature_names == ["chol"]
    with pytest.raises(ValueError, match="the plan says which columns are features"):
        load_features(path, plan=plan, features="age")


def test_medians_are_those_of_the_site_that_another_column_names(tmp_path):
    path = tmp_path / "site.csv"
    path.write_text("age,site\n10,A\n20,A\n,A\n80,B\n")
    plan = StudyPlan.draft(path, client_column="site")
    at_site = plan.at_site(path, "A", client_column="site")
    assert at_site.columns[0].median == 15.0
    table = load_features(path, plan=at_site, client_column="site").of_client("A")
    assert table.X.ravel().tolist() == [10.0, 20.0, 15.0]
