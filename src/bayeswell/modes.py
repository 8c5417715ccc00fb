"""Training and evaluation mode, left as they were found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from torch import nn

from .guards import guarded


class HasModes(Protocol):
    """An ``nn.Module``, or what has its modes."""

    def train(self, mode: bool = True) -> Any:
        """As in ``nn.Module``."""
        ...

    def modules(self) -> Iterator[nn.Module]:
        """As in ``nn.Module``."""
        ...


@contextmanager
def evaluation_mode(model: HasModes) -> Iterator[None]:
    """Evaluation mode inside the block; afterwards each submodule has the mode it had before.

    The model's guard is held: no other thread uses it within the block, or sees it in the wrong mode.
    """
    with guarded(model):
        # Not train(True) on the way out: a user may keep, say, one batch norm in evaluation mode.
        before = [(module, module.training) for module in model.modules()]
        try:
            if any(training for _, training in before):  # to set an attribute of a module takes long
                model.train(False)
            yield
        finally:
            for module, training in before:
                if module.training is not training:
                    module.training = training
