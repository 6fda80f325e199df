"""The figures of the appendix."""

import numpy as np
import pytest

from skslot.experiments import FeatureSet, pca_figures

matplotlib = pytest.importorskip("matplotlib")


def test_one_panel_per_strength_and_half_of_the_classes():
    matplotlib.use("Agg")
    data = FeatureSet.embedded()
    figures = pca_figures(data)
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
