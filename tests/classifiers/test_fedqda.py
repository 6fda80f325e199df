"""FedQDA: a covariance per class, from any partition, as scikit-learn has it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import Pipeline

from skslot import (
    FedCGSClassifier,
    FederatedOTAligner,
    FedPFTClassifier,
    FedQDAClassifier,
    MixedEffectsAligner,
)
from skslot.datasets import make_shifted_clients

TYPES = pytest.mark.parametrize("covariance_type", ["full", "diag"])

shifted = make_shifted_clients(
    n_samples=300, n_clients=3, n_classes=3, n_features=5, random_state=0
)
X, Y, IDS = shifted.data, shifted.target, shifted.client_ids


def exact(covariance_type="full", **params):
    return FedQDAClassifier(covariance_type, **params)


def long_way(X, y, to_pooled, to_identity, covariance_type="full"):
    """Covariances of the classes, from pooled rows."""
    classes = np.unique(y)
    own = [np.cov(X[y == c].T, bias=True) for c in classes]
    within = sum(np.mean(y == c) * each for c, each in zip(classes, own, strict=True))
    result = []
    for each in own:
        mixed = (1 - to_pooled) * each + to_pooled * within
        target = np.trace(mixed) / len(mixed) * np.eye(len(mixed))
        mixed = (1 - to_identity) * mixed + to_identity * target
        result.append(mixed if covariance_type == "full" else np.diag(mixed))
    return np.array(result)


# --------------------------------------------------------------------- partitions


@TYPES
@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    clients=st.lists(st.integers(0, 6), min_size=len(X), max_size=len(X)),
    offset=st.sampled_from([0.0, 1e3]),
)
def test_any_partition_gives_the_same_model(covariance_type, clients, offset):
    rows = X + offset
    expected = exact(covariance_type).fit(rows, Y)
    actual = exact(covariance_type).fit(rows, Y, client_ids=np.array(clients))
    np.testing.assert_allclose(actual.means_, expected.means_, rtol=1e-12)
    np.testing.assert_allclose(actual.covariances_, expected.covariances_, atol=1e-9)
    np.testing.assert_allclose(
        actual.predict_proba(rows), expected.predict_proba(rows), atol=1e-8
    )


@TYPES
def test_names_of_clients_and_order_of_messages_do_not_matter(covariance_type):
    renamed = np.array(list("zyx"))[IDS]
    expected = exact(covariance_type).fit(X, Y, client_ids=IDS)
    actual = exact(covariance_type).fit(X, Y, client_ids=renamed)
    np.testing.assert_allclose(actual.covariances_, expected.covariances_, atol=1e-12)


# ------------------------------------------------------------------- long way round


@TYPES
@pytest.mark.parametrize("to_pooled", [0.0, 0.9, 1.0])
@pytest.mark.parametrize("to_identity", [0.0, 0.05, 1.0])
def test_covariances_are_pulled_to_the_pooled_one_and_to_the_identity(
    covariance_type, to_pooled, to_identity
):
    classifier = exact(
        covariance_type, shrink_to_pooled=to_pooled, shrink_to_identity=to_identity
    ).fit(X, Y, client_ids=IDS)
    expected = long_way(X, Y, to_pooled, to_identity, covariance_type)
    np.testing.assert_allclose(classifier.covariances_, expected, atol=1e-10)


@pytest.mark.parametrize("reg", [0.0, 0.2])
def test_equals_quadratic_discriminant_analysis_of_scikit_learn(reg):
    """It adds the identity itself, to a covariance that 1.8 divides by n - 1."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    rows = rng.standard_normal((300, 4)) @ rng.standard_normal((4, 4))
    rows[y == 1] *= [1, 2, 1, 3]
    theirs = rows.copy()
    for label in range(3):
        of_class = y == label
        centred = rows[of_class] - rows[of_class].mean(axis=0)
        centred /= np.sqrt(np.mean(centred**2))  # a mean variance of one
        rows[of_class] = centred + 0.7 * label
        alone = QuadraticDiscriminantAnalysis().fit(
            np.vstack([centred, rng.standard_normal((9, 4))]),
            np.repeat([0, 1], [len(centred), 9]),
        )
        grown = np.sqrt(np.mean(alone.scalings_[0]))  # 1, or the root of n / (n - 1)
        theirs[of_class] = centred / grown + 0.7 * label
    classifier = exact(shrink_to_pooled=0, shrink_to_identity=reg)
    classifier.fit(rows, y, client_ids=rng.integers(0, 4, 300))
    expected = QuadraticDiscriminantAnalysis(reg_param=reg).fit(theirs, y)
    np.testing.assert_allclose(
        classifier.predict_proba(rows), expected.predict_proba(rows), atol=1e-8
    )
    assert classifier.score(rows, y) > FedCGSClassifier().fit(rows, y).score(rows, y)


def test_diag_is_naive_bayes():
    classifier = exact("diag", shrink_to_pooled=0, shrink_to_identity=0)
    classifier.fit(X, Y, client_ids=IDS)
    expected = GaussianNB(var_smoothing=0).fit(X, Y)
    np.testing.assert_allclose(
        classifier.predict_proba(X), expected.predict_proba(X), atol=1e-8
    )
    np.testing.assert_allclose(classifier.covariances_, expected.var_, rtol=1e-9)


def test_pooled_covariance_alone_is_linear_discriminant_analysis():
    quadratic = exact(shrink_to_pooled=1, shrink_to_identity=0)
    quadratic.fit(X, Y, client_ids=IDS)
    linear = FedCGSClassifier("within", ridge=0).fit(X, Y, client_ids=IDS)
    np.testing.assert_allclose(
        quadratic.predict_proba(X), linear.predict_proba(X), atol=1e-8
    )


def test_priors_are_empirical_uniform_or_given():
    for priors, expected in [
        ("empirical", np.bincount(Y[60:]) / len(Y[60:])),
        ("uniform", [1 / 3] * 3),
        ([7, 1, 2], [0.7, 0.1, 0.2]),
    ]:
        classifier = exact(priors=priors).fit(X[60:], Y[60:])
        np.testing.assert_allclose(classifier.priors_, expected, rtol=1e-12)
    reference = QuadraticDiscriminantAnalysis(priors=[0.7, 0.1, 0.2]).fit(X, Y)
    ours = exact(priors=[7, 1, 2], shrink_to_pooled=0, shrink_to_identity=0).fit(X, Y)
    assert np.mean(ours.predict(X) == reference.predict(X)) > 0.98
    with pytest.raises(ValueError, match="3 positive numbers"):
        exact(priors=[1, 2]).fit(X, Y)


# --------------------------------------------------------------------- edge cases


@TYPES
def test_one_row_per_class_is_the_nearest_mean(covariance_type):
    rows = np.random.default_rng(0).standard_normal((4, 5))
    classifier = exact(covariance_type).fit(rows, list("abcd"), client_ids=[0, 0, 1, 1])
    assert classifier.predict(rows + 0.01).tolist() == list("abcd")
    variances = classifier.covariances_.reshape(4, -1)
    np.testing.assert_allclose(variances, variances[:1].repeat(4, axis=0))


@TYPES
def test_rows_that_do_not_vary_are_left_to_the_priors(covariance_type):
    classifier = exact(covariance_type)
    classifier.fit(np.full((6, 3), 0.1), list("aabbbb"))
    np.testing.assert_allclose(
        classifier.predict_proba([[0.1] * 3, [5.0] * 3]), [[1 / 3, 2 / 3]] * 2
    )


@TYPES
def test_singular_class_is_named(covariance_type):
    rows = X.copy()
    rows[Y == 1, 2] = 4.0
    classifier = exact(covariance_type, shrink_to_pooled=0, shrink_to_identity=0)
    with pytest.raises(ValueError, match="class 1 is singular.*larger shrink_to"):
        classifier.fit(rows, Y)
    assert exact(covariance_type).fit(rows, Y).score(rows, Y) > 0.8


@TYPES
def test_constant_features_do_no_harm(covariance_type):
    rows = np.insert(X, [0, 3], [5.0, 0.0], axis=1)
    wide = exact(covariance_type).fit(rows, Y, client_ids=IDS)
    plain = exact(covariance_type).fit(X, Y, client_ids=IDS)
    assert np.mean(wide.predict(rows) == plain.predict(X)) > 0.97


@TYPES
def test_fewer_rows_than_features(covariance_type):
    rng = np.random.default_rng(0)
    y = np.arange(30) % 3
    rows = rng.standard_normal((30, 100))
    rows[:, :3] += 8 * np.eye(3)[y]
    classifier = FedQDAClassifier(covariance_type).fit(rows, y, client_ids=y)
    assert classifier.score(rows, y) == 1.0


@TYPES
def test_float32_features_far_from_the_origin(covariance_type):
    rows = (X + 1000).astype(np.float32)
    expected = exact(covariance_type).fit(X, Y).predict_proba(X)
    actual = exact(covariance_type).fit(rows, Y).predict_proba(rows)
    np.testing.assert_allclose(actual, expected, atol=0.01)


@TYPES
@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_unit_of_the_features_does_not_matter(covariance_type, scale):
    expected = exact(covariance_type).fit(X, Y).predict_proba(X)
    actual = exact(covariance_type).fit(X * scale, Y).predict_proba(X * scale)
    np.testing.assert_allclose(actual, expected, atol=1e-9)


# ----------------------------------------------------------------------- messages


@TYPES
@pytest.mark.parametrize("aligner", [None, FederatedOTAligner()])
def test_message_is_that_of_fedpft_with_one_component(covariance_type, aligner):
    ours = FedQDAClassifier(covariance_type, aligner=aligner)
    theirs = FedPFTClassifier(covariance_type=covariance_type, aligner=aligner)
    assert ours.client_update(X, Y, client="A") == theirs.client_update(
        X, Y, client="A"
    )


@pytest.mark.parametrize(("covariance_type", "per_class"), [("full", 20), ("diag", 10)])
def test_size_of_the_message(covariance_type, per_class):
    """Mean, covariance and weight, and two integers, for each class."""
    message = FedQDAClassifier(covariance_type).client_update(X, Y)
    data = message.to_bytes("float32")
    header = int.from_bytes(data[:8], "little")
    assert len(data) - 8 - header == 4 * 3 * (per_class + 1 + 2)


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"covariance_type": "diag"}, "1 components of type 'diag'"),
        ({"covariance_type": "spherical"}, "1 components of type 'spherical'"),
        ({"covariance_type": "full", "n_components": 2}, "2 components of type 'full'"),
    ],
)
def test_other_mixtures_are_refused(params, match):
    message = FedPFTClassifier(random_state=0, **params).client_update(X, Y, client="A")
    with pytest.raises(ValueError, match=f"client 'A' sent up to {match}.*the same"):
        FedQDAClassifier().server_aggregate([message])


@TYPES
def test_there_is_no_linear_model(covariance_type):
    for aligner in (None, FederatedOTAligner()):
        classifier = FedQDAClassifier(covariance_type, aligner=aligner)
        classifier.fit(X, Y, client_ids=IDS)
        with pytest.raises(ValueError, match="covariance for each class"):
            classifier.linear_model()
        with pytest.raises(ValueError, match="covariance for each class"):
            classifier.client_model(0)


# --------------------------------------------------------------------- one upload


@pytest.mark.usefixtures("routing")
@pytest.mark.parametrize("aligner", [FederatedOTAligner(), MixedEffectsAligner()])
def test_one_upload_of_full_covariances_equals_the_pipeline(aligner):
    one = exact(aligner=aligner).fit(X, Y, client_ids=IDS)
    two = Pipeline([("align", aligner), ("classify", exact())])
    two.fit(X, Y, client_ids=IDS)
    np.testing.assert_allclose(
        one.predict_proba(X, client_ids=IDS),
        two.predict_proba(X, client_ids=IDS),
        atol=1e-8,
    )


@pytest.mark.usefixtures("routing")
def test_shift_alone_equals_the_pipeline_for_diagonal_covariances_too():
    aligner = MixedEffectsAligner(tau=0)
    one = exact("diag", aligner=aligner).fit(X, Y, client_ids=IDS)
    two = Pipeline([("align", aligner), ("classify", exact("diag"))])
    two.fit(X, Y, client_ids=IDS)
    np.testing.assert_allclose(
        one.predict_proba(X, client_ids=IDS),
        two.predict_proba(X, client_ids=IDS),
        atol=1e-8,
    )


def test_diagonal_of_a_mapped_gaussian_is_exact():
    classifier = exact(
        "diag", aligner=FederatedOTAligner(), shrink_to_pooled=0, shrink_to_identity=0
    ).fit(X, Y, client_ids=IDS)
    for label in range(3):
        count, mean, square = 0, 0.0, 0.0
        for client in range(3):
            rows = X[(IDS == client) & (Y == label)]
            matrix, offset = classifier.aligner_.maps_[client].affine
            moved = matrix @ rows.mean(axis=0) + offset
            variances = np.diag(matrix @ np.diag(rows.var(axis=0)) @ matrix.T)
            count, mean = count + len(rows), mean + len(rows) * moved
            square = square + len(rows) * (variances + moved**2)
        expected = square / count - (mean / count) ** 2
        np.testing.assert_allclose(classifier.covariances_[label], expected, rtol=1e-8)
