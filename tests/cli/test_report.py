"""``skslot report`` as users run it."""

import re
from base64 import b64decode
from html import escape, unescape
from html.parser import HTMLParser

import numpy as np
import pytest
import sklearn

from skslot import FedQDAClassifier, MixedEffectsClassifier
from skslot.cli import main
from skslot.datasets import make_shifted_clients

pytest.importorskip("matplotlib").use("Agg")

VOID = {"meta", "img", "source"}


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
    narrow = [source["srcset"] for source in searched.all("source")]
    assert len(sources) == len(narrow) == 6
    assert len({*sources, *narrow}) == 12
    for source in (*sources, *narrow):
        assert source.startswith("data:image/svg+xml;base64,")
    assert "url(" not in searched.text


def test_what_is_black_in_pictures_has_the_colour_of_the_text(searched):
    for image in searched.all("img"):
        picture = b64decode(image["src"].partition(",")[2]).decode()
        assert "prefers-color-scheme:dark" in picture
        assert "currentColor" in picture
        assert "#000000" not in picture


def test_page_is_accessible(searched):
    assert searched.all("html") == [{"lang": "en"}]
    assert len(searched.all("title")) == len(searched.all("h1")) == 1
    assert all(len(image["alt"]) > 20 for image in searched.all("img"))
    assert {head["scope"] for head in searched.all("th")} == {"row", "col"}
    (code,) = searched.all("pre")
    assert code == {"role": "region", "aria-label": "Code", "tabindex": "0"}
    assert any(tag.get("name") == "viewport" for tag in searched.all("meta"))


def test_names_are_escaped(searched):
    assert not searched.all("b")
    assert "&lt;b&gt;R&amp;D&lt;/b&gt;" in searched.text


def run_code(page, folder, monkeypatch):
    """Run the code on a page in the folder of the features; what it defines."""
    monkeypatch.chdir(folder)
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


def boxes(page):
    """Class, name and headline of the box of each site."""
    pattern = '<article class="site (.*?)"><h3>(.*?)</h3><p class="verdict">(.*?)</p>'
    return re.findall(pattern, page.text)


def test_there_is_a_box_for_each_site_in_plain_words(searched):
    found = boxes(searched)
    assert [name for _, name, _ in found] == [escape("<b>R&D</b>"), "north", "south"]
    for level, _, headline in found:
        assert level in ("good", "ordinary", "look")
        assert re.match(r"\d+% correct, (about|above|(far )?below) average", headline)


def test_numbers_are_folded_away_and_each_is_explained(searched):
    assert len(searched.all("details")) >= 4
    assert not any("open" in each for each in searched.all("details"))
    boxes = "".join(re.findall("<article.*?</article>", searched.text, re.S))
    numbers = set(re.findall('<th scope="row">(.*?)</th>', boxes))
    assert {"offset", "tau", "W2 before", "W2 after"} <= numbers
    assert numbers <= set(re.findall("<dt>(.*?)</dt>", searched.text))


def test_page_leads_with_mixed_effects_unless_another_is_surely_better(
    searched, features, monkeypatch
):
    assert "Recommended: mixed effects, with an expected accuracy of " in lead(searched)
    assert "With mixed effects, the mean distance" in lead(searched)
    assert "points above mixed effects, which is not enough to be sure" in searched.text
    model = run_code(searched, features.parent, monkeypatch)["model"]
    assert isinstance(model, MixedEffectsClassifier)
    for sentence in model.summary().partition("\n\n")[2].splitlines():
        assert escape(sentence) in searched.text


@pytest.mark.usefixtures("words_only")
def test_code_runs_and_has_the_tau_of_the_page(tmp_path, monkeypatch):
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
    assert str(tmp_path) not in page.text
    model = run_code(page, tmp_path, monkeypatch)["model"]
    tau = f"{model.aligner_.tau_:.2g}"
    assert f"With tau = {tau}, the mean distance" in lead(page)
    assert "Recommended: optimal transport, tau=" in lead(page)
    assert model.classes_.tolist() == [0, 1]


@pytest.mark.usefixtures("words_only")
def test_without_labels_the_page_keeps_to_the_features(tmp_path, monkeypatch):
    features = write_features(tmp_path / "sites.npz", without=["y"])
    output = tmp_path / "page.html"
    assert main(["report", str(features), "-o", str(output)]) == 0
    page = Page(output)
    assert "3 clients hold 400 rows without labels. With tau = 0.4," in page.text
    titles = re.findall("<h2>(.*?)</h2>", page.text)
    assert titles == [
        "Each site",
        "Whether a client stands out",
        "How far clients are apart",
        "Features before and after alignment",
        "What labels would add",
        "Model to try",
    ]
    assert "There is no evidence here that alignment helps" in page.text
    assert len(page.all("img")) == 3
    assert "No client stands out." in page.text
    assert "by class" not in page.text
    for level, _, headline in boxes(page):
        assert level in ("ordinary", "look")
        assert re.match(r"\d+ rows, at distance [\d.]+ from", headline)
    numbers = set(re.findall('<th scope="row">(.*?)</th>', page.text))
    assert {"shrinkage", "condition", "W2 before", "W2 after"} <= numbers
    assert numbers <= set(re.findall("<dt>(.*?)</dt>", page.text))
    found = run_code(page, tmp_path, monkeypatch)
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
    assert "Recommended" not in lead(pages[0])
    assert "Choosing tau" not in pages[0].text


@pytest.mark.usefixtures("words_only")
def test_automatic_tau(features, tmp_path):
    output = tmp_path / "auto.html"
    assert main(["report", str(features), "-o", str(output), "--tau", "auto"]) == 0
    page = output.read_text()
    assert "FederatedOTAligner(tau=&#x27;auto&#x27;)" in page
    assert 0 < float(re.search(r"With tau = ([\d.]+),", page)[1]) < 1


@pytest.mark.usefixtures("words_only")
def test_only_training_rows_of_a_split(tmp_path, monkeypatch):
    """On the page and in its code, however train is spelled."""
    split = np.where(np.arange(400) % 2, "Train", "test")
    split[1] = "train "
    features = write_features(tmp_path / "split.npz", split=split)
    output = tmp_path / "split.html"
    assert main(["report", str(features), "-o", str(output), "--tau", "0.4"]) == 0
    page = Page(output)
    assert "3 clients hold 200 rows of 5 classes." in page.text
    assert len(run_code(page, tmp_path, monkeypatch)["data"].X) == 200


def test_split_without_training_rows_is_refused(tmp_path, capsys):
    features = write_features(tmp_path / "held.npz", split=["test"] * 400)
    assert main(["report", str(features), "-o", str(tmp_path / "page.html")]) == 1
    error = capsys.readouterr().err
    assert "held.npz has no rows left to learn from" in error
    assert "--ignore split" in error


@pytest.mark.usefixtures("words_only")
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
    assert error.startswith("skslot: error: all rows are of one client, 'A': ")
    assert error.count("\n") == 1


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
    images = [image["src"] for image in page.all("img")]
    images += [source["srcset"] for source in page.all("source")]
    texts = "".join(b64decode(each.partition(",")[2]).decode() for each in images)
    # matplotlib draws letters as paths, and says in a comment which text they are
    for name in (*sites, r"$\no{such$", r"x\ny"):
        assert f"<!-- {name} -->" in texts


@pytest.mark.usefixtures("words_only")
def test_nothing_is_drawn_twice_where_nothing_moves(features, tmp_path):
    output = tmp_path / "page.html"
    assert main(["report", str(features), "-o", str(output), "--tau", "0"]) == 0
    page = Page(output)
    assert "With tau = 0, the features stay unchanged." in lead(page)
    assert "Features before and after alignment" not in page.text
    assert "Heat map of the distance between any two clients." in page.text
    numbers = re.findall('<th scope="row">(.*?)</th>', page.text)
    assert "W2 before" in numbers
    assert "W2 after" not in numbers


def test_mixed_effects_that_move_nothing_are_drawn_once(tmp_path):
    """Sites that do not differ at all."""
    rng = np.random.default_rng(0)
    y = np.tile(np.repeat([0, 1, 2], 40), 3)
    X = np.tile(rng.normal(size=(120, 4)), (3, 1)) + 3 * y[:, None] * [1, 0, 0, 0]
    client = np.repeat(["A", "B", "C"], 120)
    np.savez(tmp_path / "same.npz", X=X, y=y, client=client)
    output = tmp_path / "page.html"
    assert main(["report", str(tmp_path / "same.npz"), "-o", str(output)]) == 0
    page = Page(output)
    assert "With mixed effects, the features stay unchanged." in lead(page)
    assert "<h2>Features</h2>" in page.text
    assert {level for level, _, _ in boxes(page)} == {"ordinary"}


def test_figures_are_those_of_skslot_diagnose(searched, features, capsys):
    assert main(["diagnose", str(features)]) == 0
    printed = capsys.readouterr().out
    found = dict(re.findall(r"^>? +(\w.*?\S) {2,}([\d.]+%)", printed, re.M))
    assert len(found) == 4
    text = unescape(searched.text)
    for name, accuracy in found.items():
        assert f'<th scope="row">{name}</th><td>{accuracy}</td>' in text
    by_site = dict(re.findall(r"^(\S+) +\d+ .* (\d+%) +\d+%$", printed, re.M))
    for _, name, headline in boxes(searched):
        assert headline.startswith(f"{by_site[unescape(name)]} correct")


@pytest.mark.usefixtures("words_only")
def test_a_covariance_per_class_can_be_recommended(tmp_path, monkeypatch, capsys):
    """Two classes with one mean."""
    rng = np.random.default_rng(0)
    y, client = rng.integers(0, 2, 400), np.arange(400) % 3
    X = rng.normal(size=(400, 3)) * np.where(y, 5, 1)[:, None]
    np.savez(tmp_path / "rows.npz", X=X, y=y, client=client)
    page, _ = report_of(tmp_path / "rows.npz", capsys)
    assert "Recommended: covariance per class" in lead(page)
    assert "<p>Without alignment," not in page.text
    model = run_code(page, tmp_path, monkeypatch)["model"]
    assert isinstance(model, FedQDAClassifier)


@pytest.mark.usefixtures("words_only")
def test_units_that_hide_each_other_are_told_as_by_diagnose(tmp_path):
    arrays = dict(np.load(write_features(tmp_path / "units.npz")))
    np.savez(tmp_path / "units.npz", **{**arrays, "X": arrays["X"] * [1000, 1, 1, 1]})
    output = tmp_path / "units.html"
    assert main(["report", str(tmp_path / "units.npz"), "-o", str(output)]) == 0
    assert "Scale them first" in lead(Page(output))


def test_labels_of_one_class_are_an_error_of_one_line(tmp_path, capsys):
    features = write_features(tmp_path / "one.npz", y=np.zeros(400, dtype=int))
    assert main(["report", str(features), "-o", str(tmp_path / "page.html")]) == 1
    assert "all labels are 0" in capsys.readouterr().err


@pytest.mark.usefixtures("words_only")
def test_rows_that_tell_nothing_of_models_are_told_so(tmp_path, capsys):
    """Each class is at one client only."""
    features = tmp_path / "apart.npz"
    y = np.repeat([0, 1], 5)
    np.savez(features, X=np.random.default_rng(0).normal(size=(10, 3)), y=y, client=y)
    page, _ = report_of(features, capsys)
    assert "too few rows to compare models" in lead(page)
    assert "correct" not in "".join(headline for _, _, headline in boxes(page))
    assert "Choosing tau" not in page.text


def write_sites(path, offset=0.0, factor=1.0):
    """Four sites with the same rows, the last of them moved or in another unit."""
    X = np.tile(np.random.default_rng(0).normal(size=(40, 3)), (4, 1))
    X[120:] = factor * X[120:] + offset
    client = np.repeat(["A", "B", "C", "D"], 40)
    np.savez(path, X=X, client=client)
    return path


def outliers_of(page):
    section = page.text.partition("<h2>Whether a client stands out</h2>")[2]
    return re.findall("<p>(.*?)</p>", unescape(section.partition("</section>")[0]))


def report_of(features, capsys):
    output = features.with_name("page.html")
    assert main(["report", str(features), "-o", str(output)]) == 0
    return Page(output), capsys.readouterr().err


@pytest.mark.usefixtures("words_only")
def test_a_distance_below_the_limit_is_not_judged(tmp_path, capsys):
    page, printed = report_of(write_sites(tmp_path / "far.npz", offset=4), capsys)
    assert {level for level, _, _ in boxes(page)} == {"ordinary"}
    assert outliers_of(page)[-1] == "No client stands out."
    assert printed == ""


def test_a_site_that_stands_out_is_told_in_one_line_and_twice_alike(tmp_path, capsys):
    page, printed = report_of(write_sites(tmp_path / "unit.npz", factor=1e3), capsys)
    (words,) = outliers_of(page)
    reason = words.partition("Client D stands out: ")[2]
    headline = unescape(boxes(page)[-1][2])
    assert headline == f"40 rows: it stands out, as {reason}"
    assert reason.endswith("?")
    assert printed == (
        f"skslot: warning: client 'D' stands out: {reason} The page contains more.\n"
    )


@pytest.mark.usefixtures("words_only")
def test_warnings_are_lines_without_a_place_in_the_code(tmp_path, capsys):
    features = write_sites(tmp_path / "sites.npz")
    with np.load(features) as file:
        client = file["client"].astype("U5")
        client[0] = "alone"
        np.savez(features, X=file["X"], client=client)
    _, printed = report_of(features, capsys)
    assert printed.startswith("skslot: warning: The rows of client 'alone' do not vary")
    assert printed.count("\n") == 1


@pytest.mark.usefixtures("words_only")
@pytest.mark.parametrize("most", [3, 40])
def test_clients_that_are_all_the_same_are_as_usual(
    tmp_path, capsys, monkeypatch, most
):
    """Measured two by two, or each by the others where there are too many."""
    monkeypatch.setattr("skslot.inspection._report.MOST_CLIENTS", most)
    page, printed = report_of(write_sites(tmp_path / "same.npz"), capsys)
    assert {headline for _, _, headline in boxes(page)} == {
        "40 rows, at distance 0.00 from the other clients."
    }
    assert outliers_of(page)[-1] == "No client stands out."
    assert printed == ""


def test_a_client_of_one_row_has_a_box_too(tmp_path, capsys):
    features = write_features(tmp_path / "sites.npz")
    with np.load(features) as file:
        arrays = dict(file)
    arrays["client"][0] = "alone"
    np.savez(features, **arrays)
    page, _ = report_of(features, capsys)
    headlines = {name: headline for _, name, headline in boxes(page)}
    assert headlines["alone"].startswith("1 row of 1 class")
    assert "correct" in headlines["north"]


def test_one_feature_has_a_page_without_a_picture_of_rows(tmp_path):
    rows = np.random.default_rng(0).normal(size=(60, 1))
    ids, y = np.repeat(["A", "B", "C"], 20), np.tile([0, 1], 30)
    np.savez(tmp_path / "one.npz", X=rows + y[:, None], y=y, client=ids)
    page = tmp_path / "page.html"
    assert main(["report", str(tmp_path / "one.npz"), "-o", str(page)]) == 0
    assert "3 clients hold 60 rows of 2 classes" in Page(page).text
    assert "principal" not in Page(page).text.partition("Choosing tau")[0]
