"""A program without `if __name__ == "__main__":` that asks for workers is told so in one line, and trains nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from quick_python import QUICK_PYTHON

PROGRAM = """
import warnings
import torch
import bayeswell as bw
warnings.simplefilter("ignore")
x = torch.linspace(-1, 1, 60).reshape(20, 3)
y = (x[:, 0] > 0).long()
try:
    bw.{call}, epochs=1, batch_size=10, workers=2, folder="runs")
except bw.SettingError as error:
    print(error)
"""


@pytest.mark.parametrize(
    "call",
    [
        'compare(torch.nn.Linear(3, 2), (x, y), ["map", "bbb"]',
        'sweep("mlp", (x, y), {"lr": "0.1,0.01"}, method="map", trials=2',
    ],
)
def test_it_is_told_in_one_line(call: str, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.replace("{call}", call))
    ran = subprocess.run(
        [QUICK_PYTHON, str(script)], capture_output=True, text=True, check=False, timeout=240, cwd=tmp_path
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    (line,) = ran.stdout.splitlines()
    assert line.endswith('put what it does below `if __name__ == "__main__":`')
    assert not list(tmp_path.glob("runs/*/checkpoints"))
