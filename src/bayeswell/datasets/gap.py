"""A curve with a gap in its training inputs: what a posterior should say where there are no data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from ..errors import require_between
from ..random import make_generator
from .bundled import check_seed
from .data import Raw

TRAIN, TEST = 120, 300
LOW, HIGH = -1.0, 1.0
"""Between these there is no training input."""
_EDGE = 3.0


@dataclass(frozen=True)
class Gap:
    """y = sin(2x) + noise: training inputs in [-3, -1] and [1, 3] only, test inputs in all of [-3, 3].

    A third of the test lies in the gap, where only wide bands are honest. ``noise`` is the std of the noise, ``split``
    the seed of inputs and noise.
    """

    noise: float = 0.1
    split: int = 0

    name: ClassVar[str] = "gap"
    paper: ClassVar[str] = "in the manner of Foong, Li, Hernández-Lobato & Turner 2019, arXiv 1906.11537"
    examples: ClassVar[str] = "420 rows, 1 feature, 1 real target"
    source: ClassVar[str] = "bundled"

    def __post_init__(self) -> None:
        require_between(self.name, "noise", self.noise, 0, 1, open_low=True)
        check_seed(self.name, self.split)

    def read(self, folder: Path | None) -> Raw:
        """The same numbers for the same settings, on every machine: nothing is read."""
        generator = make_generator(self.split)

        def uniform(count: int) -> Tensor:
            return torch.rand(count, 1, generator=generator, dtype=torch.float64)

        def targets(inputs: Tensor) -> Tensor:
            drawn = torch.randn(inputs.shape, generator=generator, dtype=torch.float64)
            return (2 * inputs).sin() + self.noise * drawn

        away = HIGH + (_EDGE - HIGH) * uniform(TRAIN)
        side = torch.arange(TRAIN).remainder(2).mul(2).sub(1).unsqueeze(1)  # one left of the gap, one right of it
        train, test = away * side, 2 * _EDGE * uniform(TEST) - _EDGE
        return Raw(
            self.name, "table", (train, targets(train)), (test, targets(test)), None, columns=("x",), target_name="y"
        )
