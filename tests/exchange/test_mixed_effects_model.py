"""The model that the server sends to all clients, and what of it is refused."""

from dataclasses import replace

import numpy as np
import pytest

from skslot.exchange import MessageError, MixedEffectsModel, load_message


@pytest.fixture
def model(messages):
    return messages["mixed-effects model"]


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"components": np.array([0.5, -1.0, 0.25])}, "must not be negative"),
        ({"components": np.array([0.5, 1.0])}, "components has the shape"),
        ({"components": np.array([0.5, np.nan, 1.0])}, "NaN or infinity"),
        ({"priors": np.array([0.5, 0.25, 0.25])}, "priors has the shape"),
        ({"priors": np.array([1.5, -0.5])}, "must be positive"),
        ({"priors": np.array([1.0, 0.0])}, "must be positive"),
        ({"priors": np.array([0.7, 0.7])}, "add up to 1"),
        ({"holders": np.array([4, 1])}, "held by more clients than there are"),
        ({"holders": np.array([3, 0])}, "holders must be positive"),
        ({"holders": np.array([3.0, 1.0])}, "holders has the wrong dtype"),
        ({"class_counts": np.array([60.0, 0.0])}, "class_counts must be positive"),
        ({"class_counts": np.array([2.0**62, 20.0])}, "more rows than there can be"),
        ({"class_counts": np.array([60.0])}, "holders has the shape"),
        ({"means": np.ones((2, 4))}, "does not fit"),
        ({"effects": np.ones((3, 3))}, "effects has the shape"),
        ({"covariance_triangle": -np.ones(6)}, "negative variance"),
        ({"covariance_triangle": np.array([1.0, 5, 0, 1, 0, 1])}, "semi-definite"),
        ({"reference_triangle": np.array([1.0, 5, 0, 1, 0, 1])}, "semi-definite"),
        ({"reference_triangle": np.ones(3)}, "does not fit"),
        ({"by_rows": 1}, "by_rows must be true or false"),
        ({"by_rows": None}, "by_rows must be true or false"),
        ({"by_client": "yes"}, "by_client must be true or false"),
        ({"tau": 1.5}, "tau must be a number from 0 to 1"),
        ({"tau": "0.5"}, "tau must be a number from 0 to 1"),
        ({"tau": True}, "tau must be a number from 0 to 1"),
        ({"shrinkage": -0.5}, "shrinkage must be a number from 0 to 1"),
        ({"converged": 1}, "converged must be true or false"),
        ({"clients": "ABC"}, "clients must be a list"),
        ({"clients": ["A", "B", 2**63]}, "cannot be sent"),
        ({"clients": ["A", "B", "A"]}, "name each client once"),
        ({"clients": []}, "held by more clients than there are"),
        ({"classes": ["a", "b", "c"]}, "not as many classes"),
        ({"classes": ["a", "a"]}, "name each label once"),
        ({"classes": ["a", 1]}, "all text, all numbers"),
    ],
)
def test_what_cannot_be_is_refused(model, tampered, changes, match):
    with pytest.raises(MessageError, match=match):
        load_message(tampered(model, **changes))


@pytest.mark.parametrize("field", MixedEffectsModel.__dataclass_fields__)
def test_no_field_may_be_missing(model, tampered, field):
    with pytest.raises(MessageError):
        load_message(tampered(model, **{field: {"nothing": "of use"}}))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_nothing_but_numbers_is_rounded(model, dtype):
    sent = load_message(model.to_bytes(dtype))
    rounding = {"float64": 0, "float32": 2**-23, "float16": 2**-10}[dtype]
    for name in ("means", "effects", "covariance", "reference_covariance", "priors"):
        np.testing.assert_allclose(
            getattr(sent, name), getattr(model, name), rtol=0, atol=4 * rounding
        )
    assert np.array_equal(sent.class_counts, model.class_counts)
    assert np.array_equal(sent.holders, model.holders)
    facts = (
        "clients",
        "tau",
        "by_rows",
        "by_client",
        "converged",
        "classes",
        "encoder",
    )
    assert all(getattr(sent, name) == getattr(model, name) for name in facts)


def test_reference_may_be_absent(model):
    without = replace(model, reference_covariance=np.empty(0))
    assert not load_message(without.to_bytes()).reference_covariance.size
    assert len(without.to_bytes()) < len(model.to_bytes())


def test_labels_and_clients_keep_their_types(model):
    other = replace(model, classes=[False, True], clients=[1, 2.5, "x"])
    sent = load_message(other.to_bytes())
    assert [type(each) for each in sent.classes] == [bool, bool]
    assert sent.clients == [1, 2.5, "x"]


def test_description_tells_what_it_is_about(model):
    text = model.describe()
    assert "mixed-effects model" in text
    assert "variance of client, class and interaction effects" in text
    assert "number of clients that hold each class" in text
    assert "['A', 'B', 'C']" in text


def test_it_prints_in_a_line(model):
    assert repr(model) == (
        "MixedEffectsModel(classes=['a', 'b'], n_features=3, clients=['A', 'B', 'C'])"
    )
