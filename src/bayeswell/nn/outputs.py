"""The tensor of logits or means in what a network returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from ..core.errors import NetworkError, SettingError

Output = Callable[[Any], Tensor]
"""A function: what the network returns -> the tensor of its logits or means."""


def output_tensor(returned: Any, output: Output | None = None) -> Tensor:
    """Return ``output(returned)``, or without a hook the one tensor in what a network returned.

    Known are a tensor, an object with ``.logits`` (Hugging Face), a mapping with "logits", and a tuple of one tensor.
    """
    if output is None:
        found = returned if isinstance(returned, Tensor) else _only_tensor(returned)
        if not isinstance(found, Tensor):
            raise NetworkError(
                f"the network returned {_kind(returned)}, but a likelihood takes one tensor; give `output`, a function "
                "of what the network returns"
            )
        return found
    found = output(returned)
    if not isinstance(found, Tensor):
        name = getattr(output, "__name__", type(output).__qualname__)
        raise NetworkError(f"output = {name} must return a tensor, got {_kind(found)} from {_kind(returned)}")
    return found


def check_output(output: Any) -> None:
    if isinstance(output, nn.Module):
        raise SettingError("`output` must be a function, got an nn.Module; put layers into the network itself")
    if output is not None and not callable(output):
        raise SettingError(f"`output` must be a function of what the network returns, or None, got {output!r}")


def _only_tensor(returned: Any) -> Any:
    logits = returned.get("logits") if isinstance(returned, Mapping) else getattr(returned, "logits", None)
    if isinstance(logits, Tensor):
        return logits
    if isinstance(returned, tuple | list):
        tensors = [part for part in returned if isinstance(part, Tensor)]
        nested = any(isinstance(part, tuple | list | Mapping) for part in returned)
        return tensors[0] if len(tensors) == 1 and not nested else None
    return None


def _kind(returned: Any) -> str:
    kind = f"a {type(returned).__name__}"
    if isinstance(returned, Mapping):
        return f"{kind} of {', '.join(map(repr, returned))}"
    if isinstance(returned, tuple | list):
        parts = [f"{tuple(p.shape)}" if isinstance(p, Tensor) else type(p).__name__ for p in returned]
        return f"{kind} of {', '.join(parts)}"
    return kind
