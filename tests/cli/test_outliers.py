"""Sites that stand out, at the command line."""

from pathlib import Path

import numpy as np
import pytest
from four_sites import CLIENTS, SITES, X, Y, error_of, run

from skslot import FedCGSClassifier, FederatedOTAligner
from skslot.exchange import AlignedModel, load_message, load_messages
from skslot.trust import ClientScreen


@pytest.fixture
def poisoned(server):
    """Files of four sites, one of them in other units."""
    rows = CLIENTS == "D"
    classifier = FedCGSClassifier(aligner=FederatedOTAligner())
    classifier.client_update(1000 * X[rows], Y[rows], client="D").save("D.slot")


def test_aggregate_prints_what_each_client_adds(server, capsys):
    assert run("aggregate *.slot --model model.slot") == 0
    printed = capsys.readouterr()
    lines = printed.out.split("what each client adds:\n")[1].splitlines()
    assert lines[0].split()[:4] == ["client", "rows", "share", "distance"]
    assert [line.split()[0] for line in lines[1:5]] == SITES
    assert lines[5] == "no client stands out"
    assert "stands out" not in printed.err


@pytest.mark.parametrize("options", ["-o out.slot", "--model out.slot"])
def test_aggregate_warns_of_a_site_in_other_units(poisoned, options, capsys):
    assert run(f"aggregate A.slot B.slot C.slot D.slot {options}") == 0
    printed = capsys.readouterr()
    assert "client 'D' stands out: its features are about" in printed.err
    assert "client 'D' stands out: its features are about" in printed.out


@pytest.mark.parametrize("method", ["mixed", "fedcgs"])
def test_aggregate_goes_on_without_a_site(poisoned, method, capsys):
    options = f"--method {method} --screen exclude --dtype float64"
    files = "A.slot B.slot C.slot"
    assert run(f"aggregate {files} D.slot {options} --site-models models") == 0
    printed = capsys.readouterr()
    assert "client 'D' was left out" in printed.err
    assert "D (left out)" in printed.out
    assert "clients: 3," in printed.out
    assert run(f"aggregate {files} {options} --site-models others") == 0
    for site in "ABC":
        one, other = (
            load_message(f"{folder}/{site}.model.slot")
            for folder in ("models", "others")
        )
        assert one == other


def test_aggregate_tells_of_a_model_that_an_earlier_run_left(poisoned, capsys):
    command = "aggregate A.slot B.slot C.slot D.slot --site-models models"
    assert run(f"{command} --screen exclude") == 0
    assert "not written" not in capsys.readouterr().out
    assert run(f"{command} --screen none --force") == 0
    before = Path("models/D.model.slot").read_bytes()
    assert "not written" not in capsys.readouterr().out
    assert run(f"{command} --screen exclude --force") == 0
    expected = f"not written: {Path('models/D.model.slot')}, which is of an earlier run"
    printed = capsys.readouterr().out
    assert expected in printed
    assert printed.count("not written") == 1
    assert Path("models/D.model.slot").read_bytes() == before


def test_aggregate_refuses_to_leave_out_one_of_two(poisoned, capsys):
    command = "aggregate A.slot D.slot -o r.slot --screen exclude"
    assert "would leave 1 of 2 clients" in error_of(command, capsys)


def test_aggregate_caps_shares(server, capsys):
    files = "A.slot B.slot C.slot D.slot"
    options = "--method fedcgs --max-share 0.26 --dtype float64"
    assert run(f"aggregate {files} {options} --model m.slot") == 0
    classifier = FedCGSClassifier(
        aligner=FederatedOTAligner(), screen=ClientScreen(max_share=0.26)
    ).server_aggregate(load_messages(files.split()))
    assert AlignedModel.load("m.slot") == classifier.shared_model()
    assert not np.array_equal(
        classifier.coef_,
        FedCGSClassifier(aligner=FederatedOTAligner())
        .server_aggregate(load_messages(files.split()))
        .coef_,
    )


def test_shares_that_cannot_be_are_refused(server, capsys):
    command = "aggregate A.slot B.slot C.slot D.slot -o r.slot --max-share"
    for share, words in (("0.1", "is too small for 4 clients"), ("0", "above 0")):
        error = error_of(f"{command} {share}", capsys)
        assert words in error
        assert error.endswith("(option --max-share)\n")
