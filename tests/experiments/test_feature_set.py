"""Features of several clients, embedded and from files."""

import numpy as np
import pandas as pd
import pytest

from skslot.experiments import FeatureSet

X, Y = np.arange(24.0).reshape(12, 2), np.arange(12) % 3
SITE = np.repeat(["A", "B"], 6)
SPLIT = np.where(np.arange(12) % 4 == 3, "test", "train")


@pytest.fixture
def save(tmp_path):
    def write(**arrays):
        np.savez(tmp_path / "sites.npz", **arrays)
        return tmp_path / "sites.npz"

    return write


@pytest.mark.parametrize(
    "clients",
    [{"client": ["B", "A"]}, {"domain": [1, 0], "domains": ["A", "B"]}],
)
def test_features_come_with_the_names_of_their_clients(save, clients):
    path = save(X=np.eye(2, dtype=np.float16), y=[0, 1], **clients)
    data = FeatureSet.from_file(path)
    assert data.X.dtype == np.float64
    assert data.y.tolist() == [0, 1]
    assert data.client_ids.tolist() == ["B", "A"]


def test_labels_may_be_missing(save):
    assert FeatureSet.from_file(save(X=X, client=SITE)).y is None


def test_split_and_data_set_of_a_file_are_kept(save):
    path = save(X=X, y=Y, client=SITE, split=np.char.upper(SPLIT), dataset="Digits")
    data = FeatureSet.from_file(path)
    assert (data.name, data.dataset) == ("sites", "Digits")
    assert data.split.tolist() == SPLIT.tolist()
    plain = FeatureSet.from_file(save(X=X, y=Y, client=SITE))
    assert (plain.split, plain.dataset) == (None, None)
    assert plain.fingerprint() != data.fingerprint()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": X, "y": Y}, "whose each row is: by client, .* it has: y"),
        ({"X": X, "y": Y, "domains": ["A"]}, "has 'domains', but it takes both"),
        ({"y": Y, "client": SITE}, "must hold an array X .* it has: y, client"),
        (
            {"X": X, "y": Y[:5], "client": SITE},
            "y has 5 values, but there are 12 rows of features",
        ),
        (
            {"X": X[:, 0], "y": Y, "client": SITE},
            "features must be a matrix of numbers",
        ),
        ({"X": X, "y": Y.astype(object), "client": SITE}, "holds Python objects"),
        ({"X": X, "client": SITE, "split": ["all"] * 12}, r"split must .* \['all'\]"),
    ],
)
def test_errors_name_the_file(save, arrays, message):
    with pytest.raises(ValueError, match=rf"sites\.npz.*{message}"):
        FeatureSet.from_file(save(**arrays))


@pytest.mark.parametrize("content", [b"", b"label,x\n", b"PK\x03\x04 and no more"])
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "features.npz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"features\.npz cannot be read"):
        FeatureSet.from_file(path)


def test_official_split_is_kept():
    data = FeatureSet("split", X, Y, SITE, SPLIT)
    assert data.training_rows().X.tolist() == X[SPLIT == "train"].tolist()
    for number in (0, 1):
        train, test = data.partition(None, number)
        assert (SPLIT[train] == "train").all()
        assert test.tolist() == np.flatnonzero(SPLIT == "test").tolist()


def test_split_without_training_rows_is_refused(save):
    held = np.full(12, "test")
    with pytest.raises(ValueError, match="held has no rows left to learn from"):
        FeatureSet("held", X, Y, SITE, held).training_rows()
    with pytest.raises(ValueError, match=r"sites\.npz has no rows left to learn from"):
        FeatureSet.from_file(save(X=X, y=Y, client=SITE, split=held))


def test_all_rows_are_for_training_without_a_split():
    data = FeatureSet("all", X, None, SITE)
    assert data.training_rows() is data


def test_selected_rows_keep_all_that_is_known_of_them():
    part = FeatureSet("split", X, None, SITE, SPLIT, dataset="Digits").select(
        SITE == "B"
    )
    assert part.X.tolist() == X[6:].tolist()
    assert part.y is None
    assert part.clients == ["B"]
    assert part.split.tolist() == SPLIT[6:].tolist()
    assert part.dataset == "Digits"


def test_figures_have_a_panel_per_strength_and_half_of_the_classes():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    data = FeatureSet.embedded()
    figures = data.pca_figures()
    assert list(figures) == ["client", "class"]
    legends = {}
    for name, figure in figures.items():
        titles = [axis.get_title() for axis in figure.axes]
        assert titles[0] == "tau = 0 (before)"
        assert titles[1:] == [f"tau = {tau:g}" for tau in (0.2, 0.4, 0.6, 0.8, 1)]
        texts = figure.axes[-1].get_legend().get_texts()
        legends[name] = [text.get_text() for text in texts]
    assert legends["client"] == data.clients
    assert legends["class"] == ["0", "1", "2", "3", "4"]
    points = figures["client"].axes[0].collections[0].get_offsets()
    assert 80 <= len(points) < np.isin(data.y, range(5)).sum() / 2
    matplotlib.pyplot.close("all")


def test_figures_need_labels():
    with pytest.raises(ValueError, match="sites has no labels"):
        FeatureSet("sites", X, None, SITE).pca_figures()


def test_embedded_backbones_are_of_the_same_rows():
    data = FeatureSet.embedded_backbones()
    assert len({one.fingerprint() for one in data}) == 3
    data[0].check_same_rows(data[1])
    data[0].check_same_rows(data[2])


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("y", FeatureSet("b", X, Y[::-1], SITE, SPLIT)),
        ("client_ids", FeatureSet("b", X, Y, SITE[::-1], SPLIT)),
        ("split", FeatureSet("b", X, Y, SITE)),
        ("client_ids", FeatureSet("b", X[:5], Y[:5], SITE[:5], SPLIT[:5])),
    ],
)
def test_encoders_of_other_rows_are_not_compared(name, other):
    data = FeatureSet("a", X, Y, SITE, SPLIT)
    with pytest.raises(ValueError, match=f"a and b are not .* they differ in {name}"):
        data.check_same_rows(other)


def test_fingerprint_of_objects_is_that_of_what_they_say():
    """Where they are in memory changes from process to process."""
    first, second = (
        FeatureSet("objects", X, np.array([f"class {c}" for c in Y], object), SITE)
        for _ in range(2)
    )
    assert first.fingerprint() == second.fingerprint()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_tables_are_read_as_well(save, tmp_path, ending):
    frame = pd.DataFrame(X, columns=["age", "dose"])
    frame = frame.assign(diagnosis=Y, client=SITE, patient="P1", split=SPLIT)
    path = tmp_path / f"sites.{ending}"
    if ending == "csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path)
    table = FeatureSet.from_file(path, labels="diagnosis", ignore="patient")
    arrays = FeatureSet.from_file(save(X=X, y=Y, client=SITE, split=SPLIT))
    assert table.fingerprint() == arrays.fingerprint()


def test_rows_for_validation_are_left_out(save):
    split = np.where(np.arange(12) < 3, "dev", SPLIT)
    data = FeatureSet.from_file(save(X=X, y=Y, client=SITE, split=split))
    assert data.X.tolist() == X[3:].tolist()
    assert data.split.tolist() == SPLIT[3:].tolist()


def test_repr_has_numbers_and_no_rows():
    assert repr(FeatureSet("few", X, None, SITE)) == (
        f"FeatureSet('few', n_samples={len(X)}, n_features={X.shape[1]}, "
        f"n_clients={len(np.unique(SITE))})"
    )
