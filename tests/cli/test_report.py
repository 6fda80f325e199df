"""``skslot report`` as users run it."""

import re
from base64 import b64decode
from html import escape, unescape
from html.parser import HTMLParser

import numpy as np
import pytest
import sklearn

from skslot import MixedEffectsClassifier
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


def write_features(path, label_shift=0.3, without=(), **others):
    data = make_shifted_clients(
        400, n_clients=3, n_features=4, label_shift=label_shift, random_state=0
    )
    names = np.array(["north", "south", "<b>R&D</b>"])
    arrays = {"X": data.data, "y": data.target, "client": names[data.client_ids]}
    arrays = {**arrays, **others}
    np.savez(path, **{name: a for name, a in arrays.items() if name not in without})
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
    assert len(sources) == 6
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


def run_code(page):
    """Run the code on a page; what it defines."""
    code = unescape(re.search("<code>(.*?)</code>", page.text, re.S)[1])
    before = sklearn.get_config()
    try:
        namespace = {}
        exec(code, namespace)
    finally:
        sklearn.set_config(**before)
    return namespace


def lead(page):
    return re.search('<p class="lead">(.*?)</p>', page.text, re.S)[1]


def test_page_leads_with_mixed_effects_where_they_are_better(searched, capsys):
    accuracy = r"clients is ([\d.]+)% with mixed effects; .* ([\d.]+)% with tau = 0.2"
    mixed, aligned = re.search(accuracy, lead(searched)).groups()
    assert float(mixed) >= float(aligned)
    assert lead(searched).endswith("Mixed effects are recommended.")
    assert "With mixed effects, the mean distance" in lead(searched)
    assert '<th scope="col">offset</th>' in searched.text
    model = run_code(searched)["model"]
    assert isinstance(model, MixedEffectsClassifier)
    summary = capsys.readouterr().out
    assert summary.strip() == model.summary()
    for sentence in summary.partition("\n\n")[2].splitlines():
        assert escape(sentence) in searched.text


def test_code_runs_and_has_the_tau_of_the_page(tmp_path):
    """Sites that stretch features by a factor of 30: mixed effects know one scale."""
    rng = np.random.default_rng(0)
    y, client = rng.integers(0, 2, 300), rng.integers(0, 3, 300)
    X = rng.normal(size=(300, 4))
    X[:, 0] += 4 * y
    X *= np.array([[1, 1, 1, 1], [1 / 30, 1, 30, 1], [1, 30, 1, 1 / 30]])[client]
    np.savez(tmp_path / "stretched.npz", X=X, y=y, client=client)
    output = tmp_path / "page.html"
    assert main(["report", str(tmp_path / "stretched.npz"), "-o", str(output)]) == 0
    page = Page(output)
    model = run_code(page)["model"]
    tau = f"{model['align'].tau:.2g}"
    assert f"With tau = {tau}, the mean distance" in lead(page)
    assert lead(page).endswith(f"Alignment with tau = {tau} is recommended.")
    assert model["classify"].classes_.tolist() == [0, 1]


def test_without_labels_the_page_keeps_to_the_features(tmp_path):
    features = write_features(tmp_path / "sites.npz", without=["y"])
    output = tmp_path / "page.html"
    assert main(["report", str(features), "-o", str(output)]) == 0
    page = Page(output)
    assert "3 clients hold 400 rows without labels. With tau = 0.4," in page.text
    titles = re.findall("<h2>(.*?)</h2>", page.text)
    assert titles == [
        "Clients",
        "Whether a client stands out",
        "How far clients are apart",
        "Features before and after alignment",
        "What labels would add",
        "Recommended pipeline",
    ]
    assert len(page.all("img")) == 3
    assert "no client stands out" in page.text
    assert "by class" not in page.text
    found = run_code(page)
    assert list(found["model"].named_steps) == ["align"]
    assert found["aligned"].shape == (400, 4)


def test_automatic_tau_needs_labels(tmp_path, capsys):
    features = write_features(tmp_path / "sites.npz", without=["y"])
    output = tmp_path / "page.html"
    assert main(["report", str(features), "-o", str(output), "--tau", "auto"]) == 1
    assert "sites.npz has no labels, which --tau auto" in capsys.readouterr().err
    assert not output.exists()


def test_same_features_same_page(features, tmp_path):
    """With a given tau there is no search, no path and no comparison."""
    pages = []
    for name in ("first.html", "second.html"):
        output = tmp_path / name
        assert main(["report", str(features), "-o", str(output), "--tau", "0.3"]) == 0
        pages.append(Page(output))
    assert pages[0].text == pages[1].text
    assert len(pages[0].all("img")) == 5
    assert "tau=0.3)" in pages[0].text
    assert "recommended." not in lead(pages[0])
    assert "Choosing tau" not in pages[0].text


def test_automatic_tau(features, tmp_path):
    output = tmp_path / "auto.html"
    assert main(["report", str(features), "-o", str(output), "--tau", "auto"]) == 0
    tau = float(re.search(r"FederatedOTAligner\(tau=([\d.]+)\)", output.read_text())[1])
    assert 0 < tau < 1


def test_only_training_rows_of_a_split(tmp_path):
    """On the page and in its code, however train is spelled."""
    split = np.where(np.arange(400) % 2, "Train", "test")
    split[1] = "train "
    features = write_features(tmp_path / "split.npz", split=split)
    output = tmp_path / "split.html"
    assert main(["report", str(features), "-o", str(output), "--tau", "0.4"]) == 0
    page = Page(output)
    assert "3 clients hold 200 rows of 5 classes." in page.text
    assert len(run_code(page)["data"].X) == 200


def test_split_without_training_rows_is_refused(tmp_path, capsys):
    features = write_features(tmp_path / "held.npz", split=["test"] * 400)
    assert main(["report", str(features), "-o", str(tmp_path / "page.html")]) == 1
    error = capsys.readouterr().err
    assert "held.npz has no rows left to learn from" in error
    assert "--ignore split" in error


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
    assert "is not a number from 0 to 1 or auto" in capsys.readouterr().err


def test_dollars_in_names_are_no_formulas(tmp_path):
    """A formula that is none ended the command; one that is was drawn as such."""
    sites = np.array([r"$\frac$", "a$b", "50 $ and 60 $"])
    data = make_shifted_clients(
        300, n_clients=3, n_classes=2, n_features=4, random_state=0
    )
    path = tmp_path / "sites.npz"
    labels = np.array([r"$\no{such$", "x\ny"])[data.target]
    np.savez(path, X=data.data, y=labels, client=sites[data.client_ids])
    output = tmp_path / "page.html"
    assert main(["report", str(path), "--tau", "0.4", "-o", str(output)]) == 0
    page = Page(output)
    assert escape(sites[0]) in page.text
    texts = "".join(
        b64decode(image["src"].partition(",")[2]).decode() for image in page.all("img")
    )
    # matplotlib draws letters as paths, and says in a comment which text they are
    for name in (*sites, r"$\no{such$", r"x\ny"):
        assert f"<!-- {name} -->" in texts
