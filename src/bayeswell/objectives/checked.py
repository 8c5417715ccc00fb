"""Looking at data before they are used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ..errors import DataError
from ..finite import all_finite
from ..likelihoods import check_targets
from ..types import Likelihood


class CheckedLikelihood:
    """Checks the targets against the outputs of the first pass of a step, then is the likelihood itself."""

    def __init__(self, likelihood: Likelihood) -> None:
        self._likelihood = likelihood
        self._checked = False

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """As the likelihood's own, after one check."""
        if not self._checked:
            check_targets(self._likelihood, targets, outputs)
            self._checked = True
        return self._likelihood.nll(outputs, targets)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._likelihood, name)


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
