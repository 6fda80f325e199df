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
    arguments += ["--results", str(tmp_path / "runs.jsonl")]
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


def test_a_file_that_is_not_there_is_named(tmp_path, capsys):
    missing = str(tmp_path / "none.npz")
    assert main(["bench", "main", "--features", missing]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "none.npz" in error
