"""Looking at data before they are used."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..errors import DataError
from ..finite import first_not_finite
from ..likelihoods import check_targets
from ..nested import leaves
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
    for place, leaf in leaves(value, name):
        if isinstance(leaf, Tensor) and leaf.is_floating_point():
            index = first_not_finite(leaf)
            if index is not None:
                raise DataError(f"NaN or inf in {place}, first at index {index}; no step was taken")
