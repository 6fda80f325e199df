"""Words about sites, from what is known of them."""

import numpy as np
import pytest

from skslot.cli._site_words import (
    Site,
    describe_site,
    in_short,
    mean_of_others,
    times_apart,
)


def site(**facts):
    return Site("mnist_m", **{"n_samples": 1000, "n_features": 64, **facts})


def test_a_site_that_does_well_is_told_so():
    verdict = describe_site(site(accuracy=0.8, others=0.7, unaligned=0.75, apart=1.0))
    assert verdict.level == "good"
    assert verdict.headline == "80% right, better than average."
    assert verdict.notes == [
        "Without alignment it would be 75%.",
        "It has 1,000 rows.",
    ]


def test_a_site_far_below_the_others_is_told_why_and_what_to_do():
    verdict = describe_site(site(accuracy=0.27, others=0.8, unaligned=0.27, apart=2.4))
    assert verdict.level == "look"
    assert verdict.headline == (
        "27% right, far below the others: its features lie 2.4 times as far from the "
        "others as these from each other; look at its label mix and at how they were "
        "made."
    )


def test_no_reason_is_made_up():
    verdict = describe_site(site(accuracy=0.27, others=0.8, apart=1.0))
    assert "far below the others: nothing here explains that" in verdict.headline
    verdict = describe_site(site(accuracy=0.7, others=0.8, apart=1.0))
    assert (verdict.level, verdict.headline) == (
        "ordinary",
        "70% right, below average.",
    )


def test_a_smaller_distance_explains_only_what_is_bad():
    badly = describe_site(site(accuracy=0.7, others=0.8, apart=1.3))
    assert "lie 1.3 times as far from the others" in badly.headline
    well = describe_site(site(accuracy=0.9, others=0.8, apart=1.3))
    assert "1.3 times" not in " ".join([well.headline, *well.notes])


def test_few_rows_do_not_tell_sites_apart():
    few = describe_site(site(n_samples=40, accuracy=0.75, others=0.85))
    many = describe_site(site(n_samples=4000, accuracy=0.75, others=0.85))
    assert few.headline.startswith("75% right, about average")
    assert many.headline.startswith("75% right, below average")


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"n_samples": 12}, "it has 12 rows only"),
        ({"n_samples": 1}, "it has 1 row only"),
        ({"n_samples": 60}, "it has no more rows than the 64 features"),
        (
            {"n_classes": 9, "absent": list("abcdefg"), "absent_elsewhere": 2},
            "it has no rows of 7 of 9 classes (a, b, c, d, e, 2 more)",
        ),
        ({"stands_out": "its unit is another one.", "apart": 9.0}, "it stands out, as"),
    ],
)
def test_reasons(facts, expected):
    verdict = describe_site(site(accuracy=0.01, others=0.9, **facts))
    assert f"far below the others: {expected}" in verdict.headline
    assert ".." not in verdict.headline


def test_classes_that_all_sites_lack_are_a_note_and_no_reason():
    facts = {"n_classes": 4, "absent": ["cat"], "absent_elsewhere": 2}
    verdict = describe_site(site(accuracy=0.8, others=0.9, **facts))
    assert verdict.headline == "80% right, below average."
    assert "It has no rows of 1 of 4 classes (cat)" in verdict.notes[0]
    assert verdict.notes[-1] == "It has 1,000 rows of 3 classes."


def test_a_site_that_stands_out_is_looked_at_however_well_it_does():
    verdict = describe_site(site(accuracy=0.9, others=0.8, stands_out="of units"))
    assert verdict.level == "look"
    assert (
        verdict.headline
        == "90% right, better than average: it stands out, as of units."
    )


@pytest.mark.parametrize("apart", [1.0, 9.0])
def test_without_accuracy_the_distance_is_told_and_not_judged(apart):
    verdict = describe_site(site(apart=apart))
    assert verdict.level == "ordinary"
    assert verdict.headline == (
        f"1,000 rows: its features lie {apart} times as far from the others as these "
        "from each other."
    )


def test_of_two_sites_none_is_unusual():
    of_two = describe_site(site())
    assert "of two sites, nobody can say" in of_two.headline


def test_names_and_labels_stay_in_one_line():
    named = Site("a\nb", 100, 2, 2, ["x\ny"], 0.0, accuracy=0.1, others=0.9)
    assert named.name == r"a\nb"
    assert r"(x\ny)" in describe_site(named).headline


def test_distances_are_measured_by_those_of_the_others():
    distances = np.array([[0, 1, 4.0], [1, 0, 4], [4, 4, 0]])
    assert times_apart(distances).tolist() == [2.5 / 4, 2.5 / 4, 4.0]
    assert np.isnan(times_apart(distances[:2, :2])).all()


def test_a_site_among_others_that_coincide_is_as_usual_or_far():
    assert times_apart(np.zeros((3, 3))).tolist() == [1, 1, 1]
    apart = times_apart(np.array([[0, 0, 4.0], [0, 0, 4], [4, 4, 0]]))
    assert apart.tolist() == [0.5, 0.5, np.inf]
    alone = describe_site(site(apart=np.inf)).headline
    assert alone.endswith("its features lie far from the others, which coincide.")


NOISE = {"epsilon": 3.0, "delta": 1e-5}


def test_a_site_with_noise_is_described_with_care():
    facts = {"n_classes": 4, "absent": ["cat"], "apart": 1.0, "noise": NOISE}
    verdict = describe_site(site(n_samples=199.6, **facts))
    assert verdict.headline.startswith("About 200 rows of 3 classes: its features lie")
    assert verdict.headline.endswith("as far as noise lets one see.")
    assert verdict.notes == [
        "It seems to have no rows of 1 of 4 classes (cat) and knows them from others.",
        "All of its numbers carry noise (differential privacy with epsilon 3 and delta "
        "1e-05).",
    ]
    out = describe_site(site(stands_out="other units?", noise=NOISE))
    assert out.headline.endswith(
        "it stands out, as other units? Where rows are few, noise alone may do that."
    )


def test_guarantees_that_differ_are_told_as_a_range():
    assert in_short([NOISE, {"epsilon": 1, "delta": 1e-5}]) == (
        "differential privacy with epsilon 1 to 3 and delta 1e-05"
    )


def test_questions_stay_questions():
    assert describe_site(site(stands_out="other units?")).headline.endswith("units?")


def test_mean_of_others_passes_over_what_is_not_known():
    assert mean_of_others([1, 2, 6]).tolist() == [4, 3.5, 1.5]
    assert mean_of_others([1, np.nan, 3]).tolist() == [3, 2, 1]
    assert np.isnan(mean_of_others([1.0])).all()
