"""Formulas over whole weight vectors, compiled: each is one pass over memory where eager torch makes one an operation.

The libraries are made from ``kernels.cpp`` when the package is installed, if there is a C++ compiler. Whoever calls a
function here asks ``takes(...)`` first and has the same formula in torch's operations for every other case: no library,
another device or dtype, vmap, a network that is being compiled. ``BAYESWELL_NATIVE=0`` or ``disabled()`` turn them off.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

VERSION = 1
"""What a library made from this kernels.cpp says it is; another one was left behind by an older install."""

_FOLDER = Path(__file__).parent
_BY_CAPABILITY = {"AVX512": ("avx512", "avx2", "default"), "AVX2": ("avx2", "default")}

_pointer, _count, _number, _key = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float, ctypes.c_uint64
_int, _double = ctypes.c_int, ctypes.c_double
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "version": (_int, []),
    "normals": (None, [_key, _pointer]),
    "fresh_draw": (None, [_int, _key, _pointer, _pointer, _pointer]),
    "draw_and_kl": (_double, [_int, _pointer, _pointer, _pointer, _pointer, _count, _pointer]),
    "slopes": (None, [_int, *[_pointer] * 4, _count, *[_pointer] * 4]),
    "variance": (None, [_int, _pointer, _pointer]),
    "variance_slope": (None, [_int, _pointer, _pointer, _pointer]),
    "langevin": (_double, [_key, _pointer, _pointer, _pointer, _number, _number]),
    "adabound": (None, [*[_pointer] * 5, *[_number] * 7]),
    "sum_of_squares": (_double, [_pointer]),
    "moving_average": (_double, [_pointer, _pointer, _number, _number]),
}


class _Switch:
    on = os.environ.get("BAYESWELL_NATIVE", "1") != "0"


@contextmanager
def disabled() -> Iterator[None]:
    """Within the block everything is computed by torch's operations."""
    before, _Switch.on = _Switch.on, False
    try:
        yield
    finally:
        _Switch.on = before


@cache
def _library() -> ctypes.CDLL | None:
    """The best library for this machine; None if there is none, or none of this version."""
    capability = torch.backends.cpu.get_cpu_capability()
    for name in _BY_CAPABILITY.get(capability, ("default",)):
        path = _FOLDER / f"kernels-{name}.so"
        if not path.is_file():
            continue
        try:
            library = ctypes.CDLL(str(path))
            for function, (result, arguments) in _SIGNATURES.items():
                found = getattr(library, f"bayeswell_{function}")
                found.restype = result
                found.argtypes = arguments if function == "version" else [*arguments, _count, _int]
        except (OSError, AttributeError):
            continue
        if library.bayeswell_version() == VERSION:
            return library
    return None


def available() -> bool:
    """Whether this process computes with the compiled formulas."""
    return _Switch.on and _library() is not None


def takes(*tensors: Tensor | None) -> bool:
    """Whether the compiled formulas can read these: plain, dense float32 vectors in the memory of the CPU."""
    if not _Switch.on or torch.compiler.is_compiling() or _library() is None:
        return False
    # Inside vmap and grad transforms the transforms need to see every operation.
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    return all(
        tensor is None
        or (
            tensor.dtype == torch.float32
            and tensor.device.type == "cpu"
            and tensor.is_contiguous()
            and type(tensor) in (Tensor, nn.Parameter)
        )
        for tensor in tensors
    )


def _call(name: str, elements: int, *arguments: Any) -> Any:
    given = [value.data_ptr() if isinstance(value, Tensor) else value for value in arguments]
    return getattr(_library(), f"bayeswell_{name}")(*given, elements, torch.get_num_threads())


def normals(key: int, size: int) -> Tensor:
    """(size,) standard normal numbers, a function of the 64-bit key alone."""
    out = torch.empty(size)
    _call("normals", size, key, out)
    return out


def fresh_draw(form: int, key: int, mean: Tensor, state: Tensor) -> Tensor:
    """mean + std * normals(key)."""
    out = torch.empty_like(mean)
    _call("fresh_draw", mean.numel(), form, key, mean, state, out)
    return out


def draw_and_kl(
    form: int, mean: Tensor, state: Tensor, noise: Tensor | None, inverse_variance: Tensor
) -> tuple[Tensor | None, float]:
    """w = m + s noise (None without noise), and sum [h (m^2 + s^2) / 2 - log s]."""
    weights = None if noise is None else torch.empty_like(mean)
    stride = int(inverse_variance.dim() > 0)
    kl = _call("draw_and_kl", mean.numel(), form, mean, state, noise, inverse_variance, stride, weights)
    return weights, kl


def slopes(
    form: int,
    mean: Tensor,
    state: Tensor,
    noise: Tensor | None,
    inverse_variance: Tensor,
    of_weights: Tensor | None,
    of_kl: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The gradients of mean and state for ``draw_and_kl``, from those of its two results."""
    of_mean, of_state = torch.empty_like(mean), torch.empty_like(mean)
    stride = int(inverse_variance.dim() > 0)
    given = (form, mean, state, noise, inverse_variance, stride, of_weights, of_kl, of_mean, of_state)
    _call("slopes", mean.numel(), *given)
    return of_mean, of_state


def variance(form: int, state: Tensor) -> Tensor:
    """s^2."""
    out = torch.empty_like(state)
    _call("variance", state.numel(), form, state, out)
    return out


def variance_slope(form: int, of_variance: Tensor, state: Tensor) -> Tensor:
    """The gradient of the state for ``variance``."""
    out = torch.empty_like(state)
    _call("variance_slope", state.numel(), form, of_variance, state, out)
    return out


def langevin(key: int, weights: Tensor, grads: Tensor, rate: float, scale: float) -> tuple[Tensor, float]:
    """weights - rate grads + scale normals(key), and the sum of that (finite only if all of it is)."""
    out = torch.empty_like(weights)
    return out, _call("langevin", weights.numel(), key, weights, grads, out, rate, scale)


def adabound(
    weights: Tensor,
    grads: Tensor,
    means: Tensor,
    squares: Tensor,
    largest: Tensor | None,
    *,
    decay: float,
    betas: tuple[float, float],
    eps: float,
    floor: float,
    ceiling: float,
    rate: float,
) -> None:
    """One step of AdaBound in place, with denominators clipped to [floor, ceiling]."""
    numbers = (decay, *betas, eps, floor, ceiling, rate)
    _call("adabound", weights.numel(), weights, grads, means, squares, largest, *numbers)


def sum_of_squares(values: Tensor) -> float:
    """|values|^2, added up in double precision."""
    return float(_call("sum_of_squares", values.numel(), values))


def moving_average(averages: Tensor, values: Tensor, keep: float, gain: float) -> float:
    """averages <- keep averages + gain values, in place; |averages|^2 comes back."""
    return float(_call("moving_average", averages.numel(), averages, values, keep, gain))
