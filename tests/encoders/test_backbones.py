"""Named models: the right weights, the right preprocessing, or an error."""

import json
import pickle
import re
import sys
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from sklearn.base import clone

from skslot import FrozenEncoder
from skslot.encoders import _backbones

huggingface_hub = pytest.importorskip("huggingface_hub")
open_clip = pytest.importorskip("open_clip")
timm = pytest.importorskip("timm")

TEXT = {"context_length": 4, "vocab_size": 10, "width": 16, "heads": 2, "layers": 1}
VIT = {"image_size": 32, "layers": 2, "width": 64, "patch_size": 8}
RESNET = {"image_size": 32, "layers": [1, 1, 1, 1], "width": 8, "patch_size": None}
CONFIGS = {
    "skslot-vit": {"embed_dim": 24, "vision_cfg": VIT, "text_cfg": TEXT},
    "skslot-resnet": {"embed_dim": 24, "vision_cfg": RESNET, "text_cfg": TEXT},
    "skslot-coca": {
        "embed_dim": 24,
        "vision_cfg": {**VIT, "attentional_pool": True, "output_tokens": True},
        "text_cfg": {**TEXT, "embed_cls": True, "output_tokens": True},
        "multimodal_cfg": {**TEXT, "dim_head": 8, "n_queries": 4},
        "custom_text": True,
    },
}


@pytest.fixture(scope="session", autouse=True)
def _small_models(tmp_path_factory):
    """Small architectures, known to open_clip by name."""
    folder = tmp_path_factory.mktemp("configs")
    for name, config in CONFIGS.items():
        (folder / f"{name}.json").write_text(json.dumps(config))
    open_clip.add_model_config(folder)
    yield
    open_clip.factory._MODEL_CONFIG_PATHS.remove(folder)
    for name in CONFIGS:
        del open_clip.factory._MODEL_CONFIGS[name]


@pytest.fixture
def _offline(monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


def random_clip(name):
    """A model with random weights, also in batch normalisation."""
    torch.manual_seed(0)
    model = open_clip.create_model(name).eval()
    randomize_statistics(model)
    return model


def randomize_statistics(model):
    for part in model.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.running_mean.normal_(0, 0.1)
            part.running_var.uniform_(0.1, 0.3)


@pytest.fixture
def checkpoint(tmp_path):
    """Weights of the small ViT in a file."""
    save_file(random_clip("skslot-vit").state_dict(), tmp_path / "vit.safetensors")
    return tmp_path / "vit.safetensors"


@pytest.fixture
def photos(tmp_path):
    """Images larger than the models take, of several sizes."""
    rng = np.random.default_rng(0)
    paths = []
    for i, (height, width) in enumerate([(40, 60), (64, 33), (300, 240), (32, 32)]):
        coarse = rng.integers(256, size=(height // 8, width // 8, 3), dtype=np.uint8)
        image = Image.fromarray(coarse).resize((width, height), Image.BICUBIC)
        image.save(tmp_path / f"{i}.jpg")
        paths.append(tmp_path / f"{i}.jpg")
    return paths


def hand_written_loop(model, preprocess, paths):
    with torch.no_grad():
        images = [preprocess(Image.open(path).convert("RGB")) for path in paths]
        return model(torch.stack(images)).numpy()


# ------------------------------------------------------------------ features


@pytest.mark.parametrize("kind", ["safetensors", "pt"])
@pytest.mark.parametrize("name", list(CONFIGS))
def test_open_clip_features_are_those_of_a_hand_written_loop(
    name, kind, photos, tmp_path
):
    weights = random_clip(name).state_dict()
    path = tmp_path / f"weights.{kind}"
    save_file(weights, path) if kind == "safetensors" else torch.save(weights, path)
    model, _, preprocess = open_clip.create_model_and_transforms(name, str(path))
    encode = partial(model.eval().encode_image, normalize=False)
    expected = hand_written_loop(encode, preprocess, photos)
    features = FrozenEncoder(name, path).transform(photos)
    assert features.shape == (4, 24)
    assert features.std(axis=0).min() > 1e-4  # not all the same
    np.testing.assert_allclose(features, expected, atol=1e-6)


@pytest.mark.parametrize("name", ["resnet18.tv_in1k", "resnet10t"])
def test_timm_features_are_those_of_a_hand_written_loop(name, photos, tmp_path):
    torch.manual_seed(0)
    model = timm.create_model(name)
    randomize_statistics(model)
    torch.save(model.state_dict(), tmp_path / "resnet.pth")
    config = timm.data.resolve_model_data_config(model)
    preprocess = timm.data.create_transform(**config, is_training=False)
    model.reset_classifier(0)
    expected = hand_written_loop(model.eval(), preprocess, photos)
    encoder = FrozenEncoder(name, tmp_path / "resnet.pth", source="timm")
    np.testing.assert_allclose(encoder.transform(photos), expected, atol=1e-6)
    assert encoder.preprocess_config_ == json.loads(json.dumps(config))
    assert encoder.get_feature_names_out()[-1] == "frozenencoder511"


def test_local_folder_of_open_clip(photos, checkpoint, tmp_path):
    expected = FrozenEncoder("skslot-vit", checkpoint)
    config = {
        "model_cfg": CONFIGS["skslot-vit"],
        "preprocess_cfg": {"mean": expected.preprocess_config_["mean"]},
    }
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    checkpoint.rename(folder / "open_clip_model.safetensors")
    encoder = FrozenEncoder(f"local-dir:{folder}")
    checkpoint.write_bytes((folder / "open_clip_model.safetensors").read_bytes())
    assert np.array_equal(encoder.transform(photos), expected.transform(photos))
    # wherever the weights come from
    assert encoder.fingerprint() == expected.fingerprint()


@pytest.mark.usefixtures("_offline")
def test_repository_that_was_downloaded_before(
    photos, checkpoint, tmp_path, monkeypatch
):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--skslot--small"
    snapshot = repository / "snapshots" / "1"
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("1")
    expected = FrozenEncoder("skslot-vit", checkpoint)
    config = {
        "model_cfg": CONFIGS["skslot-vit"],
        "preprocess_cfg": {"mean": expected.preprocess_config_["mean"]},
    }
    (snapshot / "open_clip_config.json").write_text(json.dumps(config))
    encoder = FrozenEncoder("hf-hub:skslot/small")
    with pytest.raises(OSError, match="nothing was downloaded"):  # not random weights
        encoder.fingerprint()
    (snapshot / "open_clip_model.safetensors").write_bytes(checkpoint.read_bytes())
    assert encoder.fingerprint() == expected.fingerprint()
    assert np.array_equal(encoder.transform(photos), expected.transform(photos))


def test_local_folder_of_timm(photos, tmp_path):
    torch.manual_seed(0)
    model = timm.create_model("resnet10t")
    torch.save(model.state_dict(), tmp_path / "model.pth")
    expected = FrozenEncoder("resnet10t", tmp_path / "model.pth", source="timm")
    folder = tmp_path / "folder"
    folder.mkdir()
    save_file(model.state_dict(), folder / "model.safetensors")
    config = {"architecture": "resnet10t", "num_classes": 1000}
    config["pretrained_cfg"] = expected.preprocess_config_ | {"num_classes": 1000}
    (folder / "config.json").write_text(json.dumps(config))
    encoder = FrozenEncoder(f"local-dir:{folder}", source="timm")
    assert encoder.preprocess_config_ == expected.preprocess_config_
    np.testing.assert_allclose(
        encoder.transform(photos), expected.transform(photos), atol=1e-6
    )


@pytest.mark.parametrize(("dtype", "atol"), [("float16", 3e-3), ("bfloat16", 3e-2)])
def test_lower_precision(dtype, atol, photos, checkpoint):
    full = FrozenEncoder("skslot-vit", checkpoint).transform(photos)
    low = FrozenEncoder("skslot-vit", checkpoint, dtype=dtype).transform(photos)
    assert low.dtype == np.float32
    assert not np.array_equal(low, full)
    np.testing.assert_allclose(low, full, atol=atol * np.abs(full).max())


# ------------------------------------------------------------------ no weights


@pytest.mark.parametrize("source", ["open_clip", "timm"])
@pytest.mark.parametrize("pretrained", [None, ""])
def test_random_weights_are_never_used(source, pretrained):
    name = {"open_clip": "skslot-vit", "timm": "resnet10t"}[source]
    with pytest.raises(ValueError, match=f"{name}' random weights"):
        FrozenEncoder(name, pretrained, source=source).fingerprint()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"model": "ViT-B-33"}, "model='ViT-B-33' is not a name .* 'ViT-B-32'"),
        ({"pretrained": "datacomp"}, "pretrained='datacomp' .*'datacomp_xl_s13b_b90k'"),
        ({"pretrained": "/no/such.pt"}, "an existing file .* for 'ViT-B-32'"),
        ({"model": "skslot-vit"}, "is not a tag .* for 'skslot-vit'. Nothing was"),
        ({"model": "resnet1", "source": "timm"}, "model='resnet1' .*known to timm"),
        (
            {"model": "resnet18", "pretrained": "tv", "source": "timm"},
            "pretrained='tv' .* for 'resnet18'.*'tv_in1k'",
        ),
        (
            {"model": "resnet18.tv_in1k", "pretrained": "a1_in1k", "source": "timm"},
            "pretrained='a1_in1k' is not",
        ),
        ({"model": "test_vit", "pretrained": "x", "source": "timm"}, "'x'"),
    ],
)
def test_unknown_names(params, message):
    with pytest.raises(ValueError, match=message):
        FrozenEncoder(**params).fingerprint()


@pytest.mark.usefixtures("_offline")
@pytest.mark.parametrize(
    ("params", "names"),
    [
        ({}, "'ViT-B-32' with the tag 'datacomp_xl_s13b_b90k'"),
        ({"model": "hf-hub:skslot/none"}, "'hf-hub:skslot/none'"),
        ({"model": "resnet18.tv_in1k", "source": "timm"}, "'resnet18.tv_in1k'"),
        ({"model": "resnet10t", "pretrained": "c3_in1k", "source": "timm"}, "c3_in1k"),
        ({"model": "hf-hub:skslot/none", "source": "timm"}, "'hf-hub:skslot/none'"),
    ],
)
def test_weights_that_cannot_be_had_offline(params, names):
    pattern = f"{re.escape(names)}.* nothing was downloaded.*pretrained="
    with pytest.raises(OSError, match=pattern):
        FrozenEncoder(**params).transform(["a.png"])


def test_weights_of_another_model(checkpoint, tmp_path):
    with pytest.raises(ValueError, match="could not be loaded .*'skslot-resnet'"):
        FrozenEncoder("skslot-resnet", checkpoint).fingerprint()
    weights = timm.create_model("resnet10t").state_dict()
    weights["layer1.other"] = weights.pop("layer1.0.conv1.weight")
    torch.save(weights, tmp_path / "other.pth")
    pattern = r"1 weights are missing \(layer1.0.conv1.weight\), 1 are not known"
    with pytest.raises(ValueError, match=pattern):
        FrozenEncoder("resnet10t", tmp_path / "other.pth", source="timm").fingerprint()


def test_folder_without_weights_or_configuration(tmp_path):
    for source in ("open_clip", "timm"):
        encoder = FrozenEncoder(f"local-dir:{tmp_path}", source=source)
        with pytest.raises(ValueError, match="could not be loaded"):
            encoder.fingerprint()
    config = {"model_cfg": CONFIGS["skslot-vit"], "preprocess_cfg": {}}
    (tmp_path / "open_clip_config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="could not be loaded"):
        FrozenEncoder(f"local-dir:{tmp_path}").fingerprint()


class Harmful:
    def __reduce__(self):
        return (exec, ("raise SystemExit('code of a checkpoint was run')",))


@pytest.mark.parametrize(
    ("name", "source"), [("skslot-vit", "open_clip"), ("resnet10t", "timm")]
)
def test_code_in_a_checkpoint_is_not_run(name, source, tmp_path):
    path = tmp_path / "harmful.pt"
    with open(path, "wb") as file:
        pickle.dump({"state_dict": Harmful()}, file, protocol=2)
    with pytest.raises(ValueError, match="could not be loaded"):
        FrozenEncoder(name, path, source=source).fingerprint()


# ------------------------------------------------------------------ preprocessing


def test_preprocessing_is_recorded(checkpoint):
    assert FrozenEncoder("skslot-vit", checkpoint).fit().preprocess_config_ == {
        "size": [32, 32],
        "mode": "RGB",
        "mean": [0.48145466, 0.4578275, 0.40821073],
        "std": [0.26862954, 0.26130258, 0.27577711],
        "interpolation": "bicubic",
        "resize_mode": "shortest",
        "fill_color": 0,
    }


@pytest.fixture
def published(monkeypatch):
    """Tags of the small ViT with a preprocessing of their own, as SigLIP has."""
    tag = {"mean": (0.5,) * 3, "std": (0.5,) * 3}
    tag |= {"interpolation": "bicubic", "resize_mode": "squash"}
    tags = {"webli": tag}
    monkeypatch.setitem(open_clip.pretrained._PRETRAINED, "skslot-vit", tags)
    return tags


def test_fallback_of_open_clip_is_refused_for_a_file(published, checkpoint, photos):
    pattern = "not certain: open_clip would use .*0.481.* 'webli' has .*'squash'"
    with pytest.raises(ValueError, match=pattern):
        FrozenEncoder("skslot-vit", checkpoint).transform(photos)
    encoder = FrozenEncoder(
        "skslot-vit", checkpoint, preprocess=dict(published["webli"])
    )
    assert encoder.preprocess_config_["mean"] == [0.5, 0.5, 0.5]
    assert encoder.preprocess_config_["resize_mode"] == "squash"
    published["webli"]["file"] = str(checkpoint)
    by_tag = FrozenEncoder("skslot-vit", "webli")
    assert np.array_equal(by_tag.transform(photos), encoder.transform(photos))
    assert by_tag.fingerprint() == encoder.fingerprint()


def test_configuration_beside_the_file_is_believed(published, checkpoint):
    beside = checkpoint.with_name("open_clip_config.json")
    config = {"preprocess_cfg": {"resize_mode": "longest"}}
    beside.write_text(json.dumps(config))
    with pytest.raises(ValueError, match="open_clip_config.json has .*'longest'"):
        FrozenEncoder("skslot-vit", checkpoint).fingerprint()
    beside.write_text(json.dumps({"preprocess_cfg": {"resize_mode": "shortest"}}))
    assert FrozenEncoder("skslot-vit", checkpoint).fingerprint()
    beside.write_text("{}")
    with pytest.raises(ValueError, match="does not say how images are preprocessed"):
        FrozenEncoder("skslot-vit", checkpoint).fingerprint()


def test_wrong_activation_is_refused(published, checkpoint):
    published["openai"] = {"file": str(checkpoint), "quick_gelu": True}
    with pytest.raises(ValueError, match="could not be loaded .* QuickGELU mismatch"):
        FrozenEncoder("skslot-vit", "openai").fingerprint()


def test_timm_file_needs_a_name_that_says_its_preprocessing(tmp_path):
    torch.save(timm.create_model("resnet18").state_dict(), tmp_path / "r.pth")
    encoder = FrozenEncoder("resnet18", tmp_path / "r.pth", source="timm")
    with pytest.raises(ValueError, match="one of .*'resnet18.tv_in1k'"):
        encoder.fingerprint()
    encoder.set_params(preprocess={"interpolation": "nearest"})
    assert encoder.preprocess_config_["interpolation"] == "nearest"


def test_entries_of_preprocess(checkpoint):
    encoder = FrozenEncoder("skslot-vit", checkpoint, preprocess={"means": 1})
    with pytest.raises(ValueError, match=r"unknown entries \['means'\]"):
        encoder.fingerprint()


def test_callable_replaces_the_preprocessing_of_the_model(checkpoint, photos):
    _, _, preprocess = open_clip.create_model_and_transforms("skslot-vit")
    own = FrozenEncoder("skslot-vit", checkpoint)
    given = FrozenEncoder("skslot-vit", checkpoint, preprocess=preprocess)
    assert np.array_equal(own.transform(photos), given.transform(photos))
    assert given.preprocess_config_["callable"].startswith("Compose(")


# ------------------------------------------------------------------ once per process


def test_model_is_loaded_once_for_all_clones(checkpoint):
    encoder = FrozenEncoder("skslot-vit", checkpoint)
    others = [
        clone(encoder),
        FrozenEncoder("skslot-vit", str(checkpoint), batch_size=1),
    ]
    networks = {id(each._load().network) for each in [encoder, *others]}
    assert len(networks) == 1


def test_changed_file_is_loaded_again(checkpoint):
    encoder = FrozenEncoder("skslot-vit", checkpoint)
    before = encoder.fingerprint()
    weights = random_clip("skslot-vit").state_dict()
    weights["visual.proj"] *= 2
    save_file(weights, checkpoint)
    assert encoder.fingerprint() != before


def test_pickle_holds_no_weights(checkpoint, photos):
    encoder = FrozenEncoder("skslot-vit", checkpoint)
    features = encoder.transform(photos)
    pickled = pickle.dumps(encoder)
    assert len(pickled) < 1000
    assert np.array_equal(pickle.loads(pickled).transform(photos), features)


def test_auto_device(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert _backbones.pick_device("auto").type == "cuda"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert _backbones.pick_device("auto").type == "mps"
    assert _backbones.pick_device("cpu").type == "cpu"


@pytest.mark.parametrize("missing", ["torch", "PIL", "open_clip", "timm"])
def test_missing_package_is_named_with_its_extra(missing, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    source = "timm" if missing == "timm" else "open_clip"
    encoder = FrozenEncoder("resnet10t", "c3_in1k", source=source).fit()
    with pytest.raises(ImportError, match=r'missing.* pip install "skslot\[clip\]"'):
        encoder.transform(["a.png"])


@pytest.mark.parametrize(
    "params", [{}, {"model": "resnet18", "source": "timm"}], ids=["open_clip", "timm"]
)
def test_hub_out_of_reach_is_asked_once(params, monkeypatch):
    constants = huggingface_hub.constants
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # nobody listens

    def no_retry(seconds):
        raise AssertionError("the hub is asked again")

    monkeypatch.setattr("time.sleep", no_retry)
    with pytest.raises(OSError, match="not on this computer"):
        FrozenEncoder(**params).transform(["a.png"])
    assert constants.HF_HUB_OFFLINE is False
