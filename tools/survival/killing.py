"""Runs made in Python: killed at random moments, and with damaged checkpoints. The tests use these functions too."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.persistence.manifest import RECORD, TENSORS
from bayeswell.training.run_folder import METRICS

METHODS = ("bbb", "swag", "hwa", "sgld", "f-sgvb")


def train(folder: Path, method: str) -> None:
    """A short run on digits with dropout and shuffling, a checkpoint after every second step."""
    warnings.simplefilter("ignore")
    inputs, targets = digits()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 10))
    where = bw.RunFolder(folder, resume=True, checkpoint_steps=2)
    result = bw.fit(net, (inputs, targets), method, epochs=8, batch_size=200, folder=where, progress=False)
    result.save(folder / "model")


def digits() -> tuple[Tensor, Tensor]:
    """The training part of the digits data."""
    from bayeswell.datasets import digits as load

    split = load()
    return split.train_inputs, split.train_targets


def outcome(folder: Path) -> dict[str, bytes]:
    """The bytes of the metrics, of the newest checkpoint and of the model, by name."""
    newest = bw.RunFolder(folder).checkpoints.paths()[-1]
    files = [folder / METRICS, *sorted((folder / "model").iterdir())]
    found = {str(path.relative_to(folder)): path.read_bytes() for path in files}
    return {**found, **{f"{newest.name}/{name}": data for name, data in saved_state(newest).items()}}


def saved_state(checkpoint: Path) -> dict[str, bytes]:
    """The bytes of a checkpoint's tensors and record, without what says of which run it is."""
    record = json.loads((checkpoint / RECORD).read_bytes())
    record.pop("run")
    return {TENSORS: (checkpoint / TENSORS).read_bytes(), RECORD: json.dumps(record).encode()}


def kill_at_random(
    folder: Path, method: str, kills: int, seconds: float, rng: random.Random, work: Callable[[Path, str], None] = train
) -> int:
    """Run to the end, killed ``kills`` times on the way at random moments; how many kills hit a running process."""
    # Forked: a process that has to import torch first would spend its life importing.
    context = multiprocessing.get_context("fork")
    hits = 0
    for _ in range(kills):
        process = context.Process(target=work, args=(folder, method))
        process.start()
        process.join(rng.uniform(0, seconds))
        if process.is_alive() and process.pid is not None:
            os.kill(process.pid, signal.SIGKILL)
            hits += 1
        process.join()
    process = context.Process(target=work, args=(folder, method))
    process.start()
    process.join()
    if process.exitcode != 0:
        raise RuntimeError(f"{method}: the run that went on ended with code {process.exitcode}")
    return hits


def whole_run(folder: Path, method: str) -> tuple[dict[str, bytes], float]:
    """What a run that is never cut off ends with, and how long it takes."""
    began = time.monotonic()
    kill_at_random(folder, method, 0, 0.0, random.Random(0))
    return outcome(folder), time.monotonic() - began


def damage(data: bytes, rng: random.Random, kind: str) -> bytes:
    """The bytes with one random bit flipped ("flip"), or cut at a random length ("cut")."""
    if kind == "cut":
        return data[: rng.randrange(len(data))]
    changed = bytearray(data)
    place = rng.randrange(8 * len(data))
    changed[place // 8] ^= 1 << (place % 8)
    return bytes(changed)


def silent_damages(folder: Path, count: int, kind: str, rng: random.Random) -> int:
    """Damage one random file of the newest checkpoint ``count`` times; how often it was read as if nothing were."""
    checkpoints = bw.RunFolder(folder).checkpoints
    older, newest = checkpoints.paths()[-2:]
    good = _state_of(checkpoints, older)
    silent = 0
    for _ in range(count):
        kept = folder / "kept"
        shutil.copytree(newest, kept)
        victim = newest / rng.choice(sorted(path.name for path in newest.iterdir()))
        victim.write_bytes(damage(victim.read_bytes(), rng, kind))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found = checkpoints.newest()
        # Found out, told of, and the checkpoint before it taken instead.
        told = any(newest.name in str(note.message) for note in said)
        silent += not (told and found is not None and repr(found) == good)
        for path in (newest, newest.with_name(f"damaged-{newest.name}")):
            shutil.rmtree(path, ignore_errors=True)
        kept.rename(newest)
    return silent


def _state_of(checkpoints: Any, path: Path) -> str:
    return repr(checkpoints.read(path))
