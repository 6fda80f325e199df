import numpy as np
import pytest
from scipy.stats import chi2

from skslot.datasets import make_shifted_clients
from skslot.geometry import bures_barycenter, transport_matrix

WORLD = ("class_means", "covariance", "matrices", "offsets")


def cell_counts(clients, n_clients=4, n_classes=5):
    """Rows of each client (first axis) in each class (second axis)."""
    cells = np.ravel_multi_index(
        (clients.client_ids, clients.target), (n_clients, n_classes)
    )
    return np.bincount(cells, minlength=n_clients * n_classes).reshape(
        n_clients, n_classes
    )


@pytest.mark.parametrize(
    ("n_samples", "n_clients", "n_classes", "n_features"),
    [(1000, 4, 5, 20), (37, 3, 2, 1), (9, 1, 9, 4), (8, 8, 3, 2)],
)
def test_shapes(n_samples, n_clients, n_classes, n_features):
    clients = make_shifted_clients(
        n_samples,
        n_clients=n_clients,
        n_classes=n_classes,
        n_features=n_features,
        random_state=0,
    )
    assert clients.data.shape == (n_samples, n_features)
    assert clients.target.shape == clients.client_ids.shape == (n_samples,)
    assert set(clients.target) == set(range(n_classes))
    assert set(clients.client_ids) == set(range(n_clients))
    assert clients.class_means.shape == (n_classes, n_features)
    assert clients.covariance.shape == (n_features, n_features)
    assert clients.matrices.shape == (n_clients, n_features, n_features)
    assert clients.offsets.shape == (n_clients, n_features)


@pytest.mark.parametrize("label_shift", [None, 0.1])
def test_same_seed_gives_the_same_data(label_shift):
    first, second = (
        make_shifted_clients(label_shift=label_shift, random_state=4) for _ in range(2)
    )
    for key in ("data", "target", "client_ids", *WORLD):
        np.testing.assert_array_equal(first[key], second[key])


def test_other_seeds_give_another_world():
    first, second = (make_shifted_clients(random_state=seed) for seed in (0, 1))
    for key in WORLD:
        assert not np.allclose(first[key], second[key])


def test_random_state_instance_starts_like_its_seed_and_moves_on():
    rng = np.random.RandomState(3)
    first = make_shifted_clients(random_state=rng)
    second = make_shifted_clients(random_state=rng)
    from_seed = make_shifted_clients(random_state=3)
    np.testing.assert_array_equal(first.data, from_seed.data)
    assert not np.allclose(second.matrices, first.matrices)


def test_global_numpy_state_is_neither_read_nor_changed():
    expected = make_shifted_clients(random_state=0)
    np.random.seed(123)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    again = make_shifted_clients(random_state=0)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    np.testing.assert_array_equal(again.data, expected.data)


@pytest.mark.parametrize(
    "change",
    [{"n_samples": 300}, {"n_samples": 1001}, {"label_shift": 0.1}],
    ids=str,
)
def test_same_seed_gives_other_rows_of_the_same_world(change):
    base = make_shifted_clients(random_state=0)
    other = make_shifted_clients(random_state=0, **change)
    for key in WORLD:
        np.testing.assert_array_equal(base[key], other[key])
    assert not np.isin(base.data, other.data).any()


def test_two_label_shifts_give_different_rows():
    first, second = (
        make_shifted_clients(label_shift=alpha, random_state=0) for alpha in (0.1, 0.2)
    )
    assert not np.isin(first.data, second.data).any()


def test_integer_and_float_label_shift_agree():
    first, second = (
        make_shifted_clients(label_shift=alpha, random_state=0) for alpha in (1, 1.0)
    )
    np.testing.assert_array_equal(first.data, second.data)


def test_shares_of_the_clients_do_not_depend_on_the_number_of_rows():
    few, many = (
        cell_counts(make_shifted_clients(n, label_shift=0.5, random_state=0)) / n
        for n in (500, 20000)
    )
    assert np.abs(few - many).max() <= 1 / 500


def test_without_domain_shift_matrices_are_the_identity():
    clients = make_shifted_clients(domain_shift=0, random_state=0)
    np.testing.assert_array_equal(clients.matrices, np.tile(np.eye(20), (4, 1, 1)))
    np.testing.assert_array_equal(clients.offsets, np.zeros((4, 20)))


@pytest.mark.parametrize("label_shift", [None, 0.3])
def test_domain_shift_moves_the_same_rows(label_shift):
    still, moved = (
        make_shifted_clients(domain_shift=s, label_shift=label_shift, random_state=2)
        for s in (0, 1.5)
    )
    np.testing.assert_array_equal(moved.client_ids, still.client_ids)
    expected = np.einsum("nij,nj->ni", moved.matrices[still.client_ids], still.data)
    expected += moved.offsets[still.client_ids]
    np.testing.assert_allclose(moved.data, expected, rtol=0, atol=1e-12)


def test_departure_from_the_identity_grows_with_domain_shift():
    departures = [
        np.linalg.norm(clients.matrices - np.eye(20), axis=(1, 2))
        for clients in (
            make_shifted_clients(domain_shift=shift, random_state=0)
            for shift in (0.1, 0.2, 1.0, 2.0)
        )
    ]
    assert (np.diff(departures, axis=0) > 0).all()
    # To first order the departure is proportional to the shift.
    np.testing.assert_allclose(departures[1] / departures[0], 2.0, rtol=0.1)


@pytest.mark.parametrize("domain_shift", [0.5, 1.0, 10.0])
@pytest.mark.parametrize("random_state", [0, 1, 2])
def test_matrices_are_symmetric_positive_definite(domain_shift, random_state):
    matrices = make_shifted_clients(
        domain_shift=domain_shift, random_state=random_state
    ).matrices
    np.testing.assert_array_equal(matrices, matrices.transpose(0, 2, 1))
    assert np.linalg.eigvalsh(matrices).min() > 0


@pytest.mark.parametrize("label_shift", [None, 1.0])
def test_rows_follow_the_shifted_gaussians(label_shift):
    clients = make_shifted_clients(
        30000,
        n_clients=3,
        n_classes=2,
        n_features=4,
        label_shift=label_shift,
        random_state=0,
    )
    for client, (matrix, offset) in enumerate(
        zip(clients.matrices, clients.offsets, strict=True)
    ):
        whitening = np.linalg.inv(matrix @ np.linalg.cholesky(clients.covariance))
        for label, class_mean in enumerate(clients.class_means):
            cell = (clients.client_ids == client) & (clients.target == label)
            rows = clients.data[cell]
            white = (rows - (matrix @ class_mean + offset)) @ whitening.T
            assert len(rows) * np.sum(white.mean(axis=0) ** 2) < chi2.ppf(0.999, df=4)
            np.testing.assert_allclose(
                np.cov(white.T), np.eye(4), rtol=0, atol=4 * np.sqrt(2 / len(rows))
            )


@pytest.mark.parametrize("domain_shift", [0.5, 2.0])
def test_barycenter_of_the_clients_is_the_world_before_the_shift(domain_shift):
    clients = make_shifted_clients(domain_shift=domain_shift, random_state=0)
    between = clients.class_means.T @ clients.class_means / len(clients.class_means)
    total = clients.covariance + between
    shifted = [matrix @ total @ matrix for matrix in clients.matrices]
    barycenter, _ = bures_barycenter(shifted, tol=1e-12)
    np.testing.assert_allclose(barycenter, total, rtol=0, atol=1e-9)
    for matrix, covariance in zip(clients.matrices, shifted, strict=True):
        undone = transport_matrix(covariance, barycenter) @ matrix
        np.testing.assert_allclose(undone, np.eye(20), rtol=0, atol=1e-8)
    np.testing.assert_allclose(clients.offsets.mean(axis=0), 0, atol=1e-12)


@pytest.mark.parametrize("class_separation", [0.0, 1.0, 5.0])
@pytest.mark.parametrize("n_classes", [2, 7])
def test_class_separation_is_the_distance_of_the_means(class_separation, n_classes):
    clients = make_shifted_clients(
        class_separation=class_separation, n_classes=n_classes, random_state=0
    )
    first, second = np.triu_indices(n_classes, 1)
    difference = clients.class_means[first] - clients.class_means[second]
    squared = np.sum(
        difference * np.linalg.solve(clients.covariance, difference.T).T, axis=1
    )
    assert np.sqrt(squared.mean()) == pytest.approx(class_separation, abs=1e-10)


@pytest.mark.parametrize("n_samples", [1000, 1013, 21])
def test_labels_are_balanced_without_label_shift(n_samples):
    counts = cell_counts(make_shifted_clients(n_samples, random_state=0))
    assert np.ptp(counts) <= 2
    assert np.ptp(counts, axis=0).max() <= 1
    assert np.ptp(counts.sum(axis=1)) <= 1


@pytest.mark.parametrize("label_shift", [1e-3, 0.1, 10.0])
def test_classes_keep_their_size_under_label_shift(label_shift):
    clients = make_shifted_clients(1013, label_shift=label_shift, random_state=0)
    assert np.ptp(np.bincount(clients.target)) <= 1


def test_small_label_shift_puts_a_class_at_one_client():
    clients = make_shifted_clients(label_shift=1e-4, random_state=0)
    largest_share = cell_counts(clients).max(axis=0) / 200
    assert largest_share.min() > 0.98


def test_large_label_shift_parameter_approaches_balance():
    clients = make_shifted_clients(label_shift=1e6, random_state=0)
    assert np.abs(cell_counts(clients) - 50).max() <= 1


def test_shares_have_the_dirichlet_mean_and_variance():
    clients = make_shifted_clients(
        20000, n_classes=400, n_features=1, label_shift=0.5, random_state=0
    )
    shares = cell_counts(clients, n_classes=400) / 50
    np.testing.assert_allclose(shares.mean(axis=1), 0.25, atol=0.06)
    # alpha (K - 1) / (K^2 (K alpha + 1)) with K = 4 clients and alpha = 1/2
    np.testing.assert_allclose(shares.var(axis=1), 0.25 * 0.75 / 3, rtol=0.25)


@pytest.mark.parametrize("random_state", range(5))
@pytest.mark.parametrize("n_samples", [8, 100])
def test_every_client_and_class_has_a_row(n_samples, random_state):
    clients = make_shifted_clients(
        n_samples,
        n_clients=8,
        n_classes=3,
        label_shift=1e-3,
        random_state=random_state,
    )
    assert set(clients.client_ids) == set(range(8))
    assert set(clients.target) == set(range(3))


def test_rows_are_shuffled():
    clients = make_shifted_clients(random_state=0)
    assert abs(np.corrcoef(clients.target, np.arange(1000))[0, 1]) < 0.1
    assert abs(np.corrcoef(clients.client_ids, clients.target)[0, 1]) < 0.1


def test_description_names_the_parameters():
    description = make_shifted_clients(label_shift=0.25, random_state=0).DESCR
    assert "simulated" in description
    assert "label_shift=0.25" in description


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_samples", 0),
        ("n_samples", 10.0),
        ("n_clients", 0),
        ("n_classes", 1),
        ("n_features", 0),
        ("class_separation", -1.0),
        ("domain_shift", -0.1),
        ("domain_shift", 10.1),
        ("label_shift", 0.0),
        ("label_shift", -1.0),
        ("label_shift", np.nan),
        ("label_shift", "none"),
        ("random_state", "0"),
    ],
)
def test_bad_parameters_are_refused(name, value):
    with pytest.raises(ValueError, match=name):
        make_shifted_clients(**{name: value})


@pytest.mark.parametrize("too_many", ["n_clients", "n_classes"])
def test_fewer_rows_than_clients_or_classes_are_refused(too_many):
    with pytest.raises(ValueError, match="n_samples=9 is too small"):
        make_shifted_clients(9, **{too_many: 10})
