"""`train --calibrate`: said on the screen, kept with the model, used by `evaluate`, shown on the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import bayeswell as bw
from bayeswell.experiments import Experiment
from bayeswell.experiments.evaluating import load_model
from bayeswell.report.cards import card_of
from bayeswell.report.reading import read_runs
from bayeswell.report.summary import tables_of

SMALL = ["--model", "mlp", "--model-set", "hidden=[12]", "--epochs", "2", "-b", "60", "--draws", "5"]


@pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")
def test_a_calibrated_run(bayeswell: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Where the best numbers are is tested with the calibration: here a coarse search will do.
    monkeypatch.setattr("bayeswell.predictive.calibration.SCALES", (0.0, 1.0, 2.0))
    monkeypatch.setattr("bayeswell.predictive.calibration._ROUNDS", 1)
    said = bayeswell("train", "-d", "wine", "-m", "bbb", *SMALL, "--calibrate", "--out", tmp_path / "run", "--quiet")
    assert said.code == 0
    assert "calibration: " in said.out
    record = json.loads((tmp_path / "run" / "result.json").read_text())
    found = load_model(tmp_path / "run").calibration
    assert found is not None
    assert found.folds == 5
    assert found.examples == record["examples"]["train"]  # cross-fitted: each example is held out once
    assert record["calibration"]["text"] == str(found)
    assert record["calibration"]["nll_before"] == found.nll_before
    assert record["cost"]["total"] == 5 * record["cost"]["steps"] * record["cost"]["per_step"]
    again = bayeswell("evaluate", tmp_path / "run", "--draws", "5", "--json")
    measured = json.loads(again.out)
    assert measured["calibration"] == str(found)
    assert measured["test"]["values"] == record["test"]["values"]
    card = card_of(tables_of(read_runs([tmp_path / "run"]).runs)[0].rows[0])
    assert dict(card.facts)["calibration"] == str(found)


def test_without_it_nothing_is_said(bayeswell: Any, tmp_path: Path) -> None:
    said = bayeswell("train", "-d", "wine", "-m", "map", *SMALL, "--out", tmp_path / "run", "--quiet")
    assert said.code == 0
    assert "calibration" not in said.out
    assert bw.load(tmp_path / "run" / "model").calibration is None
    assert json.loads((tmp_path / "run" / "result.json").read_text())["calibration"] is None
    assert Experiment().calibrate is False
