"""Runs in processes of their own: each equal, bit for bit, to itself alone; a killed one goes on; Ctrl-C is clean."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from bayeswell.experiments import Experiment, compare, run
from bayeswell.persistence import read_lines
from folder_holders import kill_the_holder_of
from quick_python import QUICK_PYTHON

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")  # of runs that are too short
SMALL: dict[str, Any] = {"data": "wine", "model": {"name": "mlp", "hidden": [4]}, "batch_size": 60, "draws": 3}


def result_of(folder: Path) -> dict[str, Any]:
    return {**json.loads((folder / "result.json").read_text()), "time": None}


@pytest.mark.usefixtures("quick_workers")
def test_each_run_is_what_it_is_alone_and_a_killed_one_goes_on(tmp_path: Path) -> None:
    base = Experiment(**SMALL, method="map", epochs=150)
    methods = {"map": base, "worse": base.changed({"method.stepper.lr": 1e-4, "epochs": 2})}
    told: list[tuple[str, str]] = []
    killed: list[int] = []

    def watch(name: str, state: str) -> None:
        told.append((name, state))
        if state == "begun" and name == "worse-seed0":
            killed.append(kill_the_holder_of(tmp_path / "both" / "map-seed0"))

    record = compare(methods, [0], tmp_path / "both", workers=2, told=watch, checkpoint_steps=20)
    assert killed
    assert any(name == "map-seed0" and "its process died (exit status -9)" in state for name, state in told)
    assert ("map-seed0", "resumed") in told
    assert [row["finished"] for row in record["rows"]] == [1, 1]
    alone = tmp_path / "alone"
    run(base.changed({"seed": 0}), alone)
    assert result_of(alone) == result_of(tmp_path / "both" / "map-seed0")
    assert read_lines(alone / "metrics.jsonl") == read_lines(tmp_path / "both" / "map-seed0" / "metrics.jsonl")


@pytest.mark.usefixtures("quick_workers")
def test_what_is_refused_or_fails_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    base = Experiment(**SMALL, method="map", epochs=2)
    wild = base.changed({"method.stepper": {"name": "sgd", "lr": 1e30}})
    record = compare({"map": base, "wild": wild}, [0], tmp_path, workers=2)
    rows = {row["method"]: row for row in record["rows"]}
    assert rows["map"]["finished"] == 1
    assert rows["wild"]["finished"] == 0
    assert rows["wild"]["failed"][0]["run"] == "wild-seed0"
    assert rows["wild"]["failed"][0]["error"]


@pytest.mark.slow
def test_ctrl_c_saves_every_run_and_the_same_command_goes_on(tmp_path: Path) -> None:
    words = [
        QUICK_PYTHON, "-m", "bayeswell", "compare", "--methods", "map,bbb", "-d", "wine", "-n", "mlp", "--model-set",
        "hidden=[4]", "-e", "3000", "--draws", "2", "--workers", "2", "--no-report", "--out", str(tmp_path / "runs"),
    ]  # fmt: skip
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 180
    while len(list(tmp_path.glob("runs/*/metrics.jsonl"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "the same command goes on with them" in said
    assert "Traceback" not in said
    assert len(list(tmp_path.glob("runs/*/checkpoints/*"))) >= 2
