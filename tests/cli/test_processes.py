"""The command as a process of its own, and signals to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

import bayeswell
from quick_python import QUICK_PYTHON

LONG = ["train", "--method", "bbb", "--model", "mlp", "--model-set", "hidden=[12]", "--epochs", "50"]
LONG += ["--batch-size", "300", "--draws", "5", "--ood", "noise", "--quiet"]


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    """The command as a user's shell starts it."""
    environment = os.environ | {"PYTHONPATH": str(Path(bayeswell.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    command = [QUICK_PYTHON, "-m", "bayeswell", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def result_of(folder: Path) -> dict[str, Any]:
    """Everything in a result but the time."""
    record = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    del record["time"]
    return dict(record)


def stopped_by(number: signal.Signals, folder: Path) -> tuple[int, str, str]:
    """Code, stdout and stderr of a run to which a signal was sent after its first epoch."""
    process = start(*LONG, "--out", folder)
    deadline = time.monotonic() + 60
    while not (folder / "metrics.jsonl").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_sigterm_saves_and_resume_ends_as_if_it_had_not_come(bayeswell: Any, tmp_path: Path) -> None:
    broken, whole = tmp_path / "broken", tmp_path / "whole"
    code, out, err = stopped_by(signal.SIGTERM, broken)
    assert code == 143, err
    assert out == ""
    lines = [line for line in err.splitlines() if not line.startswith("warning: ")]
    assert len(lines) == 1
    assert "resume" in lines[0]
    assert any((broken / "checkpoints").iterdir())
    assert not (broken / "result.json").exists()
    assert bayeswell("resume", broken, "--quiet").code == 0
    assert bayeswell(*LONG, "--out", whole).code == 0
    assert result_of(broken) == result_of(whole)
    assert (broken / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()


@pytest.mark.slow  # as the one above, but for the number
def test_sigint_saves_too(tmp_path: Path) -> None:
    code, _, err = stopped_by(signal.SIGINT, tmp_path / "run")
    assert code == 130, err
    assert "Traceback" not in err
    assert any((tmp_path / "run" / "checkpoints").iterdir())
