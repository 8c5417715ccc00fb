"""``bayeswell fidelity``: two files of probabilities, one line for each number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


def test_agreement_and_total_variation_of_two_files(bayeswell: Any, tmp_path: Path) -> None:
    """By hand: of four examples three agree; half the absolute differences are 0.1, 0.2, 0.3 and 0. Columns by name."""
    (tmp_path / "mine.csv").write_text("p_a,p_b\n0.7,0.3\n0.4,0.6\n0.6,0.4\n0.2,0.8\n")
    (tmp_path / "reference.csv").write_text("p_b,p_a\n0.2,0.8\n0.8,0.2\n0.7,0.3\n0.8,0.2\n")
    said = bayeswell("fidelity", tmp_path / "mine.csv", tmp_path / "reference.csv", "--json")
    assert said.code == 0
    record = json.loads(said.out)
    assert record["agreement"] == 0.75
    assert record["total_variation"] == pytest.approx(0.15)
    shown = bayeswell("fidelity", tmp_path / "mine.csv", tmp_path / "reference.csv")
    assert "0.7500" in shown.out
    assert "0.1500" in shown.out
    assert "4 examples, 2 classes" in shown.out
    missing = bayeswell("fidelity", tmp_path / "mine.csv", tmp_path / "absent.csv")
    assert missing.code == 2
    assert missing.err.count("\n") == 1
