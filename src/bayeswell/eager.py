"""torch's optimizers without torch's compiler, which they import at their first call: longer than ``import torch``.

Each of their methods is wrapped so that ``torch.compile`` leaves it alone, and the wrapper imports the compiler
(``torch._dynamo``, with sympy and more) even where nothing is compiled. Here are the same methods without the wrapper:
the same numbers, bit for bit. Whoever has imported the compiler gets torch's own classes.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch.optim import Optimizer

KindT = TypeVar("KindT", bound=Optimizer)


class Eager:
    """Before ``Optimizer`` among the bases of a class: its methods as they were written."""

    add_param_group = inspect.unwrap(Optimizer.add_param_group)
    zero_grad = inspect.unwrap(Optimizer.zero_grad)
    state_dict = inspect.unwrap(Optimizer.state_dict)
    load_state_dict = inspect.unwrap(Optimizer.load_state_dict)


def _step(kind: type[Optimizer]) -> Callable[..., Any]:
    """The step of a class, with the gradient mode that its wrapper sees to."""
    bare = inspect.unwrap(kind.step)

    @functools.wraps(bare)
    def step(self: Optimizer, closure: Callable[[], float] | None = None) -> Any:
        with torch.set_grad_enabled(self.defaults["differentiable"]):
            return bare(self, closure)

    return step


class SGD(Eager, torch.optim.SGD):
    """torch's."""

    step = _step(torch.optim.SGD)


class Adam(Eager, torch.optim.Adam):
    """torch's."""

    step = _step(torch.optim.Adam)


class AdamW(Eager, torch.optim.AdamW):
    """torch's."""

    step = _step(torch.optim.AdamW)


class RAdam(Eager, torch.optim.RAdam):
    """torch's."""

    step = _step(torch.optim.RAdam)


class LBFGS(Eager, torch.optim.LBFGS):
    """torch's; its step is not wrapped."""


_EAGER: dict[str, type[Optimizer]] = {kind.__name__: kind for kind in (SGD, Adam, AdamW, RAdam, LBFGS)}


def eager(kind: type[KindT]) -> type[KindT]:
    """The class without the compiler, if that is not there already."""
    return kind if "torch._dynamo" in sys.modules else cast(type[KindT], _EAGER[kind.__name__])
