"""Flip bits in the files of a run and of a saved model, one at a time, and see that each is noticed.

    python tools/bit_flips.py                     every bit of files under 100 kB, 20,000 of each larger one
    python tools/bit_flips.py --every 37          every 37th bit, and as many fewer of the larger ones
    python tools/bit_flips.py --folder RUN        of a run, or a saved model, that is there already (it is copied)

Each file is read by the function that the commands read it with. A flip is *refused* if that raises an error of
bayeswell that names the file, *remade* if the file is not used then but found again (and `bayeswell verify` names it),
and *silent* otherwise; the exit code is 1 if any is.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import bayeswell as bw
from bayeswell.experiments import DataSpec, Experiment, experiment_of, finished_result, inspect_run, inspection_of, run
from bayeswell.experiments.verifying import verdicts
from bayeswell.persistence import read_document
from bayeswell.persistence.manifest import MANIFEST
from bayeswell.training import CSVLogger
from bayeswell.training.run_folder import RunFolder

SMALL, FLIPS_OF_LARGE = 100_000, 20_000
Reader = Callable[[], Any]


class Cut(bw.Callback):
    """Ends a run in the middle."""

    def after_step(self, run: bw.Run) -> None:
        if run.epoch == 2:
            raise KeyboardInterrupt


@dataclass
class Row:
    """What became of the flips of one class of files."""

    flips: int = 0
    refused: int = 0
    remade: int = 0
    silent: int = 0


def digits(**changes: Any) -> Experiment:
    """A short run with everything that leaves files: traces of training, and an inspection."""
    settings = {"method": "bbb", "data": "digits", "epochs": 4, "draws": 5, "batch_size": 200, "diagnose": True}
    return Experiment(**{**settings, **changes})


def finished_run(folder: Path, **changes: Any) -> Path:
    """A finished run with its inspection and a table."""
    run(digits(**changes), folder, checkpoint_steps=8, loggers=[CSVLogger(folder / "metrics.csv")], progress=False)
    inspect_run(folder)
    return folder


def unfinished_run(folder: Path) -> Path:
    """A run that was cut off."""
    try:
        loggers = [CSVLogger(folder / "metrics.csv"), Cut()]
        run(digits(diagnose=False), folder, checkpoint_steps=4, loggers=loggers, progress=False)
    except KeyboardInterrupt:
        return folder
    raise RuntimeError("the run was not cut off")


def saved_model(folder: Path) -> Path:
    """A model saved by itself."""
    torch.manual_seed(0)
    x = torch.randn(60, 4)
    bw.fit(torch.nn.Linear(4, 3), (x, x[:, :3].argmax(1)), "bbb", epochs=1, progress=False).save(folder)
    return folder


def reader_of(root: Path, file: Path) -> tuple[str, Reader] | None:
    """The class of a file, and what reads it; None if it holds nothing."""
    name, place = file.name, file.parent
    if file.stat().st_size == 0:
        return None
    if (place / MANIFEST).exists():
        kind = "checkpoint" if place.parent.name == "checkpoints" else "model"
        read: Reader = lambda: bw.load(place)  # noqa: E731
        if kind == "checkpoint":
            folder = RunFolder(place.parent.parent)
            read = lambda: folder.checkpoints.require(place, folder.identity())  # noqa: E731
        return f"{kind}/{name}", read
    readers: dict[str, Reader] = {
        "config.json": lambda: experiment_of(place),
        "newest.json": lambda: RunFolder(place).newest_name(),
        "metrics.jsonl": lambda: RunFolder(place).epochs(),
        "data.json": lambda: DataSpec.read(place),
        "result.json": lambda: finished_result(place),
        "seals.json": lambda: finished_result(place),
        "inspection.json": lambda: inspection_of(place),
        "records.json": lambda: read_document(file, users=True),
    }
    return name, readers.get(name, lambda: None)


def bits_of(size: int, every: int, rng: random.Random) -> Iterator[int]:
    """Which bits of a file of so many bytes are flipped."""
    if size <= SMALL:
        return iter(range(rng.randrange(every), 8 * size, every))
    return iter(sorted(rng.sample(range(8 * size), max(1, FLIPS_OF_LARGE // every))))


def flip_all(root: Path, every: int, rng: random.Random) -> dict[str, Row]:
    """Flip bits of all files in a folder, one at a time, and put each back."""
    table: dict[str, Row] = {}
    for file in sorted(path for path in root.rglob("*") if path.is_file()):
        found = reader_of(root, file)
        if found is None:
            continue
        kind, read = found
        row = table.setdefault(kind, Row())
        good = read()
        descriptor = os.open(file, os.O_RDWR)
        try:
            for bit in bits_of(file.stat().st_size, every, rng):
                _flip(descriptor, bit)
                outcome = _noticed(root, file, read, good)
                _flip(descriptor, bit)
                row.flips += 1
                setattr(row, outcome, getattr(row, outcome) + 1)
                if outcome == "silent":
                    print(f"silent: bit {bit} of {file.relative_to(root)}")
        finally:
            os.close(descriptor)
    return table


def _flip(descriptor: int, bit: int) -> None:
    byte = os.pread(descriptor, 1, bit // 8)[0]
    os.pwrite(descriptor, bytes([byte ^ (1 << bit % 8)]), bit // 8)


def _noticed(root: Path, file: Path, read: Reader, good: Any) -> str:
    """What the reader made of the file."""
    try:
        found = read()
    except bw.BayeswellError as error:
        return "refused" if file.name in str(error) and "\n" not in str(error) else "silent"
    # Not used: either measured anew (an inspection), or never read at all (a table for spreadsheets).
    if (found is None) and any(file.name in verdict.fault for verdict in verdicts(root)):
        return "remade"
    return "silent"


def main(arguments: list[str]) -> int:
    """Flip, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="flip every so-manieth bit")
    parser.add_argument("--folder", type=Path, help="a run or a saved model")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rng = random.Random(options.seed)
    silent = 0
    with tempfile.TemporaryDirectory() as scratch:
        made = {"finished run": finished_run, "unfinished run": unfinished_run, "saved model": saved_model}
        if options.folder is not None:
            made = {options.folder.name: lambda folder: Path(shutil.copytree(options.folder, folder, symlinks=True))}
        print(f"{'in':<16}{'file':<34}{'flips':>9}{'refused':>9}{'remade':>9}{'silent':>9}   (seed {options.seed})")
        for name, make in made.items():
            for kind, row in flip_all(make(Path(scratch, name)), options.every, rng).items():
                numbers = f"{row.flips:>9}{row.refused:>9}{row.remade:>9}{row.silent:>9}"
                print(f"{name:<16}{kind:<34}{numbers}", flush=True)
                silent += row.silent
    print(f"{silent} silent")
    return 1 if silent else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
