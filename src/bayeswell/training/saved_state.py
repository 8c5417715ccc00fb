"""A saved state is held against that of a fresh run before any of it is used.

A checksum tells that a file is as it was written, not that it was written by this run. What does not have the shapes,
dtypes and kinds of a fresh run's own state would fail later with an obscure error, be broadcast in silence, or reach
compiled code with the wrong size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from ..errors import FileError

_PLAIN = (bool, int, float, type(None))


def require_alike(found: Any, fresh: Any, path: str = "") -> None:
    """Refuse a state that a run like the one with the state ``fresh`` could not have come to.

    A tensor has the same dtype and shape; of one that is empty before the first step only the dtype is known, and the
    axes behind the first if there are any (rows of draws). A number may become any other, and None anything plain.
    """
    if isinstance(fresh, Tensor):
        _require_tensor(found, fresh, path)
    elif isinstance(fresh, Mapping):
        if not isinstance(found, Mapping):
            raise _unlike(path, found, f"{len(fresh)} entries by name")
        for key, own in fresh.items():
            if key not in found:
                raise FileError(f"the saved state has no '{_joined(path, key)}'; it is not of this run")
            require_alike(found[key], own, _joined(path, key))
    elif isinstance(fresh, list | tuple):
        if not isinstance(found, list | tuple):
            raise _unlike(path, found, "a list")
    elif fresh is not None and not _same_kind(found, fresh):
        raise _unlike(path, found, f"a value like {fresh!r}")


def require_moments(found: Any, optimizer: Optimizer, path: str) -> None:
    """Refuse an optimizer's state whose groups are not those of this one, or whose tensors do not fit its parameters.

    What an optimizer keeps of a parameter is one number, or has its axes (or 1 in place of some): moments, velocities,
    factored ones. Before the first step there is nothing to compare with but the parameters themselves.
    """
    own = optimizer.state_dict()["param_groups"]
    groups = found.get("param_groups") if isinstance(found, Mapping) else None
    if not isinstance(groups, list) or [_of(group, "params") for group in groups] != [g["params"] for g in own]:
        raise FileError(f"the saved state has other groups of parameters in '{path}' than this run")
    for number, (group, mine) in enumerate(zip(groups, own, strict=True)):
        shared = {key: value for key, value in mine.items() if key in group}
        require_alike({key: group[key] for key in shared}, shared, f"{path}/group {number}")
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    kept = found.get("state")
    if not isinstance(kept, Mapping):
        raise _unlike(f"{path}/state", kept, "entries by parameter")
    for key, entries in kept.items():
        if isinstance(key, bool) or not isinstance(key, int) or not 0 <= key < len(parameters):
            raise FileError(f"the saved state speaks of parameter {key!r} in '{path}'; there are {len(parameters)}")
        if not isinstance(entries, Mapping):
            raise _unlike(f"{path}/{key}", entries, "entries by name")
        for name, value in entries.items():
            _require_moment(value, parameters[key], f"{path}/{key}/{name}")


def _require_moment(value: Any, parameter: Tensor, path: str) -> None:
    if isinstance(value, Tensor):
        axes = zip(value.shape, parameter.shape, strict=False)
        spread = value.dim() == parameter.dim() and all(here in (there, 1) for here, there in axes)
        if (value.dim() and not spread) or value.is_complex() != parameter.is_complex():
            raise _unlike(path, value, f"one number, or the shape {tuple(parameter.shape)} of its parameter")
    elif not isinstance(value, _PLAIN):
        raise _unlike(path, value, "a tensor or a number")


def _require_tensor(found: Any, fresh: Tensor, path: str) -> None:
    fits = isinstance(found, Tensor) and found.dtype == fresh.dtype
    if fits and fresh.numel():
        fits = found.shape == fresh.shape
    elif fits and fresh.dim() > 1:
        fits = found.dim() == fresh.dim() and found.shape[1:] == fresh.shape[1:]
    if not fits:
        raise _unlike(path, found, f"{fresh.dtype} {tuple(fresh.shape)}")


def _same_kind(found: Any, fresh: Any) -> bool:
    if isinstance(fresh, bool | str):
        return found is None or isinstance(found, type(fresh))
    if isinstance(fresh, int | float):
        return found is None or (isinstance(found, int | float) and not isinstance(found, bool))
    return True


def _of(group: Any, key: str) -> Any:
    return group.get(key) if isinstance(group, Mapping) else None


def _unlike(path: str, found: Any, wanted: str) -> FileError:
    shown = f"{found.dtype} {tuple(found.shape)}" if isinstance(found, Tensor) else f"{found!r:.60}"
    return FileError(
        f"the saved state has '{path}' as {shown}, this run {wanted}; it is of another run, or was altered"
    )


def _joined(path: str, key: Any) -> str:
    return f"{path}/{key}" if path else str(key)
