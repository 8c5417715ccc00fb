"""Sweeps: distributions, storages, samplers and failures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
import pytest

from bayeswell.core.errors import SettingError
from bayeswell.lab.measure import RunRecord
from bayeswell.lab.sweep import Sweep, sweep

FAST: dict[str, Any] = {"problem": "wine", "epochs": 1, "draws": 4, "threads": 1, "progress": False}


def test_values_come_from_their_distributions() -> None:
    space = {"lr": ["log", 1e-3, 1e-2], "batch_size": ["int", 20, 22], "clip_norm": ["linear", 1.0, 2.0]}
    found = sweep(space, method="map", trials=5, sampler="random", **FAST)
    assert len(found.trials) == 5
    for trial in found.trials:
        assert 1e-3 <= trial.params["lr"] <= 1e-2
        assert trial.params["batch_size"] in (20, 21, 22)
        assert 1.0 <= trial.params["clip_norm"] <= 2.0


def test_score_is_that_of_the_validation_data(tmp_path: Path) -> None:
    found = sweep({"lr": [1e-3, 1e-2]}, method="map", trials=2, sampler="grid", folder=tmp_path, **FAST)
    for trial in found.trials:
        record = RunRecord.load(tmp_path / "trials" / f"{trial.number:05d}")
        assert trial.value == record.validation["nll"].value != record.scores["nll"].value
        assert record.settings["lr"] == trial.params["lr"]


def test_grid_visits_every_combination_once() -> None:
    found = sweep({"lr": [1e-3, 1e-2], "batch_size": [20, 40]}, method="map", trials=9, sampler="grid", **FAST)
    assert sorted(tuple(trial.params.values()) for trial in found.trials) == [
        (0.001, 20), (0.001, 40), (0.01, 20), (0.01, 40)
    ]  # fmt: skip


def test_best_is_highest_where_higher_is_better() -> None:
    found = sweep({"lr": [1e-5, 1e-1]}, method="map", trials=2, sampler="grid", score="accuracy", **FAST)
    values = [trial.value or 0.0 for trial in found.trials]
    assert values == sorted(values, reverse=True)
    assert found.best == found.trials[0].params == {"lr": 0.1}


@pytest.mark.parametrize("storage", ["journal", "sqlite"])
def test_a_sweep_continues_in_its_storage(tmp_path: Path, storage: str) -> None:
    url = f"sqlite:///{tmp_path / 'db.sqlite'}" if storage == "sqlite" else None
    space = {"lr": ["log", 1e-3, 1e-1]}

    def run(trials: int) -> Sweep:
        return sweep(space, method="map", trials=trials, sampler="random", folder=tmp_path, storage=url, **FAST)

    first = [trial.params for trial in run(2).study.trials]
    again = [trial.params for trial in run(4).study.trials]
    assert again[:2] == first
    assert len({trial["lr"] for trial in again}) == 4
    assert [trial.params for trial in run(4).study.trials] == again


def test_settings_of_parts_are_found_by_name() -> None:
    found = sweep({"rank": [1, 2]}, method="k-tied", trials=2, sampler="grid", **FAST)
    assert {trial.params["rank"] for trial in found.trials} == {1, 2}


def test_failed_trials_are_recorded() -> None:
    space = {"lr": [1e30, 1e-3]}
    found = sweep(space, method="map", trials=2, sampler="grid", optimizer="sgd", **{**FAST, "problem": "diabetes"})
    assert found.best == {"lr": 1e-3}
    assert list(found.table()["state"]).count("fail") == 1
    assert "failed: trial" in found.text()


def test_pruned_trials_are_kept_apart() -> None:
    study = optuna.create_study()
    study.add_trial(optuna.trial.create_trial(state=optuna.trial.TrialState.PRUNED, params={}, distributions={}))
    assert not Sweep(study, "nll").trials


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({}, "empty"),
        ({"lr": ["log", 1.0]}, "write"),
        ({"lr": 0.1}, "list"),
        ({"lrr": [1]}, "lrr"),
        ({"lr": []}, "list"),
    ],
)
def test_bad_spaces_are_refused(space: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        sweep(space, method="map", **FAST)


def test_grid_needs_choices() -> None:
    with pytest.raises(SettingError, match="grid"):
        sweep({"lr": ["log", 1e-3, 1e-1]}, method="map", sampler="grid", **FAST)
