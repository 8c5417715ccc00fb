"""Everything of a run on torch's meta device, which has shapes and no numbers.

Reading a number there raises, and so does an operation between it and another device: what runs on it waits for no
accelerator and leaves none. A CPU tensor that is made by the way would not raise; ``OnlyMeta`` does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bayeswell import finite
from bayeswell.methods import Assembly

META = "meta"
_HOST_COUNTERS = ("torch/optim/", "/samplers/", "/optimizers/")
"""Who counts steps in 0-dim tensors of the CPU, as torch's optimizers do: nothing is copied, and nobody waits."""


class OnlyMeta(TorchDispatchMode):
    """Refuses operations whose result is on another device, but for counters of steps."""

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(found):
            if isinstance(leaf, Tensor) and leaf.device.type != META and not _counts_steps(leaf):
                raise AssertionError(f"{func} made a tensor of shape {tuple(leaf.shape)} on {leaf.device}")
        return found


def _counts_steps(tensor: Tensor) -> bool:
    frame = sys._getframe()
    while tensor.dim() == 0 and frame is not None:
        if any(place in frame.f_code.co_filename for place in _HOST_COUNTERS):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


@contextmanager
def nothing_is_looked_at() -> Iterator[None]:
    """The finite checks are the one place where numbers may be read: within the block they find nothing wrong."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("bayeswell.samplers.stepping", "bayeswell.samplers.fitting"):
            patch.setattr(f"{module}.all_finite", lambda tensors: True)
        patch.setattr(finite.Answer, "read", lambda self: True)
        patch.setattr("bayeswell.predictive.inputs._require_finite", lambda *given: None)
        patch.setattr("bayeswell.predictive.accumulate._require_finite", lambda averaged: None)
        yield


@contextmanager
def on_meta() -> Iterator[None]:
    """Within the block only the meta device is used, and the finite checks look at nothing."""
    with nothing_is_looked_at(), OnlyMeta():
        yield


def moved(module: nn.Module) -> None:
    """Put parameters and buffers onto the device in place: whoever holds a parameter holds the moved one."""
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        module.to(META)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)


def put_on_meta(run: Assembly) -> None:
    """The whole run: network, posterior, prior, likelihood, and the state of its optimizer."""
    run.optimizer.zero_grad()
    moved(run.model)
    moved(run.objective)
    for group in run.optimizer.param_groups:
        if group.get("fused"):  # torch has no fused kernels of this device
            group["fused"] = None
    for state in run.optimizer.state.values():
        for name, value in state.items():
            if isinstance(value, Tensor) and value.dim():
                state[name] = value.to(META)
