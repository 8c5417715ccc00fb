"""The page about likelihoods does as it is printed."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest

import bayeswell as bw
from bayeswell.likelihoods import LIKELIHOODS

PAGE = Path(__file__).parents[2] / "docs" / "likelihoods.md"


def test_every_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warnings.simplefilter("ignore", bw.BayeswellWarning)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(LIKELIHOODS, "_parts", dict(LIKELIHOODS._parts))  # a name for this test alone
    names: dict[str, Any] = {"__name__": "page"}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 5
    for block in blocks:
        exec(compile(block, str(PAGE), "exec", dont_inherit=True), names)
    loaded = bw.load(tmp_path / "waiting_model")
    assert loaded.likelihood.shape == 3.0  # type: ignore[attr-defined]


def test_every_likelihood_is_in_the_table() -> None:
    listed = re.findall(r"^\| `(\w+)` \| .*\|.*\|.*\|.*\|$", PAGE.read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(LIKELIHOODS)
