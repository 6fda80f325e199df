"""``skslot report`` on what sites sent, without any of their rows."""

import re
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from four_sites import CLIENTS, SITES, X, Y, error_of, message_of, run

from skslot.exchange import ClassMeans
from skslot.experiments import FeatureSet

pytest.importorskip("matplotlib").use("Agg")

from skslot.cli._findings import findings_of_messages, findings_of_rows  # noqa: E402


def page_of(command):
    assert run(f"report {command} -o page.html --force") == 0
    return unescape(Path("page.html").read_text(encoding="utf-8"))


def titles(page):
    return re.findall("<h2>(.*?)</h2>", page)


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    """The page on messages with labels, and its folder."""
    folder = tmp_path_factory.mktemp("received")
    for client in SITES:
        message_of(client).save(folder / f"{client}.slot", min_samples=1)
    assert run(f"report {folder}/?.slot -o {folder}/page.html") == 0
    return unescape((folder / "page.html").read_text(encoding="utf-8")), folder


def test_labelled_messages_tell_all_but_accuracy(labelled):
    page, folder = labelled
    assert titles(page) == [
        "Each site",
        "Which client has which classes",
        "Where the differences between rows come from",
        "Whether a client stands out",
        "How far clients are apart",
        "What cannot be said without rows",
        "What to run next",
    ]
    assert f"4 clients hold {len(X)} rows of 4 classes." in page
    assert "it cannot say how many rows will be recognised" in page
    assert "% right" not in page
    assert re.findall("<h3>(.*?)</h3>", page) == SITES
    size = Path(folder, "A.slot").stat().st_size
    assert f'<th scope="row">bytes of the file</th><td>{size:,}</td>' in page
    assert "No noise is added" in page
    assert str(folder) not in page


def test_rows_and_classes_are_those_of_the_sites(labelled):
    page, _ = labelled
    for client in SITES:
        rows = CLIENTS == client
        n_classes = len(np.unique(Y[rows]))
        assert f"{rows.sum()} rows of {n_classes} classes" in page


def test_command_on_the_page_makes_the_model(labelled, monkeypatch):
    page, folder = labelled
    monkeypatch.chdir(folder)
    command = re.search("<code>skslot (.*?)\n</code>", page, re.S)[1]
    assert command == "aggregate A.slot B.slot C.slot D.slot --model model.slot"
    assert run(command) == 0
    assert Path("model.slot").exists()


def test_messages_without_labels_keep_to_the_features(server):
    for client in SITES:
        message_of(client, labels=False).save(f"{client}.slot", min_samples=1)
    page = page_of("?.slot")
    assert f"4 clients hold {len(X)} rows without labels." in page
    assert "Which client has which classes" not in titles(page)
    assert "shrinkage" in page
    command = re.search("<code>skslot (.*?)\n</code>", page, re.S)[1]
    assert command.endswith("-o reference.slot --tau 0.4")
    assert run(command) == 0


def test_some_sites_may_have_sent_no_labels(server):
    message_of("B", labels=False).save("B.slot", min_samples=1)
    page = page_of("?.slot")
    assert "1 sent no labels." in page
    assert "Which client has which classes" in titles(page)
    assert "Where the differences between rows come from" not in titles(page)
    n_rows = (CLIENTS == "B").sum()
    assert f'<p class="verdict">{n_rows} rows: its features' in page


def test_a_given_tau_is_followed(server):
    page = page_of("?.slot --tau 1")
    assert "With tau = 1, the mean distance" in page
    assert "Where the differences between rows come from" in titles(page)
    assert "--method fedcgs --tau 1\n" in page


def test_distances_are_those_of_the_rows(labelled):
    """A server finds what whoever has all rows finds, but for rounding."""
    paths = [labelled[1] / f"{client}.slot" for client in SITES]
    found = findings_of_messages(paths, 0.4)
    expected = findings_of_rows(FeatureSet("rows", X, Y, CLIENTS), 0.4)
    assert found.clients == expected.clients
    assert found.n_samples == expected.n_samples
    np.testing.assert_array_equal(found.table.counts, expected.table.counts)
    for name in ("before", "after"):
        pair = (getattr(each.distances, name) for each in (found, expected))
        np.testing.assert_allclose(*pair, atol=1e-4)


def test_many_clients_are_not_compared_two_by_two(server, monkeypatch):
    monkeypatch.setattr("skslot.cli._findings.MOST_CLIENTS", 3)
    page = page_of("?.slot")
    assert "distances between any two are not measured" in page
    assert re.findall("<h3>(.*?)</h3>", page) == SITES
    assert "W2" not in page


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("A.slot", "A.slot is of one client only; there is nothing to compare."),
        ("A.slot rows.npz", "A.slot is what a site sent, rows.npz has features"),
        ("rows.npz other.npz", "a page is on one file of features. Join the rows"),
        ("?.slot --labels", "--labels is about columns of features"),
        ("?.slot --labels-file y.txt", "--labels-file is about columns of features"),
        ("none*.slot", "no file matches none*.slot."),
        ("A.slot A.slot", "twice"),
        ("A.slot nowhere.slot", "nowhere.slot: No such file"),
        ("A.slot cut.slot", "cut.slot: these bytes are not a skslot message"),
        ("A.slot copy.slot", "are from the same client 'A'; keep the right one"),
        ("A.slot other.slot", "encoder is 'another' in other.slot and None in A.slot"),
        ("A.slot plan.slot", "A.slot were not made by the same plan"),
        ("A.slot model.slot", "not what skslot summarize writes"),
        ("A.slot plain.slot --tau auto", "plain.slot was summarized without --labels"),
        (
            "A.slot means.slot",
            "means.slot: this is of the kind 'class means', not what",
        ),
    ],
)
def test_wrong_files_are_refused_in_a_line(server, command, expected, capsys):
    Path("cut.slot").write_bytes(Path("B.slot").read_bytes()[:-40])
    Path("copy.slot").write_bytes(Path("A.slot").read_bytes())
    message_of("B").with_encoder("another").save("other.slot", min_samples=1)
    message_of("B").with_encoder("plan:0123").save("plan.slot", min_samples=1)
    message_of("B", labels=False).save("plain.slot", min_samples=1)
    ClassMeans(["cat"], np.array([20]), np.zeros((1, 6)), client="B").save("means.slot")
    assert run("aggregate ?.slot --model model.slot") == 0
    np.savez("rows.npz", X=X, client=CLIENTS)
    capsys.readouterr()
    assert expected in error_of(f"report {command} -o page.html", capsys)
    assert not Path("page.html").exists()


def test_a_message_is_not_overwritten_by_its_page(server, capsys):
    assert "would be overwritten" in error_of("report ?.slot -o A.slot --force", capsys)
