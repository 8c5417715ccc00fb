"""Disturb training runs: whatever happens, nothing may be lost.

python tools/survive.py [--quick | --seconds 600] [--seed 0]

Each try disturbs a small run of one of eight methods, takes the disturbance away and resumes. The resumed run must end
with the model and the history of an undisturbed run, bit for bit. Disturbances: SIGKILL at random times and at random
changes of files, SIGTERM, a full disk, and flipped bits in saved files. A flipped bit must be refused by name, or make
no difference.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

import bayeswell as bw
from bayeswell.core.errors import FileError
from bayeswell.training import RunFolder

METHODS: dict[str, dict[str, Any]] = {
    "map": {},
    "bbb": {},
    "k-tied": {},
    "hwa": {},
    "swag": {"averaging": {"start": 0.4}},
    "sghmc": {},
    "ivon": {},
    "deep-ensemble": {"members": 2},
}
EPOCHS, EVERY_STEPS, LIMIT_SECONDS = 5, 3, 60.0
REFUSED, FAILED, TERMINATED = 3, 70, 128 + signal.SIGTERM
CHANGES = frozenset({"os.rename", "os.remove", "os.mkdir", "os.rmdir"})
Disturb = Callable[[], None]


def data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(46, 3, generator=generator)
    return x, (x[:, 0] > x[:, 1]).long()


def network() -> nn.Module:
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 2))


def train(folder: Path, method: str) -> str:
    """Begin or resume the run, and return a digest of its model and history."""
    warnings.simplefilter("ignore")
    result = bw.fit(
        network(),
        data(),
        method,
        epochs=EPOCHS,
        batch_size=10,
        folder=RunFolder(folder, every_steps=EVERY_STEPS),
        resume=True,
        progress=False,
        **METHODS[method],
    )
    history = [record.values() for one in result.histories for record in one.epochs]
    digest = hashlib.sha256(json.dumps([_without_time(record) for record in history]).encode())
    digest.update((folder / "model" / "tensors.safetensors").read_bytes())
    return digest.hexdigest()


def _without_time(record: Any) -> dict[str, Any]:
    return {key: value for key, value in sorted(dict(record).items()) if key != "seconds"}


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit code (negative: the signal), and the digest or the error."""

    code: int
    said: str


@dataclass
class Child:
    """A forked process that begins or resumes a run; a new interpreter would first import torch for seconds."""

    pid: int
    said: Path

    @classmethod
    def start(cls, folder: Path, method: str, disturb: Disturb | None = None) -> Child:
        said = folder.with_suffix(".said")
        said.unlink(missing_ok=True)
        pid = os.fork()
        if pid:
            return cls(pid, said)
        code, text = FAILED, ""
        try:
            # Written before a disturbance limits the size of files.
            output = os.open(said, os.O_WRONLY | os.O_CREAT)
            if disturb is not None:
                disturb()
            code, text = 0, train(folder, method)
        except FileError as error:
            code, text = REFUSED, str(error)
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else FAILED
        except BaseException:
            text = traceback.format_exc()
        os.write(output, text.encode())
        os._exit(code)

    def wait(self, seconds: float = LIMIT_SECONDS) -> Ended | None:
        """Return how it ended; None if it still runs after these seconds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            if found:
                said = self.said.read_text() if self.said.exists() else ""
                return Ended(os.waitstatus_to_exitcode(status), said)
            time.sleep(0.002)
        return None

    def stop(self, number: signal.Signals) -> Ended:
        """Send a signal and return how it ended; a process that hangs is killed."""
        os.kill(self.pid, number)
        ended = self.wait(LIMIT_SECONDS)
        if ended is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            return Ended(FAILED, "hung")
        return ended


def run(folder: Path, method: str, disturb: Disturb | None = None) -> Ended:
    """Begin or resume a run and wait for its end."""
    child = Child.start(folder, method, disturb)
    ended = child.wait()
    return child.stop(signal.SIGKILL) if ended is None else ended


@dataclass(frozen=True)
class Whole:
    """An undisturbed run: its folder, digest and duration, and how often it changed files."""

    folder: Path
    digest: str
    seconds: float
    changes: int


@dataclass
class Bench:
    """The scratch folder, random numbers, and the undisturbed run of each method."""

    scratch: Path
    dice: random.Random
    wholes: dict[str, Whole] = field(default_factory=dict)

    def whole(self, method: str) -> Whole:
        if method not in self.wholes:
            folder = self.scratch / f"whole-{method}"
            counter = self.scratch / "changes"
            began = time.monotonic()
            ended = run(folder, method, lambda: _at_change(lambda number: counter.write_text(str(number))))
            if ended.code:
                raise SystemExit(f"survive: the undisturbed run of {method} failed: {ended.said}")
            self.wholes[method] = Whole(folder, ended.said, time.monotonic() - began, int(counter.read_text()))
        return self.wholes[method]

    def fresh(self) -> Path:
        folder = self.scratch / "run"
        shutil.rmtree(folder, ignore_errors=True)
        return folder

    def resumed(self, folder: Path, method: str) -> str:
        """Resume a run and return what is wrong with its end; nothing if it is the undisturbed one."""
        ended = run(folder, method)
        if ended.code:
            return f"cannot be resumed (code {ended.code}): {ended.said[-600:]}"
        return "" if ended.said == self.whole(method).digest else "ended with another model or history"


def _at_change(function: Callable[[int], object]) -> None:
    """Call the function with the number of each change of files that follows in this process."""
    count, inside = 0, False

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count, inside
        writes = event == "open" and isinstance(arguments[1], str) and arguments[1][0] in "wax"
        if not inside and (writes or event in CHANGES):
            inside, count = True, count + 1
            function(count)
            inside = False

    sys.addaudithook(hook)


def killed_at_times(bench: Bench, method: str) -> Iterator[str]:
    """SIGKILL at three random times of one run."""
    folder, whole = bench.fresh(), bench.whole(method)
    for _ in range(3):
        child = Child.start(folder, method)
        if child.wait(bench.dice.uniform(0, 0.8 * whole.seconds)) is None:
            child.stop(signal.SIGKILL)
    yield bench.resumed(folder, method)


def killed_at_changes(bench: Bench, method: str) -> Iterator[str]:
    """SIGKILL at a random change of files, of a new run and of the resumed one."""
    folder, whole = bench.fresh(), bench.whole(method)
    for share in (1.0, 0.5):
        last = bench.dice.randint(1, max(1, int(share * whole.changes)))

        def kill(number: int, last: int = last) -> None:
            if number == last:
                os.kill(os.getpid(), signal.SIGKILL)

        run(folder, method, lambda: _at_change(kill))
    yield bench.resumed(folder, method)


def terminated(bench: Bench, method: str) -> Iterator[str]:
    """SIGTERM: the run saves its state and ends with 128 + 15."""
    folder, whole = bench.fresh(), bench.whole(method)
    child = Child.start(folder, method)
    if child.wait(bench.dice.uniform(0.1, 0.7) * whole.seconds) is None:
        ended = child.stop(signal.SIGTERM)
        # Before and after training the signal ends the process as usual.
        if ended.code not in (0, TERMINATED, -signal.SIGTERM):
            yield f"SIGTERM ended it with code {ended.code}: {ended.said[-600:]}"
    yield bench.resumed(folder, method)


def full_disk(bench: Bench, method: str) -> Iterator[str]:
    """No file can grow beyond some size: the run ends with a FileError and can be resumed."""
    folder, whole = bench.fresh(), bench.whole(method)
    sizes = [path.stat().st_size for path in whole.folder.rglob("*") if path.is_file()]
    size = bench.dice.randint(0, max(sizes) - 1)
    if bench.dice.random() < 0.5:
        child = Child.start(folder, method)
        if child.wait(0.5 * whole.seconds) is None:
            child.stop(signal.SIGKILL)
    ended = run(folder, method, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)))
    if ended.code not in (0, REFUSED):
        yield f"a full disk (files up to {size} bytes) ended it with code {ended.code}: {ended.said[-600:]}"
    yield bench.resumed(folder, method)


def flipped_bit(bench: Bench, method: str) -> Iterator[str]:
    """One bit of a random file of a finished run: resuming refuses it, or ends alike; so does loading the model."""
    folder, whole = bench.fresh(), bench.whole(method)
    shutil.copytree(whole.folder, folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    path = bench.dice.choice(files)
    content = bytearray(path.read_bytes())
    place = bench.dice.randrange(8 * len(content))
    content[place // 8] ^= 1 << place % 8
    path.write_bytes(content)
    what = f"bit {place} of {path.relative_to(folder)}"
    if path.parent.name == "model":
        with contextlib.suppress(FileError):
            bw.load(folder / "model", network())
            yield f"{what}: the model was loaded"
        return
    ended = run(folder, method)
    alike = ended.code == 0 and ended.said == whole.digest
    yield "" if alike or ended.code == REFUSED else f"{what}: code {ended.code}: {ended.said[-600:]}"


KINDS: dict[str, Callable[[Bench, str], Iterator[str]]] = {
    "killed at random times": killed_at_times,
    "killed at file changes": killed_at_changes,
    "terminated": terminated,
    "full disk": full_disk,
    "flipped bit": flipped_bit,
}


def main() -> int:
    """Return 1 if anything was lost."""
    parser = argparse.ArgumentParser(description="Disturb training runs; nothing may be lost.")
    parser.add_argument("--quick", action="store_true", help="less than one minute")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    end = time.monotonic() + (40.0 if options.quick else options.seconds)
    tries: Counter[str] = Counter()
    lost: list[str] = []
    with tempfile.TemporaryDirectory(prefix="survive-") as scratch:
        train(Path(scratch) / "warm-up", "map")  # imports, which forked processes would have to repeat
        bench = Bench(Path(scratch), random.Random(options.seed))
        number = 0
        while time.monotonic() < end:
            # Every kind meets every method within 40 tries.
            kind, method = list(KINDS)[number % len(KINDS)], list(METHODS)[number % len(METHODS)]
            faults = [fault for fault in KINDS[kind](bench, method) if fault]
            lost += [f"try {number}, {kind}, {method}: {fault}" for fault in faults]
            tries[kind] += 1
            number += 1
    for kind in KINDS:
        print(f"{kind:24} {tries[kind]:5} tries, {sum(f', {kind}, ' in line for line in lost)} lost")
    print("\n".join(lost) or "nothing was lost")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
