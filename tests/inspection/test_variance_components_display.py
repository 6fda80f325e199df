"""VarianceComponentsDisplay: the shares, and where their numbers stand."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import sklearn
from matplotlib.text import Text
from sklearn.pipeline import make_pipeline

from skslot import FedCGSClassifier, MixedEffectsAligner, MixedEffectsClassifier
from skslot.inspection import VarianceComponentsDisplay
from skslot.model_selection import FederatedGridSearchCV

PARTS = ["class", "site", "site by class", "within"]


def test_shares_are_those_of_the_components(mixed):
    (shares,) = VarianceComponentsDisplay.from_estimator(mixed).shares
    components = mixed.variance_components_
    assert shares.sum() == pytest.approx(1)
    in_units_of_within = shares / shares[3]
    expected = [components[k] for k in ("class", "client", "interaction")]
    np.testing.assert_allclose(in_units_of_within, [*expected, 1])


def test_shares_are_the_numbers_of_the_summary(mixed):
    (shares,) = VarianceComponentsDisplay.from_estimator(mixed).shares
    lines = mixed.summary().splitlines()[1:5]
    assert [line.split()[0] for line in lines] == [f"{share:.1%}" for share in shares]


def test_bars_fill_the_width_in_order(mixed):
    display = VarianceComponentsDisplay.from_estimators({"one": mixed, "two": mixed})
    legend = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert legend == PARTS
    assert [text.get_text() for text in display.ax_.get_yticklabels()] == ["one", "two"]
    bars = np.array([[bar.get_width() for bar in c] for c in display.ax_.containers])
    lefts = np.array([[bar.get_x() for bar in c] for c in display.ax_.containers])
    np.testing.assert_allclose(bars.T, display.shares)
    np.testing.assert_allclose(lefts[1:], np.cumsum(bars, axis=0)[:-1])


def test_parts_differ_in_brightness_too(mixed):
    """In black and white, neighbours in a bar are told apart."""
    display = VarianceComponentsDisplay.from_estimator(mixed)
    colours = np.array([c[0].get_facecolor()[:3] for c in display.ax_.containers])
    brightness = colours @ [0.299, 0.587, 0.114]
    assert np.abs(np.diff(brightness)).min() > 0.1


@pytest.mark.parametrize(
    "shares",
    [[0.3, 0.2, 0.1, 0.4], [0.001, 0.002, 0.003, 0.994], [0.97, 0, 0, 0.03]],
    ids=str,
)
def test_every_share_has_its_number_and_none_cover_each_other(shares):
    display = VarianceComponentsDisplay(np.array([shares]), ["a"]).plot()
    texts = display.ax_.texts
    numbers = [float(text.get_text().rstrip("%")) / 100 for text in texts]
    np.testing.assert_allclose(numbers, shares, atol=0.005)
    display.figure_.canvas.draw()
    boxes = [Text.get_window_extent(text) for text in texts]  # without arrows
    frame = display.figure_.bbox
    for position, box in enumerate(boxes):
        assert frame.x0 <= box.x0
        assert box.x1 <= frame.x1
        assert not any(box.overlaps(other) for other in boxes[:position])


def test_aligner_search_and_other_classifiers_have_a_bar_too(training):
    X, y, ids = training
    aligner = MixedEffectsAligner().fit(X, y, client_ids=ids)
    other = FedCGSClassifier(aligner=MixedEffectsAligner()).fit(X, y, client_ids=ids)
    search = FederatedGridSearchCV(MixedEffectsClassifier(tau=0), {"tau": [0]}, cv=2)
    with sklearn.config_context(enable_metadata_routing=True):
        search.fit(X, y, client_ids=ids)
    estimators = {"aligner": aligner, "FedCGS": other, "search": search}
    shares = VarianceComponentsDisplay.from_estimators(estimators).shares
    np.testing.assert_allclose(shares, shares[[0, 0, 0]])


def test_plot_takes_axes_and_returns_the_display(mixed):
    figure, ax = plt.subplots()
    display = VarianceComponentsDisplay.from_estimator(mixed, name="digits", ax=ax)
    assert display.ax_ is ax
    assert display.figure_ is figure
    assert ax.get_yticklabels()[0].get_text() == "digits"
    assert display.plot() is display


def test_what_has_no_components_is_refused(aligner, mixed):
    with pytest.raises(TypeError, match="a FederatedOTAligner has no variance comp"):
        VarianceComponentsDisplay.from_estimator(aligner)
    with pytest.raises(TypeError, match="one of the named_steps"):
        VarianceComponentsDisplay.from_estimator(make_pipeline(mixed))
    with pytest.raises(ValueError, match="estimators is empty"):
        VarianceComponentsDisplay.from_estimators({})
