"""The page of ``skslot report`` in a real browser, wide and narrow, light and dark."""

import json
import re
import shutil
import subprocess
from html import escape, unescape
from pathlib import Path

import numpy as np
import pytest
from four_sites import CLIENTS, X, Y, run

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from matplotlib.image import imread  # noqa: E402

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
    pytest.mark.slow,
]

WIDTHS = 390, 1280
# Windows cannot be as narrow as telephones, frames can.
FRAMES = """<!DOCTYPE html><title>frames</title><body style="margin:0">{frames}
<pre id="found"></pre><script>
addEventListener("load", () => {{
  const found = [...document.querySelectorAll("iframe")].map(frame => {{
    const page = frame.contentDocument, root = page.documentElement;
    page.querySelectorAll("details").forEach(each => each.open = true);
    const images = [...page.querySelectorAll("img")];
    return {{
      scroll: root.scrollWidth,
      inner: frame.contentWindow.innerWidth,
      narrow: images.map(image => image.currentSrc ==
        image.parentNode.querySelector("source").srcset),
      drawn: images.map(image => image.getBoundingClientRect().width),
      broken: images.filter(image => !image.naturalWidth).length,
    }};
  }});
  document.getElementById("found").textContent = JSON.stringify(found);
}});
</script>"""


def chromium(folder, *arguments):
    """Run Chromium without a window; what it prints."""
    options = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
        "--disable-background-networking --disable-component-update --disable-sync "
        "--hide-scrollbars"
    ).split()
    command = [CHROMIUM, *options, f"--user-data-dir={folder}/chromium", *arguments]
    done = subprocess.run(command, capture_output=True, timeout=120, check=True)
    return done.stdout.decode()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Pages of rows and of messages, one with a name that is long."""
    folder = tmp_path_factory.mktemp("pages")
    names = np.where(CLIENTS == "D", "hospital_of_a_very_long_name_" * 3, CLIENTS)
    np.savez(folder / "rows.npz", X=X, y=Y, client=names)
    np.savez(folder / "plain.npz", X=X, client=names)
    for client in ("A", "B", "C"):
        rows = CLIENTS == client
        np.savez(folder / f"{client}.npz", X=X[rows], y=Y[rows])
        site = f"{folder}/{client}.npz --client {client} -o {folder}/{client}.slot"
        assert run(f"summarize {site} --labels --min-samples 1") == 0
    assert run(f"report {folder}/rows.npz -o {folder}/rows.html") == 0
    assert run(f"report {folder}/plain.npz -o {folder}/plain.html") == 0
    assert run(f"report {folder}/?.slot -o {folder}/messages.html") == 0
    return folder


@pytest.mark.parametrize("name", ["rows", "plain", "messages"])
def test_nothing_is_wider_than_the_screen(pages, name):
    """Also when all that is folded away is opened."""
    page = escape((pages / f"{name}.html").read_text(encoding="utf-8"))
    frames = "".join(
        f'<iframe srcdoc="{page}" style="border:0;width:{width}px;height:900px">'
        "</iframe>"
        for width in WIDTHS
    )
    (pages / "frames.html").write_text(FRAMES.format(frames=frames), encoding="utf-8")
    size = "--window-size=1400,1000"
    document = chromium(pages, size, "--dump-dom", f"file://{pages}/frames.html")
    found = json.loads(unescape(re.search('<pre id="found">(.*?)</pre>', document)[1]))
    for width, frame in zip(WIDTHS, found, strict=True):
        assert frame["inner"] == width
        assert frame["scroll"] <= width
        assert frame["broken"] == 0
        assert len(frame["drawn"]) >= 2
        assert max(frame["drawn"]) <= width
        assert set(frame["narrow"]) == {width == 390}


def shot(pages, width, *options):
    """Screenshot of the page of rows, as an array."""
    picture = Path(pages, "shot.png")
    size = f"--window-size={width},1500"
    address = f"file://{pages}/rows.html"
    chromium(pages, size, *options, f"--screenshot={picture}", address)
    return imread(picture)[:, :, :3]


def test_page_is_light_or_dark_as_the_reader_likes(pages):
    light = shot(pages, 1280)
    dark = shot(pages, 1280, "--blink-settings=preferredColorScheme=0")
    assert light.shape == dark.shape == (1500, 1280, 3)
    assert np.median(light) > 0.95
    assert np.median(dark) < 0.15
    for picture, ink in ((light, light < 0.3), (dark, dark > 0.7)):
        assert ink.mean() > 0.005  # words can be read
        assert picture.std() > 0.05


def test_narrow_page_is_drawn(pages):
    narrow = shot(pages, 500)
    assert narrow.shape[1] == 500
    assert (narrow < 0.3).mean() > 0.01
