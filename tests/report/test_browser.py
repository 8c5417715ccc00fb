"""The page in a real browser: no error, sorting, filtering and the examples work, and it fits a phone and a desk."""

from __future__ import annotations

import base64
import io
import itertools
import json
import os
import select
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

TRY = """
const result = {};
{
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
}
"""


class Browser:
    """One chromium for all tests, as its start takes longer than a page: asked by its DevTools protocol.

    Messages are JSON with a zero byte behind each, and go through two pipes, which it has as its streams 3 and 4.
    """

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None
        its_in, self.out = os.pipe()
        self.into, its_out = os.pipe()
        words = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
        words += ["--disable-background-networking", "--remote-debugging-pipe", f"--user-data-dir={profile}"]
        quiet = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_WRONLY, 0) for stream in (1, 2)]
        pipes = [(os.POSIX_SPAWN_DUP2, its_in, 3), (os.POSIX_SPAWN_DUP2, its_out, 4)]
        self.process = os.posix_spawn(CHROMIUM, [CHROMIUM, *words], os.environ, file_actions=[*quiet, *pipes])
        os.close(its_in)
        os.close(its_out)
        self.numbers, self.received, self.events = itertools.count(), b"", list[dict[str, Any]]()

    def close(self) -> None:
        self.ask("Browser.close")
        os.close(self.out)
        os.close(self.into)
        os.waitpid(self.process, 0)

    def ask(self, method: str, session: str | None = None, **parameters: Any) -> Any:
        """The answer to one command; what else is told until then is kept in ``events``."""
        number = next(self.numbers)
        asked = {"id": number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        os.write(self.out, json.dumps(asked).encode() + b"\0")
        while (message := self._next()).get("id") != number:
            self.events.append(message)
        assert "error" not in message, (method, message["error"])
        return message["result"]

    def wait_for(self, event: str, **known: str) -> None:
        while not any(one["method"] == event and known.items() <= one["params"].items() for one in self.events):
            self.events.append(self._next())

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self.received:
            ready, _, _ = select.select([self.into], [], [], 120)
            data = os.read(self.into, 1 << 20) if ready else b""
            assert data, "chromium is gone, or says nothing"
            self.received += data
        message, _, self.received = self.received.partition(b"\0")
        return dict(json.loads(message))


class Tab:
    """A page as it is shown in a window of this size: loaded, with everything that its console has said."""

    def __init__(self, browser: Browser, page: Path, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        self.browser = browser
        browser.events.clear()
        self.target = browser.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.ask("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        for part in ("Page", "Runtime", "Log"):
            self.ask(f"{part}.enable")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.ask("Page.setLifecycleEventsEnabled", enabled=True)
        loader = self.ask("Page.navigate", url=page.resolve().as_uri())["loaderId"]
        browser.wait_for("Page.lifecycleEvent", name="load", loaderId=loader)

    def ask(self, method: str, **parameters: Any) -> Any:
        return self.browser.ask(method, self.session, **parameters)

    def run(self, script: str) -> Any:
        """What ``result`` is at the end of a script."""
        told = self.ask("Runtime.evaluate", expression=f"(() => {{ {script}; return result; }})()", returnByValue=True)
        assert "exceptionDetails" not in told, told
        return told["result"]["value"]

    def console(self) -> list[dict[str, Any]]:
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        self.run("const result = 0")  # what is told before an answer has come with it
        return [message for message in self.browser.events if message["method"] in kinds]

    def close(self) -> None:
        self.browser.ask("Target.closeTarget", targetId=self.target)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    chromium = Browser(tmp_path_factory.mktemp("profile"))
    yield chromium
    chromium.close()


Show = Callable[..., Tab]


@pytest.fixture
def show(browser: Browser) -> Iterator[Show]:
    """Open a page; it is closed after the test."""
    tabs: list[Tab] = []

    def opened(page: Path, **window: Any) -> Tab:
        tabs.append(Tab(browser, page, **window))
        return tabs[-1]

    yield opened
    for tab in tabs:
        tab.close()


@pytest.fixture(scope="module")
def page(compared: Path) -> Path:
    return compared / "report.html"


@pytest.mark.parametrize("width", [390, 1280])
def test_it_works(page: Path, show: Show, width: int) -> None:
    tab = show(page, width=width)
    found: dict[str, Any] = tab.run(TRY)
    assert tab.console() == []
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


def test_scripts_of_others_do_not_run(page: Path, show: Show, tmp_path: Path) -> None:
    """The policy of the page refuses a script that is not its own, should one ever get in."""
    copy = tmp_path / "copy.html"
    text = page.read_text(encoding="utf-8")
    copy.write_text(text.replace("</body>", "<script>document.body.id = 'taken'</script></body>"), encoding="utf-8")
    tab = show(copy)
    assert "<body>" in tab.run("const result = document.documentElement.outerHTML")
    assert "Content Security Policy" in str(tab.console())


@pytest.mark.parametrize(("width", "dark"), [(390, True), (1280, False)])
def test_screenshots_show_something(page: Path, show: Show, width: int, dark: bool) -> None:
    height = 1600
    tab = show(page, width=width, height=height, dark=dark)
    shot = base64.b64decode(tab.ask("Page.captureScreenshot")["data"])
    assert tab.console() == []
    picture = Image.open(io.BytesIO(shot)).convert("RGB")
    pixels = np.asarray(picture)
    assert pixels.shape == (height, width, 3)
    back = pixels[-1, 1]
    assert (int(back.sum()) < 200) == dark
    written = ((pixels != back).any(axis=2).sum(axis=1) > 20).mean()
    assert written > 0.3, "text and tables from top to bottom"


LOOK = """
const result = { wide: [], small: [], cut: [], loose: [], filled: [], texts: 0, figures: 0 };
{
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
}
"""


@pytest.mark.parametrize("kind", ["compared", "curves"])
@pytest.mark.parametrize(("width", "dark"), [(390, True), (1280, False)])
def test_everything_fits_and_can_be_read(
    kind: str, width: int, dark: bool, show: Show, request: pytest.FixtureRequest
) -> None:
    """Of classes and of real numbers: nothing beyond its frame, letters of 9 pixels at least, figures in the dark."""
    found = show(request.getfixturevalue(kind) / "report.html", width=width, dark=dark).run(LOOK)
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


def test_a_fault_would_be_found(page: Path, show: Show, tmp_path: Path) -> None:
    """The check itself: letters made smaller, an element made wider, a column let go."""
    text = page.read_text(encoding="utf-8")
    spoiled = tmp_path / "spoiled.html"
    faults = "figcaption { width: 500px } .paper svg { width: 70% } th { left: auto !important }"
    spoiled.write_text(text.replace("</style>", f"{faults}</style>"), encoding="utf-8")
    found = show(spoiled, width=390).run(LOOK)
    assert found["wide"]
    assert found["small"]
    assert found["loose"]
