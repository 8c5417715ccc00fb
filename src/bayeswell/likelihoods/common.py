"""Shapes of targets, class weights, and trained logarithms, as all likelihoods need them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..core.errors import DataError, SettingError, check_number
from ..core.protocols import Likelihood
from ..core.random import random_signs

LOG_LIMIT = 20.0
"""A trained logarithm is clamped to +-20 (2e-9 to 5e8): inverse squares stay inside float32."""

LikelihoodT = TypeVar("LikelihoodT", bound=Likelihood)


class DiagonalCurvature(Likelihood):
    """A likelihood whose (expected) Hessian is diagonal."""

    def curvature_root(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """u = sqrt(h) z with random signs z: E[u u'] = diag(h), h = ``curvature_diagonal(outputs)``."""
        root = safe_sqrt(self.curvature_diagonal(outputs))
        return root * random_signs(root.shape, like=root, generator=generator)


def at_least_float32(outputs: Tensor) -> Tensor:
    """Return 16-bit outputs in float32: the exponentials of a likelihood overflow in 16 bits."""
    return outputs.float() if outputs.dtype in (torch.float16, torch.bfloat16) else outputs


def as_float64(values: Tensor) -> Tensor:
    """Return float64 values where the device has it: float32 loses the digits of differences of log gammas."""
    return values if values.device.type == "mps" else values.double()


def sum_per_example(values: Tensor) -> Tensor:
    """(S, ...) -> (S,)."""
    return values.flatten(1).sum(1) if values.dim() > 1 else values


def match_shape(owner: str, targets: Tensor, shape: Sequence[int]) -> Tensor:
    """Return targets in this shape; they may lack, or have too much, one last axis of size 1.

    Without this, (S,) targets and (S, 1) outputs would broadcast to (S, S).
    """
    wanted, found = tuple(shape), tuple(targets.shape)
    if found == wanted:
        return targets
    if (*found, 1) == wanted or found == (*wanted, 1):
        return targets.reshape(wanted)
    raise DataError(f"{owner}: targets have shape {found}; the outputs of the network need {wanted}")


def check_tensors(owner: str, targets: Any, outputs: Any) -> Tensor:
    """Return the targets in a dtype that torch can compute with; refuse empty and complex tensors."""
    for what, value in (("targets", targets), ("outputs", outputs)):
        if not isinstance(value, Tensor) or value.dim() == 0 or len(value) == 0:
            found = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
            raise DataError(f"{owner}: {what} must be a tensor (S, ...), got {found} with no examples")
    if targets.is_complex():
        raise DataError(f"{owner}: targets are {targets.dtype}; they must be real numbers")
    unsigned = targets.dtype in (torch.uint16, torch.uint32, torch.uint64)
    converted: Tensor = targets.long() if unsigned else targets
    return converted


def check_real(owner: str, targets: Tensor, dtype: torch.dtype) -> None:
    """Refuse truth values, NaN, infinity, and numbers that are infinite in the dtype of the outputs."""
    if targets.dtype == torch.bool:
        raise DataError(f"{owner}: targets are {targets.dtype}; convert them to floats, or use likelihood='bernoulli'")
    wrong = ~torch.isfinite(targets.to(dtype))
    if bool(wrong.any()):
        raise DataError(f"{owner}: {first_wrong(targets, wrong)}; targets must be finite numbers (as {dtype})")


def first_wrong(targets: Tensor, wrong: Tensor) -> str:
    """Return "target <value> at index <i>" of the first True."""
    index = wrong.nonzero()[0].tolist()
    place = index[0] if len(index) == 1 else tuple(index)
    return f"target {targets[wrong].flatten()[0].item():g} at index {place}"


def safe_sqrt(values: Tensor) -> Tensor:
    """Square root with slope 0 at 0, where the derivative is infinite."""
    return values.clamp_min(torch.finfo(values.dtype).tiny).sqrt()


def as_class_weights(owner: str, values: Sequence[float] | None) -> tuple[float, ...] | None:
    """Return plain numbers, one for each class: none below 0, at least one above."""
    if values is None:
        return None
    numbers = tuple(check_number(owner, "class_weights", float(value), 0) for value in values)
    if len(numbers) < 2 or not any(numbers):
        raise SettingError(f"{owner}: `class_weights` must be a number for each class, not all 0, got {values!r}")
    return numbers


def weighted_copy(likelihood: LikelihoodT, weights: Tensor) -> LikelihoodT:
    """Return a copy without class weights whose positions have these weights, for sampled labels only."""
    changed: Any = with_settings(likelihood, class_weights=None)
    changed._position_roots = weights.sqrt()
    found: LikelihoodT = changed
    return found


def learned_log(owner: str, setting: str, start: float | Sequence[float]) -> nn.Parameter:
    """Return a trainable log of one positive number, or of several, that starts at log ``start``."""
    logs = torch.tensor(start, dtype=torch.float64).log()
    if float(logs.abs().max()) > LOG_LIMIT:
        low, high = math.exp(-LOG_LIMIT), math.exp(LOG_LIMIT)
        raise SettingError(f"{owner}: a learned `{setting}` must start in {low:.1g} to {high:.1g}, got {start!r}")
    return nn.Parameter(logs.to(torch.get_default_dtype()))


def log_of(learned: nn.Parameter | None, fixed: float | Sequence[float], like: Tensor) -> Tensor:
    """Return the learned logarithm (clamped), or that of the fixed number."""
    if learned is not None:
        return learned.clamp(-LOG_LIMIT, LOG_LIMIT).to(like.dtype)
    return torch.tensor(fixed, dtype=like.dtype, device=like.device).log()


def with_settings(likelihood: LikelihoodT, **settings: Any) -> LikelihoodT:
    """Return a copy with other settings and the same learned parameters."""
    part: Any = likelihood
    changed: LikelihoodT = dataclasses.replace(part, **settings)
    like = next(likelihood.parameters(), None)
    changed = changed if like is None else changed.to(like)
    changed.load_state_dict(likelihood.state_dict())
    return changed.train(likelihood.training)
