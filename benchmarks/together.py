"""Whole trainings side by side over the same one after another: an ensemble's members, a comparison's runs.

All have one thread, so that two of them keep two cores busy; what they give is the same to the bit either way.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

import bayeswell as bw

from .nets import NETS
from .timing import Case

ALONE, TOGETHER = "one after another", "side by side"
AT_A_TIME = 2
MEMBERS = 5
"""... of which two processes share the third."""
METHODS, SEEDS = ("map", "bbb", "k-tied", "swag"), 2
"""Eight runs."""
EXAMPLES, EPOCHS = 4000, 10


def _data() -> tuple[Tensor, Tensor]:
    net = NETS["lenet"]
    labels = torch.randint(0, net.outputs, (EXAMPLES,), generator=torch.Generator().manual_seed(0))
    return net.inputs(EXAMPLES), labels


def ensemble(workers: int, epochs: int = EPOCHS) -> Tensor:
    """Train a deep ensemble of LeNet-5; its networks as rows."""
    result = bw.fit(
        NETS["lenet"].build(), _data(), "deep-ensemble", members=MEMBERS, epochs=epochs, batch_size=100,
        workers=workers, progress=False,
    )  # fmt: skip
    networks = [result.model.posterior.member(index) for index in range(MEMBERS)]
    return torch.stack([result.model.layout.flatten(one) for one in networks])


def comparison(workers: int, epochs: int = EPOCHS // 2) -> list[float]:
    """Compare four methods with two seeds on LeNet-5; their test NLLs."""
    with tempfile.TemporaryDirectory() as folder:
        found = bw.compare(
            "lenet5", _data(), METHODS, seeds=SEEDS, epochs=epochs, batch_size=100, draws=10, workers=workers,
            folder=Path(folder) / "runs",
        )  # fmt: skip
        return [row["nll"] for row in found.table]


def cases(work: Callable[[int], object]) -> list[Case]:
    """Long enough to be timed alone, in turns."""
    ways = ((ALONE, 1), (TOGETHER, AT_A_TIME))
    return [Case(name, lambda number=number: partial(work, number), calls=1, settle=0) for name, number in ways]


def ensemble_cases() -> list[Case]:
    """Members."""
    return cases(ensemble)


def comparison_cases() -> list[Case]:
    """Runs."""
    return cases(comparison)
