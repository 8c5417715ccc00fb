"""Look at the built site: every public name has its entry, nothing is asked of other hosts, and it fits a phone.

    python tools/check_site.py build/site

- **names**: each name of ``bayeswell.__all__`` and of the ``__all__`` of public rooms is in the site's inventory
  (objects.inv), and no name that begins with an underscore is.
- **hosts**: no page loads a script, style, font, picture or frame from another host.
- **browser** (where there is a chromium; without one this is left out, with a word): on a screen 390 pixels wide no
  element of a page reaches out of its frame, every picture is there, nothing but files is loaded, and the search finds
  a word, all from disk.
"""

from __future__ import annotations

import base64
import importlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

PUBLIC_ROOMS = (
    *(
        "averaging",
        "datasets",
        "diagnostics",
        "divergences",
        "estimators",
        "experiments",
        "integrations",
        "likelihoods",
    ),
    *("methods", "metrics", "models", "objectives", "optimizers", "plots", "post_hoc", "posteriors", "predictive"),
    *(
        "pretrained",
        "priors",
        "report",
        "samplers",
        "sklearn",
        "studies",
        "sweeps",
        "testing",
        "training",
        "types",
        "workbench",
    ),
)
"""Rooms whose ``__all__`` users may import from."""
INNER_ROOMS = ("batches", "cli", "gradients", "layers", "lifting", "native", "persistence", "tables")
"""Rooms that other rooms use; what users need of them is a name of ``bayeswell`` itself."""

WIDTH, HEIGHT = 390, 844
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def public_names() -> Iterator[tuple[str, Any]]:
    """Every public name as a user writes it, and what it stands for."""
    for room in ("", *PUBLIC_ROOMS):
        place = f"bayeswell.{room}".rstrip(".")
        module = importlib.import_module(place)
        for name in module.__all__:
            yield f"{place}.{name}", getattr(module, name)


def missing_names(inventory: set[str]) -> list[str]:
    """Public names without an entry, and entries that are not public."""
    names = list(public_names())
    # A thing of two names has one entry; equal words are not the same thing.
    entered = {id(thing) for name, thing in names if name in inventory and not isinstance(thing, str)}
    without = (name for name, thing in names if name not in inventory and id(thing) not in entered)
    faults = [f"no entry in the reference: {name}" for name in without]
    private = (name for name in inventory if any(_is_private(part) for part in name.split(".")))
    return faults + [f"a private name in the reference: {name}" for name in sorted(private)]


def _is_private(part: str) -> bool:
    return part.startswith("_") and not (part.startswith("__") and part.endswith("__"))


def inventory_of(site: Path) -> set[str]:
    """The names of objects.inv."""
    from mkdocstrings import Inventory

    with (site / "objects.inv").open("rb") as file:
        return set(Inventory.parse_sphinx(file))


class _Loaded(HTMLParser):
    """What a page loads by itself: not the links that a reader may follow."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag in {"script", "img", "iframe", "source", "video", "audio", "embed"}:
            self.addresses.append(given.get("src", ""))
        elif tag == "link" and given.get("rel") not in {"canonical", "prev", "next", "alternate"}:
            self.addresses.append(given.get("href", ""))


def outside_hosts(site: Path) -> Iterator[str]:
    """What pages and styles load from elsewhere."""
    for page in sorted(site.rglob("*.html")):
        loaded = _Loaded()
        loaded.feed(page.read_text(encoding="utf-8"))
        for address in loaded.addresses:
            if re.match(r"(?:\w+:)?//", address):
                yield f"{page.relative_to(site)} loads {address}"
    for style in sorted(site.rglob("*.css")):
        for address in re.findall(r"url\(['\"]?((?:\w+:)?//[^)'\"]*)", style.read_text(encoding="utf-8")):
            yield f"{style.relative_to(site)} loads {address}"


def ask(page: Path, *options: str, chromium: str) -> Any:
    """What the script of a page says."""
    with tempfile.TemporaryDirectory(prefix="site-profile-") as profile:
        common = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--disable-background-networking",
            "--no-first-run",
        ]
        place = [f"--user-data-dir={profile}", f"--window-size=1280,{HEIGHT}", "--virtual-time-budget=600000"]
        arguments = [chromium, *common, *place, *options, "--dump-dom", page.resolve().as_uri()]
        shown = subprocess.run(arguments, capture_output=True, text=True, timeout=600, check=True).stdout
    said = re.search(r'<pre id="said">([^<]*)</pre>', shown)
    if said is None:
        raise RuntimeError(f"{page.name} said nothing in the browser")
    return json.loads(base64.b64decode(said[1]))


def browser_faults(site: Path, pages: Sequence[str], word: str, chromium: str) -> Iterator[str]:
    """Visit pages at the width of a phone, and search for a word from the first of them."""
    tour, searching = site / "check-tour.html", site / "check-search.html"
    functions = (Path(__file__).with_suffix(".js")).read_text(encoding="utf-8")
    try:
        asked = f"tour({json.dumps(list(pages))}, {WIDTH}, {HEIGHT})"
        tour.write_text(f"<!doctype html><body><script>{functions}{asked}</script>", encoding="utf-8")
        for page, found in ask(tour, "--allow-file-access-from-files", chromium=chromium).items():
            yield from (f"{page} at {WIDTH} pixels: {fault}" for fault in found)
        first, asked = (site / pages[0]).read_text(encoding="utf-8"), f"search({json.dumps(word)})"
        script = f"<script>{functions}{asked}</script></body>"
        searching.write_text(first.replace("</body>", script), encoding="utf-8")
        if not ask(searching, chromium=chromium):
            yield f"the search finds nothing for {word!r}"
    finally:
        tour.unlink(missing_ok=True)
        searching.unlink(missing_ok=True)


def main(arguments: Sequence[str]) -> int:
    """Print the faults; 1 if there are any."""
    site = Path(arguments[0])
    faults = [*missing_names(inventory_of(site)), *outside_hosts(site)]
    pages = sorted(str(page.relative_to(site)) for page in site.rglob("*.html") if page.name != "404.html")
    pages.sort(key=lambda page: page != "index.html")
    if CHROMIUM is None:
        print("site: no chromium, so it was not looked at in a browser")
    else:
        faults += browser_faults(site, pages, "posterior", CHROMIUM)
    for fault in faults:
        print(fault)
    print(f"site: {len(pages)} pages, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
