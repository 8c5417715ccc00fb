"""The page and the terminal say the words that the runs' own numbers give, and another number changes them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bayeswell.cli import main
from bayeswell.persistence import read_document, write_document
from bayeswell.report import read_runs, verdict_of
from bayeswell.report.summary import tables_of


def closing_of(folder: Path) -> str:
    found = verdict_of(tables_of(read_runs([folder]).runs)[0])
    assert found is not None
    return found.closing


@pytest.mark.usefixtures("sketched")
def test_page_and_terminal_say_it(
    compared: Path, tmp_path: Path, parse: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """``bbb`` is given an NLL that is lower by 0.5 at every example (and 0.001 more or less): it must be praised."""
    monkeypatch.setattr("bayeswell.report.page.MOST", 1)
    folder = tmp_path / "compared"
    shutil.copytree(compared, folder)
    before = closing_of(folder)
    control, other = (folder / f"{name}-seed0" / "inspection.json" for name in ("map", "bbb"))
    truth, record = (read_document(path) for path in (control, other))
    record["metrics"]["nll"] = truth["metrics"]["nll"] - 0.5
    record["by_example"]["nll"] = [
        one - 0.5 + 0.001 * (-1) ** place for place, one in enumerate(truth["by_example"]["nll"])
    ]
    write_document(other, record)
    after = closing_of(folder)
    assert after != before
    assert "The lowest NLL is bbb's" in after
    assert main(["report", str(folder), "--out", str(tmp_path / "page.html")]) == 0
    words = parse((tmp_path / "page.html").read_text()).words
    assert after in words
    assert "better than map in NLL (" in words
    assert "by 0.5000 ± " in words
    said = " ".join(capsys.readouterr().out.split())
    assert after.replace("- ", "-") in said.replace("- ", "-")  # a line may be broken at a hyphen
