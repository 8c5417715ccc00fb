"""The page of bad inputs names every case, with its call."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tools.write_bad_input_page import PAGE, calls

from bad_inputs import CASES


def test_the_page_has_every_case() -> None:
    """The lines themselves are looked at by ``tools/write_bad_input_page.py --check``."""
    text = PAGE.read_text(encoding="utf-8")
    written = dict(calls())
    assert list(written) == list(CASES)
    for name, call in written.items():
        assert f"| {name} | `{call}` |" in text, f"{name}: run python tools/write_bad_input_page.py"
