"""Training and evaluation mode, left as they were found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .contracts import Drawable


@contextmanager
def evaluation_mode(model: Drawable) -> Iterator[None]:
    """Evaluation mode inside the block; afterwards each submodule has the mode it had before."""
    # Not train(True) on the way out: a user may keep, say, one batch norm in evaluation mode.
    before = [(module, module.training) for module in model.modules()]
    try:
        model.train(False)
        yield
    finally:
        for module, training in before:
            module.training = training
