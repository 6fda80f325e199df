"""ClientDistanceDisplay: the distances are those of the Gaussians."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from skslot import FederatedOTAligner
from skslot.geometry import gaussian_wasserstein
from skslot.inspection import ClientDistanceDisplay


def test_distances_are_those_of_the_geometry(aligner):
    display = ClientDistanceDisplay.from_estimator(aligner)
    means, covariances = aligner.means_, aligner.covariances_
    for i in range(4):
        for j in range(4):
            expected = gaussian_wasserstein(
                means[i], covariances[i], means[j], covariances[j]
            )
            assert display.before[i, j] == pytest.approx(expected, abs=1e-6)
    np.testing.assert_array_equal(display.clients, aligner.clients_)


def test_moved_gaussians_are_those_of_moved_rows():
    """With no shrinkage, the covariance of the moved rows is the moved covariance."""
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(k, k + 1, size=(200, 3)) for k in range(3)])
    ids = np.repeat([0, 1, 2], 200)
    aligner = FederatedOTAligner(tau=0.6, shrinkage=0.0).fit(X, client_ids=ids)
    display = ClientDistanceDisplay.from_estimator(aligner)
    moved = aligner.transform(X, client_ids=ids)
    first, second = moved[ids == 0], moved[ids == 2]
    expected = gaussian_wasserstein(
        first.mean(axis=0),
        np.cov(first.T, bias=True),
        second.mean(axis=0),
        np.cov(second.T, bias=True),
    )
    assert display.after[0, 2] == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("tau", [0.0, 1.0])
def test_ends_of_the_path(training, tau):
    X, _, ids = training
    aligner = FederatedOTAligner(tau=tau).fit(X, client_ids=ids)
    display = ClientDistanceDisplay.from_estimator(aligner)
    expected = display.before if tau == 0 else np.zeros((4, 4))
    np.testing.assert_allclose(display.after, expected, atol=1e-4)


def test_one_colour_scale_and_names(aligner):
    display = ClientDistanceDisplay.from_estimator(aligner)
    left, right = display.axes_
    assert left.images[0].get_clim() == right.images[0].get_clim()
    assert left.images[0].get_clim() == (0, display.before.max())
    assert [t.get_text() for t in left.get_yticklabels()] == list(aligner.clients_)
    assert left.get_xlabel() == left.get_ylabel() == "client"
    assert right.get_title() == "after, tau = 0.3"
    assert len(left.texts) == 16


def test_plot_takes_axes_and_returns_the_display(aligner):
    figure, axes = plt.subplots(1, 2)
    display = ClientDistanceDisplay.from_estimator(aligner, ax=axes)
    assert display.figure_ is figure
    assert display.plot() is display
    assert display.figure_ is not figure


def test_many_clients_have_no_numbers():
    rng = np.random.default_rng(0)
    ids = np.repeat(np.arange(25), 8)
    aligner = FederatedOTAligner().fit(rng.normal(size=(200, 2)), client_ids=ids)
    display = ClientDistanceDisplay.from_estimator(aligner)
    assert not display.axes_[0].texts


def test_long_names_are_cut_in_the_middle():
    clients = [f"{'a long name of a site ' * 3}{k}" for k in range(2)]
    display = ClientDistanceDisplay(np.ones((2, 2)), None, clients, 0.0).plot()
    labels = [label.get_text() for label in display.axes_[0].get_xticklabels()]
    assert labels == ["a long n…a site 0", "a long n…a site 1"]


def test_one_map_where_nothing_is_moved():
    display = ClientDistanceDisplay(np.ones((2, 2)), None, ["A", "B"], 0.0).plot()
    (axis,) = display.axes_
    assert axis.get_title() == "before alignment"
