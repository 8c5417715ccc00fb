"""Steps of samplers and optimizers, in place, and the sums that they look at first."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

from torch import Tensor

from ..errors import BufferMismatch
from .library import Addresses, call, call_many


def magnitude(*tensors: Tensor | None) -> float:
    """The sum of |x| over up to three tensors of one size: not finite if a number is not."""
    first, *others = (tensor for tensor in tensors if tensor is not None)
    second, third = [*others, None, None][:2]
    return float(call("magnitude", first.numel(), first, second, third))


def langevin_step(key: int | None, weights: Tensor, grads: Tensor, rate: float, scale: float) -> None:
    """weights += scale normals(key) - rate grads, in place; without noise if the key is None."""
    call("langevin_step", weights.numel(), key is not None, key or 0, weights, grads, rate, scale)


def hamiltonian_step(
    key: int | None, weights: Tensor, grads: Tensor, velocity: Tensor, *,
    split: bool, momentum: float, rate: float, scale: float,
) -> None:  # fmt: skip
    """A step of SGHMC in place: Euler's, or that of BAOAB if ``split``; without noise if the key is None."""
    given = (key is not None, key or 0, split, weights, grads, velocity, momentum, rate, scale)
    call("hamiltonian_step", weights.numel(), *given)


def preconditioned_step(
    key: int | None, weights: Tensor, grads: Tensor, squares: Tensor, *,
    keep: float, gain: float, correction: float, damping: float, rate: float, scale: float,
) -> None:  # fmt: skip
    """squares <- keep squares + gain g^2 and a step of pSGLD, in place; without noise if the key is None."""
    given = (key is not None, key or 0, weights, grads, squares, keep, gain, correction, damping, rate, scale)
    call("preconditioned_step", weights.numel(), *given)


Columns = Sequence[list[Tensor]] | Addresses
"""Lists of tensors in one order, one list for each kind, of an optimizer's many parameters."""


def bounded_step(
    columns: Columns, *,
    largest: bool, decay: float, betas: tuple[float, float], eps: float, floor: float, ceiling: float, rate: float,
) -> None:  # fmt: skip
    """A step of AdaBound of many tensors in place, with denominators clipped to [floor, ceiling].

    Columns: weights, grads, means, squares, and with ``largest`` the largest squares so far (AMSBound).
    """
    _require_columns("bounded_step", columns, 5 if largest else 4)
    # Differences from 1 are taken here: in single precision 1 - 0.999 has only five right digits.
    numbers = (decay, 1 - betas[0], betas[1], 1 - betas[1], eps, floor, ceiling, rate)
    call_many("bounded_step", columns, largest, *numbers)


def gradient_norms(columns: Columns, *, decay: float, keep: float, gain: float) -> tuple[float, float]:
    """|g| and |keep averages + gain g| over many tensors, with g = grads + decay weights.

    Columns: weights, grads, averages; what comes after them is not read.
    """
    _require_columns("gradient_norms", columns, 3)
    squares = array("d", (0.0, 0.0))
    call_many("gradient_norms", columns, decay, keep, gain, squares.buffer_info()[0])
    return math.sqrt(squares[0]), math.sqrt(squares[1])


def momentum_step(
    columns: Columns, *, decay: float, keep: float, gain: float, momentum: float, shrink: float, rate: float
) -> None:
    """Of many tensors in place, with g = grads + decay weights: averages <- keep averages + gain g;
    buffers <- momentum buffers + shrink g; weights -= rate buffers. Without momentum buffers stay as they are.

    Columns: weights, grads, averages, buffers.
    """
    _require_columns("momentum_step", columns, 4)
    call_many("momentum_step", columns, decay, keep, gain, momentum, shrink, rate)


def _require_columns(name: str, columns: Columns, least: int) -> None:
    count = len(columns.columns if isinstance(columns, Addresses) else columns)
    if count < least:
        raise BufferMismatch(f"compiled formula '{name}': {count} lists of tensors; it reads {least}")


def newton_step(
    mean: Tensor, of_mean: Tensor, log_std: Tensor, of_log_std: Tensor, precision: Tensor, momentum: Tensor,
    decay: Tensor, scale: Tensor, squares: Tensor | None = None, *, ess: float, rate: float, gain: float,
    correction: float, clip: float, lr: float, gain2: float = 0.0, unbias: float = 1.0, damping: float = 0.0,
) -> None:  # fmt: skip
    """A step of IVON in place; with ``squares`` the Newton step is divided by precision + damping sqrt(squares unbias).

    squares <- squares + gain2 ((of_mean - momentum / correction)^2 - squares) comes before that.
    """
    vectors = (mean, of_mean, log_std, of_log_std, precision, momentum, decay, scale, squares)
    call("newton_step", mean.numel(), *vectors, ess, rate, gain, correction, clip, lr, gain2, unbias, damping)
