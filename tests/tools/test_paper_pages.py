"""Whatever the pages on papers name in the code exists."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "papers").glob("*.md"))
OBJECT = re.compile(r"`(bayeswell(?:\.\w+)+)`")
FILE = re.compile(r"`((?:tests|tools|src|examples|benchmarks)/[\w/.-]+)`")


def find(name: str) -> Any:
    """The object of a dotted name: a module as far as it is one, then attributes."""
    words = name.split(".")
    for count in range(len(words), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(words[:count]))
        except ModuleNotFoundError:
            continue
        for word in words[count:]:
            found = getattr(found, word)
        return found
    raise ModuleNotFoundError(name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_object_and_file_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for name in OBJECT.findall(text):
        find(name)
    for name in FILE.findall(text):
        assert (ROOT / name).exists(), name
    if page.stem != "index":
        assert len(OBJECT.findall(text)) > 5
        for part in ("## What is in it", "## Where it lives", "## Errors found", "## Claims"):
            assert f"\n{part}\n" in text


def test_an_object_that_is_gone_is_found() -> None:
    for name in ("bayeswell.averaging.HWB", "bayeswell.nowhere.HWA", "bayeswell.gradients.Sharpness.descent"):
        with pytest.raises((AttributeError, ModuleNotFoundError)):
            find(name)


def test_five_papers_and_their_page() -> None:
    assert {page.stem for page in PAGES} == {"index", "hwa", "thesis", "variational_laplace", "flat", "k_tied"}
