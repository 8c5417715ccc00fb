"""Real targets with Gaussian noise, whose std is fixed, learned, or an output of the network."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..core.errors import DataError, SettingError, check_choice, check_number
from ..core.random import standard_normal
from .common import (
    LOG_LIMIT,
    DiagonalCurvature,
    at_least_float32,
    check_real,
    check_tensors,
    learned_log,
    log_of,
    match_shape,
    sum_per_example,
    with_settings,
)

KNOWN, LEARNED, PER_OUTPUT, PER_INPUT = "known", "learned", "per_output", "per_input"


@dataclass(eq=False)
class Gaussian(DiagonalCurvature):
    """Real targets: y = mean + std * N(0, 1), independent over the outputs of an example.

    Outputs are (S,), (S, C) or more axes; the last one holds the outputs of an example. Targets have the shape of the
    means; (S,) and (S, 1) are interchangeable. NLL in nats with log(2 pi) / 2, summed over the outputs.

    Args:
        noise: where std comes from. "known": ``std`` is fixed. "learned": one trainable ``log_std`` that starts at
            log ``std``. "per_output": a trainable ``log_std`` for each output. "per_input": the last axis of the
            network's outputs holds the means, then as many log stds (Nix & Weigend 1994).
        std: one number, or one for each output.
        outputs: number of outputs, for "per_output" with a single ``std``.
        noise_factor: multiplies the std, wherever it comes from (calibration).
    """

    noise: str = LEARNED
    std: float | Sequence[float] = 1.0
    outputs: int | None = None
    noise_factor: float = 1.0

    name: ClassVar[str] = "gaussian"
    paper: ClassVar[str] = "Nix & Weigend 1994 (per_input)"

    def __post_init__(self) -> None:
        super().__init__()
        check_choice(self.name, "noise", self.noise, (KNOWN, LEARNED, PER_OUTPUT, PER_INPUT))
        check_number(self.name, "noise_factor", self.noise_factor, 0, above=True)
        stds = tuple(self.std) if isinstance(self.std, list | tuple) else None
        for value in (self.std,) if stds is None else stds:
            check_number(self.name, "std", value, 0, above=True)
        self.std = self.std if stds is None else stds
        self._count = self._number_of_outputs(stds)
        self.log_std: nn.Parameter | None = None
        if self.noise == LEARNED:
            self.log_std = learned_log(self.name, "std", self.std)
        elif self.noise == PER_OUTPUT:
            self.log_std = learned_log(self.name, "std", stds or [float(self.std)] * (self._count or 1))  # type: ignore[arg-type]

    def _number_of_outputs(self, stds: tuple[float, ...] | None) -> int | None:
        if self.noise == PER_INPUT and self.std != 1.0:
            raise SettingError(f"gaussian: `std` = {self.std!r} is unused with noise 'per_input'; leave it out")
        if self.noise == LEARNED and stds is not None:
            raise SettingError("gaussian: several `std` need noise 'per_output' (learned) or 'known' (fixed)")
        if stds is not None:
            return len(stds)
        if self.noise == PER_OUTPUT and self.outputs is None:
            raise SettingError("gaussian: noise 'per_output' needs the number of outputs, as in outputs=3")
        return self.outputs if self.noise == PER_OUTPUT else None

    def check(self, targets: Tensor, outputs: Tensor) -> None:
        """Refuse truth values, NaN, infinity and wrong shapes."""
        targets = check_tensors(self.name, targets, outputs)
        mean, _ = self._mean_and_log_std(outputs)
        match_shape(self.name, targets, mean.shape)
        check_real(self.name, targets, mean.dtype)

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """(S,): sum of (y - mean)^2 / (2 std^2) + log std + log(2 pi) / 2."""
        mean, log_std = self._mean_and_log_std(outputs)
        residual = match_shape(self.name, targets, mean.shape).to(mean.dtype) - mean
        scaled = residual * torch.exp(-log_std)
        return sum_per_example(0.5 * scaled.square() + (log_std + 0.5 * math.log(2 * math.pi)))

    @torch.no_grad()
    def sample(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        mean, log_std = self._mean_and_log_std(outputs)
        return mean + torch.exp(log_std) * standard_normal(mean.shape, like=mean, generator=generator)

    def curvature_diagonal(self, outputs: Tensor) -> Tensor:
        """1 / std^2, and 2 for the log stds of noise "per_input", where it is the expected Hessian (Fisher).

        The Hessian in the log stds depends on y and can be negative.
        """
        mean, log_std = self._mean_and_log_std(outputs)
        precision = torch.exp(-2 * log_std).expand_as(mean)
        return precision if self.noise != PER_INPUT else torch.cat([precision, torch.full_like(mean, 2)], dim=-1)

    def mean_and_variance(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self._mean_and_log_std(outputs)
        return mean, torch.exp(2 * log_std).expand_as(mean)

    def cdf(self, outputs: Tensor, values: Tensor) -> Tensor:
        """Phi((value - mean) / std) of every output."""
        mean, log_std = self._mean_and_log_std(outputs)
        result: Tensor = torch.special.ndtr((values.to(mean.dtype) - mean) * torch.exp(-log_std))
        return result

    def tempered(self, factor: float) -> Gaussian:
        return with_settings(self, noise_factor=self.noise_factor * factor)

    def for_scaled_targets(self, scale: Sequence[float]) -> Gaussian:
        """Return the likelihood of (y - shift) / scale: a fixed std is divided by the scale of its output.

        Learned noise is learned in scaled units.
        """
        if self.noise != KNOWN:
            return self
        stds = list(self.std) if isinstance(self.std, tuple) else [self.std] * len(scale)
        if len(stds) != len(scale):
            raise DataError(f"gaussian: `std` has {len(stds)} numbers, but the targets have {len(scale)} outputs")
        scaled = [float(std) / factor for std, factor in zip(stds, scale, strict=True)]  # type: ignore[arg-type]
        return dataclasses.replace(self, std=scaled[0] if len(scaled) == 1 else tuple(scaled))

    def _mean_and_log_std(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return means and log stds, which broadcast against each other."""
        values = at_least_float32(outputs)
        shift = math.log(self.noise_factor)
        if self.noise == PER_INPUT:
            if values.dim() < 2 or values.shape[-1] % 2:
                allowed = "an even last axis (means, then log stds)"
                raise DataError(f"gaussian: outputs have shape {tuple(values.shape)}; 'per_input' needs {allowed}")
            mean, log_std = values.chunk(2, dim=-1)
            return mean, log_std.clamp(-LOG_LIMIT, LOG_LIMIT) + shift
        found = values.shape[-1] if values.dim() > 1 else 1
        if self._count is not None and found != self._count:
            raise DataError(f"gaussian: there are stds for {self._count} outputs, but the network has {found}")
        return values, log_of(self.log_std, self.std, values) + shift
