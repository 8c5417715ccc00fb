"""Several processes optimise what one does; if one of them dies the others leave, and the run goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell.objectives import ELBO
from bayeswell.training import as_batches
from bayeswell.training.engine import Engine

SCRIPT = Path(__file__).parent / "rank_script.py"


def start(folder: Path, method: str = "map", ranks: int = 1, **settings: Any) -> subprocess.Popen[str]:
    arguments = json.dumps({"folder": str(folder), "method": method, "ranks": ranks, **settings})
    clean = {k: v for k, v in os.environ.items() if k not in ("LOCAL_RANK", "WORLD_SIZE", "NODE_RANK", "MASTER_PORT")}
    source = str(Path(bw.__file__).parents[1])
    environment = {**clean, "OMP_NUM_THREADS": "1", "PYTHONPATH": source}
    command = [sys.executable, str(SCRIPT), arguments]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)


def finish(process: subprocess.Popen[str], seconds: float = 120) -> tuple[int, str]:
    _, said = process.communicate(timeout=seconds)
    return process.returncode, said


def weights(folder: Path, rank: int = 0) -> torch.Tensor:
    return bw.load(folder.with_name(f"{folder.name}.model{rank}")).model.posterior.mean_vector()


def metrics(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_two_ranks_do_what_one_does(tmp_path: Path) -> None:
    """53 examples in batches of 9: ragged and uneven. SGD on MAP has no noise, so only rounding may differ."""
    settings = [("one", 1, 1), ("two", 2, 1), ("cut", 2, 3)]
    processes = [start(tmp_path / name, ranks=ranks, accumulate=pieces) for name, ranks, pieces in settings]
    for process in processes:
        code, said = finish(process)
        assert code == 0, said
    expected = weights(tmp_path / "one")
    for name in ("two", "cut"):
        torch.testing.assert_close(weights(tmp_path / name), expected, atol=1e-6, rtol=1e-5)
        assert torch.equal(weights(tmp_path / name, 0), weights(tmp_path / name, 1))
        for mine, theirs in zip(metrics(tmp_path / name), metrics(tmp_path / "one"), strict=True):
            for key in ("total", "nll", "kl", "accuracy"):
                assert mine[key] == pytest.approx(theirs[key], rel=1e-5), key


def test_a_rank_that_dies_ends_the_others_and_the_run_goes_on(tmp_path: Path) -> None:
    whole = start(tmp_path / "whole", "bbb", 2)
    process = start(tmp_path / "run", "bbb", 2, pause=True)
    note = tmp_path / "run.rank1"
    while not note.exists() or not note.read_text():
        time.sleep(0.1)
        assert process.poll() is None
    killed_at = time.monotonic()
    os.kill(int(note.read_text()), signal.SIGKILL)
    # The first rank is waiting for the other's gradient.
    code, said = finish(process, 60)
    assert code == 1
    assert "rank 0 has lost another rank" in said
    assert time.monotonic() - killed_at < 60
    assert finish(whole)[0] == 0
    code, said = finish(start(tmp_path / "run", "bbb", 2))
    assert code == 0, said
    assert torch.equal(weights(tmp_path / "run"), weights(tmp_path / "whole"))
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == (tmp_path / "whole" / "metrics.jsonl").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [1, 0])
def test_a_rank_that_is_stopped_is_named_and_the_others_end(stopped: int, tmp_path: Path) -> None:
    """Stopped, not dead: nothing breaks, so the other ranks wait; for no longer than they were told to."""
    process = start(tmp_path / "run", "bbb", 2, pause=True, pause_rank=stopped, timeout=10.0)
    note = tmp_path / f"run.rank{stopped}"
    while not note.exists() or not note.read_text():
        time.sleep(0.1)
        assert process.poll() is None
    silent = int(note.read_text())
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


def test_ranks_with_statistics_of_their_own_stop_together(tmp_path: Path) -> None:
    """BatchNorm differs between ranks, so does what each would measure: the first rank's numbers count."""
    process = start(tmp_path / "run", "map", 2, normalised=True)
    code, said = finish(process, 60)
    assert code == 0, said
    assert torch.equal(weights(tmp_path / "run", 0), weights(tmp_path / "run", 1))
    assert 1 < len(metrics(tmp_path / "run")) < 60


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
