"""Reading features and splitting them as the paper does."""

import numpy as np
import pytest

from skslot.experiments import load_features, paper_split
from skslot.model_selection import class_table

Y, SITE = np.tile(np.arange(5), 200), np.repeat(["A", "B"], 500)


@pytest.mark.parametrize(
    "clients",
    [{"client": ["B", "A"]}, {"domain": [1, 0], "domains": ["A", "B"]}],
)
def test_features_come_with_the_names_of_their_clients(tmp_path, clients):
    X = np.eye(2, dtype=np.float16)
    np.savez(tmp_path / "f.npz", X=X, y=[0, 1], **clients)
    loaded, y, client_ids = load_features(tmp_path / "f.npz")
    assert loaded.dtype == np.float64
    assert y.tolist() == [0, 1]
    assert client_ids.tolist() == ["B", "A"]


def test_file_without_clients_is_refused(tmp_path):
    np.savez(tmp_path / "f.npz", X=np.eye(2), y=[0, 1])
    with pytest.raises(
        ValueError, match=r"client \(or domain .* it holds \['X', 'y'\]"
    ):
        load_features(tmp_path / "f.npz")


def test_test_rows_are_not_skewed_and_training_rows_are():
    train, test = paper_split(Y, SITE, 0.1, random_state=3)
    assert (class_table(Y[test], SITE[test]).counts == 30).all()
    assert class_table(Y[train], SITE[train]).counts.std() > 15
    assert not set(train) & set(test)


def test_no_label_shift_keeps_all_training_rows():
    train, test = paper_split(Y, SITE, None)
    assert sorted([*train, *test]) == list(range(len(Y)))


def test_partitions_differ_and_repeat():
    first, again = (paper_split(Y, SITE, 0.1, random_state=0)[0] for _ in range(2))
    other = paper_split(Y, SITE, 0.1, random_state=1)[0]
    assert first.tolist() == again.tolist() != other.tolist()


def test_a_row_alone_in_its_cell_is_trained_on():
    y, site = np.tile([0, 1], 50), np.repeat(["A", "B"], 50)
    y[3] = 2
    train, test = paper_split(y, site, alpha=None)
    assert 3 in train
    assert sorted([*train, *test]) == list(range(100))
