"""``skslot encode``: real images, a small timm model with weights from a file."""

import inspect
import re
import signal

import numpy as np
import pytest

from skslot import FedCGSClassifier
from skslot.cli import main
from skslot.encoders import FrozenEncoder
from skslot.experiments import FeatureSet

torch = pytest.importorskip("torch")
timm = pytest.importorskip("timm")
Image = pytest.importorskip("PIL.Image")
save_file = pytest.importorskip("safetensors.torch").save_file

MODEL = "test_resnet"
CLIENTS = {"photo": ["cat", "dog"], "sketch": ["cat", "horse"]}
N_IMAGES = 3  # of each class


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "model.safetensors"
    save_file(timm.create_model(MODEL, pretrained=False).state_dict(), path)
    return path


@pytest.fixture
def folder(tmp_path):
    return write_images(tmp_path / "images", CLIENTS, N_IMAGES)


def write_images(root, clients, n_images, size=24):
    rng = np.random.default_rng(0)
    for client, labels in clients.items():
        for label in labels:
            (root / client / label).mkdir(parents=True)
            for number in range(n_images):
                pixels = rng.integers(0, 256, (size, size, 3), dtype=np.uint8)
                path = root / client / label / f"{number:03}.png"
                Image.fromarray(pixels).save(path)
    return root


@pytest.fixture
def encode(weights, tmp_path):
    """Run the command on images, into ``features.npz``."""

    def run(images, *options):
        return main(command(images, weights, tmp_path / "features.npz", *options))

    return run


def command(images, weights, output, *options):
    model = ["--model", MODEL, "--pretrained", str(weights), "--source", "timm"]
    return ["encode", str(images), "-o", str(output), *model, *options]


def test_file_has_the_features_labels_and_clients(folder, weights, encode, tmp_path):
    assert encode(folder, "--batch-size", "5") == 0
    with np.load(tmp_path / "features.npz", allow_pickle=False) as file:
        assert set(file) == {"X", "y", "client", "path", "fingerprint"}
        arrays = dict(file)
    encoder = FrozenEncoder(MODEL, weights, source="timm", batch_size=5)
    paths = [str(folder / path) for path in arrays["path"]]
    assert len(paths) == 4 * N_IMAGES
    assert arrays["X"].dtype == np.float32
    np.testing.assert_allclose(arrays["X"], encoder.transform(paths), atol=1e-6)
    assert arrays["fingerprint"] == encoder.fingerprint()
    for path, client, label in zip(
        arrays["path"], arrays["client"], arrays["y"], strict=True
    ):
        assert path.startswith(f"{client}/{label}/")


def test_features_go_into_a_classifier(folder, encode, tmp_path):
    encode(folder)
    data = FeatureSet.from_file(tmp_path / "features.npz")
    X, y, client_ids = data.X, data.y, data.client_ids
    classifier = FedCGSClassifier().fit(X, y, client_ids=client_ids)
    assert set(classifier.classes_) == {"cat", "dog", "horse"}


def test_summary_counts_images_per_client_and_class(folder, encode, capsys):
    (folder / "README.md").touch()
    assert encode(folder) == 0
    printed = capsys.readouterr().out
    assert "images: 12, classes: 3, clients: 2, other files ignored: 1\n" in printed
    assert "photo     3    3      .     6" in printed
    assert "sketch    3    .      3     6" in printed
    assert re.search(r"encoded: 12, from the cache .*features.npz.cache: 0\n", printed)


def test_many_classes_have_a_line_each(tmp_path, encode, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    labels = [f"class {number}" for number in range(12)]
    write_images(tmp_path / "images", {"A": labels, "B": labels[:1]}, 1, size=8)
    assert encode(tmp_path / "images") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "class 11    1    .     1" in lines
    assert "all        12    1    13" in lines


def test_csv_with_splits(folder, encode, tmp_path):
    csv = folder / "some.csv"
    csv.write_text(
        "path,client,label,split\n"
        "sketch/cat/001.png,B,cat,train\n"
        "photo/cat/002.png,A,cat,test\n"
    )
    assert encode(csv) == 0
    with np.load(tmp_path / "features.npz", allow_pickle=False) as file:
        assert file["path"].tolist() == ["sketch/cat/001.png", "photo/cat/002.png"]
        assert file["client"].tolist() == ["B", "A"]
        assert file["split"].tolist() == ["train", "test"]


def test_layout_of_a_benchmark_brings_its_split(tmp_path, encode):
    for domain in ("mnist", "usps", "svhn", "synth"):
        digits = {split: map(str, range(10)) for split in ("train", "test")}
        write_images(tmp_path / "digits" / domain, digits, 1, size=8)
    assert encode(tmp_path / "digits", "--layout", "digits") == 0
    with np.load(tmp_path / "features.npz") as file:
        assert sorted(set(file["split"])) == ["test", "train"]
        assert file["dataset"] == "Digits"
        assert len(file["X"]) == 80


def test_existing_file_is_not_overwritten_unless_forced(folder, encode, tmp_path):
    output = tmp_path / "features.npz"
    output.write_text("precious")
    assert encode(folder) == 1
    assert output.read_text() == "precious"
    assert not (tmp_path / "features.npz.cache").exists()
    assert encode(folder, "--force") == 0
    assert len(FeatureSet.from_file(output).X) == 12


def test_second_run_encodes_only_what_is_new(folder, encode, tmp_path, capsys):
    encode(folder)
    before = FeatureSet.from_file(tmp_path / "features.npz").X
    Image.new("RGB", (20, 20), "red").save(folder / "sketch" / "horse" / "new.png")
    capsys.readouterr()
    assert encode(folder, "--force") == 0
    printed = capsys.readouterr().out
    assert re.search(r"resuming, features that .* has already: 12\n", printed)
    assert re.search(r"encoded: 1, from the cache .*: 12\n", printed)
    after = FeatureSet.from_file(tmp_path / "features.npz").X
    np.testing.assert_array_equal(after[:12], before)


def test_cache_may_be_elsewhere(folder, encode, tmp_path):
    assert encode(folder, "--cache-dir", str(tmp_path / "cache")) == 0
    assert list((tmp_path / "cache").iterdir())
    assert not (tmp_path / "features.npz.cache").exists()


@pytest.fixture
def _ctrl_c():
    """SIGINT as at a terminal; what runs in the background may ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_ctrl_c")
def test_run_that_was_interrupted_goes_on(weights, tmp_path, capsys, monkeypatch):
    images = write_images(tmp_path / "images", {"A": ["x"]}, 20, size=8)
    output = tmp_path / "features.npz"
    arguments = command(images, weights, output, "--batch-size", "2")
    cache = FrozenEncoder(
        MODEL, weights, source="timm", cache_dir=f"{output}.cache"
    ).cache_info
    open_image = Image.open

    def interrupt(path, *options, **others):
        if cache().n_images >= 4:
            signal.raise_signal(signal.SIGINT)
        return open_image(path, *options, **others)

    with monkeypatch.context() as patch:
        patch.setattr(Image, "open", interrupt)
        assert main(arguments) == 130
    error = capsys.readouterr().err
    assert "the same command continues" in error
    assert "Traceback" not in error
    assert not output.exists()
    kept = cache().n_images
    assert 4 <= kept < 20

    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert re.search(rf"resuming, features that .* has already: {kept}\n", printed)
    assert re.search(rf"encoded: {20 - kept}, from the cache .*: {kept}\n", printed)
    assert len(FeatureSet.from_file(output).X) == 20


def test_dry_run_needs_no_weights_and_is_marked(folder, encode, tmp_path, capsys):
    assert encode(folder, "--pretrained", "none") == 0
    assert "a dry run: the weights were random" in capsys.readouterr().out
    with np.load(tmp_path / "features.npz") as file:
        first, fingerprint = file["X"], str(file["fingerprint"])
    assert fingerprint.startswith("dry-run-")
    cache = "--cache-dir", str(tmp_path / "another")
    assert encode(folder, "--pretrained", "none", "--force", *cache) == 0
    with np.load(tmp_path / "features.npz") as file:
        assert fingerprint == str(file["fingerprint"])
        np.testing.assert_array_equal(file["X"], first)


@pytest.mark.parametrize("source", ["timm", "open_clip"])
def test_missing_weights_are_told_in_words_of_the_command(
    folder, tmp_path, capsys, monkeypatch, source
):
    constants = pytest.importorskip("huggingface_hub").constants
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    model = {"timm": "resnet18.tv_in1k", "open_clip": "ViT-B-32"}[source]
    options = ["--source", source, "--model", model]
    output = str(tmp_path / "features.npz")
    assert main(["encode", str(folder), "-o", output, *options]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "/path/to/checkpoint.safetensors" in error
    assert error.endswith("(options --model and --pretrained)\n")


def test_broken_images_are_named_on_one_line(folder, encode, tmp_path, capsys):
    (folder / "photo" / "cat" / "broken.png").write_bytes(b"not an image")
    (folder / "photo" / "dog" / "empty.png").touch()
    assert encode(folder) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.startswith("skslot: error: 2 of 14 images cannot be read")
    assert "broken.png" in error
    assert "empty.png" in error
    assert not (tmp_path / "features.npz").exists()


@pytest.mark.parametrize(
    ("images", "options", "message"),
    [
        ("nowhere", [], "nowhere does not exist"),
        (".", ["-o", "features.csv"], "must end in .npz, not features.csv"),
        (".", ["-o", "nowhere/features.npz"], "the folder nowhere for features.npz"),
        (".", ["--layout", "domainnet"], "lacks clipart_train.txt"),
        (".", ["--pretrained", "nowhere.safetensors"], "nowhere.safetensors"),
        (".", ["--device", "abacus"], "device='abacus' cannot be used here"),
    ],
)
def test_errors_are_one_line(
    folder, encode, capsys, monkeypatch, images, options, message
):
    monkeypatch.chdir(folder)
    assert encode(images, *options) == 1
    error = capsys.readouterr().err
    assert error.startswith("skslot: error: ")
    assert error.count("\n") == 1
    assert message in error


@pytest.mark.parametrize(
    "options",
    [[], ["-o", "a.npz", "--workers", "-1"], ["-o", "a.npz", "--dtype", "int8"]],
)
def test_wrong_usage_exits_with_2(options, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["encode", "images", *options])
    assert exit_.value.code == 2
    assert "usage: skslot encode" in capsys.readouterr().err


def test_help_states_the_defaults_of_the_encoder(capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["encode", "--help"])
    assert exit_.value.code == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "example: skslot encode" in printed
    parameters = inspect.signature(FrozenEncoder).parameters
    for name in ("model", "pretrained", "source", "batch_size", "device", "dtype"):
        assert f"(default: {parameters[name].default}" in printed
