"""FedPFT: mixtures in closed form or by EM, rows drawn, any estimator, one upload."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from skslot import FederatedOTAligner, FedPFTClassifier, MixedEffectsAligner
from skslot._utils import pack_triangle, unpack_triangle
from skslot.classifiers._fedpft import (
    draw_rows,
    merge_by_class,
    single_gaussian,
)
from skslot.classifiers._training import fit_logistic
from skslot.datasets import make_shifted_clients

SCIKIT_LEARN_TYPES = ["spherical", "diag", "full"]
EM_TYPES = pytest.mark.parametrize("covariance_type", SCIKIT_LEARN_TYPES)
TYPES = pytest.mark.parametrize("covariance_type", [*SCIKIT_LEARN_TYPES, "lowrank"])

shifted = make_shifted_clients(
    n_samples=240, n_clients=3, n_classes=4, n_features=5, random_state=0
)

# Most of these tests are about one client; the warning has a test of its own.
pytestmark = pytest.mark.filterwarnings("ignore:No client_ids were passed")
X, Y, IDS = shifted.data, shifted.target, shifted.client_ids


class Recorder(ClassifierMixin, BaseEstimator):
    """Remembers what it was fitted on."""

    def fit(self, X, y):
        self.X_, self.y_, self.classes_ = X, y, np.unique(y)
        return self

    def predict(self, X):
        return np.repeat(self.classes_[:1], len(X))


def drawn(X, y, client_ids=None, **params):
    """Rows and labels on which the estimator was fitted."""
    params = {"random_state": 0, **params}
    classifier = FedPFTClassifier(estimator=Recorder(), **params)
    recorder = classifier.fit(X, y, client_ids=client_ids).estimator_
    return recorder.X_, recorder.y_


def fit_received(classifier, X, y, client_ids, dtype):
    """Fit to messages that were sent with a precision."""
    rows = {client: client_ids == client for client in np.unique(client_ids)}
    return classifier.server_aggregate(
        classifier.client_update(X[own], y[own], client=client).as_received(dtype)
        for client, own in rows.items()
    )


def flatten(covariances, covariance_type):
    """Covariances of a GaussianMixture in the form of the message."""
    if covariance_type == "full":
        return np.array([pack_triangle(c) for c in covariances])
    return covariances.reshape(len(covariances), -1)


def ridge_of(covariance_type, n_features, reg_covar):
    eye = reg_covar * np.eye(n_features)
    return pack_triangle(eye) if covariance_type == "full" else reg_covar


# --------------------------------------------------------------------- mixtures


@EM_TYPES
@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_closed_form_equals_expectation_maximisation(covariance_type, offset):
    """One component; scikit-learn has reg_covar in its covariance already."""
    rows = X[Y == 0] + offset
    classifier = FedPFTClassifier(covariance_type=covariance_type, reg_covar=1e-6)
    message = classifier.client_update(rows, np.zeros(len(rows), dtype=int))
    mixture = GaussianMixture(1, covariance_type=covariance_type, reg_covar=1e-6)
    mixture.fit(rows)
    np.testing.assert_allclose(message.means, mixture.means_, atol=1e-6)
    np.testing.assert_allclose(
        message.covariances + ridge_of(covariance_type, 5, 1e-6),
        flatten(mixture.covariances_, covariance_type),
        atol=1e-6,
    )
    assert message.weights.tolist() == [1.0]


@pytest.mark.parametrize("n_rows", [1, 2, 127, 257])
@pytest.mark.parametrize("n_features", [1, 2, 7])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_full_covariance_of_any_number_of_rows(n_rows, n_features, dtype):
    """Also far from zero."""
    rows = np.random.default_rng(0).normal(1000, 1, size=(n_rows, n_features))
    rows = rows.astype(dtype)
    mean, packed = single_gaussian(rows, "full")
    centred = rows.astype(np.float64) - rows.mean(axis=0, dtype=np.float64)
    np.testing.assert_allclose(mean, rows.mean(axis=0, dtype=np.float64), rtol=1e-14)
    np.testing.assert_allclose(
        unpack_triangle(packed), centred.T @ centred / n_rows, atol=1e-10
    )


@EM_TYPES
@pytest.mark.parametrize("reg_covar", [1e-6, 0.1])
def test_several_components_are_those_of_scikit_learn(covariance_type, reg_covar):
    """Up to reg_covar, which is added where rows are drawn and not twice."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((90, 3)) + 8 * np.eye(3)[np.arange(90) % 3]
    classifier = FedPFTClassifier(
        3,
        covariance_type=covariance_type,
        reg_covar=reg_covar,
        random_state=0,
    )
    message = classifier.client_update(rows, np.zeros(90, dtype=int))
    # reg_covar is a share of the mean variance; scikit-learn's has the unit of it
    absolute = reg_covar * rows.var(axis=0).mean()
    mixture = GaussianMixture(
        3, covariance_type=covariance_type, reg_covar=absolute, random_state=0
    ).fit(rows)
    order, expected = message.means[:, 0].argsort(), mixture.means_[:, 0].argsort()
    np.testing.assert_allclose(
        message.weights[order], mixture.weights_[expected], atol=1e-6
    )
    np.testing.assert_allclose(
        message.means[order], mixture.means_[expected], atol=1e-6
    )
    np.testing.assert_allclose(
        message.covariances[order] + ridge_of(covariance_type, 3, absolute),
        flatten(mixture.covariances_, covariance_type)[expected],
        atol=1e-6,
    )


@pytest.mark.parametrize("covariance_type", ["spherical", "diag"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_several_components_far_from_the_origin(covariance_type, dtype):
    """Variances as differences of squares would cancel."""
    rng = np.random.default_rng(0)
    rows = (rng.standard_normal((60, 3)) + 8 * (np.arange(60) % 2)[:, None]).round(3)
    params = {"covariance_type": covariance_type}
    classifier = FedPFTClassifier(2, random_state=0, **params)
    near, far = (
        classifier.client_update((rows + offset).astype(dtype), np.zeros(60, dtype=int))
        for offset in (0, 1024)
    )
    np.testing.assert_allclose(far.covariances, near.covariances, rtol=1e-3)


@EM_TYPES
def test_fewer_rows_than_components_reduce_the_components(covariance_type):
    y = np.array([0] * 20 + [1] * 2 + [2])
    classifier = FedPFTClassifier(3, covariance_type=covariance_type, random_state=0)
    message = classifier.client_update(X[: len(y)], y)
    assert message.classes == [0, 1, 2]
    assert message.n_components.tolist() == [3, 2, 1]
    assert message.counts.tolist() == [20, 2, 1]
    assert classifier.server_aggregate([message]).classes_.tolist() == [0, 1, 2]


def test_repeated_rows_reduce_the_components():
    rows = np.repeat(X[:2], 10, axis=0)
    classifier = FedPFTClassifier(3, random_state=0)
    message = classifier.client_update(rows, np.zeros(20, dtype=int))
    assert message.n_components.tolist() == [2]


@pytest.mark.parametrize("n_components", [1, 3])
@pytest.mark.parametrize(
    ("covariance_type", "numbers"),
    [
        ("spherical", lambda k, m: k * (m + 2)),
        ("diag", lambda k, m: k * (2 * m + 1)),
        ("full", lambda k, m: k * (m + m * (m + 1) // 2 + 1)),
    ],
)
def test_size_of_the_message(n_components, covariance_type, numbers):
    """As in the literature, per class; two bytes each, and what is not floats."""
    classifier = FedPFTClassifier(
        n_components, covariance_type=covariance_type, random_state=0
    )
    message = classifier.client_update(X, Y)
    assert message.n_numbers == 4 * numbers(n_components, 5)
    data = message.to_bytes("float16")
    header = 8 + int.from_bytes(data[:8], "little")
    integers = 2 * 4 * 4  # rows and components of each of the four classes
    assert len(data) == header + integers + 2 * message.n_numbers


def test_aligner_adds_one_covariance_to_the_message():
    plain, aligned = (
        FedPFTClassifier(aligner=aligner).client_update(X, Y)
        for aligner in (None, FederatedOTAligner())
    )
    assert plain.covariance.size == plain.shrinkage.size == 0
    assert np.array_equal(
        aligned.covariance.round(10), np.cov(X.T, bias=True).round(10)
    )
    assert aligned.n_numbers == plain.n_numbers


def test_server_with_aligner_refuses_messages_made_without():
    message = FedPFTClassifier().client_update(X, Y, client="Oslo")
    with pytest.raises(ValueError, match="'Oslo' sent nothing for alignment"):
        FedPFTClassifier(aligner=FederatedOTAligner()).server_aggregate([message])


# --------------------------------------------------------------------- the draw


@EM_TYPES
@pytest.mark.parametrize("n_components", [1, 2])
def test_as_many_rows_are_drawn_as_each_class_had(covariance_type, n_components):
    kept = np.r_[0:30, 90:240]  # classes of different size
    rows, labels = drawn(
        X[kept],
        Y[kept],
        IDS[kept],
        n_components=n_components,
        covariance_type=covariance_type,
    )
    assert rows.shape == (len(kept), 5)
    assert np.bincount(labels).tolist() == np.bincount(Y[kept]).tolist()


@TYPES
def test_drawn_rows_have_the_moments_of_the_class(covariance_type):
    """5,000 rows: means to 0.1, covariances to 10 % of the largest variance."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((5000, 3)) @ np.diag([0.5, 1, 2]) + [3, 0, -3]
    actual, _ = drawn(
        rows, np.arange(5000) % 2, covariance_type=covariance_type, n_loadings=1
    )
    np.testing.assert_allclose(actual.mean(axis=0), [3, 0, -3], atol=0.1)
    expected = {"spherical": [1.75] * 3, "lowrank": [0.625, 0.625, 4]}
    expected = expected.get(covariance_type, [0.25, 1, 4])
    np.testing.assert_allclose(np.cov(actual.T), np.diag(expected), atol=0.4)


@TYPES
@pytest.mark.parametrize("n_rows", [1, 2, 7])
def test_drawn_rows_have_the_mean_of_the_class_exactly(covariance_type, n_rows):
    rows = np.random.default_rng(0).normal(5.0, 2.0, (2 * n_rows, 3))
    labels = np.repeat([0, 1], n_rows)
    actual, _ = drawn(rows, labels, covariance_type=covariance_type, reg_covar=0.0)
    for label in (0, 1):
        mean = rows[labels == label].mean(axis=0)
        np.testing.assert_allclose(actual[labels == label].mean(axis=0), mean)


@TYPES
def test_correlations_survive_in_full_and_low_rank_covariances(covariance_type):
    rng = np.random.default_rng(0)
    base = rng.standard_normal((2000, 1))
    rows = base + 0.1 * rng.standard_normal((2000, 2))
    actual, _ = drawn(rows, np.arange(2000) % 2, covariance_type=covariance_type)
    correlation = np.corrcoef(actual.T)[0, 1]
    survives = covariance_type in ("full", "lowrank")
    assert correlation > 0.95 if survives else abs(correlation) < 0.1


def test_components_are_drawn_by_their_weights():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((400, 2)) + 20 * (np.arange(400) % 4 == 0)[:, None]
    actual, _ = drawn(np.r_[rows, rows], np.repeat([0, 1], 400), n_components=2)
    assert abs(np.mean(actual[:, 0] > 10) - 0.25) < 0.05


@TYPES
def test_reg_covar_is_added_as_a_share_of_the_mean_variance(covariance_type):
    """Of all clients: here 1 in one class, nothing in the other."""
    rng = np.random.default_rng(0)
    rows, y = rng.normal(0, np.sqrt(2), (4000, 2)), np.repeat([0, 1], 2000)
    rows[:2000] = [1.0, 2.0]
    actual, _ = drawn(rows, y, y, covariance_type=covariance_type, reg_covar=4.0)
    np.testing.assert_allclose(actual[y == 0].var(axis=0), [4, 4], rtol=0.15)
    np.testing.assert_allclose(actual[y == 1].var(axis=0), [6, 6], rtol=0.15)


def test_float16_covariance_with_negative_eigenvalues_can_be_drawn_from():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((40, 1)) * np.ones(8) + 1e-4 * rng.standard_normal(8)
    classifier = FedPFTClassifier(covariance_type="full")
    message = classifier.client_update(rows, np.zeros(40, dtype=int))
    message = message.as_received("float16")
    covariance = unpack_triangle(message.covariances[0])
    covariance[0, 1] = covariance[1, 0] = 1.001 * covariance[0, 0]
    message.covariances[0] = pack_triangle(covariance)
    assert np.linalg.eigvalsh(covariance)[0] < 0
    assert np.isfinite(draw_rows(message, "counts", 1e-6, rng)[0]).all()


def test_more_rows_than_fit_in_memory_are_refused():
    """A client may claim any number of rows."""
    step = FedPFTClassifier().client_update
    honest, greedy = (step(X, Y, client=client) for client in ("Bern", "Oslo"))
    greedy = replace(greedy, counts=np.full_like(greedy.counts, 2**31 - 1))
    with pytest.raises(ValueError, match="'Oslo': it claims 8589934588 rows"):
        FedPFTClassifier(screen=None).server_aggregate([honest, greedy])


# ------------------------------------------------------------------- estimators


@pytest.mark.parametrize("labels", [Y, Y > 1], ids=["four classes", "two classes"])
@pytest.mark.parametrize("weights", [None, np.arange(1.0, len(X) + 1)])
def test_default_head_is_logistic_regression_in_the_unit_of_the_rows(labels, weights):
    """Both have converged here; the penalty on rows divided by u is u^2 times it."""
    params = {"tol": 1e-10, "max_iter": 10_000}
    free = fit_logistic(X + 1, labels, weights, scaling="common", **params)
    variance = np.cov(X.T, aweights=weights, ddof=0).trace() / X.shape[1]
    plain = LogisticRegression(solver="newton-cg", C=1 / variance, **params)
    plain.fit(X + 1, labels, weights)
    np.testing.assert_allclose(free.coef_, plain.coef_, atol=1e-5)
    np.testing.assert_allclose(free.intercept_, plain.intercept_, atol=1e-5)


def test_float32_wire_gives_the_same_predictions(skewed_digits):
    """Rows far from zero, where a solver that sees them so stops anywhere."""
    data, y, ids, train, test = skewed_digits
    exact, rounded = (
        fit_received(
            FedPFTClassifier(random_state=0),
            data[train] + 20,
            y[train],
            ids[train],
            dtype,
        ).predict(data[test] + 20)
        for dtype in ("float64", "float32")
    )
    assert np.array_equal(exact, rounded)


@pytest.mark.parametrize(
    "estimator",
    [
        None,
        LogisticRegression(C=0.1),
        LinearDiscriminantAnalysis(),
        RandomForestClassifier(20),
        make_pipeline(StandardScaler(), SVC()),
        CalibratedClassifierCV(LinearDiscriminantAnalysis(), cv=2),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_any_classifier_is_trained(estimator):
    classifier = FedPFTClassifier(estimator=estimator, random_state=0)
    classifier.fit(X, Y, client_ids=IDS)
    assert classifier.score(X, Y) > 0.8
    expected = LogisticRegression if estimator is None else type(estimator)
    assert isinstance(classifier.estimator_, expected)
    assert classifier.estimator_ is not estimator


@pytest.mark.parametrize("method", ["predict_proba", "predict_log_proba"])
def test_probabilities_only_where_the_estimator_has_them(method):
    assert not hasattr(FedPFTClassifier(estimator=SVC()), method)
    assert not hasattr(FedPFTClassifier(estimator=SVC()).fit(X, Y), method)
    assert hasattr(FedPFTClassifier(), method)
    assert hasattr(FedPFTClassifier(estimator=RandomForestClassifier()), method)


def test_decision_function_only_where_the_estimator_has_one():
    forest = RandomForestClassifier(5)
    assert hasattr(FedPFTClassifier(estimator=SVC()), "decision_function")
    assert not hasattr(FedPFTClassifier(estimator=forest), "decision_function")
    fitted = FedPFTClassifier(estimator=forest).fit(X, Y)
    assert not hasattr(fitted, "decision_function")


@pytest.mark.parametrize(
    "estimator",
    [
        RandomForestClassifier(5),
        make_pipeline(StandardScaler(), RandomForestClassifier(5)),
    ],
    ids=["plain", "in a pipeline"],
)
def test_random_state_is_handed_on_to_the_estimator(estimator):
    first, second = (
        FedPFTClassifier(estimator=estimator, random_state=0).fit(X, Y)
        for _ in range(2)
    )
    assert np.array_equal(first.predict_proba(X), second.predict_proba(X))
    names = [n for n in estimator.get_params() if n.endswith("random_state")]
    assert all(first.estimator_.get_params()[n] is not None for n in names)
    assert all(estimator.get_params()[n] is None for n in names)


def test_random_state_of_the_estimator_is_kept():
    forest = RandomForestClassifier(5, random_state=7)
    classifier = FedPFTClassifier(estimator=forest, random_state=0).fit(X, Y)
    assert classifier.estimator_.random_state == 7


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_expectation_maximisation_by_hand_equals_fit(n_jobs):
    params = {"n_components": 2, "covariance_type": "diag", "random_state": 0}
    classifier = FedPFTClassifier(**params)
    messages = [
        classifier.client_update(X[IDS == k], Y[IDS == k], client=k) for k in range(3)
    ]
    classifier.server_aggregate(messages)
    fitted = FedPFTClassifier(**params, n_jobs=n_jobs).fit(X, Y, client_ids=IDS)
    # Equal fits on OpenBLAS's kernels for Prescott had two results, 9e-14 apart, with
    # any number of jobs: sums depend on where an array starts in memory.
    np.testing.assert_allclose(
        classifier.predict_proba(X), fitted.predict_proba(X), rtol=0, atol=1e-10
    )
    coef, expected = fitted.estimator_.coef_, classifier.estimator_.coef_
    atol = 1e-10 * np.abs(expected).max()
    np.testing.assert_allclose(coef, expected, rtol=0, atol=atol)


# ------------------------------------------------------------------- one upload


def one_and_two_uploads(X, y, client_ids, **params):
    """The classifier with its own aligner, and the Pipeline."""
    params = {"random_state": 0, **params}
    one = FedPFTClassifier(aligner=FederatedOTAligner(), **params)
    two = Pipeline(
        [("align", FederatedOTAligner()), ("classify", FedPFTClassifier(**params))]
    )
    return [model.fit(X, y, client_ids=client_ids) for model in (one, two)]


@pytest.mark.usefixtures("routing")
@TYPES
def test_one_upload_is_close_to_the_pipeline(covariance_type, skewed_digits):
    """Within 3 points; with full covariances both draw from the same Gaussians."""
    X, y, ids, train, test = skewed_digits
    one, two = one_and_two_uploads(
        X[train], y[train], ids[train], covariance_type=covariance_type
    )
    rows = {"X": X[test], "y": y[test], "client_ids": ids[test]}
    difference = one.score(**rows) - two.score(**rows)
    assert abs(difference) < 0.03


@pytest.mark.usefixtures("routing")
@pytest.mark.parametrize("pool", ["client", "class"])
def test_one_upload_draws_from_the_gaussians_of_the_pipeline(pool):
    """Full covariances: means of the rows drawn to rounding, covariances to 5 %."""
    params = {"covariance_type": "full", "pool": pool, "draws": 20_000}
    one, two = one_and_two_uploads(X, Y, IDS, estimator=Recorder(), **params)
    one, two = one.estimator_, two["classify"].estimator_
    assert np.array_equal(one.y_, two.y_)
    for start in range(0, len(one.y_), 20_000):
        first, second = (each.X_[start : start + 20_000] for each in (one, two))
        np.testing.assert_allclose(first.mean(axis=0), second.mean(axis=0), atol=1e-9)
        covariance = np.cov(second.T)
        np.testing.assert_allclose(
            np.cov(first.T), covariance, atol=0.05 * np.abs(covariance).max()
        )


@pytest.mark.usefixtures("routing")
def test_merged_classes_in_one_upload_equal_the_pipeline():
    """To rounding, as the maps act on moments before anything is drawn."""
    params = {"covariance_type": "full", "pool": "class", "reg_covar": 0.0}
    one, two = one_and_two_uploads(X, Y, IDS, **params)
    np.testing.assert_allclose(
        one.predict_proba(X, client_ids=IDS),
        two.predict_proba(X, client_ids=IDS),
        atol=1e-8,
    )


@TYPES
def test_aligned_rows_are_the_rows_drawn_moved_by_the_maps(covariance_type):
    """So that each covariance is mapped as it should be, whatever its type."""
    classifier = FedPFTClassifier(
        covariance_type=covariance_type,
        aligner=FederatedOTAligner(),
        draws=50,
        estimator=Recorder(),
        random_state=0,
    ).fit(X, Y, client_ids=IDS)
    rows, labels = drawn(X, Y, IDS, covariance_type=covariance_type, draws=50)
    assert np.array_equal(labels, classifier.estimator_.y_)
    actual = classifier.estimator_.X_.reshape(3, 200, 5)
    for before, after in zip(rows.reshape(3, 200, 5), actual, strict=True):
        moved = [m.transform(before) for m in classifier.aligner_.maps_.values()]
        assert min(np.abs(each - after).max() for each in moved) < 1e-12


# ---------------------------------------------------------------- low-rank Gaussians


def test_loadings_are_those_of_probabilistic_principal_component_analysis():
    """scikit-learn's PCA, whose covariance is divided by n - 1."""
    rows = np.random.default_rng(0).normal(size=(60, 6)) @ np.diag([3, 2, 1, 1, 1, 0.5])
    mean, flat = single_gaussian(rows + 100, "lowrank", n_loadings=2)
    loadings, deviation = flat[:-1].reshape(2, 6), flat[-1]
    pca = PCA(2).fit(rows + 100)
    np.testing.assert_allclose(mean, pca.mean_)
    np.testing.assert_allclose(deviation**2, pca.noise_variance_ * 59 / 60)
    np.testing.assert_allclose(
        loadings.T @ loadings + deviation**2 * np.eye(6),
        pca.get_covariance() * 59 / 60,
        atol=1e-12,
    )


@pytest.mark.parametrize("n_rows", [1, 2, 4, 40])
@pytest.mark.parametrize("n_loadings", [1, 3, 5, 50])
def test_low_rank_keeps_the_variance_and_never_has_more_loadings_than_features(
    n_rows, n_loadings
):
    rows = np.random.default_rng(0).normal(size=(n_rows, 5))
    _, flat = single_gaussian(rows, "lowrank", n_loadings)
    assert flat.shape == (5 * min(n_loadings, 5) + 1,)
    total = np.sum(flat[:-1] ** 2) + 5 * flat[-1] ** 2
    np.testing.assert_allclose(total, rows.var(axis=0).sum(), atol=1e-12)


def test_as_many_loadings_as_features_draw_the_rows_of_full_covariances():
    low, _ = drawn(X, Y, IDS, covariance_type="lowrank", n_loadings=5)
    full, _ = drawn(X, Y, IDS, covariance_type="full")
    np.testing.assert_allclose(low, full, atol=1e-9)


@pytest.mark.parametrize("n_loadings", [1, 2, 4])
def test_size_of_a_low_rank_message(n_loadings):
    """4 C (m (q + 1) + 2) bytes of floats in float32."""
    classifier = FedPFTClassifier(covariance_type="lowrank", n_loadings=n_loadings)
    message = classifier.client_update(X, Y)
    data = message.to_bytes("float32")
    header = 8 + int.from_bytes(data[:8], "little")
    integers = 2 * 4 * 4  # rows and components of each of the four classes
    floats = 4 * 4 * (5 * (n_loadings + 1) + 2)
    assert len(data) == header + integers + floats


def test_low_rank_has_one_component():
    classifier = FedPFTClassifier(2, covariance_type="lowrank")
    with pytest.raises(ValueError, match="n_components=2; raise n_loadings instead"):
        classifier.client_update(X, Y)


# ---------------------------------------------- rows per cell, and classes merged


@pytest.mark.parametrize("pool", ["client", "class"])
@EM_TYPES
def test_variances_below_zero_by_rounding_draw_the_means(covariance_type, pool):
    """EM leaves such ones where means lie far from zero; drawn rows are finite."""
    classifier = FedPFTClassifier(
        covariance_type=covariance_type,
        pool=pool,
        estimator=Recorder(),
        random_state=0,
    )
    message = classifier.client_update(X, Y)
    covariances = np.full_like(message.covariances, -1e-3)
    far = replace(message, means=message.means + 1e9, covariances=covariances)
    rows = classifier.server_aggregate([far]).estimator_.X_
    np.testing.assert_allclose(np.unique(rows, axis=0), np.unique(far.means, axis=0))


def test_draws_is_the_number_of_rows_of_each_cell():
    """Three clients, the first without class 0."""
    kept = (Y != 0) | (IDS != 0)
    _, labels = drawn(X[kept], Y[kept], IDS[kept], draws=7)
    assert np.bincount(labels).tolist() == [14, 21, 21, 21]
    _, labels = drawn(X[kept], Y[kept], IDS[kept], draws=7, pool="class")
    assert np.bincount(labels).tolist() == [7, 7, 7, 7]
    _, labels = drawn(X[kept], Y[kept], IDS[kept], pool="class")
    assert np.bincount(labels).tolist() == np.bincount(Y[kept]).tolist()


@pytest.mark.parametrize("pool", ["client", "class"])
def test_more_draws_than_fit_in_memory_are_refused(pool):
    with pytest.raises(ValueError, match=r"Lower draws=1000000000\."):
        FedPFTClassifier(draws=10**9, pool=pool).fit(X, Y, client_ids=IDS)


def test_merged_full_gaussians_are_those_of_the_pooled_rows():
    """CCVR: whichever client a row is at, each class has its mean and covariance."""
    classifier = FedPFTClassifier(covariance_type="full")
    messages = [classifier.client_update(X[IDS == k], Y[IDS == k]) for k in range(3)]
    merged = merge_by_class((message, None) for message in messages)
    pooled = classifier.client_update(X, Y)
    assert merged.classes == pooled.classes
    assert merged.counts.tolist() == pooled.counts.tolist()
    np.testing.assert_allclose(merged.means, pooled.means)
    np.testing.assert_allclose(merged.covariances, pooled.covariances, atol=1e-10)


@pytest.mark.parametrize("n_components", [1, 3])
@EM_TYPES
def test_merged_mixtures_have_the_moments_of_all_components(
    covariance_type, n_components
):
    """The long way, from sums of second moments, after different affine maps."""
    rng = np.random.default_rng(0)
    classifier = FedPFTClassifier(
        n_components,
        covariance_type=covariance_type,
        random_state=0,
    )
    total, first, second, parts = 0, 0, 0, []
    for client in range(3):
        rows = X[(IDS == client) & (Y == 1)]
        message = classifier.client_update(rows, np.ones(len(rows), dtype=int))
        affine = rng.normal(size=(5, 5)), rng.normal(size=5)
        parts.append((message, SimpleNamespace(affine=affine)))
        for weight, mean, flat in zip(
            message.weights, message.means, message.covariances, strict=True
        ):
            covariance = (
                unpack_triangle(flat) if covariance_type == "full" else flat * np.eye(5)
            )
            mean = affine[0] @ mean + affine[1]
            covariance = affine[0] @ covariance @ affine[0].T
            n_rows = weight * len(rows)
            total += n_rows
            first += n_rows * mean
            second += n_rows * (covariance + np.outer(mean, mean))
    merged, mean = merge_by_class(parts), first / total
    np.testing.assert_allclose(merged.means[0], mean)
    np.testing.assert_allclose(
        unpack_triangle(merged.covariances[0]),
        second / total - np.outer(mean, mean),
        atol=1e-10,
    )


# ------------------------------------------------------------- units, names and order

VARIANTS = pytest.mark.parametrize(
    "params",
    [
        {},
        {"covariance_type": "diag"},
        {"covariance_type": "full"},
        {"covariance_type": "lowrank", "n_loadings": 2},
        {"n_components": 2},
        {"pool": "class"},
        {"draws": 20},
        {"reg_covar": 0.1},
        {"aligner": FederatedOTAligner()},
        {"aligner": FederatedOTAligner(), "pool": "class", "covariance_type": "diag"},
        {"aligner": MixedEffectsAligner()},
        {"aligner": MixedEffectsAligner(), "pool": "class"},
    ],
    ids=str,
)


@VARIANTS
@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_unit_of_the_features_does_not_matter(params, scale):
    """Probabilities to 1e-9; two features that are constant, clients of one size."""
    rows = np.c_[X, np.full(len(X), 0.1), np.zeros(len(X))]
    params = {"random_state": 0, **params}
    one, other = (
        FedPFTClassifier(**params)
        .fit(unit * rows, Y, client_ids=IDS)
        .predict_proba(unit * rows, client_ids=IDS)
        for unit in (1.0, scale)
    )
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-9)


@pytest.mark.parametrize("power", [-20, 20])
def test_powers_of_two_change_no_bit_whatever_the_wire(power):
    rows = X * 2.0**power
    one = FedPFTClassifier(random_state=0).fit(X, Y, client_ids=IDS)
    other = FedPFTClassifier(random_state=0).fit(rows, Y, client_ids=IDS)
    assert np.array_equal(one.predict_proba(X), other.predict_proba(rows))


@VARIANTS
def test_names_of_clients_do_not_matter(params):
    params = {"random_state": 0, **params}
    names = np.array(["Oslo", "Bern", "Turin"])[IDS]
    one = FedPFTClassifier(**params).fit(X, Y, client_ids=IDS)
    other = FedPFTClassifier(**params).fit(X, Y, client_ids=names)
    np.testing.assert_allclose(
        one.predict_proba(X, client_ids=IDS),
        other.predict_proba(X, client_ids=names),
        rtol=0,
        atol=1e-9,  # an aligner, and merging, add in the order of the clients
    )


@pytest.mark.parametrize("order", [[2, 0, 1], [1, 0, 2]])
def test_order_of_messages_changes_no_row_drawn(order):
    """Also if two messages are equal: each has a stream of its own."""
    classifier = FedPFTClassifier(estimator=Recorder(), random_state=0)
    rows, labels = X[IDS == 1], Y[IDS == 1]
    messages = [
        classifier.client_update(X[IDS == 0], Y[IDS == 0], client="A"),
        classifier.client_update(rows, labels, client="B"),
        classifier.client_update(rows, labels, client="C"),
    ]
    expected = classifier.server_aggregate(messages).estimator_
    again = [messages[index] for index in order]
    actual = classifier.server_aggregate(iter(again)).estimator_
    assert np.array_equal(actual.X_, expected.X_)
    assert np.array_equal(actual.y_, expected.y_)
    assert len(np.unique(actual.X_, axis=0)) == len(actual.X_)


@TYPES
@pytest.mark.parametrize("aligner", [None, FederatedOTAligner()], ids=["", "aligned"])
def test_float16_wire_costs_little_accuracy(covariance_type, aligner, skewed_digits):
    """At most 0.6 points on 719 test rows, which is four rows."""
    X, y, ids, train, test = skewed_digits
    classifier = FedPFTClassifier(
        covariance_type=covariance_type, aligner=aligner, random_state=0
    )
    exact, rounded = (
        fit_received(classifier, X[train], y[train], ids[train], dtype).score(
            X[test], y[test], client_ids=ids[test]
        )
        for dtype in ("float64", "float16")
    )
    assert exact > 0.75
    assert abs(exact - rounded) < 0.006


@pytest.mark.parametrize("estimator", [None, RandomForestClassifier(5, random_state=0)])
def test_map_and_estimator_are_all_that_a_client_needs(estimator):
    classifier = FedPFTClassifier(
        estimator=estimator, aligner=FederatedOTAligner(), random_state=0
    ).fit(X, Y, client_ids=IDS)
    for client, client_map in enumerate(classifier.aligner_.maps_.values()):
        rows = X[IDS == client]
        assert np.array_equal(
            classifier.estimator_.predict_proba(client_map.transform(rows)),
            classifier.predict_proba(rows, client_ids=client),
        )
