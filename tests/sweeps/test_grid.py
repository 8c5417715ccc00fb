"""``sampler="grid"``: every combination exactly once, whoever works on it and whoever is killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from bayeswell.errors import SettingError
from bayeswell.sweeps import SweepResult, join_sweep, run_sweep, sweep_result
from sweeps.sleeper import Sleeper, calls, value_of

SPACE = {"stepper.lr": "0.1,0.001,0.01", "posterior.rank": "2:3", "temperature": "0.1,1"}
POINTS = [
    {"stepper.lr": lr, "posterior.rank": rank, "temperature": temperature}
    for lr, rank, temperature in product((0.1, 0.001, 0.01), (2, 3), (0.1, 1))
]


def points_of(result: SweepResult) -> list[dict[str, Any]]:
    return [dict(trial.settings) for trial in result.trials]


def value(settings: Mapping[str, Any], folder: Path) -> float:
    return value_of(settings)


def test_every_combination_once_in_the_order_written(tmp_path: Path) -> None:
    result = run_sweep(value, SPACE, tmp_path / "s", sampler="grid")
    assert points_of(result) == POINTS
    assert result.wanted == len(POINTS) == 12
    assert [trial.value for trial in result.trials] == [value_of(point) for point in POINTS]
    assert [type(v) for v in result.trials[0].settings.values()] == [float, int, float]
    words = {"posterior": "mean_field,k_tied", "learned": "true,false"}
    found = points_of(run_sweep(lambda settings, folder: 1.0, words, tmp_path / "w", sampler="grid"))
    assert [tuple(point.values()) for point in found] == [
        ("mean_field", True), ("mean_field", False), ("k_tied", True), ("k_tied", False)
    ]  # fmt: skip


@pytest.mark.parametrize("storage", [None, "sqlite"])
def test_once_each_after_a_stop_and_in_another_database(tmp_path: Path, storage: str | None) -> None:
    seen: list[int] = []
    where = None if storage is None else f"sqlite:///{tmp_path}/all.db"

    def stops(settings: Mapping[str, Any], folder: Path) -> float:
        seen.append(POINTS.index(dict(settings)))
        if len(seen) in (3, 7):
            raise KeyboardInterrupt
        return value_of(settings)

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run_sweep(stops, SPACE, tmp_path / "s", sampler="grid", storage=where)
    result = join_sweep(stops, tmp_path / "s")
    assert points_of(result) == POINTS
    assert seen == [0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10, 11]


@pytest.mark.usefixtures("quick_workers")
def test_once_each_with_workers_of_which_some_are_killed(tmp_path: Path) -> None:
    folder, log, killed = tmp_path / "s", tmp_path / "calls", set[int]()
    done = threading.Event()

    def kill_two() -> None:
        while len(killed) < 2 and not done.is_set():
            time.sleep(0.02)
            ended = {(call["pid"], call["trial"]) for call in calls(log) if call["what"] == "end"}
            busy = [call for call in calls(log) if (call["pid"], call["trial"]) not in ended]
            busy = [call for call in busy if call["pid"] not in killed]
            if len(calls(log)) >= 4 * (1 + len(killed)) and busy:
                killed.add(int(busy[0]["pid"]))  # type: ignore[call-overload]
                os.kill(int(busy[0]["pid"]), signal.SIGKILL)  # type: ignore[call-overload]

    killer = threading.Thread(target=kill_two)
    killer.start()
    try:
        result = run_sweep(Sleeper(str(log), 0.1), SPACE, folder, sampler="grid", workers=3)
    finally:
        done.set()
        killer.join()
    assert len(killed) == 2
    assert points_of(result) == points_of(sweep_result(folder)) == POINTS
    assert [trial.state for trial in result.trials] == ["complete"] * 12
    assert [trial.value for trial in result.trials] == [value_of(point) for point in POINTS]
    ends = [call["trial"] for call in calls(log) if call["what"] == "end" and call["pid"] not in killed]
    assert len(ends) == len(set(ends))  # none was done twice by workers that lived


@pytest.mark.parametrize(
    ("space", "changes", "said"),
    [
        ({"lr": "1e-4:1e-2:log"}, {}, "write them, lr=0.0001,0.001,0.01, or take --sampler random"),
        ({"lr": "0.1:0.5", "k": "1,2"}, {}, "write them, lr=0.1,0.3,0.5, or take"),
        ({"k": "1:100:log"}, {}, "write them, k=1,10,100, or take"),
        ({"lr": "near:0.1,0.5"}, {}, "write them, lr=0.1,0.5, or take"),
        ({"k": "1:3", "l": "1,2"}, {"trials": 5}, "trials = 5: the grid has 6 points"),
        ({"k": "1:3"}, {"sampler": "gird"}, "did you mean 'grid'?"),
    ],
)
def test_what_is_no_grid_is_refused_in_one_line(
    space: dict[str, str], changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(SettingError) as caught:
        run_sweep(value, space, tmp_path / "s", **{"sampler": "grid", **changes})
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "s").exists()
