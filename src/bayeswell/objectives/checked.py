"""Looking at data before they are used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import DataError
from ..finite import all_finite
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


def require_finite(name: str, value: Any) -> None:
    """Refuse NaN and inf in a tensor, or in any tensor of a tuple, list or mapping, naming the first place."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            require_finite(f"{name}['{key}']", part)
    elif isinstance(value, tuple | list):
        for position, part in enumerate(value):
            require_finite(f"{name}[{position}]", part)
    elif isinstance(value, Tensor) and value.is_floating_point() and not all_finite([value]):
        place = tuple((~value.isfinite()).nonzero()[0].tolist())
        raise DataError(f"NaN or inf in {name}, first at index {place}; no step was taken")
