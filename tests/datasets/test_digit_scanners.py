import numpy as np
import pytest
from sklearn.covariance import ledoit_wolf
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from skslot.datasets import load_digit_scanners
from skslot.datasets._digit_scanners import DEVICES, FULL_INK, Device, _develop
from skslot.geometry import bures_barycenter, displacement_map, transport_matrix


@pytest.fixture(scope="module")
def digits():
    return load_digits()


@pytest.fixture(scope="module")
def scanners():
    return load_digit_scanners()


def rows_correlated(first, second):
    """Correlation of each row of ``first`` with each row of ``second``."""
    return np.corrcoef(first, second)[: len(first), len(first) :]


def test_shapes_and_names(scanners):
    assert scanners.data.shape == (1797, 64)
    assert scanners.data.dtype == np.float64
    assert scanners.images.shape == (1797, 8, 8)
    assert scanners.client_ids.shape == scanners.target.shape == (1797,)
    assert len(scanners.feature_names) == 64
    assert list(scanners.target_names) == list(range(10))
    assert set(scanners.client_ids) == set(scanners.client_names)
    assert len(scanners.client_names) == 4


def test_data_are_the_images_as_rows(scanners):
    np.testing.assert_array_equal(scanners.data, scanners.images.reshape(1797, 64))


def test_ink_stays_in_the_range_of_the_digits(scanners):
    assert scanners.data.min() >= 0
    assert scanners.data.max() <= 16


@pytest.mark.parametrize("random_state", [0, 7, np.int64(3)])
def test_same_seed_gives_the_same_data(random_state):
    first = load_digit_scanners(random_state=random_state)
    second = load_digit_scanners(random_state=random_state)
    np.testing.assert_array_equal(first.data, second.data)
    np.testing.assert_array_equal(first.client_ids, second.client_ids)


def test_seed_and_random_state_instance_agree():
    from_seed = load_digit_scanners(random_state=5)
    from_instance = load_digit_scanners(random_state=np.random.RandomState(5))
    np.testing.assert_array_equal(from_seed.data, from_instance.data)


def test_other_seeds_give_another_partition(scanners):
    other = load_digit_scanners(random_state=1)
    # Of four equal clients, one in four images stays by chance.
    assert np.mean(other.client_ids == scanners.client_ids) == pytest.approx(
        0.25, abs=0.05
    )


def test_noise_is_drawn_anew_for_other_seeds(scanners):
    other = load_digit_scanners(random_state=1)
    same_client = other.client_ids == scanners.client_ids
    moved = np.abs(other.data - scanners.data)[same_client].max(axis=1)
    assert moved.min() > 0


def test_global_numpy_state_is_neither_read_nor_changed(scanners):
    np.random.seed(123)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    again = load_digit_scanners()
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    np.testing.assert_array_equal(again.data, scanners.data)


def test_changing_the_result_does_not_change_the_next_one():
    first = load_digit_scanners()
    expected = first.data.copy()
    first.images[:] = -1.0
    first.target[:] = -1
    first.client_names.clear()
    second = load_digit_scanners()
    np.testing.assert_array_equal(second.data, expected)
    assert second.target.min() == 0
    assert len(second.client_names) == 4


def test_labels_are_those_of_the_digits(scanners, digits):
    np.testing.assert_array_equal(scanners.target, digits.target)


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
def test_row_shows_the_digit_of_the_same_index(scanners, digits, device):
    rows = np.flatnonzero(scanners.client_ids == device.name)
    developed = FULL_INK * _develop(digits.images / FULL_INK, device).reshape(-1, 64)
    nearest = rows_correlated(scanners.data[rows], developed).argmax(axis=1)
    assert np.mean(nearest == rows) > 0.99


@pytest.mark.parametrize("random_state", [0, 1, 2])
def test_clients_have_all_digits_in_nearly_equal_number(random_state):
    scanners = load_digit_scanners(random_state=random_state)
    counts = np.array(
        [
            np.bincount(scanners.target[scanners.client_ids == name], minlength=10)
            for name in scanners.client_names
        ]
    )
    assert np.ptp(counts, axis=0).max() <= 1
    assert np.ptp(counts.sum(axis=1)) <= 1


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
def test_no_device_inverts_or_mirrors(scanners, digits, device):
    rows = scanners.client_ids == device.name
    seen, true = scanners.data[rows], digits.images[rows]
    own = np.diag(rows_correlated(seen, true.reshape(-1, 64)))
    assert own.min() > 0.6
    for mirrored in (true[:, ::-1], true[:, :, ::-1]):
        reflected = np.diag(rows_correlated(seen, mirrored.reshape(-1, 64)))
        assert own.mean() > reflected.mean() + 0.2


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
def test_blank_paper_shows_fog_and_full_ink_adds_the_contrast(device):
    blank = _develop(np.zeros((1, 8, 8)), device)
    np.testing.assert_allclose(blank, device.fog, atol=1e-12)
    black = _develop(np.ones((1, 8, 8)), device)[0, 3:5, 3:5]
    np.testing.assert_allclose(black, device.fog + device.contrast, atol=1e-3)


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
def test_noise_has_the_strength_of_its_device(scanners, digits, device):
    rows = scanners.client_ids == device.name
    clean = _develop(digits.images[rows] / FULL_INK, device)
    unclipped = np.abs(clean - 0.5) < 0.5 - 4 * device.noise
    noise = (scanners.images[rows] / FULL_INK - clean)[unclipped]
    assert np.std(noise) == pytest.approx(device.noise, rel=0.03)
    assert abs(np.mean(noise)) < 4 * device.noise / np.sqrt(len(noise))


def test_positive_tilt_is_counter_clockwise():
    ray_to_the_right = np.zeros((1, 9, 9))
    ray_to_the_right[0, 4, 4:] = 1.0
    tilted = _develop(ray_to_the_right, Device("any", 45.0, (0, 0), 1, 0, 1, 0))[0]
    assert tilted[2, 6] > 0.9
    assert tilted[6, 6] == 0


def test_classifier_of_one_device_is_worse_at_the_others(scanners):
    rows = {name: scanners.client_ids == name for name in scanners.client_names}
    half = np.arange(1797) % 2 == 0
    train = rows["flatbed"] & half
    classifier = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
    classifier.fit(scanners.data[train], scanners.target[train])
    score = {
        name: classifier.score(scanners.data[r & ~half], scanners.target[r & ~half])
        for name, r in rows.items()
    }
    assert score["flatbed"] > 0.85
    for name in ("phone", "fax", "microfilm"):
        assert score[name] < score["flatbed"] - 0.1


@pytest.mark.parametrize("random_state", [0, 1, 2])
def test_moderate_alignment_helps_under_label_shift(random_state):
    scanners = load_digit_scanners(random_state=random_state)
    rng = np.random.default_rng(random_state)
    train = rng.permutation(1797) % 2 == 0
    kept = train.copy()
    for digit in range(10):
        for name, share in zip(
            scanners.client_names, rng.dirichlet(np.full(4, 0.1)), strict=True
        ):
            cell = train & (scanners.target == digit) & (scanners.client_ids == name)
            kept[cell] = rng.random(cell.sum()) < share
    accuracy = [aligned_accuracy(scanners, kept, ~train, tau) for tau in (0.0, 0.4)]
    assert accuracy[1] > accuracy[0] + 0.05


def aligned_accuracy(scanners, train, test, tau):
    data, target = scanners.data.copy(), scanners.target
    rows = [scanners.client_ids == name for name in scanners.client_names]
    means = [data[r & train].mean(axis=0) for r in rows]
    covariances = [ledoit_wolf(data[r & train])[0] for r in rows]
    weights = [np.mean(r[train]) for r in rows]
    reference, _ = bures_barycenter(covariances, weights)
    reference_mean = np.average(means, axis=0, weights=weights)
    for r, mean, covariance in zip(rows, means, covariances, strict=True):
        matrix = transport_matrix(covariance, reference)
        matrix, offset = displacement_map(mean, matrix, reference_mean, tau)
        data[r] = data[r] @ matrix + offset
    classifier = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
    classifier.fit(data[train], target[train])
    return classifier.score(data[test], target[test])


def test_description_says_what_is_real_and_what_is_simulated(scanners):
    for phrase in ("What is real", "What is simulated", "Kaynak", "UCI"):
        assert phrase in scanners.DESCR
    for name in scanners.client_names:
        assert name in scanners.DESCR


@pytest.mark.parametrize("random_state", [-1, 1.5, "0", np.random.default_rng(0)])
def test_bad_random_state_is_refused(random_state):
    with pytest.raises(ValueError, match="random_state"):
        load_digit_scanners(random_state=random_state)
