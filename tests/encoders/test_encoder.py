"""FrozenEncoder as a step of scikit-learn, and with a module of the user's."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from joblib import Parallel, delayed
from PIL import Image
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

from skslot import FedCGSClassifier, FederatedOTAligner, FrozenEncoder
from skslot.encoders import ImageReadError


class Pooled(torch.nn.Module):
    """Means of the channels and of their squares; takes images of any size."""

    def forward(self, images):
        return torch.cat([images.mean(dim=(2, 3)), (images**2).mean(dim=(2, 3))], dim=1)


# ------------------------------------------------------------------ the checks


@parametrize_with_checks([FrozenEncoder(Pooled(), image_shape=(1, -1))])
def test_checks_for_rows_of_pixels(estimator, check):
    check(estimator)


CHECKS_WITHOUT_ROWS = [
    estimator_checks.check_do_not_raise_errors_in_init_or_set_params,
    estimator_checks.check_estimator_cloneable,
    estimator_checks.check_estimator_repr,
    estimator_checks.check_get_params_invariance,
    estimator_checks.check_mixin_order,
    estimator_checks.check_no_attributes_set_in_init,
    estimator_checks.check_parameters_default_constructible,
    estimator_checks.check_set_params,
    estimator_checks.check_valid_tag_types,
]


@pytest.mark.parametrize("check", CHECKS_WITHOUT_ROWS)
@pytest.mark.parametrize("encoder", [FrozenEncoder(), FrozenEncoder(Pooled())])
def test_checks_that_apply_to_images(encoder, check):
    if check is estimator_checks.check_parameters_default_constructible:
        check("FrozenEncoder", type(encoder)())
    else:
        check("FrozenEncoder", encoder)


# ------------------------------------------------------------------ stateless


def test_fit_needs_no_data_and_transform_no_fit(colours, paths):
    encoder = FrozenEncoder(colours)
    before = copy.copy(vars(encoder))
    assert encoder.fit() is encoder
    assert encoder.fit(["no/such/file"], [1]) is encoder
    features = encoder.transform(paths)
    assert vars(encoder) == before
    assert np.array_equal(encoder.fit_transform(paths), features)


def test_feature_names_and_pandas_output(colours, paths):
    encoder = FrozenEncoder(colours).set_output(transform="pandas")
    frame = pd.DataFrame({"path": paths}, index=range(100, 112))
    features = encoder.transform(frame)
    names = [f"frozenencoder{i}" for i in range(5)]
    assert list(encoder.get_feature_names_out()) == names
    assert list(features.columns) == names
    assert list(features.index) == list(range(100, 112))
    assert (features.dtypes == np.float32).all()


def test_feature_names_with_preprocess_and_shape(colours):
    encoder = FrozenEncoder(colours, preprocess=lambda image: torch.ones(3, 2, 2))
    assert len(encoder.get_feature_names_out()) == 5
    wide = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 4 * 6, 2))
    assert len(FrozenEncoder(wide, image_shape=(4, 6)).get_feature_names_out()) == 2
    encoder = FrozenEncoder(wide, image_shape=(4, -1))
    with pytest.raises(ValueError, match="call fit with data first"):
        encoder.get_feature_names_out()
    assert len(encoder.fit(np.zeros((1, 24))).get_feature_names_out()) == 2


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"model": 3}, "'model'"),
        ({"source": "torchvision"}, "'source'"),
        ({"batch_size": 0}, "'batch_size'"),
        ({"dtype": "float8"}, "'dtype'"),
        ({"preprocess": "resize"}, "'preprocess'"),
        ({"n_workers": -1}, "'n_workers'"),
        ({"device": "foo"}, "device='foo' cannot be used here"),
        ({"device": "cpu:x"}, "device='cpu:x' cannot be used here"),
    ],
)
def test_parameters_are_checked_in_transform_too(params, message, pixels):
    with pytest.raises(ValueError, match=message):
        FrozenEncoder(**params).transform(pixels)


# ------------------------------------------------------------------ the module


def test_module_is_evaluated_and_put_back(pixels):
    module = torch.nn.Sequential(torch.nn.BatchNorm2d(3), torch.nn.Dropout(), Pooled())
    module[1].eval()
    before = copy.deepcopy(module.state_dict())
    encoder = FrozenEncoder(module)
    features = encoder.transform(pixels)
    assert np.array_equal(features, encoder.transform(pixels))
    assert [part.training for part in module] == [True, False, True]
    after = module.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_torch_rng_is_left_alone(colours, pixels, tmp_path):
    encoder = FrozenEncoder(
        colours, preprocess=lambda _: torch.ones(3, 1, 1), cache_dir=tmp_path
    )
    before = torch.get_rng_state()
    encoder.transform(pixels)
    assert torch.equal(torch.get_rng_state(), before)


def test_clones_share_the_module(colours):
    encoder = FrozenEncoder(colours, preprocess=Pooled(), batch_size=3)
    encoder.set_output(transform="pandas")
    twin = clone(encoder)
    assert twin is not encoder
    assert twin.get_params() == encoder.get_params()
    assert twin.model is colours
    assert twin._sklearn_output_config == {"transform": "pandas"}
    fitted = FrozenEncoder(colours, image_shape=(2, 2)).fit(np.zeros((1, 4)))
    assert not hasattr(clone(fitted), "n_features_in_")


def test_module_is_in_the_pickle(colours, pixels):
    encoder = FrozenEncoder(colours)
    twin = pickle.loads(pickle.dumps(encoder))
    assert np.array_equal(twin.transform(pixels), encoder.transform(pixels))
    assert twin.fingerprint() == encoder.fingerprint()


def test_joblib_workers(paths, tmp_path):
    module = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten())
    encoder = FrozenEncoder(module, cache_dir=tmp_path / "cache")
    parts = Parallel(n_jobs=2)(
        delayed(encoder.transform)(part) for part in (paths[:6], paths[6:])
    )
    info = encoder.cache_info()
    assert (info.hits, info.n_images) == (0, 12)
    assert np.array_equal(np.vstack(parts), encoder.transform(paths))
    assert encoder.cache_info().hits == 12


@pytest.mark.parametrize("n_workers", [0, 2])
def test_batches_and_workers_change_nothing(n_workers, colours, paths):
    whole = FrozenEncoder(colours).transform(paths)
    parts = FrozenEncoder(colours, batch_size=5, n_workers=n_workers).transform(paths)
    np.testing.assert_allclose(parts, whole, atol=1e-7)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (lambda x: x, r"of shape \(n, dim\); got \[12, 3, 10, 8\]"),
        (lambda x: (x, x), "got <class 'tuple'>"),
        (lambda x: x.mean(dim=(2, 3))[:2], "returned 2 for a batch of 12"),
        (lambda x: x.mean(dim=(2, 3)) / 0, r"infinity for 12 of 12 .* row 0 \(array"),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_modules_that_return_something_else(output, message, dtype, pixels, tmp_path):
    class Other(torch.nn.Module):
        def forward(self, images):
            return output(images)

    encoder = FrozenEncoder(Other(), dtype=dtype, cache_dir=tmp_path)
    with pytest.raises(ValueError, match=message):
        encoder.transform(pixels)
    assert encoder.cache_info().n_images == 0


def test_module_that_is_none(pixels):
    with pytest.raises(TypeError, match="must be called first"):
        FrozenEncoder(Pooled).transform(pixels)


# ------------------------------------------------------------------ preprocess


def test_preprocess_gets_rgb_images(colours, pixels):
    seen = []

    def preprocess(image):
        seen.append((type(image), image.mode, image.size))
        return np.zeros((3, 1, 1))

    FrozenEncoder(colours, preprocess=preprocess).transform(pixels[:2, ..., 0] / 255)
    assert set(seen[2:]) == {(Image.Image, "RGB", (8, 10))}
    assert set(seen[:2]) == {(Image.Image, "RGB", (256, 192))}


def test_random_preprocess_is_refused(colours, pixels):
    encoder = FrozenEncoder(colours, preprocess=lambda _: torch.rand(3, 2, 2))
    with pytest.raises(ValueError, match="must not be random"):
        encoder.transform(pixels)


def fails_when_small(image):
    return torch.ones(3, 1, 1) * (1 / (image.height // 100))


@pytest.mark.parametrize(
    ("preprocess", "error", "note"),
    [
        (lambda image: image, TypeError, "256 x 192"),
        (lambda image: 1 / 0, ZeroDivisionError, "256 x 192"),
        (fails_when_small, ZeroDivisionError, "on row 0: array of shape (10, 8, 3)"),
    ],
)
def test_preprocess_that_fails(preprocess, error, note, colours, pixels):
    with pytest.raises(error) as caught:
        FrozenEncoder(colours, preprocess=preprocess).transform(pixels)
    assert note in caught.value.__notes__[0]


def test_module_has_no_preprocessing_to_change(colours, pixels):
    with pytest.raises(TypeError, match="preprocess is a dict"):
        FrozenEncoder(colours, preprocess={"mean": 1}).transform(pixels)


def test_images_of_different_sizes_need_a_preprocess(colours, pixels):
    with pytest.raises(ValueError, match="different shapes after preprocessing"):
        FrozenEncoder(colours).transform([pixels[0], pixels[0, :5]])


# ------------------------------------------------------------------ identity


def half(image):
    return torch.from_numpy(np.asarray(image).astype(np.float32)).permute(2, 0, 1) / 2


def test_fingerprint_depends_on_what_features_depend_on(colours):
    other = copy.deepcopy(colours)
    other.weights.data[0, 0] += 1e-3
    encoders = [
        FrozenEncoder(colours),
        FrozenEncoder(other),
        FrozenEncoder(colours, preprocess=half),
        FrozenEncoder(colours, preprocess=lambda image: half(image)),
        FrozenEncoder(colours, preprocess=lambda image: half(image) / 2),
        FrozenEncoder(colours, dtype="bfloat16"),
        FrozenEncoder(colours, normalize=True),
        FrozenEncoder(Pooled()),
        FrozenEncoder(torch.nn.Sequential(torch.nn.ReLU(), Pooled())),
        FrozenEncoder(torch.nn.Sequential(torch.nn.GELU(), Pooled())),
    ]
    names = [encoder.fingerprint() for encoder in encoders]
    assert len(set(names)) == len(names)
    assert all(len(name) == 16 and int(name, 16) >= 0 for name in names)


def test_fingerprint_depends_on_nothing_else(colours, tmp_path):
    other = FrozenEncoder(
        copy.deepcopy(colours), batch_size=3, cache_dir=tmp_path, image_shape=(2, 2)
    )
    assert other.fingerprint() == FrozenEncoder(colours).fingerprint()


def test_config_of_a_callable_is_readable(colours):
    config = FrozenEncoder(colours, preprocess=half).preprocess_config_
    assert config["callable"] == "half"
    assert FrozenEncoder(colours, preprocess=Callable()).preprocess_config_ == {
        **config,
        "callable": "Callable",
    }
    assert FrozenEncoder(colours).preprocess_config_ == {}


class Callable:
    def __call__(self, image):
        return half(image)


# ------------------------------------------------------------------ in a Pipeline


def test_every_image_is_encoded_once_in_a_grid_search(colours, tmp_path):
    X, y = load_digits(return_X_y=True)
    X, y = (X[:120] / 16), y[:120]
    X[100:] = X[:20]  # the same image twice counts once
    n_distinct = len(np.unique(X, axis=0))
    sites = np.arange(len(X)) % 3
    encoder = FrozenEncoder(colours, image_shape=(8, 8), cache_dir=tmp_path)
    steps = [
        ("encoder", encoder),
        ("aligner", FederatedOTAligner()),
        ("classifier", FedCGSClassifier()),
    ]
    grid = {"aligner__tau": [0, 0.2, 0.4, 0.6, 0.8, 1]}
    with config_context(enable_metadata_routing=True):
        search = GridSearchCV(Pipeline(steps), grid, cv=5, error_score="raise")
        search.fit(X, y, client_ids=sites)
        assert colours.n_seen == n_distinct == 100
        search.fit(X, y, client_ids=sites)
    assert colours.n_seen == n_distinct
    info = encoder.cache_info()
    assert (info.misses, info.n_images) == (100, 100)
    assert info.hits > 2 * 30 * 120 - 100


def test_column_transformer_keeps_the_client_column(colours, paths):
    frame = pd.DataFrame({"path": paths, "site": ["A", "B"] * 6})
    y = np.repeat([0, 1], 6)
    for column in ("path", ["path"]):
        columns = ColumnTransformer(
            [("image", FrozenEncoder(colours), column)], remainder="passthrough"
        )
        columns.set_output(transform="pandas")
        aligner = FederatedOTAligner(client_column="remainder__site")
        pipeline = Pipeline(
            [("encode", columns), ("align", aligner), ("classify", FedCGSClassifier())]
        )
        pipeline.fit(frame, y)
        assert list(pipeline[1].clients_) == ["A", "B"]
        assert pipeline.predict(frame).shape == (12,)


# ------------------------------------------------------------------ the rest


def test_progress_bar(colours, paths, capsys):
    FrozenEncoder(colours, progress=True).transform(paths)
    shown = capsys.readouterr().err
    assert "12/12" in shown
    assert "img/s" in shown
    FrozenEncoder(colours).transform(paths)
    assert capsys.readouterr().err == ""


def test_error_survives_a_pickle():
    error = ImageReadError([(7, "b.png", "bad"), (2, "a.png", "bad")], 9, "Advice.")
    twin = pickle.loads(pickle.dumps(error))
    assert str(twin) == str(error)
    assert [row for row, _, _ in twin.failures] == [2, 7]
    assert isinstance(twin, ValueError)


def test_normalize(colours, pixels):
    features = FrozenEncoder(colours, normalize=True).transform(pixels)
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1, rtol=1e-6)
    assert features.dtype == np.float32
    black = FrozenEncoder(colours, normalize=True).transform(pixels * 0)
    assert np.array_equal(black, np.zeros((12, 5)))
