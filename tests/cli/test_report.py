"""``skslot report`` as users run it."""

import re
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest
import sklearn

from skslot.cli import main
from skslot.datasets import make_shifted_clients

pytest.importorskip("matplotlib").use("Agg")

VOID = {"meta", "img"}


class Page(HTMLParser):
    """Attributes of all tags; refuses tags that are not closed in order."""

    def __init__(self, path):
        super().__init__()
        self.text = path.read_text(encoding="utf-8")
        self.stack, self.tags = [], []
        self.feed(self.text)
        assert not self.stack

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def write_features(path, label_shift=0.3, **options):
    data = make_shifted_clients(
        400, n_clients=3, n_features=4, label_shift=label_shift, random_state=0
    )
    names = np.array(["north", "south", "<b>R&D</b>"])
    arrays = {"X": data.data, "y": data.target, "client": names[data.client_ids]}
    np.savez(path, **{**arrays, **options})
    return path


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    return write_features(tmp_path_factory.mktemp("features") / "sites.npz")


@pytest.fixture(scope="module")
def searched(features):
    output = features.with_name("searched.html")
    assert main(["report", str(features), "-o", str(output)]) == 0
    return Page(output)


def test_page_stands_alone(searched):
    assert not searched.all("link")
    assert not searched.all("script")
    sources = [image["src"] for image in searched.all("img")]
    assert len(sources) == 4
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)
    assert "url(" not in searched.text


def test_page_is_accessible(searched):
    assert searched.all("html") == [{"lang": "en"}]
    assert len(searched.all("title")) == len(searched.all("h1")) == 1
    assert all(len(image["alt"]) > 20 for image in searched.all("img"))
    assert {head["scope"] for head in searched.all("th")} == {"row", "col"}
    assert any(tag.get("name") == "viewport" for tag in searched.all("meta"))


def test_names_are_escaped(searched):
    assert not searched.all("b")
    assert "&lt;b&gt;R&amp;D&lt;/b&gt;" in searched.text


def test_code_runs_and_has_the_tau_of_the_page(searched):
    code = unescape(re.search("<code>(.*?)</code>", searched.text, re.S)[1])
    before = sklearn.get_config()
    try:
        namespace = {}
        exec(code, namespace)
    finally:
        sklearn.set_config(**before)
    tau = namespace["model"]["align"].tau
    assert f"With tau = {tau:.2g}, the mean distance" in searched.text
    assert namespace["model"]["classify"].classes_.tolist() == [0, 1, 2, 3, 4]


def test_same_features_same_page(features, tmp_path):
    """With a given tau there is no search and no path."""
    pages = []
    for name in ("first.html", "second.html"):
        output = tmp_path / name
        assert main(["report", str(features), "-o", str(output), "--tau", "0.3"]) == 0
        pages.append(Page(output))
    assert pages[0].text == pages[1].text
    assert len(pages[0].all("img")) == 3
    assert "tau=0.3)" in pages[0].text
    assert "Choosing tau" not in pages[0].text


def test_automatic_tau(features, tmp_path):
    output = tmp_path / "auto.html"
    assert main(["report", str(features), "-o", str(output), "--tau", "auto"]) == 0
    tau = float(re.search(r"FederatedOTAligner\(tau=([\d.]+)\)", output.read_text())[1])
    assert 0 < tau < 1


def test_only_training_rows_of_a_split(tmp_path):
    split = np.where(np.arange(400) % 2, "train", "test")
    features = write_features(tmp_path / "split.npz", split=split)
    output = tmp_path / "split.html"
    assert main(["report", str(features), "-o", str(output), "--tau", "0.4"]) == 0
    assert "3 clients hold 200 rows of 5 classes." in output.read_text()


def test_existing_page_is_kept_without_force(features, tmp_path, capsys):
    output = tmp_path / "page.html"
    output.write_text("mine")
    arguments = ["report", str(features), "-o", str(output), "--tau", "0"]
    assert main(arguments) == 1
    assert "--force" in capsys.readouterr().err
    assert output.read_text() == "mine"
    assert main([*arguments, "--force"]) == 0
    assert output.read_text().startswith("<!DOCTYPE html>")


def test_one_client_is_an_error_of_one_line(tmp_path, capsys):
    features = write_features(tmp_path / "alone.npz", client=np.repeat("A", 400))
    assert main(["report", str(features), "-o", str(tmp_path / "page.html")]) == 1
    error = capsys.readouterr().err
    assert error == (
        "skslot: error: alone has one client only; there is nothing to align.\n"
    )


@pytest.mark.parametrize("tau", ["2", "-0.1", "nan", "much"])
def test_bad_tau_is_refused(features, tau, capsys):
    with pytest.raises(SystemExit):
        main(["report", str(features), "-o", "page.html", f"--tau={tau}"])
    assert "neither a number from 0 to 1 nor auto" in capsys.readouterr().err


def test_pca_of_bench_writes_its_figures(tmp_path, capsys):
    features = write_features(tmp_path / "sites.npz", label_shift=None)
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
