"""``skslot bench`` as users run it."""

import json
import sys

import numpy as np
import pytest

from skslot.cli import main
from skslot.datasets import make_shifted_clients
from skslot.experiments import _experiments

DATA = make_shifted_clients(900, n_clients=3, n_features=4, random_state=0)


@pytest.fixture
def features(tmp_path):
    return write_features(tmp_path / "sites.npz", DATA.data)


def write_features(path, X, client=DATA.client_ids):
    np.savez(path, X=X, y=DATA.target, client=client)
    return path


def test_table_and_files(features, tmp_path, capsys):
    pytest.importorskip("skorch")
    outputs = {name: tmp_path / f"table.{name}" for name in ("json", "csv", "latex")}
    arguments = ["bench", "skew", "--features", str(features), "--runs", "1"]
    results = tmp_path / "runs.jsonl"
    results.write_text('{"origin": {"vers')  # of a first run that was killed
    arguments += ["--results", str(results)]
    for name, path in outputs.items():
        arguments += [f"--{name}", str(path)]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("skew: stronger label shift, on sites")
    assert printed.count("FedPFT ") == 4
    assert json.loads(outputs["json"].read_text())[0]["data"] == "sites"
    assert printed.count(" ours ") == 2
    assert outputs["csv"].read_text().count("\n") == 1 + 18
    assert r"\begin{tabular}" in outputs["latex"].read_text()
    assert main(arguments) == 1  # the files are there
    assert "--force" in capsys.readouterr().err
    assert main([*arguments, "--force"]) == 0


def test_what_needs_torch_is_left_out_without_it(
    features, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(_experiments, "can_train_nets", lambda: False)
    table = tmp_path / "table.csv"
    results = tmp_path / "runs.jsonl"
    arguments = ["bench", "main", "--features", str(features), "--runs", "1"]
    assert main([*arguments, "--results", str(results), "--csv", str(table)]) == 0
    printed, _, left_out = capsys.readouterr().out.partition("\nFedAvg is left out")
    assert left_out.startswith(': it needs pip install "skslot[torch]".')
    assert "O-FedAvg is left out" in printed + left_out
    assert "mixed effects" in printed
    assert "FedAvg" not in table.read_text()
    assert table.read_text().count("\n") == 1 + 4 + 3


@pytest.mark.parametrize(
    "content", [b"patient,age\n1,50\n", b'{"a": 1}\n[1]\n2\n', b"PK\x03\x04\xff"]
)
def test_results_are_not_added_to_other_files(features, tmp_path, content, capsys):
    other = tmp_path / "other"
    other.write_bytes(content)
    command = ["bench", "skew", "--features", str(features), "--results", str(other)]
    assert main(command) == 1
    assert f"{other} contains no runs" in capsys.readouterr().err
    assert other.read_bytes() == content


@pytest.mark.parametrize("option", ["--results", "--csv"])
def test_features_are_not_overwritten(features, option, capsys):
    before = features.read_bytes()
    command = ["bench", "skew", "--features", str(features), "--force"]
    assert main([*command, option, str(features)]) == 1
    assert "is read as an input" in capsys.readouterr().err
    assert features.read_bytes() == before


def test_a_file_that_is_not_there_is_named(tmp_path, capsys):
    missing = str(tmp_path / "none.npz")
    assert main(["bench", "main", "--features", missing]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "none.npz" in error


@pytest.fixture
def encoders(tmp_path):
    """Features of the same rows by two encoders."""
    arrays = {"small": DATA.data[:, :3], "large": np.hstack([DATA.data, DATA.data**2])}
    return [
        str(write_features(tmp_path / f"{name}.npz", X)) for name, X in arrays.items()
    ]


def test_backbones_are_compared(encoders, tmp_path, capsys):
    pytest.importorskip("skorch")
    files = {name: tmp_path / f"table.{name}" for name in ("csv", "latex")}
    command = ["bench", "backbones", "--runs", "1", "--features", *encoders]
    command += ["--results", str(tmp_path / "runs.jsonl")]
    for name, path in files.items():
        command += [f"--{name}", str(path)]
    assert main(command) == 0
    titles = [f"backbones: frozen encoders, on {name}" for name in ("small", "large")]
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in printed if line.startswith("backbones")] == titles
    header, *rows = files["csv"].read_text().splitlines()
    assert header.startswith("data,alpha,source,method")
    assert [row.split(",")[0] for row in rows] == ["small"] * 10 + ["large"] * 10
    comments = [line for line in files["latex"].read_text().splitlines() if "%" in line]
    assert comments == [f"% {title}" for title in titles]


def test_unlabelled_runs_without_torch(features, tmp_path, capsys):
    command = ["bench", "unlabelled", "--features", str(features), "--runs", "1"]
    assert main([*command, "--results", str(tmp_path / "runs.jsonl")]) == 0
    printed = capsys.readouterr().out
    assert "not in the paper" in printed
    assert printed.count("+ 200 unlabelled") == 3
    assert printed.count("new site, FedCGS") == 3


def test_backbones_need_the_same_images(encoders, tmp_path, capsys):
    other = write_features(tmp_path / "other.npz", DATA.data, DATA.client_ids[::-1])
    assert main(["bench", "backbones", "--features", *encoders, str(other)]) == 1
    error = capsys.readouterr().err
    assert "small and other are not features of the same images" in error
    assert "differ in client_ids" in error


def test_small_data_need_fewer_rows_per_client(features, tmp_path, capsys):
    pytest.importorskip("skorch")
    with np.load(features) as file:
        np.savez(tmp_path / "few.npz", **{name: file[name][:60] for name in file})
    command = ["bench", "skew", "--features", str(tmp_path / "few.npz"), "--runs", "1"]
    command += ["--results", str(tmp_path / "runs.jsonl")]
    assert main(command) == 1
    assert "min_samples=10 rows. Lower min_samples" in capsys.readouterr().err
    assert main([*command, "--min-samples", "2"]) == 0


def test_files_need_different_names(features, tmp_path, capsys):
    folder = tmp_path / "other"
    folder.mkdir()
    twin = write_features(folder / "sites.npz", DATA.data)
    assert main(["bench", "main", "--features", str(features), str(twin)]) == 1
    assert "two of these have the same name" in capsys.readouterr().err


def test_pca_writes_its_figures(features, tmp_path, capsys):
    pytest.importorskip("matplotlib").use("Agg")
    arguments = ["bench", "pca", "--features", str(features)]
    figures = tmp_path / "figures"
    figures.mkdir()
    arguments += ["--figures", str(figures)]
    assert main(arguments) == 0
    names = {path.name for path in figures.iterdir()}
    assert names == {
        f"pca-sites-by-{colouring}.{kind}"
        for colouring in ("client", "class")
        for kind in ("png", "svg")
    }
    assert (figures / "pca-sites-by-client.png").read_bytes()[1:4] == b"PNG"
    assert main(arguments) == 1
    assert "--force" in capsys.readouterr().err
    assert main([*arguments, "--csv", str(tmp_path / "table.csv")]) == 1
    assert "pca has no table to write as csv" in capsys.readouterr().err


def test_two_outputs_are_two_files(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for options in ("--json x --csv ./x", "--json r.jsonl --results r.jsonl"):
        assert main(["bench", "main", *options.split()]) == 1
        assert "cannot be two outputs at once" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


def test_methods_are_compared(features, tmp_path, capsys):
    outputs = {name: tmp_path / f"table.{name}" for name in ("json", "csv", "latex")}
    command = ["bench", "methods", "--features", str(features), "--runs", "1"]
    command += ["--methods", "fedcof", "local", "--alphas", "none", "0.1"]
    command += ["--alignments", "none", "--results", str(tmp_path / "runs.jsonl")]
    for name, path in outputs.items():
        command += [f"--{name}", str(path)]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("methods: one-shot methods compared, on sites")
    assert outputs["csv"].read_text().count("\n") == 1 + 2 * 3
    assert json.loads(outputs["json"].read_text())[0]["data"] == "sites"
    assert r"\begin{tabular}" in outputs["latex"].read_text()
    assert main([*command, "--force", "--n-jobs", "2"]) == 0
    assert capsys.readouterr().out == printed


def test_methods_draw_accuracy_against_bytes(features, tmp_path, capsys):
    pytest.importorskip("matplotlib").use("Agg")
    command = ["bench", "methods", "--features", str(features), "--runs", "1"]
    command += ["--methods", "fedcof", "--alphas", "0.1", "--alignments", "none"]
    command += ["--results", str(tmp_path / "runs.jsonl"), "--figures", str(tmp_path)]
    assert main(command) == 0
    assert (tmp_path / "methods-sites.png").read_bytes()[1:4] == b"PNG"
    assert (tmp_path / "methods-sites.svg").exists()
    capsys.readouterr()
    assert main(command) == 1
    assert "--force" in capsys.readouterr().err


def test_a_picture_without_matplotlib_is_refused_before_the_work(
    features, tmp_path, monkeypatch, capsys
):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    results = tmp_path / "runs.jsonl"
    command = ["bench", "methods", "--features", str(features)]
    command += ["--results", str(results), "--figures", str(tmp_path)]
    assert main(command) == 1
    assert "a picture needs matplotlib" in capsys.readouterr().err
    assert not results.exists()


def test_tables_without_pandas_are_refused_before_the_work(
    features, tmp_path, monkeypatch, capsys
):
    monkeypatch.setitem(sys.modules, "pandas", None)
    results = tmp_path / "runs.jsonl"
    command = ["bench", "unlabelled", "--features", str(features)]
    assert main([*command, "--results", str(results)]) == 1
    assert 'pip install "skslot[tables]"' in capsys.readouterr().err
    assert not results.exists()


def test_options_of_methods_are_for_methods(capsys):
    for option, value in (("--alphas", "0.1"), ("--n-jobs", "2")):
        assert main(["bench", "main", option, value]) == 1
        error = capsys.readouterr().err
        assert f"{option} is for methods, not for main" in error


@pytest.mark.parametrize("alpha", ["0", "-1", "inf", "nan", "few"])
def test_alphas_are_positive_numbers_or_none(alpha, capsys):
    with pytest.raises(SystemExit):
        main(["bench", "methods", "--alphas", alpha])
    assert f"'{alpha}' is neither none nor above 0" in capsys.readouterr().err
