"""The line on cost: what `auto` took, in numbers that multiply to the whole."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

SMALL = ["--model", "mlp", "--model-set", "hidden=[12]", "--epochs", "6", "--draws", "5"]


@pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")
def test_members_times_steps_times_passes(bayeswell: Any, tmp_path: Path) -> None:
    said = bayeswell("train", "-d", "wine", *SMALL, "--out", tmp_path / "run", "--quiet")
    assert said.code == 0
    pattern = r"([\d,]+) members, ([\d,]+) steps each of ([\d,]+) forward passes, ([\d,]+) in all"
    found = re.search(pattern, " ".join(said.out.split()))
    assert found is not None, said.out
    members, steps, passes, total = (int(number.replace(",", "")) for number in found.groups())
    assert members == 5
    assert members * steps * passes == total
