"""A likelihood that looks at the targets before it uses them."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ..types import Likelihood


class CheckedLikelihood:
    """Checks the targets against the outputs of the first pass of a step, then is the likelihood itself."""

    name: ClassVar[str] = "checked"

    def __init__(self, likelihood: Likelihood) -> None:
        self._likelihood = likelihood
        self._checked = False

    def check(self, targets: Tensor, outputs: Tensor) -> None:
        """As the likelihood's own."""
        self._likelihood.check(targets, outputs)

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """As the likelihood's own, after one check."""
        if not self._checked:
            self._likelihood.check(targets, outputs)
            self._checked = True
        return self._likelihood.nll(outputs, targets)

    def sample_targets(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        """As the likelihood's own."""
        return self._likelihood.sample_targets(outputs, generator)

    def curvature_root(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        """As the likelihood's own."""
        return self._likelihood.curvature_root(outputs, generator)
