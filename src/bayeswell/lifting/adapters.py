"""Adapters without their base: what of a lifted network training leaves as it was, and how to know it again."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from ..errors import NetworkError
from ..fingerprint import sha256_of
from ..layers import NORMALISATION_LAYERS
from ..persistence import JSON
from .module import BayesianModule
from .swapping import PADDING

_REPLACED = "original_module"
"""What ``peft`` calls the module that one of ``modules_to_save`` stands in for: it is kept, and never called."""


def base_state(model: BayesianModule) -> dict[str, Tensor]:
    """What training leaves as it was, by the names of ``model.state_dict()``: the weights of the base.

    Frozen parameters, and buffers but for the running statistics of normalisation layers, which move while they train,
    and for rows that lifting itself keeps.
    """
    own = model.net.state_dict(prefix="net.", keep_vars=True)
    moving = {
        f"net.{name}.{buffer}" if name else f"net.{buffer}"
        for name, module in model.net.named_modules()
        for buffer in module._buffers
        if isinstance(module, NORMALISATION_LAYERS) or buffer == PADDING
    }
    return {name: value.detach() for name, value in own.items() if not value.requires_grad and name not in moving}


def described_base(base: Mapping[str, Tensor], *, checksum: bool) -> dict[str, JSON]:
    """The base as plain data: how many tensors and numbers, their names and shapes, and the numbers if asked for."""
    used = _used(base)
    return {
        "tensors": len(used),
        "numbers": _count(used),
        "shapes_sha256": _shapes(used),
        "sha256": sha256_of(used) if checksum else None,
    }


def require_base(owner: str, base: Mapping[str, Tensor], described: Mapping[str, JSON]) -> None:
    """Refuse a network whose base is another than the one that the adapters were trained on."""
    used = _used(base)
    if _shapes(used) != described["shapes_sha256"]:
        raise NetworkError(
            f"{owner}: the adapter belongs to another base, of {described['tensors']} frozen tensors with "
            f"{described['numbers']} numbers; the network given has {len(used)} with {_count(used)}, or other names or "
            "shapes"
        )
    if described["sha256"] is not None and sha256_of(used) != described["sha256"]:
        raise NetworkError(
            f"{owner}: the adapter belongs to another base: names and shapes of the frozen weights are the same, their "
            "numbers are not (SHA-256 differs); give the weights, in the dtype, that it was trained on"
        )


def _used(base: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Without modules that others stand in for: a new head is drawn at random wherever a base is loaded."""
    return {name: value for name, value in base.items() if _REPLACED not in name.split(".")}


def _shapes(base: Mapping[str, Tensor]) -> str:
    """SHA-256 of names and shapes."""
    return sha256_of({name: list(value.shape) for name, value in base.items()})


def _count(base: Mapping[str, Tensor]) -> int:
    return sum(value.numel() for value in base.values())
