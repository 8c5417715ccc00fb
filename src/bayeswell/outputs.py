"""What a network returns, as the one tensor that a likelihood takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from .errors import NetworkError, SettingError

Output = Callable[[Any], Any]
"""A hook: what the network returns -> the tensor of its logits, means, ..."""

REMEDY = (
    "give output=, a function of what the network returns (known without one: a tensor, .logits, {'logits': ...}, a "
    "tuple that begins with the tensor)"
)


def tensor_of(found: Any) -> Any:
    """The tensor in what a network returned, where there is no doubt which it is; else what was returned.

    Known are a tensor, an object with ``.logits`` (Hugging Face), a mapping with "logits", and a tuple or list that
    begins with the tensor. Not a tuple of several tensors of one shape: (mean, log variance) is not its first half.
    """
    if isinstance(found, Tensor):
        return found
    logits = found.get("logits") if isinstance(found, Mapping) else getattr(found, "logits", None)
    if isinstance(logits, Tensor):
        return logits
    if isinstance(found, tuple | list) and found and isinstance(found[0], Tensor) and found[0].dim():
        alike = [part for part in found[1:] if isinstance(part, Tensor) and part.shape == found[0].shape]
        return found if alike else found[0]
    return found


def require_tensor(found: Any) -> Tensor:
    """The tensor in what a network returned, or one line that says how to point to it."""
    outputs = tensor_of(found)
    if not isinstance(outputs, Tensor):
        raise NetworkError(f"the network returned a {_kind(found)}, and a likelihood takes one tensor: {REMEDY}")
    return outputs


def apply(output: Output, found: Any) -> Tensor:
    """What a hook makes of the network's outputs, which must be a tensor."""
    outputs = output(found)
    if not isinstance(outputs, Tensor):
        raise NetworkError(
            f"output = {name_of(output)} returned a {type(outputs).__name__} for a {_kind(found)}; it must return the "
            "tensor of the network's outputs"
        )
    return outputs


def require_hook(output: Any) -> None:
    """Refuse what cannot be called, and a module, whose weights would not be the network's."""
    if isinstance(output, nn.Module):
        raise SettingError("output is an nn.Module; give a function, and put layers into the network itself")
    if output is not None and not callable(output):
        raise SettingError(f"output = {output!r}; give a function of what the network returns, or None")


def name_of(output: Output) -> str:
    """What a hook is called in messages and records."""
    return str(getattr(output, "__name__", type(output).__qualname__))


def _kind(found: Any) -> str:
    """The type, and what is in it."""
    if isinstance(found, Mapping):
        return f"{type(found).__name__} of {', '.join(map(repr, list(found)[:6])) or 'nothing'}"
    if isinstance(found, tuple | list):
        parts = [str(tuple(part.shape)) if isinstance(part, Tensor) else type(part).__name__ for part in found[:6]]
        return f"{type(found).__name__} of {', '.join(parts) or 'nothing'}"
    return type(found).__name__
