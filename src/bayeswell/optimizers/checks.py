"""How the settings of optimizers are checked, and what building them shares."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from ..errors import SettingError
from ..types import ParamGroups

Betas = tuple[float, float]
BETAS: Mapping[str, tuple[str, int]] = {"beta1": ("betas", 0), "beta2": ("betas", 1)}
"""Each of the two by a name of its own, as files, command lines and sweeps set it."""

# Where torch has fused kernels for SGD and Adam: one pass over memory instead of seven.
_FUSED_DEVICES = ("cpu", "cuda", "mps", "xpu")


def own(param_groups: ParamGroups) -> list[dict[str, Any]]:
    """Copies of the groups' dicts: torch writes its settings into those that it is given."""
    return [dict(group) for group in param_groups]


def fused_for(tensors: Sequence[Tensor]) -> bool | None:
    """True where torch's fused kernels take all these tensors, else None: torch then chooses for itself."""
    fits = all(tensor.device.type in _FUSED_DEVICES and tensor.is_floating_point() for tensor in tensors)
    return True if fits else None


def require_at_least_zero(owner: str, setting: str, value: float) -> None:
    """Refuse anything but a finite number of at least zero."""
    if not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise SettingError(f"{owner}: {setting} = {value!r}; it must be a finite number of at least 0")


def require_below_one(owner: str, setting: str, value: float) -> None:
    """Refuse anything but a number in [0, 1)."""
    if not isinstance(value, int | float) or not 0 <= value < 1:
        raise SettingError(f"{owner}: {setting} = {value!r}; it must lie in [0, 1)")


def checked_betas(owner: str, betas: Sequence[float]) -> Betas:
    """The two smoothing constants as a tuple (JSON turns it into a list), each in [0, 1)."""
    if isinstance(betas, str) or not isinstance(betas, Sequence) or len(betas) != 2:
        raise SettingError(f"{owner}: betas = {betas!r}; there must be two, each in [0, 1)")
    for beta in betas:
        require_below_one(owner, "betas", beta)
    return betas[0], betas[1]
