"""Several processes optimise what one does; if one of them dies the others leave, and the run goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell.objectives import ELBO
from bayeswell.training import as_batches
from bayeswell.training.engine import Engine
from quick_python import QUICK_PYTHON

SCRIPT = Path(__file__).parent / "rank_script.py"


def start(*runs: dict[str, Any]) -> subprocess.Popen[str]:
    """A program that has these runs, one after the other."""
    clean = {k: v for k, v in os.environ.items() if k not in ("LOCAL_RANK", "WORLD_SIZE", "NODE_RANK", "MASTER_PORT")}
    source = str(Path(bw.__file__).parents[1])
    environment = {**clean, "OMP_NUM_THREADS": "1", "PYTHONPATH": source}
    command = [sys.executable, str(SCRIPT), json.dumps(runs)]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)


def a_run(folder: Path, method: str = "map", ranks: int = 2, **settings: Any) -> dict[str, Any]:
    return {"folder": str(folder), "method": method, "ranks": ranks, **settings}


def finish(process: subprocess.Popen[str], seconds: float = 120) -> tuple[int, str]:
    _, said = process.communicate(timeout=seconds)
    return process.returncode, said


def weights(folder: Path, rank: int = 0) -> torch.Tensor:
    return bw.load(folder.with_name(f"{folder.name}.model{rank}")).model.posterior.mean_vector()


def metrics(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def pid_in(note: Path, process: subprocess.Popen[str]) -> int:
    """The number of the process that has left a note and waits, of those of this program."""
    while not note.exists() or not note.read_text():
        time.sleep(0.02)
        assert process.poll() is None
    return int(note.read_text())


@dataclass
class Ended:
    """How a program ended: its exit status, what it said, and the seconds from the kill of a rank, if any, to it."""

    code: int
    said: str
    seconds: float = 0.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def programs(folder: Path) -> dict[str, Ended]:
    """Two programs of two ranks at the same time, as a start takes seconds: one of them loses its second rank.

    The other has all the runs that come to their end, the last of them the one that the first program has left. Only
    the rank that is to be killed has its libraries from the start: how it ends is not asked.
    """
    killed = start(a_run(folder / "run", "bbb", pause_rank=1, python=QUICK_PYTHON))
    whole = start(
        a_run(folder / "one", ranks=1),
        a_run(folder / "two"),
        a_run(folder / "cut", accumulate=3),
        a_run(folder / "normalised", normalised=True),
        a_run(folder / "whole", "bbb"),
        a_run(folder / "run", "bbb", after=str(folder / "left")),
    )
    try:
        os.kill(pid_in(folder / "run.rank1", killed), signal.SIGKILL)
        killed_at = time.monotonic()
        # The first rank is waiting for the other's gradient.
        code, said = finish(killed, 60)
        ended = Ended(code, said, time.monotonic() - killed_at)
    finally:
        (folder / "left").touch()
    return {"killed": ended, "whole": Ended(*finish(whole))}


def test_two_ranks_do_what_one_does(folder: Path, programs: dict[str, Ended]) -> None:
    """53 examples in batches of 9: ragged and uneven. SGD on MAP has no noise, so only rounding may differ."""
    assert programs["whole"].code == 0, programs["whole"].said
    expected = weights(folder / "one")
    for name in ("two", "cut"):
        torch.testing.assert_close(weights(folder / name), expected, atol=1e-6, rtol=1e-5)
        assert torch.equal(weights(folder / name, 0), weights(folder / name, 1))
        for mine, theirs in zip(metrics(folder / name), metrics(folder / "one"), strict=True):
            for key in ("total", "nll", "kl", "accuracy"):
                assert mine[key] == pytest.approx(theirs[key], rel=1e-5), key


def test_a_rank_that_dies_ends_the_others_and_the_run_goes_on(folder: Path, programs: dict[str, Ended]) -> None:
    assert programs["killed"].code == 1
    assert "rank 0 has lost another rank" in programs["killed"].said
    assert programs["killed"].seconds < 60
    assert programs["whole"].code == 0, programs["whole"].said
    assert torch.equal(weights(folder / "run"), weights(folder / "whole"))
    assert (folder / "run" / "metrics.jsonl").read_bytes() == (folder / "whole" / "metrics.jsonl").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [1, 0])
def test_a_rank_that_is_stopped_is_named_and_the_others_end(stopped: int, tmp_path: Path) -> None:
    """Stopped, not dead: nothing breaks, so the other ranks wait; for no longer than they were told to."""
    process = start(a_run(tmp_path / "run", "bbb", pause_rank=stopped, timeout=10.0))
    silent = pid_in(tmp_path / f"run.rank{stopped}", process)
    try:
        os.kill(silent, signal.SIGSTOP)
        began = time.monotonic()
        said = read_until(process, "the last checkpoint is as it was")
        if stopped == 1:  # else the process that was started is the one that is stopped
            assert process.wait(60) == 1
    finally:
        os.kill(silent, signal.SIGKILL)
    assert 8 < time.monotonic() - began < 60
    assert f"rank {stopped} has been silent for" in said
    assert f"rank {1 - stopped} waits for it, 10 s at the most" in said
    assert f"rank {1 - stopped} has lost another rank: rank {stopped} has been silent for" in said
    process.communicate(timeout=60)


def read_until(process: subprocess.Popen[str], words: str) -> str:
    """What a process and those it started say, up to a line with these words."""
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if words in line:
            break
    return said


def test_ranks_with_statistics_of_their_own_stop_together(folder: Path, programs: dict[str, Ended]) -> None:
    """BatchNorm differs between ranks, so does what each would measure: the first rank's numbers count."""
    assert programs["whole"].code == 0, programs["whole"].said
    assert torch.equal(weights(folder / "normalised", 0), weights(folder / "normalised", 1))
    assert 1 < len(metrics(folder / "normalised")) < 60


class Pretend(Engine):
    """An engine that believes to be one of several ranks, without any process."""

    def __init__(self, rank: int, ranks: int) -> None:
        self._rank, self._ranks = rank, ranks

    rank = property(lambda self: self._rank)  # type: ignore[assignment]
    ranks = property(lambda self: self._ranks)  # type: ignore[assignment]
    device = property(lambda self: torch.device("cpu"))  # type: ignore[assignment]


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_the_pieces_of_every_batch_make_the_whole_objective(ranks: int, accumulate: int) -> None:
    """The mean over ranks of the sum over pieces of the gradients = the gradient of the batch = that of all data.

    11 examples in batches of 4, so the last batch has 3: with 4 ranks one of them has nothing to do.
    """
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(11, 4, generator=generator, dtype=torch.float64)
    y = x[:, :3].argmax(1)
    torch.manual_seed(2)
    model = bw.bayesian(nn.Linear(4, 3).double(), "delta", {"name": "normal", "std": 0.7})
    objective = ELBO("categorical", 11, temperature=0.37)
    batches = as_batches((x, y), 4)

    def gradient(total: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(total, model.posterior.mean)[0]

    expected = gradient(objective(model, x, y).total)
    found = torch.zeros_like(expected)
    for index, (inputs, targets) in enumerate(batches.epoch(9)):
        for rank in range(ranks):
            at = bw.Progress(index, 3, index, 3, 11)
            for piece in Pretend(rank, ranks).pieces(inputs, targets, at, batches, accumulate):
                found += gradient(objective(model, piece.inputs, piece.targets, at=piece.at).total) / ranks / 3
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)


def test_mixed_precision_trains_and_keeps_the_posterior_in_full(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 4, generator=generator)
    data = (x, x[:, :3].argmax(1))
    dtypes = []

    class Spy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(1)
            self.layer = nn.Linear(4, 3)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            outputs = self.layer(inputs)
            dtypes.append(outputs.dtype)
            return outputs

    full = bw.fit(Spy(), data, "map", epochs=5)
    mixed = bw.fit(Spy(), data, "map", epochs=5, devices=bw.Devices(precision="bf16-mixed"))
    assert torch.bfloat16 in dtypes
    assert mixed.model.posterior.mean_vector().dtype == torch.float32
    difference = (mixed.model.posterior.mean - full.model.posterior.mean).detach().abs().max()
    assert 0 < float(difference) < 0.02


@pytest.mark.parametrize(
    ("settings", "word"),
    [({"strategy": "fsdpp"}, "ddp"), ({"precision": "8"}, "bf16-mixed"), ({"devices": 0}, "at least 1")],
)
def test_devices_that_cannot_be_meant_are_refused(settings: dict[str, Any], word: str) -> None:
    with pytest.raises(bw.SettingError, match=word):
        bw.Devices(**settings)
