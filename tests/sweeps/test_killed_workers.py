"""Sweeps of several processes, of which some are killed: every trial ends once, none is lost, none is one too many."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bayeswell.sweeps import SweepError, SweepResult, parse_space, run_sweep, sweep_result
from bayeswell.sweeps.definition import Definition, establish
from bayeswell.sweeps.ledger import Ledger
from quick_python import QUICK_PYTHON
from sweeps.sleeper import SPACE, Deadly, Sleeper, calls, value_of

pytestmark = pytest.mark.usefixtures("quick_workers")
TESTS = Path(__file__).parents[1]
PATIENCE = 180.0


def expected_settings(folder: Path, trials: int) -> list[dict[str, Any]]:
    """What a sweep that nobody disturbs would try: a random sweep depends on its seed alone."""
    space = parse_space(f"{name}={text}" for name, text in SPACE.items())
    definition = Definition("undisturbed", "none", space, trials, sampler="random", seed=3)
    book = Ledger(establish(definition, folder), folder)
    return [dict(claim.settings) for claim in iter(book.claim, None)]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that in time"
        time.sleep(0.005)


def busy(log: Path) -> list[tuple[int, int]]:
    """Process and trial of every call that has begun and not ended."""
    begun = [(call["pid"], call["trial"]) for call in calls(log) if call["what"] == "begin"]
    ended = {(call["pid"], call["trial"]) for call in calls(log) if call["what"] == "end"}
    return [call for call in begun if call not in ended and alive(call[0])]


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def require_each_once(result: SweepResult, wanted: list[dict[str, Any]], log: Path, killed: set[int]) -> None:
    assert [trial.state for trial in result.trials] == ["complete"] * len(wanted)
    assert [dict(trial.settings) for trial in result.trials] == wanted
    assert [trial.value for trial in result.trials] == [value_of(settings) for settings in wanted]
    ends: dict[int, list[int]] = {}
    for call in calls(log):
        if call["what"] == "end":
            ends.setdefault(call["trial"], []).append(call["pid"])
    assert sorted(ends) == list(range(len(wanted)))
    # All but the last to come to a trial's end must have been killed before they could record it.
    assert all(set(pids[:-1]) <= killed for pids in ends.values())
    begun = Counter(call["trial"] for call in calls(log) if call["what"] == "begin")
    assert sum(begun.values()) <= len(wanted) + len(killed)


def program(folder: Path, log: Path, *options: str) -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(TESTS.parent / "src"), str(TESTS)])
    command = [QUICK_PYTHON, "-m", "sweeps.cheap_sweep", str(folder), str(log), *options]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, start_new_session=True)


def test_a_killed_workers_trial_is_taken_over(tmp_path: Path) -> None:
    folder, log, killed = tmp_path / "s", tmp_path / "calls", set[int]()

    def kill_one() -> None:
        until(lambda: len(calls(log)) >= 4 and bool(busy(log)))
        pid, _ = busy(log)[0]
        killed.add(pid)
        os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_one)
    killer.start()
    ended: list[int] = []
    result = run_sweep(
        Sleeper(str(log), 0.1), SPACE, folder,
        trials=9, workers=3, sampler="random", seed=3, watch=lambda now: ended.append(now.count("complete")),
    )  # fmt: skip
    killer.join()
    assert len(killed) == 1
    require_each_once(result, expected_settings(tmp_path / "undisturbed", 9), log, killed)
    assert sum(trial.attempts for trial in result.trials) == 10
    assert ended == sorted(ended)
    assert ended[-1] == 9
    assert not [call["pid"] for call in calls(log) if alive(int(call["pid"]))]


def test_the_command_itself_is_killed_and_run_again(tmp_path: Path) -> None:
    folder, log, number = tmp_path / "s", tmp_path / "calls", tmp_path / "number"
    options = ("--trials", "6", "--workers", "2", "--seconds", "0.4")
    main = program(folder, log, *options, "--number", str(number))
    until(lambda: len(calls(log)) >= 5 and len(busy(log)) == 2)
    os.kill(int(number.read_text()), signal.SIGKILL)  # the program itself, not the one that asked for it
    assert main.wait(PATIENCE) == -signal.SIGKILL
    until(lambda: not busy(log))  # workers end with the command that started them
    cut = [trial.number for trial in sweep_result(folder).trials if trial.state == "running"]
    assert len(cut) == 2
    result = run_sweep(Sleeper(str(log), 0.01), SPACE, folder, trials=6, workers=1, sampler="random", seed=3)
    stopped = {int(call["pid"]) for call in calls(log)} - {os.getpid()}
    require_each_once(result, expected_settings(tmp_path / "undisturbed", 6), log, stopped)


def test_workers_that_die_before_they_begin_end_the_sweep_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(SweepError) as caught:
        run_sweep(Deadly(), SPACE, tmp_path / "s", trials=2, workers=2, attempts=1)
    assert "5 workers died (the last with exit status 1)" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_sweep_that_is_told_to_stop_blames_no_trial(tmp_path: Path, number: signal.Signals) -> None:
    folder, log = tmp_path / "s", tmp_path / "calls"
    main = program(folder, log, "--trials", "6", "--workers", "2", "--seconds", "1")
    until(lambda: len(calls(log)) >= 3 and len(busy(log)) == 2)
    main.send_signal(number)
    assert main.wait(PATIENCE) != 0
    until(lambda: not busy(log))
    cut = [trial for trial in sweep_result(folder).trials if trial.state == "running"]
    assert [trial.attempts for trial in cut] == [0, 0]
    result = run_sweep(Sleeper(str(log), 0.01), SPACE, folder, trials=6, workers=1, sampler="random", seed=3)
    assert [trial.attempts for trial in result.trials] == [1] * 6


@pytest.mark.slow
def test_runs_whose_workers_are_killed_end_as_if_nothing_had_been(tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "bayeswell", "sweep", "-d", "digits", "-m", "bbb", "-e", "6", "--sampler", "random",
        "--space", "stepper.lr=1e-3:1e-1:log", "--trials", "3", "--threads", "1", "-q",
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(TESTS.parent / "src"), "OMP_NUM_THREADS": "1"}
    disturbed = subprocess.Popen([*command, "--workers", "2", "--out", str(tmp_path / "a")], env=environment)
    leases = tmp_path / "a" / ".leases"
    for trial in (0, 2):
        metrics = tmp_path / "a" / "trials" / f"{trial:04d}" / "metrics.jsonl"
        until(lambda metrics=metrics: metrics.exists() and metrics.read_text().count("\n") >= 2)  # type: ignore[misc]
        holder = holder_of(leases / f"{trial:04d}")
        if holder is not None:  # else it has just ended
            os.kill(holder, signal.SIGKILL)
    assert disturbed.wait(PATIENCE) == 0
    subprocess.run([*command, "--out", str(tmp_path / "b")], env=environment, check=True)
    one, two = (sweep_result(tmp_path / name) for name in "ab")
    assert sum(trial.attempts for trial in one.trials) > 3
    assert [(trial.settings, trial.value) for trial in one.trials] == [
        (trial.settings, trial.value) for trial in two.trials
    ]


def holder_of(path: Path) -> int | None:
    """The process that has this file open."""
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if os.readlink(link) == str(path):
                return int(link.parts[2])
    return None


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_eight_workers_in_two_commands_of_which_three_are_killed(tmp_path: Path, seed: int) -> None:
    folder, log, killed = tmp_path / "s", tmp_path / "calls", set[int]()
    moments = random.Random(seed)
    began = time.monotonic()
    first = program(folder, log, "--trials", "60", "--workers", "4", "--seconds", "0.2")
    until((folder / "study.sqlite3").exists)
    time.sleep(0.5)  # until the study has been made
    second = program(folder, log, "--join", "--workers", "4", "--seconds", "0.2")
    until(lambda: len({call["pid"] for call in calls(log)}) >= 5)
    while len(killed) < 3:
        time.sleep(moments.uniform(0.05, 0.8))
        pids = [pid for pid in sorted({int(call["pid"]) for call in calls(log)} - killed) if alive(pid)]
        victim = moments.choice(pids)  # in a trial, between two, or while it holds a lock
        os.kill(victim, signal.SIGKILL)
        killed.add(victim)
    assert first.wait(PATIENCE) == 0
    assert second.wait(PATIENCE) == 0
    print(f"60 trials, {len(killed)} of 8 workers killed: {time.monotonic() - began:.1f} s")
    require_each_once(sweep_result(folder), expected_settings(tmp_path / "undisturbed", 60), log, killed)
