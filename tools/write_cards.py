"""Fill in what the code and the records know of the method cards, their gallery and docs/which_method.md.

    python tools/write_cards.py             # write
    python tools/write_cards.py --check     # say which pages are old; exit code 1 if any is

The pages are written by hand but for what stands between ``<!-- made: NAME -->`` and ``<!-- made: to here -->``. On a
card NAME is ``facts`` (from the registries), ``picture`` or ``measured`` (from the records of ``make quality`` and
``make bench``); on the page of all cards ``gallery``; on docs/which_method.md a name of ``TABLES``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import measured
import one_training
from method_cards import CARDS, card_names, facts, method_of, page_of, picture

TABLES = {**measured.TABLES, **one_training.TABLES}
DOCS = CARDS.parent
CHOICE = DOCS / "which_method.md"
GALLERY = CARDS / "index.md"
_END = "<!-- made: to here -->"
_MADE = re.compile(r"<!-- made: (?!to here)(.+?) -->\n.*?" + re.escape(_END), re.DOTALL)


def made(page: Path, name: str, text: str) -> str:
    """What belongs between the markers of a name on a page."""
    if page == CHOICE:
        return TABLES[name]()
    if page == GALLERY:
        return {"gallery": gallery}[name]()
    card = page.stem
    return {
        "facts": lambda: facts(card, text),
        "picture": lambda: picture(card, "../pictures/cards"),
        "measured": lambda: measured.card(method_of(card).name),
    }[name]()


def gallery() -> str:
    """All pictures, each a link to its card, in lines that break where the page ends."""
    lines = []
    for card in card_names():
        shown = picture(card, "../pictures/cards").splitlines()
        lines += [f"[{one}]({card}.md)" for one in shown]
    return "\n".join(lines)


def names_on(text: str) -> list[str]:
    """The markers of a page."""
    return _MADE.findall(text)


def filled(page: Path) -> str:
    """The page with everything between its markers made anew."""
    text = page.read_text(encoding="utf-8")
    return _MADE.sub(lambda one: f"<!-- made: {one[1]} -->\n\n{made(page, one[1], text)}\n\n{_END}", text)


def pages() -> list[Path]:
    """Every page that has something made."""
    return [CHOICE, GALLERY, *(page_of(card) for card in card_names())]


def main(arguments: Sequence[str]) -> int:
    """Write, or check."""
    old = [page for page in pages() if filled(page) != page.read_text(encoding="utf-8")]
    names = ", ".join(str(page.relative_to(DOCS.parent)) for page in old)
    if "--check" in arguments:
        print(f"old: {names}; run tools/write_cards.py" if old else "the method cards are up to date")
        return 1 if old else 0
    for page in old:
        page.write_text(filled(page), encoding="utf-8")
    print(f"wrote {names}" if old else "nothing to write")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
