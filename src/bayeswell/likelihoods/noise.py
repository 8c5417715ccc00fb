"""Numbers of a likelihood that are given or learned: positive, and trained as their logarithm."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..errors import SettingError, nearest

LOG_LIMIT = 20.0
"""A trained logarithm is clamped to +-20 (2e-9 to 5e8): inverse squares stay far inside float32."""

NOISE = ("known", "learned")


def require_noise(owner: str, value: str, allowed: Sequence[str] = NOISE) -> None:
    """Refuse a word that does not say where the noise comes from."""
    if value not in allowed:
        raise SettingError(f"{owner}: noise = {value!r}; {nearest(str(value), allowed)}")


def learned_log(owner: str, setting: str, start: float | Sequence[float]) -> nn.Parameter:
    """A trainable log of one positive number, or of several, that starts at log ``start``."""
    low, high = math.exp(-LOG_LIMIT), math.exp(LOG_LIMIT)
    logs = _logs(start)
    if any(abs(value) > LOG_LIMIT for value in (logs if isinstance(logs, list) else [logs])):
        raise SettingError(f"{owner}: {setting} = {start!r}; learned noise must start in {low:.1g} to {high:.1g}")
    return nn.Parameter(torch.tensor(logs))


def log_of(learned: nn.Parameter | None, known: float | Sequence[float], like: Tensor) -> Tensor:
    """The logarithm as it stands: learned (and clamped), or of the number that is known."""
    if learned is not None:
        return learned.clamp(-LOG_LIMIT, LOG_LIMIT).to(like.dtype)
    return torch.tensor(_logs(known), dtype=like.dtype, device=like.device)


def widened_log(log_std: Tensor, factor: float) -> Tensor:
    """log(factor std); the logarithm itself, bit for bit, at 1."""
    return log_std if factor == 1 else log_std + math.log(factor)


LikelihoodT = TypeVar("LikelihoodT", bound=nn.Module)


def with_noise_factor(likelihood: LikelihoodT, factor: float) -> LikelihoodT:
    """A copy of the likelihood, with what it has learned, and this ``noise_factor``."""
    settings: Any = likelihood
    changed: LikelihoodT = dataclasses.replace(settings, noise_factor=factor)
    like = next(likelihood.parameters(), None)
    changed = changed if like is None else changed.to(like)
    changed.load_state_dict(likelihood.state_dict())
    return changed.train(likelihood.training)


def _logs(values: float | Sequence[float]) -> float | list[float]:
    return math.log(values) if isinstance(values, int | float) else [math.log(value) for value in values]


def in_double(value: Tensor) -> Tensor:
    """In float64, where the device has it: differences of log gamma functions lose most digits of float32."""
    return value if value.device.type == "mps" else value.double()
