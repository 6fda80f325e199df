"""``skslot bench`` as users run it."""

import json

import numpy as np
import pytest

from skslot.cli import main
from skslot.datasets import make_shifted_clients


@pytest.fixture
def features(tmp_path):
    data = make_shifted_clients(900, n_clients=3, n_features=4, random_state=0)
    path = tmp_path / "sites.npz"
    np.savez(path, X=data.data, y=data.target, client=data.client_ids)
    return path


def test_table_and_files(features, tmp_path, capsys):
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
    assert printed.count("+SLOT") == 6
    assert json.loads(outputs["json"].read_text())[0]["data"] == "sites"
    assert outputs["csv"].read_text().count("\n") == 13 + 1
    assert outputs["latex"].read_text().startswith(r"\begin{tabular}")
    assert main(arguments) == 1  # the files are there
    assert "--force" in capsys.readouterr().err
    assert main([*arguments, "--force"]) == 0


@pytest.mark.parametrize(
    "content", [b"patient,age\n1,50\n", b'{"a": 1}\n[1]\n2\n', b"PK\x03\x04\xff"]
)
def test_results_are_not_added_to_other_files(features, tmp_path, content, capsys):
    other = tmp_path / "other"
    other.write_bytes(content)
    command = ["bench", "skew", "--features", str(features), "--results", str(other)]
    assert main(command) == 1
    assert f"{other} holds no runs" in capsys.readouterr().err
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
