"""Formulas over whole weight vectors, compiled: each is one pass over memory where eager torch makes one an operation.

The libraries are made from ``kernels.cpp`` when the package is installed, if there is a C++ compiler. Whoever calls a
function here asks ``takes(...)`` first and has the same formula in torch's operations for every other case: no library,
another device or dtype, vmap, a network that is being compiled. ``BAYESWELL_NATIVE=0`` or ``disabled()`` turn them off.
"""

from __future__ import annotations

import ctypes
import math
import os
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

VERSION = 2
"""What a library made from this kernels.cpp says it is; another one was left behind by an older install."""

_FOLDER = Path(__file__).parent
_BY_CAPABILITY = {"AVX512": ("avx512", "avx2", "default"), "AVX2": ("avx2", "default")}

_pointer, _count, _number, _key = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float, ctypes.c_uint64
_int, _double = ctypes.c_int, ctypes.c_double
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "version": (_int, []),
    "normals": (None, [_key, _pointer]),
    "fresh_draw": (None, [_int, _key, _pointer, _pointer, _pointer]),
    "draw_and_kl": (_double, [_int, *[_pointer] * 5, _count, _pointer]),
    "slopes": (None, [_int, *[_pointer] * 5, _count, *[_pointer] * 4]),
    "half_squares": (_double, [_pointer, _pointer, _pointer, _count]),
    "half_squares_slope": (None, [_pointer, _pointer, _pointer, _count, *[_pointer] * 3]),
    "variance": (None, [_int, _pointer, _pointer]),
    "variance_slope": (None, [_int, _pointer, _pointer, _pointer]),
    "weighted_squares": (_double, [_int, _pointer, _pointer]),
    "weighted_squares_slopes": (None, [_int, *[_pointer] * 5]),
    "tied_draw_and_kl": (_double, [_pointer, _count, _count, *[_pointer] * 5, _count, _pointer]),
    "tied_slopes": (None, [_pointer, _count, _count, *[_pointer] * 5, _count, *[_pointer] * 5]),
    "langevin": (_double, [_key, _pointer, _pointer, _pointer, _number, _number]),
    "adabound": (None, [*[_pointer] * 5, _number, _double, _double, *[_number] * 4]),
    "sum_of_squares": (_double, [_pointer]),
    "moving_average": (_double, [_pointer, _pointer, _number, _number]),
    "magnitude": (_double, [_pointer] * 3),
    "langevin_step": (None, [_int, _key, *[_pointer] * 2, *[_number] * 2]),
    "hamiltonian_step": (None, [_int, _key, _int, *[_pointer] * 3, *[_number] * 3]),
    "preconditioned_step": (None, [_int, _key, *[_pointer] * 3, *[_number] * 6]),
    "bounded_step": (None, [_pointer, _pointer, _int, *[_number] * 8]),
    "gradient_norms": (None, [_pointer, _pointer, *[_number] * 3, _pointer]),
    "momentum_step": (None, [_pointer, _pointer, *[_number] * 6]),
    "newton_step": (None, [*[_pointer] * 8, *[_number] * 6]),
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


@dataclass(frozen=True)
class Precision:
    """Prior precisions h = 1 / std^2: (P,) numbers, or one for each stretch of weights that ``ends`` cuts off.

    ``ends`` (int64) holds the place behind the last weight of each stretch; stretches need no memory to be read.
    """

    values: Tensor
    ends: Tensor | None

    def given(self) -> tuple[Tensor, Tensor | None, int]:
        """What the compiled formulas take."""
        return self.values, self.ends, 0 if self.ends is None else len(self.ends)


def transformed() -> bool:
    """Whether code is being compiled, or runs inside vmap or a grad transform: these need to see every operation."""
    return torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None


def takes(*tensors: Tensor | None) -> bool:
    """Whether the compiled formulas can read these: plain, dense float32 vectors in the memory of the CPU."""
    if not _Switch.on or transformed() or _library() is None:
        return False
    return all(
        tensor is None
        or (
            tensor.dtype == torch.float32
            and tensor.is_cpu
            and tensor.layout is torch.strided
            and tensor.is_contiguous()
            and not tensor._is_zerotensor()  # zeros without memory, of forward-mode differentiation
            and type(tensor) in (Tensor, nn.Parameter)
        )
        for tensor in tensors
    )


def _call(name: str, elements: int, *arguments: Any) -> Any:
    given = [value.data_ptr() if isinstance(value, Tensor) else value for value in arguments]
    return getattr(_library(), f"bayeswell_{name}")(*given, elements, torch.get_num_threads())


def normals(key: int, size: int) -> Tensor:
    """(size,) standard normal numbers, a function of the 64-bit key alone."""
    out = torch.empty(size, dtype=torch.float32, device="cpu")
    _call("normals", size, key, out)
    return out


def fresh_draw(form: int, key: int, mean: Tensor, state: Tensor) -> Tensor:
    """mean + std * normals(key)."""
    out = torch.empty_like(mean)
    _call("fresh_draw", mean.numel(), form, key, mean, state, out)
    return out


def draw_and_kl(
    form: int, mean: Tensor, state: Tensor, noise: Tensor | None, precision: Precision
) -> tuple[Tensor | None, float]:
    """w = m + s noise (None without noise), and sum [h (m^2 + s^2) / 2 - log s]."""
    weights = None if noise is None else torch.empty_like(mean)
    return weights, _call("draw_and_kl", mean.numel(), form, mean, state, noise, *precision.given(), weights)


def slopes(
    form: int,
    mean: Tensor,
    state: Tensor,
    noise: Tensor | None,
    precision: Precision,
    of_weights: Tensor | None,
    of_kl: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The gradients of mean and state for ``draw_and_kl``, from those of its two results."""
    of_mean, of_state = torch.empty_like(mean), torch.empty_like(mean)
    given = (form, mean, state, noise, *precision.given(), of_weights, of_kl, of_mean, of_state)
    _call("slopes", mean.numel(), *given)
    return of_mean, of_state


def half_squares(mean: Tensor, precision: Precision) -> float:
    """sum h m^2 / 2."""
    return float(_call("half_squares", mean.numel(), mean, *precision.given()))


def half_squares_slope(mean: Tensor, precision: Precision, of_weights: Tensor | None, of_sum: Tensor) -> Tensor:
    """The gradient of m for ``half_squares``, and for a use of m itself if ``of_weights`` is given."""
    out = torch.empty_like(mean)
    _call("half_squares_slope", mean.numel(), mean, *precision.given(), of_weights, of_sum, out)
    return out


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


def weighted_squares(form: int, state: Tensor, values: Tensor) -> float:
    """sum (s values)^2."""
    return float(_call("weighted_squares", values.numel(), form, state, values))


def weighted_squares_slopes(form: int, state: Tensor, values: Tensor, of_sum: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of state and values for ``weighted_squares``."""
    of_state, of_values = torch.empty_like(state), torch.empty_like(values)
    _call("weighted_squares_slopes", values.numel(), form, state, values, of_sum, of_state, of_values)
    return of_state, of_values


def tied_draw_and_kl(
    sites: Tensor, rank: int, factors: Tensor, log_std: Tensor | None, mean: Tensor, noise: Tensor | None,
    precision: Precision,
) -> tuple[Tensor | None, float]:  # fmt: skip
    """As ``draw_and_kl`` where some stds are matrices left @ right'; a row of ``sites`` (int64) says where they lie:

    place of the site, its size, columns (0: not tied), where its left and right factors, or its log stds, begin.
    Stretches of precision, if there are any, are the sites.
    """
    weights = None if noise is None else torch.empty_like(mean)
    given = (sites, len(sites), rank, factors, log_std, mean, noise, precision.values, int(precision.ends is not None))
    return weights, _call("tied_draw_and_kl", mean.numel(), *given, weights)


def tied_slopes(
    sites: Tensor, rank: int, factors: Tensor, log_std: Tensor | None, mean: Tensor, noise: Tensor | None,
    precision: Precision, of_weights: Tensor | None, of_kl: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor | None]:  # fmt: skip
    """The gradients of mean, factors and log_std for ``tied_draw_and_kl``."""
    of_mean, of_factors = torch.empty_like(mean), torch.empty_like(factors)
    of_log_std = None if log_std is None else torch.empty_like(log_std)
    given = (sites, len(sites), rank, factors, log_std, mean, noise, precision.values, int(precision.ends is not None))
    _call("tied_slopes", mean.numel(), *given, of_weights, of_kl, of_mean, of_factors, of_log_std)
    return of_mean, of_factors, of_log_std


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


def magnitude(*tensors: Tensor | None) -> float:
    """The sum of |x| over up to three tensors of one size: not finite if a number is not."""
    first, *others = (tensor for tensor in tensors if tensor is not None)
    second, third = [*others, None, None][:2]
    return float(_call("magnitude", first.numel(), first, second, third))


def langevin_step(key: int | None, weights: Tensor, grads: Tensor, rate: float, scale: float) -> None:
    """weights += scale normals(key) - rate grads, in place; without noise if the key is None."""
    _call("langevin_step", weights.numel(), key is not None, key or 0, weights, grads, rate, scale)


def hamiltonian_step(
    key: int | None, weights: Tensor, grads: Tensor, velocity: Tensor, *,
    split: bool, momentum: float, rate: float, scale: float,
) -> None:  # fmt: skip
    """A step of SGHMC in place: Euler's, or that of BAOAB if ``split``; without noise if the key is None."""
    given = (key is not None, key or 0, split, weights, grads, velocity, momentum, rate, scale)
    _call("hamiltonian_step", weights.numel(), *given)


def preconditioned_step(
    key: int | None, weights: Tensor, grads: Tensor, squares: Tensor, *,
    keep: float, gain: float, correction: float, damping: float, rate: float, scale: float,
) -> None:  # fmt: skip
    """squares <- keep squares + gain g^2 and a step of pSGLD, in place; without noise if the key is None."""
    given = (key is not None, key or 0, weights, grads, squares, keep, gain, correction, damping, rate, scale)
    _call("preconditioned_step", weights.numel(), *given)


def bounded_step(
    weights: list[Tensor], grads: list[Tensor], means: list[Tensor], squares: list[Tensor],
    largest: list[Tensor] | None, *,
    decay: float, betas: tuple[float, float], eps: float, floor: float, ceiling: float, rate: float,
) -> None:  # fmt: skip
    """A step of AdaBound of many tensors in place, with denominators clipped to [floor, ceiling]."""
    columns = (weights, grads, means, squares, *([] if largest is None else [largest]))
    # Differences from 1 are taken here: in single precision 1 - 0.999 has only five right digits.
    numbers = (decay, 1 - betas[0], betas[1], 1 - betas[1], eps, floor, ceiling, rate)
    _call_many("bounded_step", columns, largest is not None, *numbers)


def gradient_norms(
    weights: list[Tensor], grads: list[Tensor], averages: list[Tensor], *, decay: float, keep: float, gain: float
) -> tuple[float, float]:
    """|g| and |keep averages + gain g| over many tensors, with g = grads + decay weights."""
    squares = array("d", (0.0, 0.0))
    _call_many("gradient_norms", (weights, grads, averages), decay, keep, gain, squares.buffer_info()[0])
    return math.sqrt(squares[0]), math.sqrt(squares[1])


def momentum_step(
    weights: list[Tensor], grads: list[Tensor], averages: list[Tensor], buffers: list[Tensor], *,
    decay: float, keep: float, gain: float, momentum: float, shrink: float, rate: float,
) -> None:  # fmt: skip
    """Of many tensors in place, with g = grads + decay weights: averages <- keep averages + gain g;
    buffers <- momentum buffers + shrink g; weights -= rate buffers. Without momentum buffers stay as they are.
    """
    columns = (weights, grads, averages, buffers)
    _call_many("momentum_step", columns, decay, keep, gain, momentum, shrink, rate)


def newton_step(
    mean: Tensor, of_mean: Tensor, log_std: Tensor, of_log_std: Tensor, precision: Tensor, momentum: Tensor,
    decay: Tensor, scale: Tensor, *, ess: float, rate: float, gain: float, correction: float, clip: float, lr: float,
) -> None:  # fmt: skip
    """A step of IVON in place."""
    vectors = (mean, of_mean, log_std, of_log_std, precision, momentum, decay, scale)
    _call("newton_step", mean.numel(), *vectors, ess, rate, gain, correction, clip, lr)


def _call_many(name: str, columns: Sequence[list[Tensor]], *numbers: float) -> None:
    """One call for many tensors: lists of those that are weights, of those that are gradients, ..., in one order."""
    sizes = array("q", [tensor.numel() for tensor in columns[0]])
    pointers = array("Q", [tensor.data_ptr() for column in columns for tensor in column])
    _call(name, len(sizes), pointers.buffer_info()[0], sizes.buffer_info()[0], *numbers)
