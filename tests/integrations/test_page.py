"""The page on Hugging Face, Lightning and accelerate: its programs run as they are printed."""

from __future__ import annotations

import logging
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "integrations.md"


@pytest.mark.filterwarnings("ignore")  # those of other libraries, which a reader sees too
def test_every_program_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("peft", "transformers", "lightning", "accelerate"):
        pytest.importorskip(library)
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 4
    for block in blocks:
        exec(compile(block, str(PAGE), "exec", dont_inherit=True), names)
    assert names["same"].predict({"input_ids": names["columns"]["input_ids"]}, draws=2).probabilities.shape == (32, 3)
    assert names["what_follows"].shape == (2, 30)
