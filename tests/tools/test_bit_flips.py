"""No flipped bit of a run or of a saved model goes unnoticed: `python tools/bit_flips.py` tries all of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from bit_flips import finished_run, flip_all, saved_model, unfinished_run

SMALL = {"name": "mlp", "hidden": [12]}
"""Its inspection is what takes most of the time."""

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize(
    ("make", "classes"),
    [
        (partial(finished_run, model=SMALL),
         {"config.json", "newest.json", "data.json", "seals.json", "result.json", "metrics.jsonl", "metrics.csv",
          "records.json", "inspection.json", "model/manifest.json", "model/record.json", "model/tensors.safetensors",
          "checkpoint/record.json"}),
        (unfinished_run, {"config.json", "newest.json", "metrics.jsonl", "metrics.csv", "checkpoint/manifest.json",
                          "checkpoint/record.json", "checkpoint/tensors.safetensors"}),
        (saved_model, {"model/manifest.json", "model/record.json", "model/tensors.safetensors"}),
    ],
)  # fmt: skip
def test_no_flip_is_silent(make: Callable[[Path], Path], classes: set[str], tmp_path: Path) -> None:
    """Every 997th bit, from a random one on."""
    table = flip_all(make(tmp_path / "it"), 997, random.Random(16))
    assert table.keys() >= classes
    assert {kind: row.silent for kind, row in table.items() if row.silent} == {}
    assert all(row.flips for row in table.values())
