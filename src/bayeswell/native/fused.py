"""The formulas in torch's operations, made into few kernels where that is what they cost.

On an accelerator each operation reads and writes whole vectors of its memory, as on a CPU; ``torch.compile`` makes one
kernel of a formula there, as the compiled formulas of this room are one pass here. Which it is depends on the device
alone. Where torch cannot compile (no Triton) it is said once, and the operations run one by one.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..errors import BayeswellWarning
from .library import transformed

FUSED_DEVICES = {"cuda", "xpu"}
"""For which torch.compile writes kernels."""
BACKEND = "inductor"

F = TypeVar("F", bound=Callable[..., Any])


def fused(formula: F) -> F:
    """The formula, of which the first argument says by its device how it is computed."""
    made: dict[str, Any] = {}

    @functools.wraps(formula)
    def chosen(first: Tensor, *others: Any) -> Any:
        # Not where gradients are recorded: then every operation is to be seen.
        if first.device.type not in FUSED_DEVICES or transformed() or torch.is_grad_enabled():
            return formula(first, *others)
        compiled = made.get(BACKEND)
        if compiled is None:
            compiled = made[BACKEND] = torch.compile(formula, backend=BACKEND, dynamic=False, fullgraph=True)
        try:
            return compiled(first, *others)
        except Exception as error:  # of many kinds: a compiler that is missing, or too old
            if compiled is formula:
                raise
            made[BACKEND] = formula
            reason = " ".join(str(error).split())[:160]
            note = f"torch.compile cannot make kernels for {first.device} ({type(error).__name__}: {reason})"
            warnings.warn(BayeswellWarning(f"{note}; steps run operation by operation"), stacklevel=2)
            return formula(first, *others)

    return chosen  # type: ignore[return-value]
