"""Reports as pages: what they say about sites, from rows and from messages."""

import re

import numpy as np
import pytest

from skslot import FederatedOTAligner
from skslot.datasets import make_shifted_clients
from skslot.inspection import client_report, diagnose, message_report
from skslot.inspection._diagnose import (
    MIXED,
    PER_CLASS,
    PLAIN,
    offered_models,
)
from skslot.inspection._report import (
    Site,
    _fill,
    describe_site,
    in_short,
    path_of,
    strength_in,
)

OT = "optimal transport, tau=0.2"
NOISE = {"epsilon": 3.0, "delta": 1e-5}


def site(**facts):
    return Site("mnist_m", **{"n_samples": 1000, "n_features": 64, **facts})


# ------------------------------------------------------------------ words about a site


def test_a_site_above_average_is_good():
    level, headline, notes = describe_site(
        site(accuracy=0.8, gap=0.1, unaligned=0.75, distance=1.0)
    )
    assert (level, headline) == ("good", "80% correct, above average.")
    assert notes == ["Without alignment, 75% would be correct.", "It has 1,000 rows."]


def test_a_weak_site_is_looked_at_with_the_most_likely_reason():
    level, headline, _ = describe_site(
        site(accuracy=0.27, gap=-0.5, is_weak=True, distance=2.4, is_farthest=True)
    )
    assert level == "look"
    assert headline.startswith("27% correct, far below average: its features are the")
    assert "distance 2.40" in headline


def test_no_reason_is_made_up():
    _, headline, _ = describe_site(site(accuracy=0.27, gap=-0.5, is_weak=True))
    assert "far below average: no reason was found" in headline
    level, headline, _ = describe_site(site(accuracy=0.7, gap=-0.1))
    assert (level, headline) == ("ordinary", "70% correct, below average.")


def test_distance_explains_only_a_low_accuracy():
    level, headline, notes = describe_site(
        site(accuracy=0.9, gap=0.1, distance=3.0, is_farthest=True)
    )
    assert level == "good"
    assert "distance" not in " ".join([headline, *notes])


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"n_samples": 12}, "it has only 12 rows"),
        ({"n_samples": 1}, "it has only 1 row,"),
        ({"n_samples": 60}, "it has no more rows than the 64 features"),
        (
            {"n_classes": 9, "absent": list("abcdefg"), "lacks_more": True},
            "it has no rows of 7 of 9 classes (a, b, c, d, e, 2 more)",
        ),
        ({"outlier": "its unit is another one."}, "it stands out, as its unit"),
    ],
)
def test_reasons(facts, expected):
    facts = {"accuracy": 0.01, "gap": -0.9, "is_weak": True, **facts}
    _, headline, _ = describe_site(site(**facts))
    assert f"far below average: {expected}" in headline
    assert ".." not in headline


def test_classes_that_all_sites_lack_are_a_note_and_no_reason():
    facts = {"n_classes": 4, "absent": ["cat"], "accuracy": 0.8, "gap": -0.1}
    level, _, notes = describe_site(site(**facts))
    assert level == "ordinary"
    assert "It has no rows of 1 of 4 classes (cat)" in notes[0]
    assert notes[-1] == "It has 1,000 rows of 3 classes."


def test_an_outlier_is_looked_at_at_any_accuracy():
    level, headline, _ = describe_site(
        site(accuracy=0.9, gap=0.1, outlier="other units?")
    )
    assert level == "look"
    assert headline.endswith("above average: it stands out, as other units?")


@pytest.mark.parametrize("distance", [1.0, 9.0])
def test_without_accuracy_the_distance_is_given_and_not_judged(distance):
    level, headline, _ = describe_site(site(distance=distance))
    assert level == "ordinary"
    assert headline == (
        f"1,000 rows, at distance {distance:.2f} from the other clients."
    )


def test_names_and_labels_stay_in_one_line():
    named = Site("a\nb", 100, 2, 2, ["x\ny"], True, accuracy=0.1, gap=-0.5)
    assert named.name == r"a\nb"
    assert r"(x\ny)" in describe_site(named)[1]


def test_a_site_with_noise_is_described_with_care():
    facts = {"n_classes": 4, "absent": ["cat"], "lacks_more": True, "noise": NOISE}
    _, headline, notes = describe_site(site(n_samples=199.6, **facts))
    assert headline == "About 200 rows of 3 classes."
    assert notes[0].startswith("It seems to have no rows of 1 of 4 classes (cat)")
    assert "noise (differential privacy with epsilon 3 and delta 1e-05)" in notes[1]


def test_guarantees_that_differ_are_given_as_a_range():
    assert in_short([NOISE, {"epsilon": 1, "delta": 1e-5}]) == (
        "differential privacy with epsilon 1 to 3 and delta 1e-05"
    )


# ------------------------------------------------------------------ the template


def test_elements_without_a_value_are_omitted_inner_ones_first():
    template = (
        "<section><p>$a</p>\n<p>$b</p>\n</section>\n"
        "<section$if_c>\nc\n</section>\n$d_html"
    )
    values = {"a": "<", "b": None, "if_c": None, "d_html": "<b>"}
    assert _fill(template, values) == "<section><p>&lt;</p>\n</section>\n<b>"


# ------------------------------------------------------------------ recommendation


def test_names_of_models_are_those_of_diagnose():
    models = offered_models(False)
    for name, model in models.items():
        assert strength_in(name) == getattr(getattr(model, "aligner", None), "tau", 0)
    assert {MIXED, PLAIN, PER_CLASS} < models.keys()


@pytest.fixture(scope="module")
def found():
    data = make_shifted_clients(
        400, n_clients=3, n_features=4, label_shift=0.3, random_state=0
    )
    return diagnose(data.data, data.target, data.client_ids)


@pytest.mark.parametrize("automatic", [0.0, 0.07, 0.4])
def test_path_has_each_strength_once(found, automatic):
    path = path_of(found, automatic)
    assert path.taus == sorted({0.0, 0.2, 0.4, 0.6, automatic})
    np.testing.assert_array_equal(path.scores[-1], found.accuracies[OT[:-1] + "6"])
    assert path.chosen_tau in path.taus


# ------------------------------------------------------------------ whole pages


@pytest.fixture
def _no_pictures(monkeypatch):
    def close(figure):
        import matplotlib.pyplot as plt

        plt.close(figure)
        return "data:,"

    monkeypatch.setattr("skslot.inspection._report._as_source", close)


def numbers_on(page):
    """Pairs of words and number on a page, in order."""
    return re.findall('<th scope="row">(.*?)</th><td>(.*?)</td>', page)


@pytest.mark.usefixtures("_no_pictures")
def test_messages_give_the_numbers_of_the_rows():
    data = make_shifted_clients(300, n_clients=3, n_features=4, random_state=0)
    X, ids = data.data, np.array(["A", "B", "C"])[data.client_ids]
    aligner = FederatedOTAligner()
    messages = [aligner.client_update(X[ids == each], client=each) for each in "ABC"]
    pages = client_report(X, client_ids=ids), message_report(messages)
    for words in ("distance from the others", "W2 before", "W2 after", "shrinkage"):
        found = [
            [
                value.partition("<")[0]
                for name, value in numbers_on(page)
                if name == words
            ]
            for page in pages
        ]
        assert len(found[0]) == 3
        assert found[0] == found[1]


@pytest.mark.usefixtures("_no_pictures")
def test_code_of_rows_begins_with_what_reads_them():
    data = make_shifted_clients(90, n_clients=3, n_features=3, random_state=0)
    rows = {"X": data.data, "client_ids": data.client_ids}
    page = client_report(**rows, reading="X, client_ids = read()\n")
    code = page.partition("<code>")[2].partition("</code>")[0]
    names = {"read": lambda: (rows["X"], rows["client_ids"])}
    exec(code, names)
    assert names["aligned"].shape == rows["X"].shape


def test_one_client_or_message_is_refused():
    X = np.random.default_rng(0).normal(size=(20, 2))
    with pytest.raises(ValueError, match="all rows are of one client, 'A'"):
        client_report(X, client_ids=np.repeat("A", 20))
    with pytest.raises(ValueError, match="only one message"):
        message_report([FederatedOTAligner().client_update(X, client="A")])
    with pytest.raises(ValueError, match="client_ids is missing"):
        client_report(X)
