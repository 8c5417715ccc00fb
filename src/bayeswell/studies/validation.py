"""A study tried without being run: every cell is put together and takes one step, at the scale it will have."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from ..datasets import data_status
from ..errors import BayeswellError
from ..experiments import Experiment
from ..experiments.dry_run import take_one_step
from .definition import Study

_SHAPES: Mapping[str, tuple[tuple[int, ...], int]] = {
    "mnist": ((1, 28, 28), 10), "fashion_mnist": ((1, 28, 28), 10), "cifar10": ((3, 32, 32), 10),
    "cifar100": ((3, 32, 32), 100), "svhn": ((3, 32, 32), 10),
}  # fmt: skip
"""Image sets that may be absent: noise of their shape takes one step as well."""
_STAND_IN_BATCHES = 20


def validate_study(study: Study, scale: str, told: Callable[[str, str], None] | None = None) -> dict[str, str]:
    """What is wrong with each cell that cannot take a step, by its name; empty if all can.

    An image set that is not on this machine is stood in for by noise; the second argument of ``told`` says so.
    """
    faults: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, cell in enumerate(study.scale(scale).cells):
            experiment, note = _present(cell.experiment, Path(folder))
            try:
                said = (
                    f"one step{note}" if take_one_step(experiment, Path(folder) / str(number)) else "nothing to train"
                )
            except BayeswellError as error:
                faults[cell.name] = said = str(error)
            if told is not None:
                told(cell.name, said)
    return faults


def _present(experiment: Experiment, folder: Path) -> tuple[Experiment, str]:
    """The experiment, on noise where its images are absent."""
    data = experiment.data
    assert isinstance(data, Mapping)
    name = str(data["name"])
    if name not in _SHAPES or data_status(dict(data)) != "absent":
        return experiment, ""
    shape, classes = _SHAPES[name]
    count = max(_STAND_IN_BATCHES * (experiment.batch_size or 100), 2 * classes)
    path = folder / f"{name}-{count}.npz"
    if not path.exists():
        rng = np.random.default_rng(0)
        labels = np.arange(count) % classes
        np.savez(path, x=rng.random((count, *shape), dtype=np.float32), y=labels)
    held_out = experiment.validation
    share = 0.1 if held_out else None
    changes = {"data": {"name": "npz", "path": str(path)}, "validation": share, "ood": None, "train_size": None}
    return experiment.changed(changes), f" (on noise: {name} is not on this machine)"
