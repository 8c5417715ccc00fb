"""The code of docs/own_parts.md and of CONTRIBUTING.md, run as it is printed."""

from __future__ import annotations

import re
import sys
import textwrap
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ["docs/own_parts.md", "CONTRIBUTING.md"]


def blocks(page: str) -> list[tuple[int, str]]:
    """The Python blocks of a page, with the line that each begins at."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.finditer(r"^( *)```python\n(.*?)^ *```$", text, flags=re.DOTALL | re.MULTILINE)
    return [(text[: match.start()].count("\n") + 1, textwrap.dedent(match[2])) for match in found]


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.filterwarnings("ignore::bayeswell.errors.BayeswellWarning")
def test_the_code_of_a_page_works_as_it_is_printed(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From top to bottom in one module, as a reader would type it."""
    module = types.ModuleType("a_module_of_a_reader")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    code = blocks(page)
    assert code, f"{page} has no Python blocks"
    for line, source in code:
        # Line numbers of the page itself, for a failure.
        exec(compile("\n" * line + source, str(ROOT / page), "exec"), vars(module))
