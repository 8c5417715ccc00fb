"""Two optimizers that step as one: means moved by one, stds by another (Book 2020, section 5.4 varies their rates)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

import torch
from torch.optim import Optimizer

from ..eager import Eager
from ..errors import CompositionError

_PLAIN = {"state", "param_groups"}


class OptimizersTogether(Eager, Optimizer):
    """Optimizers of different parameters as one: their groups one behind the other, their state in one place.

    Each takes the step that it would take alone. So ``state_dict`` is that of any optimizer. One that keeps more than
    groups and state of parameters (a sampler's generator) is refused.
    """

    def __init__(self, parts: Sequence[Optimizer]) -> None:
        for part in parts:
            more = sorted(part.state_dict().keys() - _PLAIN)
            if more:
                raise CompositionError(
                    f"{type(part).__name__} cannot move some parameters beside another optimizer: it keeps {more} of "
                    "the whole step; use 'sgd', 'adam' or its kin"
                )
        super().__init__([group for part in parts for group in part.param_groups], {})
        self._parts = list(parts)
        self._share()

    def _share(self) -> None:
        """Let each part see its own groups, and the state of all."""
        at = 0
        for part in self._parts:
            count = len(part.param_groups)
            part.param_groups = self.param_groups[at : at + count]
            part.state = self.state
            at += count

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """One step of each."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self._parts:
            part.step()
        return loss

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """As every optimizer's; the parts go on from it."""
        super().load_state_dict(dict(state_dict))
        self._share()
