"""AlignmentDisplay: which points are drawn, and where."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA

from skslot import FederatedOTAligner
from skslot.inspection import AlignmentDisplay


def test_points_are_those_of_aligners_with_these_strengths(aligner, training):
    X, y, ids = training
    display = AlignmentDisplay.from_estimator(aligner, X, y, ids, taus=[0.7, 0])
    assert display.taus == [0.0, 0.7]
    basis = PCA(2, random_state=0).fit(X)
    for tau, points in zip(display.taus, display.projections, strict=True):
        refitted = FederatedOTAligner(tau=tau).fit(X, client_ids=ids)
        expected = basis.transform(refitted.transform(X, client_ids=ids))
        np.testing.assert_allclose(points, expected, atol=1e-8)
    np.testing.assert_allclose(
        display.explained_variance_ratio, basis.explained_variance_ratio_
    )


def test_aligner_is_neither_changed_nor_fitted_again(aligner, training, monkeypatch):
    X, y, ids = training
    before = aligner.transform(X, client_ids=ids)
    for method in ("fit", "partial_fit"):
        monkeypatch.setattr(FederatedOTAligner, method, None)
    AlignmentDisplay.from_estimator(aligner, X, y, ids, taus=[0, 0.5, 1])
    assert aligner.tau == 0.3
    np.testing.assert_array_equal(aligner.transform(X, client_ids=ids), before)


def test_own_strength_is_shown_by_default(aligner, training):
    display = AlignmentDisplay.from_estimator(aligner, *training)
    assert display.taus == [0.0, 0.3, 1.0]
    titles = [axis.get_title() for axis in display.axes_[0]]
    assert titles == ["tau = 0 (before)", "tau = 0.3", "tau = 1"]


def test_panels_share_limits_and_name_their_axes(aligner, training):
    display = AlignmentDisplay.from_estimator(aligner, *training)
    limits = {(*axis.get_xlim(), *axis.get_ylim()) for axis in display.axes_.flat}
    assert len(limits) == 1
    assert display.axes_[-1, 0].get_xlabel().startswith("component 1 (")
    assert display.axes_[0, 0].get_ylabel().startswith("component 2 (")
    assert display.figure_ is display.axes_[0, 0].figure
    low, high = display.projections.min((0, 1)), display.projections.max((0, 1))
    left, right, bottom, top = limits.pop()
    assert left < low[0]
    assert right > high[0]
    assert bottom < low[1]
    assert top > high[1]


def test_every_row_is_drawn_once_in_the_colour_of_its_client(aligner, training):
    X, _, ids = training
    display = AlignmentDisplay.from_estimator(aligner, X, client_ids=ids, taus=[0])
    assert display.axes_.shape == (1, 1)
    (axis,) = display.axes_[0]
    points, *handles = axis.collections
    assert len(points.get_offsets()) == len(X)
    colour_of = {
        handle.get_label(): tuple(handle.get_facecolor()[0, :3]) for handle in handles
    }
    assert list(colour_of) == sorted(set(ids))
    points_of = zip(map(tuple, display.projections[0]), ids, strict=True)
    where = dict(points_of)
    for point, colour in zip(points.get_offsets(), points.get_facecolor(), strict=True):
        assert tuple(colour[:3]) == colour_of[where[tuple(point)]]


def test_more_classes_than_colours_leave_the_smallest_grey():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(13), [5] * 3 + [20] * 10)
    X, ids = rng.normal(size=(len(y), 3)), rng.choice(["A", "B"], len(y))
    aligner = FederatedOTAligner().fit(X, client_ids=ids)
    display = AlignmentDisplay.from_estimator(aligner, X, y, ids, color_by="class")
    texts = [text.get_text() for text in display.axes_[0, -1].get_legend().get_texts()]
    assert texts == ["3 others", *map(str, range(3, 13))]


def test_plot_takes_axes_and_colouring(aligner, training):
    display = AlignmentDisplay.from_estimator(aligner, *training, color_by="client")
    figure, axes = plt.subplots(1, 3)
    assert display.plot(color_by="class", ax=axes) is display
    assert display.figure_ is figure
    assert list(display.axes_[0]) == list(axes)
    assert axes[-1].get_legend().get_title().get_text() == "class"
    with pytest.raises(ValueError, match="ax must hold 2 x 3 axes, got 3"):
        display.plot(ax=axes)


def test_ids_may_be_a_column(training):
    X, y, ids = training
    frame = pd.DataFrame(X).rename(columns=str).assign(site=ids)
    aligner = FederatedOTAligner(client_column="site", keep_client_column=True)
    aligner.fit(frame)
    display = AlignmentDisplay.from_estimator(aligner, frame, y)
    plain = FederatedOTAligner().fit(X, client_ids=ids)
    expected = AlignmentDisplay.from_estimator(plain, X, y, ids)
    np.testing.assert_array_equal(display.client_ids, ids)
    np.testing.assert_allclose(display.projections, expected.projections)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"color_by": "site"}, "color_by must be 'client', 'class' or a list"),
        ({"color_by": "class"}, "needs labels; pass y"),
        ({"taus": [2]}, "tau must lie in"),
        ({"y": [0]}, "inconsistent numbers of samples"),
    ],
)
def test_bad_options_are_refused(aligner, training, options, message):
    X, _, ids = training
    with pytest.raises(ValueError, match=message):
        AlignmentDisplay.from_estimator(aligner, X, client_ids=ids, **options)


def test_one_feature_has_no_two_components():
    X = np.random.default_rng(0).normal(size=(20, 1))
    aligner = FederatedOTAligner().fit(X)
    with pytest.raises(ValueError, match="two features; X has 20 rows and 1 features"):
        AlignmentDisplay.from_estimator(aligner, X)


def test_a_pipeline_is_refused():
    with pytest.raises(TypeError, match="in a Pipeline it is one of the named_steps"):
        AlignmentDisplay.from_estimator(PCA(), np.eye(3))
