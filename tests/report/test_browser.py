"""The page in a real browser: no error, sorting, filtering and the examples work, and it fits a phone and a desk."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

TOLD = """
} catch (error) {
  result.error = String(error);
}
const place = document.createElement("pre");
place.id = "result";
place.textContent = btoa(unescape(encodeURIComponent(JSON.stringify(result))));
document.body.append(place);
"""
"""The end of every script: what it found is left in the page, where --dump-dom shows it."""

TRY = """
const result = {};
try {
  const read = (cell) => cell.dataset.value ?? cell.textContent;
  const cells = (table, column) => [...table.tBodies[0].rows].map((row) => read(row.cells[column]));
  const table = document.querySelector("table.summary");
  const heading = [...table.tHead.rows[0].cells].findIndex((cell) => cell.textContent.startsWith("NLL"));
  const button = table.tHead.rows[0].cells[heading].querySelector("button");
  button.focus();
  result.focused = document.activeElement === button;
  button.click();
  result.up = cells(table, heading).map(Number);
  result.sort = table.tHead.rows[0].cells[heading].getAttribute("aria-sort");
  button.click();
  result.down = cells(table, heading).map(Number);
  table.tHead.rows[0].cells[0].querySelector("button").click();
  result.names = cells(table, 0);
  result.others = [...table.tHead.rows[0].cells].map((cell) => cell.getAttribute("aria-sort"));

  const filter = document.getElementById("filter");
  filter.value = "BBB 0";
  filter.dispatchEvent(new Event("input"));
  const visible = [...document.querySelectorAll("#run-table tbody tr")].filter((row) => !row.hidden);
  result.shown = visible.map((row) => row.cells[0].textContent);
  result.count = document.getElementById("filter-count").textContent;

  const text = () => document.getElementById("example-text").textContent;
  result.first = text();
  const pressed = new KeyboardEvent("keydown", { key: "ArrowRight", cancelable: true });
  document.getElementById("example").dispatchEvent(pressed);
  result.second = text();
  document.getElementById("example-back").click();
  result.back = text();
  const runs = document.getElementById("example-run");
  runs.value = "1";
  runs.dispatchEvent(new Event("change"));
  const kinds = document.getElementById("example-kind");
  kinds.value = "outside";
  kinds.dispatchEvent(new Event("change"));
  result.outside = text();
  result.dots = document.querySelectorAll("#example-chart circle").length;
  result.bars = document.querySelectorAll("#example-chart rect").length;
  const canvas = document.querySelector("#example-input canvas");
  result.colours = new Set(canvas.getContext("2d").getImageData(0, 0, 8, 8).data).size;

  result.width = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  const controls = [...document.querySelectorAll("button, select, input")];
  result.unreachable = controls.filter((one) => one.offsetParent && one.tabIndex < 0).length;
"""


def browse(page: Path, *options: str, width: int = 1280, height: int = 900) -> subprocess.CompletedProcess[str]:
    assert CHROMIUM is not None
    common = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr", "--v=0"]
    place = f"--user-data-dir={page.parent / 'profile'}"
    arguments = [CHROMIUM, *common, place, f"--window-size={width},{height}", *options, page.resolve().as_uri()]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=True)


@pytest.fixture(scope="module")
def page(compared: Path) -> Path:
    return compared / "report.html"


def with_script(page: Path, folder: Path, script: str) -> Path:
    """A copy with one more script, which its policy is told of."""
    text = page.read_text(encoding="utf-8")
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    text = text.replace("script-src '", f"script-src 'sha256-{allowed}' '", 1)
    copy = folder / "copy.html"
    copy.write_text(text.replace("</body>", f"<script>{script}</script></body>"), encoding="utf-8")
    return copy


@pytest.mark.parametrize("width", [390, 1280])
def test_it_works(page: Path, tmp_path: Path, width: int) -> None:
    said = browse(with_script(page, tmp_path, TRY + TOLD), "--dump-dom", width=width)
    coded = re.search(r'<pre id="result">([^<]*)</pre>', said.stdout)
    assert coded is not None
    found: dict[str, Any] = json.loads(base64.b64decode(coded.group(1)))
    assert "error" not in found, found
    assert "CONSOLE" not in said.stderr, said.stderr
    assert found["focused"]
    assert found["up"] == sorted(found["up"])
    assert len(set(found["up"])) == 3
    assert found["down"] == found["up"][::-1]
    assert found["sort"] == "ascending"
    assert found["names"] == ["bbb", "deep-ensemble", "map"]
    assert found["others"][0] == "ascending"
    assert set(found["others"][1:]) == {"none"}
    assert found["shown"] == ["bbb-seed0"]
    assert found["count"] == "1 of 3 runs"
    assert found["first"] != found["second"]
    assert found["back"] == found["first"]
    assert "from outside the distribution" in found["outside"]
    assert (found["bars"], found["dots"]) == (10, 60), "ten classes, six draws"
    assert found["colours"] > 10, "the image is drawn"
    assert found["width"] <= 0, "the page itself never scrolls sideways"
    assert found["unreachable"] == 0, "every control can be reached by keyboard"


def test_scripts_of_others_do_not_run(page: Path, tmp_path: Path) -> None:
    """The policy of the page refuses a script that is not its own, should one ever get in."""
    copy = tmp_path / "copy.html"
    text = page.read_text(encoding="utf-8")
    copy.write_text(text.replace("</body>", "<script>document.body.id = 'taken'</script></body>"), encoding="utf-8")
    said = browse(copy, "--dump-dom")
    assert "<body>" in said.stdout
    assert "Content Security Policy" in said.stderr


@pytest.mark.parametrize(("width", "dark"), [(390, True), (1280, False)])
def test_screenshots_show_something(page: Path, tmp_path: Path, width: int, dark: bool) -> None:
    height = 1600
    copy = tmp_path / "page.html"
    shutil.copy(page, copy)
    shot = tmp_path / "shot.png"
    scheme = [f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
    said = browse(copy, f"--screenshot={shot}", *scheme, width=width, height=height)
    assert "CONSOLE" not in said.stderr
    picture = Image.open(shot).convert("RGB")
    pixels = np.asarray(picture)
    assert pixels.shape == (height, width, 3)
    back = pixels[-1, 1]
    assert (int(back.sum()) < 200) == dark
    written = ((pixels != back).any(axis=2).sum(axis=1) > 20).mean()
    assert written > 0.3, "text and tables from top to bottom"


LOOK = """
const result = { wide: [], small: [], cut: [], loose: [], filled: [], texts: 0, figures: 0 };
try {
  for (const details of document.querySelectorAll("details")) details.open = true;
  const scrolls = (one) => ["auto", "scroll"].includes(getComputedStyle(one).overflowX);
  const frame = (one) => { let at = one.parentElement; while (at && !scrolls(at)) at = at.parentElement; return at; };
  const kind = (one) => `${one.tagName}.${one.className.baseVal ?? one.className}`;
  const name = (one) => `${kind(one)}: ${one.textContent.trim().slice(0, 40)}`;
  const width = document.documentElement.clientWidth;
  for (const one of document.querySelectorAll("body *")) {
    const box = one.getBoundingClientRect();
    if (!box.width || one.closest(".skip, .unseen, defs, script, style") || frame(one)) continue;
    const parent = one.closest("svg") && one.tagName !== "svg" ? one.closest("svg") : one.parentElement;
    const room = parent.getBoundingClientRect();
    const part = one.tagName !== "svg" && one.closest("svg") && one.tagName !== "text";
    if (!part && (box.right > width + 1 || box.left < -1)) result.wide.push(name(one));
    const block = !one.closest("svg") && getComputedStyle(one).display !== "inline";
    if (block && box.right > room.right + 1) result.wide.push(name(one));
  }
  for (const svg of document.querySelectorAll("svg")) {
    const box = svg.getBoundingClientRect();
    result.figures += 1;
    for (const text of svg.querySelectorAll("text")) {
      const matrix = text.getScreenCTM();
      const size = parseFloat(getComputedStyle(text).fontSize) * Math.hypot(matrix.a, matrix.b);
      const place = text.getBoundingClientRect();
      result.texts += 1;
      if (size < 9) result.small.push(`${size.toFixed(1)} ${text.textContent}`);
      const beside = place.left < box.left - 1 || place.right > box.right + 1;
      if (beside || place.top < box.top - 1 || place.bottom > box.bottom + 1) {
        result.cut.push(`${svg.closest("figure")?.id}: ${text.textContent}`);
      }
    }
  }
  let moved = 0;
  for (const scroll of document.querySelectorAll(".scroll")) {
    scroll.scrollLeft = 200;
    moved += scroll.scrollLeft > 0 ? 1 : 0;
    const left = scroll.getBoundingClientRect().left;
    for (const row of scroll.querySelectorAll("tr")) {
      if (!row.cells.length) continue;
      const away = Math.abs(row.cells[0].getBoundingClientRect().left - left);
      if (away > 2) result.loose.push(name(row.cells[0]));
    }
  }
  result.moved = moved;
  const papers = [...document.querySelectorAll(".paper")];
  const shade = (colour) => colour.match(/[0-9.]+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0);
  result.papers = papers.map((paper) => shade(getComputedStyle(paper).backgroundColor));
  result.backs = papers.map((paper) => shade(getComputedStyle(paper.querySelector("svg path")).fill));
  result.inks = papers.map((paper) => shade(getComputedStyle(paper.querySelector("svg text")).fill));
  for (const grid of document.querySelectorAll(".figures, .cards")) {
    const boxes = [...grid.children].map((one) => one.getBoundingClientRect());
    const columns = new Set(boxes.map((box) => Math.round(box.left))).size;
    const all = grid.getBoundingClientRect();
    const taken = boxes.reduce((sum, box) => sum + box.height + 16, 0);
    if (boxes.length > 5) result.filled.push(taken / (columns * all.height));
  }
  const opened = document.querySelector("#figures details.own summary");
  result.opened = opened ? opened.textContent.trim() : "";
"""


def looked_at(page: Path, folder: Path, width: int, dark: bool) -> dict[str, Any]:
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    said = browse(with_script(page, folder, LOOK + TOLD), "--dump-dom", scheme, width=width)
    coded = re.search(r'<pre id="result">([^<]*)</pre>', said.stdout)
    assert coded is not None
    found: dict[str, Any] = json.loads(base64.b64decode(coded.group(1)))
    assert "error" not in found, found
    return found


@pytest.mark.parametrize("kind", ["compared", "curves"])
@pytest.mark.parametrize(("width", "dark"), [(390, True), (1280, False)])
def test_everything_fits_and_can_be_read(
    kind: str, width: int, dark: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Of classes and of real numbers: nothing beyond its frame, letters of 9 pixels at least, figures in the dark."""
    found = looked_at(request.getfixturevalue(kind) / "report.html", tmp_path, width, dark)
    assert found["figures"] > 10
    assert found["texts"] > 200
    assert found["wide"] == [], "beyond its frame"
    assert found["small"] == [], "too small to read"
    assert found["cut"] == [], "cut by the edge of its figure"
    assert found["loose"] == [], "a first column that does not stay"
    if width == 390:
        assert found["moved"] >= 2, "tables scroll inside their frame"
    assert found["filled"]
    assert all(share > 0.75 for share in found["filled"]), "columns without holes"
    assert found["opened"] in ("bbb", "deep-ensemble"), "a Bayesian method is opened first"
    assert all((shade < 150) == dark for shade in [*found["papers"], *found["backs"]])
    assert all((shade > 500) == dark for shade in found["inks"])


def test_a_fault_would_be_found(page: Path, tmp_path: Path) -> None:
    """The check itself: letters made smaller, an element made wider, a column let go."""
    text = page.read_text(encoding="utf-8")
    spoiled = tmp_path / "spoiled.html"
    faults = "figcaption { width: 500px } .paper svg { width: 70% } th { left: auto !important }"
    spoiled.write_text(text.replace("</style>", f"{faults}</style>"), encoding="utf-8")
    found = looked_at(spoiled, tmp_path, 390, False)
    assert found["wide"]
    assert found["small"]
    assert found["loose"]
