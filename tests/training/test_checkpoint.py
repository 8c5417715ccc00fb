"""A killed run resumes bit for bit, and refuses other settings by name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from bayeswell.core.errors import FileError, SettingError
from bayeswell.training.callbacks import KeepBest
from bayeswell.training.checkpoint import Interrupted, RunFolder, Terminated, stop_signals
from bayeswell.training.data import Columns, as_data, held_out
from bayeswell.training.fingerprint import fingerprint
from bayeswell.training.loop import Callback, Run
from small_runs import METHODS, X, Y, plan, run, same, weights

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.core.errors.BayeswellWarning")  # runs are short


class Killed(Exception):
    pass


class KillAt(Callback):
    def __init__(self, step: int) -> None:
        self.step = step

    def after_step(self, run: Run) -> None:
        if run.state.progress.step == self.step:
            raise Killed


class Noise(Callback):
    """A callback with a state, which draws from torch's global stream."""

    def __init__(self) -> None:
        self.total = 0.0

    def after_step(self, run: Run) -> None:
        self.total += float(torch.rand(()))

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total}

    def load_state_dict(self, state: Any) -> None:
        self.total = state["total"]


def resumable(folder: Path, method: str, kill: int | None, every: int = 3, **settings: Any) -> Any:
    callbacks = [*settings.pop("callbacks", []), *([] if kill is None else [KillAt(kill)])]
    kept = settings.pop("settings", {"method": method})
    return plan(method, folder=RunFolder(folder, every), settings=kept, resume=True, callbacks=callbacks, **settings)


@pytest.mark.parametrize("method", METHODS)
def test_resume_is_exact(method: str, tmp_path: Path) -> None:
    whole = run(plan(method))[0]
    for kill in (2, 8, 15):
        with pytest.raises(Killed):
            run(resumable(tmp_path, method, kill))
    resumed = run(resumable(tmp_path, method, None))[0]
    assert same(weights(whole), weights(resumed))
    strip = [(r.total, r.nll, r.kl, r.temperature, r.std_ratio) for r in whole.history.epochs]
    assert strip == [(r.total, r.nll, r.kl, r.temperature, r.std_ratio) for r in resumed.history.epochs]
    again = run(resumable(tmp_path, method, None))[0]
    assert same(weights(whole), weights(again)), "a finished run"


def test_resume_with_a_loader_and_early_stopping(tmp_path: Path) -> None:
    def settings() -> dict[str, Any]:
        loader = DataLoader(TensorDataset(X, Y), 8, shuffle=True)
        validation = held_out((X[:20], Y[:20]), Columns(), None)
        noise = Noise()
        return {
            "data": as_data(loader, Columns()), "validation": validation, "early_stopping": KeepBest(patience=2),
            "callbacks": [noise], "epochs": 8, "changes": {"lr": 0.3},
        }  # fmt: skip

    given = settings()
    whole = run(plan("bbb", **given))[0]
    total = given["callbacks"][0].total
    for kill in (4, 13, 17):
        with pytest.raises(Killed):
            run(resumable(tmp_path, "bbb", kill, **settings()))
    given = settings()
    resumed = run(resumable(tmp_path, "bbb", None, **given))[0]
    assert same(weights(whole), weights(resumed))
    assert given["callbacks"][0].total == total
    assert whole.history.stopped == resumed.history.stopped


def test_members_resume(tmp_path: Path) -> None:
    changes = {"changes": {"members": 3}, "epochs": 2}
    whole = run(plan("deep-ensemble", **changes))
    with pytest.raises(Killed):
        run(resumable(tmp_path, "deep-ensemble", 5, **changes))
    resumed = run(resumable(tmp_path, "deep-ensemble", None, **changes))
    for first, second in zip(whole, resumed, strict=True):
        assert same(weights(first), weights(second))


def test_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        run(resumable(tmp_path, "bbb", 4, settings=fingerprint({"lr": 0.1, "data": X})))
    with pytest.raises(FileError, match=r"data differs; lr was 0.1, is 0.2"):
        run(resumable(tmp_path, "bbb", None, settings=fingerprint({"lr": 0.2, "data": Y})))
    forced = resumable(tmp_path, "bbb", None, settings={"lr": 0.2})
    import dataclasses

    run(dataclasses.replace(forced, folder=RunFolder(tmp_path, force=True)))


def test_a_folder_with_a_run_is_not_overwritten(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, 2)
    folder.check_new()
    run(plan("map", folder=folder, settings={}, epochs=1))
    with pytest.raises(SettingError, match="resume=True"):
        folder.check_new()


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        run(resumable(tmp_path, "bbb", 7))
    file = RunFolder(tmp_path).checkpoint(0) / "tensors.safetensors"
    data = bytearray(file.read_bytes())
    data[-5] ^= 4
    file.write_bytes(bytes(data))
    with pytest.raises(FileError):
        run(resumable(tmp_path, "bbb", None))


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, Interrupted), (signal.SIGTERM, Terminated)])
def test_signals_save_and_end(number: int, error: type[BaseException], tmp_path: Path) -> None:
    class Sends(Callback):
        def after_step(self, run: Run) -> None:
            if run.state.progress.step == 7:
                os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    with pytest.raises(error) as caught:
        run(resumable(tmp_path, "bbb", None, 100, callbacks=[Sends()]))
    assert not isinstance(caught.value, Exception)
    assert isinstance(caught.value, KeyboardInterrupt | SystemExit)
    assert signal.getsignal(number) is before
    resumed = run(resumable(tmp_path, "bbb", None, 100))[0]
    assert same(weights(resumed), weights(run(plan("bbb"))[0]))


def test_signals_are_left_alone_without_a_run() -> None:
    before = signal.getsignal(signal.SIGINT)
    with stop_signals() as signals:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        assert signals.received == signal.SIGINT
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.slow
def test_a_killed_process_resumes(tmp_path: Path) -> None:
    script = textwrap.dedent(f"""
        import sys, time
        sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[1])]!r}
        from test_checkpoint import *
        class Slow(Callback):
            def after_step(self, run):
                time.sleep(0.02)
                print(run.state.progress.step, flush=True)
        torch.set_num_threads(1)
        run(resumable(Path({str(tmp_path)!r}), "hwa", None, 1, callbacks=[Slow()]))
    """)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == "9":
                process.kill()
                break
    assert process.returncode == -signal.SIGKILL
    resumed = run(resumable(tmp_path, "hwa", None, 1))[0]
    assert same(weights(resumed), weights(run(plan("hwa"))[0]))
