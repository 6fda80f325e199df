"""``skslot report`` on what sites sent, without any of their rows."""

import re
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from four_sites import CLIENTS, SITES, X, Y, error_of, message_of, run, save_messages

from skslot import (
    FedCGSClassifier,
    FedCoresetClassifier,
    FederatedOTAligner,
    FedPFTClassifier,
)
from skslot.exchange import ClassMeans
from skslot.privacy import PrivacyBudget

pytest.importorskip("matplotlib").use("Agg")

NO_EVIDENCE = "There is no evidence here that alignment helps"


def page_of(command):
    assert run(f"report {command} -o page.html --force") == 0
    return unescape(Path("page.html").read_text(encoding="utf-8"))


def command_on(page):
    return re.search("<code>skslot (.*?)\n</code>", page, re.S)[1]


def titles(page):
    return re.findall("<h2>(.*?)</h2>", page)


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    """The page on messages with labels, and its folder."""
    folder = tmp_path_factory.mktemp("received")
    save_messages(folder)
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
    assert "so the accuracy of a model is unknown" in page
    assert "% correct" not in page
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
    command = command_on(page)
    assert command == "aggregate A.slot B.slot C.slot D.slot --model model.slot"
    assert run(command) == 0
    assert Path("model.slot").exists()


@pytest.mark.usefixtures("words_only")
def test_messages_without_labels_keep_to_the_features(server):
    for client in SITES:
        message_of(client, labels=False).save(f"{client}.slot", min_samples=1)
    page = page_of("?.slot")
    assert f"4 clients hold {len(X)} rows without labels." in page
    assert "Which client has which classes" not in titles(page)
    assert "shrinkage" in page
    assert "With tau = 0.4, the mean distance" in page
    assert NO_EVIDENCE in page
    assert command_on(page).endswith("-o reference.slot --tau 0.4")
    assert run(command_on(page)) == 0


@pytest.mark.usefixtures("words_only")
def test_some_sites_may_have_sent_no_labels(server):
    message_of("B", labels=False).save("B.slot", min_samples=1)
    page = page_of("?.slot")
    assert "1 sent no labels." in page
    assert "Which client has which classes" in titles(page)
    assert "Where the differences between rows come from" not in titles(page)
    assert "0 of 12 (client, class) cells are empty." in page
    n_rows = (CLIENTS == "B").sum()
    assert f'<p class="verdict">{n_rows} rows, at distance' in page


@pytest.mark.usefixtures("words_only")
def test_a_tau_that_nothing_speaks_for_is_not_recommended(server):
    """Mixed effects can do without the site that sent no labels."""
    message_of("B", labels=False).save("B.slot", min_samples=1)
    page = page_of("?.slot")
    assert command_on(page) == "aggregate A.slot C.slot D.slot --model model.slot"
    assert "B.slot came without labels" in page
    assert "skslot adapt" in page
    assert run(command_on(page)) == 0
    asked = page_of("?.slot --tau 0.25")
    assert command_on(asked).endswith(
        "D.slot --model model.slot --method fedcgs --tau 0.25"
    )
    assert NO_EVIDENCE not in asked


def other_message(client, make=FedPFTClassifier):
    """What a client sends for a method that has no class statistics."""
    rows = CLIENTS == client
    classifier = make(random_state=0, aligner=FederatedOTAligner())
    return classifier.client_update(X[rows], Y[rows], client=client)


@pytest.mark.usefixtures("words_only")
def test_files_of_several_methods_get_no_command_but_the_reason(server, capsys):
    other_message("B").save("B.slot", min_samples=1)
    page = page_of("?.slot")
    assert "<code>" not in page
    reason = "B.slot and A.slot were summarized for different methods"
    assert f"These files do not give a model: {reason}" in page
    capsys.readouterr()
    assert reason in error_of("aggregate ?.slot --model model.slot", capsys)


@pytest.mark.parametrize(
    ("make", "plain", "tau", "ending"),
    [
        (FedCoresetClassifier, "", None, "--model model.slot --tau auto"),
        (FedPFTClassifier, "", None, "--model model.slot --tau auto"),
        (FedPFTClassifier, "", 0.2, "--model model.slot --tau 0.2"),
        (FedPFTClassifier, "B", None, "--model model.slot --tau 0.4"),
    ],
)
def test_files_of_other_methods_get_a_command_that_runs(
    server, words_only, make, plain, tau, ending
):
    for client in SITES:
        other_message(client, make).save(f"{client}.slot", min_samples=1)
    if plain:
        message_of(plain, labels=False).save(f"{plain}.slot", min_samples=1)
    page = page_of("?.slot" if tau is None else f"?.slot --tau {tau}")
    assert command_on(page).endswith(f"D.slot {ending}")
    assert (NO_EVIDENCE in page) is bool(plain)
    assert run(command_on(page)) == 0


def save_with_noise(client, epsilon=8.0, **how):
    pytest.importorskip("opendp")
    rows = CLIENTS == client
    budget = PrivacyBudget(epsilon, 1e-5, clip_norm=10)
    classifier = FedCGSClassifier(aligner=FederatedOTAligner(), privacy=budget)
    message = classifier.client_update(X[rows], Y[rows], client=client, **how)
    message.save(f"{client}.slot")


def test_numbers_with_noise_are_told_as_such_wherever_they_are(server):
    for client in SITES:
        save_with_noise(client, classes=sorted(set(Y)))
    page = page_of("?.slot")
    told = "carry noise (differential privacy with epsilon 8 and delta 1e-05)"
    assert f"The numbers of all clients {told}" in page
    assert page.count(f"<p>All of its numbers {told}.</p>") == len(SITES)
    assert page.count("<summary>Numbers (with noise)</summary>") == len(SITES)
    assert re.search("4 clients hold about [0-9]+ rows of 4 classes", page)
    assert "0 of 16 (client, class) cells seem to be empty" in page
    headlines = re.findall('class="verdict">(.*?)</p>', page)
    assert all(re.match("About [0-9]+ rows of ", text) for text in headlines)
    for title in titles(page):
        content = page.partition(f"<h2>{title}</h2>")[2].partition("</section>")[0]
        has_numbers = "<figure" in content
        assert ('<p class="noise">' in content) is has_numbers, title


@pytest.mark.usefixtures("words_only")
def test_noise_at_one_site_is_told_of_that_one(server, capsys):
    save_with_noise("C", epsilon=2.0, classes=sorted(set(Y)))
    page = page_of("?.slot")
    assert "The numbers of 1 of the 4 clients carry noise" in page
    assert page.count("All of its numbers carry noise") == 1
    n_rows = (CLIENTS == "A").sum()
    assert f'<p class="verdict">{n_rows} rows of 4 classes, at distance' in page
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("skslot: warning: clients ['A', 'B', 'D'] sent messages ")


def test_no_noise_no_words_on_noise(labelled):
    assert "carry noise" not in labelled[0]
    assert 'class="noise"' not in labelled[0]


@pytest.mark.usefixtures("words_only")
def test_a_given_tau_is_followed(server):
    page = page_of("?.slot --tau 1")
    assert "With tau = 1, the mean distance" in page
    assert "Where the differences between rows come from" in titles(page)
    assert "--method fedcgs --tau 1\n" in page


@pytest.mark.usefixtures("words_only")
def test_many_clients_are_not_compared_two_by_two(server, monkeypatch):
    monkeypatch.setattr("skslot.inspection._report.MOST_CLIENTS", 3)
    page = page_of("?.slot")
    assert "distance between any two is not computed" in page
    assert re.findall("<h3>(.*?)</h3>", page) == SITES
    assert '<th scope="row">W2' not in page


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("A.slot", "A.slot is of one client only; there is nothing to compare."),
        ("nowhere.slot", "nowhere.slot: No such file"),
        ("cut.slot", "cut.slot: these bytes are not a skslot message"),
        ("A.slot rows.npz", "A.slot is what a site sent, rows.npz has features"),
        ("rows.npz other.npz", "a page is about one file of features. Join"),
        ("?.slot --labels", "--labels is about columns of features"),
        ("?.slot --labels-file y.txt", "--labels-file is about columns of features"),
        ("none*.slot", "no file matches none*.slot."),
        ("A.slot A.slot", "twice"),
        ("A.slot nowhere.slot", "nowhere.slot: No such file"),
        ("A.slot cut.slot", "cut.slot: these bytes are not a skslot message"),
        ("A.slot copy.slot", "are from the same client 'A'; keep the right one"),
        ("A.slot other.slot", "encoder is 'another' in other.slot and None in A.slot"),
        ("A.slot plan.slot", "the same --plan"),
        ("A.slot global.slot", "not what skslot summarize writes"),
        ("A.slot plain.slot --tau auto", "plain.slot was summarized without --labels"),
        (
            "A.slot means.slot",
            "means.slot: this is of the kind 'class means', not what",
        ),
    ],
)
def test_wrong_files_are_refused_in_a_line(full_server, command, expected, capsys):
    Path("cut.slot").write_bytes(Path("B.slot").read_bytes()[:-40])
    Path("copy.slot").write_bytes(Path("A.slot").read_bytes())
    message_of("B").with_encoder("another").save("other.slot", min_samples=1)
    message_of("B").with_encoder("plan:0123").save("plan.slot", min_samples=1)
    message_of("B", labels=False).save("plain.slot", min_samples=1)
    ClassMeans(["cat"], np.array([20]), np.zeros((1, 6)), client="B").save("means.slot")
    np.savez("rows.npz", X=X, client=CLIENTS)
    assert expected in error_of(f"report {command} -o page.html", capsys)
    assert not Path("page.html").exists()


@pytest.mark.usefixtures("words_only")
def test_suffix_of_messages_may_be_in_capitals(server):
    Path("B.slot").rename("B.SLOT")
    page = page_of("A.slot B.SLOT")
    assert re.findall("<h3>(.*?)</h3>", page) == ["A", "B"]
    assert command_on(page).startswith("aggregate A.slot B.SLOT")


def test_a_message_is_not_overwritten_by_its_page(server, capsys):
    assert "would be overwritten" in error_of("report ?.slot -o A.slot --force", capsys)
