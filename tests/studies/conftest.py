"""A study of two ways to train, small enough to be run in a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.read_once import bundled_data_are_read_once  # noqa: F401 -- a fixture for all tests below

STUDY = """
title = "Cold and warm"
paper = "A paper, 2020"
scores = ["nll", "accuracy"]

[run]
data = "digits"
model = {name = "mlp", hidden = [8]}
batch_size = 300
epochs = 1
draws = 3
validation = 0.2

[cells.cold]
method = {name = "bbb", temperature = 0.01}
[cells.warm]
method = {name = "bbb", temperature = 1}

[scales.smoke]
seeds = 2
[scales.cpu]
seeds = 2

[[printed]]
where = "Table 1, page 3"
cell = "cold"
values = {nll = 0.5}
[[printed]]
where = "Table 1, page 3"
cell = "warm"
values = {nll = 0.6}

[[claims]]
name = "cold"
text = "Cold is better"
where = "Table 1"
better = "cold"
than = "warm"
score = "nll"
"""


@pytest.fixture
def study_file(tmp_path: Path) -> Path:
    """The file of that study, in a folder of its own."""
    path = tmp_path / "paper" / "temperatures.toml"
    path.parent.mkdir()
    path.write_text(STUDY)
    return path
