"""What `auto` took and why, and at which temperature, is on the screen and in the record."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

SMALL = ["--model", "mlp", "--model-set", "hidden=[12]", "--epochs", "3", "--draws", "5", "--quiet"]
WHY = "auto: 5 members, 5x the cost of ordinary training (a short run: 402 examples seen; budget=... sets another)"


@pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")
def test_train_says_what_auto_took(bayeswell: Any, tmp_path: Path) -> None:
    said = bayeswell("train", "-d", "wine", *SMALL, "--out", tmp_path / "run")
    assert said.code == 0, said.err
    record = json.loads((tmp_path / "run" / "result.json").read_text())
    assert record["plan"] == WHY
    shown = " ".join(said.out.split())
    assert WHY in shown
    assert f"temperature {record['temperature']:.3g} (1 is Bayes' rule)" in shown


@pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")
def test_compare_has_a_column_for_the_temperature(bayeswell: Any, tmp_path: Path) -> None:
    said = bayeswell(
        "compare", "--methods", "auto,bbb", "--set", "bbb:temperature=0.25", "-d", "wine", *SMALL, "--no-report",
        "--out", tmp_path / "runs",
    )  # fmt: skip
    assert said.code == 0, said.err
    rows = {row["method"]: row for row in json.loads((tmp_path / "runs" / "comparison.json").read_text())["rows"]}
    assert rows["bbb"]["scores"]["temperature"]["mean"] == 0.25
    assert rows["bbb"]["plan"] is None
    found = rows["auto"]["scores"]["temperature"]["mean"]
    assert 0 < found < 0.1
    heading, bbb, auto = (re.search(rf"^\s*{name}\s.*$", said.out, re.MULTILINE) for name in ("method", "bbb", "auto"))
    assert heading is not None
    assert bbb is not None
    assert auto is not None
    column = heading[0].split().index("T") - len(heading[0].split())
    # Seconds alone may be missing at the right of a row.
    assert bbb[0].split()[column] == "0.25"
    assert auto[0].split()[column] == f"{found:.2g}"
    assert WHY in said.out
