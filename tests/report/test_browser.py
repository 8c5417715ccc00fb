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
} catch (error) {
  result.error = String(error);
}
const place = document.createElement("pre");
place.id = "result";
place.textContent = btoa(unescape(encodeURIComponent(JSON.stringify(result))));
document.body.append(place);
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
    said = browse(with_script(page, tmp_path, TRY), "--dump-dom", width=width)
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
