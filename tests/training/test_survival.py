"""Kills, damaged files, full and vanished disks, signals: the last good state is always there."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell.errors import DivergenceError, FileError
from bayeswell.training import checkpoints as checkpoints_module
from survival import METHODS, digits, kill_at_random, outcome, silent_damages

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and fork are those of POSIX")


@pytest.fixture(autouse=True)
def _quiet() -> None:
    warnings.simplefilter("ignore", bw.BayeswellWarning)
    # Python warns that a process with threads is forked; the tests run torch on one.
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)


def train(folder: Path, method: str = "bbb") -> None:
    """16 steps on digits with dropout and shuffling, a checkpoint after every second one; gone on with if cut off."""
    inputs, targets = digits()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 10))
    where = bw.RunFolder(folder, resume=True, checkpoint_steps=2)
    shown = (inputs[:300], targets[:300])
    result = bw.fit(net, shown, method, epochs=8, batch_size=150, folder=where, progress=False)
    result.save(folder / "model")


@pytest.mark.parametrize("method", METHODS)
def test_runs_killed_at_random_moments_end_alike(method: str, tmp_path: Path) -> None:
    """Two kills here; `python tools/survive.py kills --count 50` does as many as you like."""
    began = time.monotonic()
    kill_at_random(tmp_path / "whole", method, 0, 0.0, random.Random(0), train)
    seconds = 0.6 * (time.monotonic() - began)
    kill_at_random(tmp_path / "killed", method, 2, seconds, random.Random(sum(map(ord, method))), train)
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "whole")


def test_no_damage_to_a_checkpoint_passes(tmp_path: Path) -> None:
    train(tmp_path / "run")
    rng = random.Random(4)
    assert silent_damages(tmp_path / "run", 40, "flip", rng) == 0
    assert silent_damages(tmp_path / "run", 40, "cut", rng) == 0


def test_a_damaged_newest_checkpoint_costs_only_time(tmp_path: Path) -> None:
    """The run goes on from the one before, says so, and ends as it would have."""
    train(tmp_path / "run")
    expected = outcome(tmp_path / "run")
    newest = bw.RunFolder(tmp_path / "run").checkpoints.paths()[-1]
    data = bytearray((newest / "tensors.safetensors").read_bytes())
    data[len(data) // 2] ^= 1
    (newest / "tensors.safetensors").write_bytes(bytes(data))
    with pytest.warns(bw.BayeswellWarning, match="altered.*older checkpoint is used"):
        train(tmp_path / "run")
    assert outcome(tmp_path / "run") == expected
    for path in bw.RunFolder(tmp_path / "run").checkpoints.paths():
        (path / "manifest.json").unlink()
    for _ in range(2):  # asked again, it does not begin anew instead
        with pytest.raises(FileError, match="no checkpoint in"):
            train(tmp_path / "run")


def test_leftovers_of_a_crash_are_ignored(tmp_path: Path) -> None:
    train(tmp_path / "run")
    expected = outcome(tmp_path / "run")
    kept = tmp_path / "run" / "checkpoints"
    (kept / ".member-0000-step-000000099.bayeswell-tmp-0123456789abcdef").mkdir()
    (kept / "member-0000-step-000000098").mkdir()  # a half folder: no file in it
    (kept / "notes.txt").write_text("mine")
    with pytest.warns(bw.BayeswellWarning, match="older checkpoint is used"):
        train(tmp_path / "run")
    assert outcome(tmp_path / "run") == expected


class At(bw.Callback):
    """Does something after one step."""

    def __init__(self, step: int, action: Any) -> None:
        self.step, self.action = step, action

    def after_step(self, run: bw.Run) -> None:
        if run.step == self.step:
            self.action()


def _small_fit(folder: Path, callbacks: list[bw.Callback], **settings: Any) -> bw.Result:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 4, generator=generator)
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 3))
    where = bw.RunFolder(folder, resume=True, checkpoint_steps=2)
    data = (x, x[:, :3].argmax(1))
    return bw.fit(net, data, "bbb", epochs=4, batch_size=25, folder=where, callbacks=callbacks, **settings)


@pytest.mark.parametrize("fault", ["full", "read-only", "vanished"])
def test_a_disk_that_fails_leaves_the_last_good_checkpoint(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints_module, "_PAUSES", (0.01,))
    folder = tmp_path / "run"
    real = os.fsync

    def failing(descriptor: int) -> None:
        raise OSError(28 if fault == "full" else 30, os.strerror(28 if fault == "full" else 30))

    def break_disk() -> None:
        if fault == "vanished":
            shutil.move(folder, tmp_path / "elsewhere")
            folder.write_text("something else is here now")
        else:
            monkeypatch.setattr(os, "fsync", failing)

    with pytest.raises(FileError) as caught:
        _small_fit(folder, [At(5, break_disk)])
    assert "\n" not in str(caught.value)
    assert {"full": "No space left", "read-only": "Read-only", "vanished": "run"}[fault] in str(caught.value)
    monkeypatch.setattr(os, "fsync", real)
    if fault == "vanished":
        folder.unlink()
        shutil.move(tmp_path / "elsewhere", folder)
    resumed = _small_fit(folder, [At(-1, None)])
    whole = _small_fit(tmp_path / "whole", [At(-1, None)])
    assert torch.equal(resumed.model.posterior.mean_vector(), whole.model.posterior.mean_vector())


def test_a_folder_that_vanishes_while_the_run_is_finished_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is a new folder in its place, in which the rest of the run is not."""
    real = bw.Result.save

    def moved(result: bw.Result, path: Any) -> None:
        real(result, path)
        (tmp_path / "run").rename(tmp_path / "elsewhere")
        (tmp_path / "run").mkdir()

    monkeypatch.setattr(bw.Result, "save", moved)
    with pytest.raises(FileError, match="moved or removed while the run went on"):
        _small_fit(tmp_path / "run", [At(-1, None)])
    assert not (tmp_path / "run" / "result.json").exists()
    monkeypatch.setattr(bw.Result, "save", real)
    shutil.rmtree(tmp_path / "run")
    (tmp_path / "elsewhere").rename(tmp_path / "run")
    _small_fit(tmp_path / "run", [At(-1, None)])
    assert (tmp_path / "run" / "result.json").exists()


def test_a_disk_that_recovers_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints_module, "_PAUSES", (0.01, 0.01))
    failures = iter([True, True])
    real = checkpoints_module.write_bundle

    def sometimes(*arguments: Any) -> None:
        if next(failures, False):
            raise FileError("cannot save the bundle: No space left on device")
        real(*arguments)

    monkeypatch.setattr(checkpoints_module, "write_bundle", sometimes)
    _small_fit(tmp_path / "run", [At(-1, None)])
    assert len(bw.RunFolder(tmp_path / "run").checkpoints.paths()) == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_leaves_with_its_code(number: signal.Signals, tmp_path: Path) -> None:
    # A shell that starts the tests in the background has them ignore SIGINT, and what is ignored stays so.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    handlers = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(bw.Interrupted) as caught:
            _small_fit(tmp_path / "run", [At(7, lambda: os.kill(os.getpid(), number))])
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == handlers
    finally:
        signal.signal(signal.SIGINT, before)
    assert caught.value.exit_code == 128 + number
    assert f"signal {int(number)} after step 7" in str(caught.value)
    resumed = _small_fit(tmp_path / "run", [At(-1, None)])
    whole = _small_fit(tmp_path / "whole", [At(-1, None)])
    assert torch.equal(resumed.model.posterior.mean_vector(), whole.model.posterior.mean_vector())


def test_a_signal_in_a_members_last_step_is_not_forgotten(tmp_path: Path) -> None:
    """12 steps a member: the signal comes after the twelfth step of the first."""
    with pytest.raises(bw.Interrupted):
        _small_fit(tmp_path / "run", [LastEpoch()], members=3, means="prior", posterior="delta")
    state = bw.RunFolder(tmp_path / "run").checkpoints.newest()
    assert state is not None
    assert state["run"]["member"] == 0
    assert state["run"]["position"] == [4, 0, 12]


class LastEpoch(bw.Callback):
    """Sends a signal after the last epoch, when no further step will look at it."""

    def after_epoch(self, run: bw.Run, record: bw.EpochRecord) -> None:
        if record.epoch + 1 == run.epochs:
            os.kill(os.getpid(), signal.SIGTERM)


def _wait_in_training(folder: Path) -> None:
    _small_fit(folder, [At(3, lambda: (folder.with_name("ready").touch(), _sleep_through_signals(20)))])


def _sleep_through_signals(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.05)


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    process = multiprocessing.get_context("fork").Process(target=_wait_in_training, args=(tmp_path / "run",))
    process.start()
    while not (tmp_path / "ready").exists():
        time.sleep(0.02)
        assert process.is_alive()
    assert process.pid is not None
    os.kill(process.pid, signal.SIGTERM)
    time.sleep(0.3)
    assert process.is_alive()
    os.kill(process.pid, signal.SIGTERM)
    process.join(10)
    assert process.exitcode == 143


def test_numbers_that_run_away_leave_the_last_good_checkpoint(tmp_path: Path) -> None:
    """An infinite step: the gradient after it is not finite; the checkpoint before it can be gone on with."""
    wild = {"stepper": {"name": "sgd", "lr": 1e30, "momentum": 0.0}, "rate": "constant", "clip_norm": None}
    with pytest.raises((DivergenceError, bw.DataError)) as caught:
        _small_fit(tmp_path / "run", [], **wild)
    assert "step " in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.model is not None
    state = bw.RunFolder(tmp_path / "run").checkpoints.newest()
    if state is not None:
        assert all(bool(t.isfinite().all()) for t in state["run"]["assembly"]["model"].values())
