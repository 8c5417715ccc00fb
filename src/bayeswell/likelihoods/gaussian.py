"""Real numbers with Gaussian noise, whose std is known, learned, or an output of the network."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..errors import DataError, SettingError, require_count, require_positive
from ..random import random_signs, standard_normal
from .matching import at_least_float32, match_shape, require_finite_targets, require_targets, sum_per_example
from .noise import LOG_LIMIT, learned_log, log_of, require_noise, widened_log, with_noise_factor

_NOISE = ("known", "learned", "per_output", "per_input")


@dataclass(eq=False)
class Gaussian(nn.Module):
    """Real targets: y = mean + std * N(0, 1), independent over the outputs of an example.

    ``noise`` says where std comes from:

    - ``known``: ``std`` is given and fixed, one number, or a sequence with one for each output;
    - ``learned``: one trainable ``log_std``, that starts at log ``std`` (give the optimizer this module's
      parameters too);
    - ``per_output``: a trainable ``log_std`` for each output; how many there are must be said, by ``outputs`` or by a
      sequence ``std`` to start from;
    - ``per_input``: the network has twice the channels on its last axis, the means first and then the
      log_stds (Nix & Weigend 1994); ``std`` is not used.

    ``noise_factor`` multiplies the std, wherever it comes from; ``calibrate`` finds one.

    Outputs (S,), (S, C) or more axes, the outputs of an example being the last one; targets have the shape of the
    means, (S,) and (S, 1) being interchangeable. NLL in nats with its normaliser log(2 pi) / 2, summed over the outputs
    of an example.
    """

    noise: str = "learned"
    std: float | Sequence[float] = 1.0
    outputs: int | None = None
    noise_factor: float = 1.0

    name: ClassVar[str] = "gaussian"
    paper: ClassVar[str] = "Nix & Weigend 1994 (per_input)"
    finite_variance: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__init__()
        require_noise(self.name, self.noise, _NOISE)
        if isinstance(self.std, list | tuple):
            self.std = tuple(self.std)
        self._require_std()
        self._count = self._require_count()
        require_positive(self.name, "noise_factor", self.noise_factor)
        self.log_std: nn.Parameter | None = None
        if self.noise == "learned":
            self.log_std = learned_log(self.name, "std", self.std)
        elif self.noise == "per_output":
            start = [self.std] * (self._count or 1) if isinstance(self.std, int | float) else self.std
            self.log_std = learned_log(self.name, "std", start)

    def _require_std(self) -> None:
        if isinstance(self.std, tuple) and self.std:
            if self.noise == "learned":
                raise SettingError(
                    f"gaussian: std = {self.std!r} for each output; noise 'learned' learns one for all: use noise "
                    "'per_output' to learn them, 'known' to keep them"
                )
            for value in self.std:
                require_positive(self.name, "std", value)
        else:
            require_positive(self.name, "std", self.std)  # type: ignore[arg-type]
        if self.noise == "per_input" and self.std != 1.0:
            raise SettingError(
                f"gaussian: std = {self.std!r} has no use with noise 'per_input': the network gives log_std"
            )

    def _require_count(self) -> int | None:
        """How many outputs an example has, where the noise is one for each."""
        given = len(self.std) if isinstance(self.std, tuple) else None
        if self.outputs is not None:
            require_count(self.name, "outputs", self.outputs)
            if self.noise != "per_output" and given is None:
                raise SettingError(f"gaussian: outputs = {self.outputs} has a use with noise 'per_output' only")
        if given is not None and self.outputs not in (None, given):
            raise SettingError(f"gaussian: std has {given} numbers, but outputs = {self.outputs}")
        if self.noise == "per_output" and given is None and self.outputs is None:
            raise SettingError("gaussian: noise 'per_output' must know how many outputs there are: outputs = 3, say")
        return given if given is not None else self.outputs

    def check(self, targets: Tensor, outputs: Tensor) -> None:
        """Refuse NaN, infinity and wrong shapes."""
        require_targets(self.name, targets, outputs)
        mean, _ = self._mean_and_log_std(outputs)
        if targets.is_complex():
            raise DataError(f"gaussian: targets are {targets.dtype}; they must be real numbers")
        match_shape(self.name, targets, mean.shape)
        require_finite_targets(self.name, targets, mean.dtype)

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """(S,): sum of (y - mean)^2 / (2 std^2) + log std + log(2 pi) / 2."""
        mean, log_std = self._mean_and_log_std(outputs)
        residual = match_shape(self.name, targets, mean.shape).to(mean.dtype) - mean
        scaled = residual * torch.exp(-log_std)
        return sum_per_example(0.5 * scaled.square() + (log_std + 0.5 * math.log(2 * math.pi)))

    @torch.no_grad()
    def sample_targets(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        """mean + std * N(0, 1)."""
        mean, log_std = self._mean_and_log_std(outputs)
        return mean + torch.exp(log_std) * standard_normal(mean.shape, like=mean, generator=generator)

    def curvature_root(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        """u = z / std, z random signs: E[u u'] = diag(1 / std^2).

        With noise ``per_input`` the Hessian depends on y and can be negative; its expectation over y, the
        Fisher diag(1 / std^2, 2) in (mean, log_std), takes its place.
        """
        mean, log_std = self._mean_and_log_std(outputs)
        signs = random_signs(outputs.shape, like=mean, generator=generator)
        if self.noise != "per_input":
            return signs * torch.exp(-log_std)
        for_mean, for_log_std = signs.chunk(2, dim=-1)
        return torch.cat([for_mean * torch.exp(-log_std), for_log_std * math.sqrt(2)], dim=-1)

    def curvature_diagonal(self, outputs: Tensor) -> Tensor:
        """1 / std^2, and 2 for the log_stds of noise ``per_input``: the expected Hessian, which is diagonal."""
        mean, log_std = self._mean_and_log_std(outputs)
        precision = torch.exp(-2 * log_std).expand_as(mean)
        return precision if self.noise != "per_input" else torch.cat([precision, torch.full_like(mean, 2)], dim=-1)

    def mean_and_variance(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """The mean and std^2, both with the shape of the targets."""
        mean, log_std = self._mean_and_log_std(outputs)
        return mean, torch.exp(2 * log_std).expand_as(mean)

    def cdf(self, outputs: Tensor, values: Tensor) -> Tensor:
        """P(y <= value) = Phi((value - mean) / std) of every output."""
        mean, log_std = self._mean_and_log_std(outputs)
        result: Tensor = torch.special.ndtr((values.to(mean.dtype) - mean) * torch.exp(-log_std))
        return result

    def widened(self, factor: float) -> Gaussian:
        """This likelihood with a noise std so many times as large."""
        return with_noise_factor(self, self.noise_factor * factor)

    def for_scaled_targets(self, scale: Sequence[float]) -> Gaussian:
        """The likelihood of (y - shift) / scale, where this is of y: a known std is divided by the scale of its output.

        Noise that is learned is learned in the scaled units, from where it starts.
        """
        if self.noise != "known":
            return self
        stds = [self.std] * len(scale) if isinstance(self.std, int | float) else list(self.std)
        if len(stds) != len(scale):
            raise DataError(f"gaussian: std has {len(stds)} numbers, the targets {len(scale)} an example")
        scaled = [float(std) / factor for std, factor in zip(stds, scale, strict=True)]
        return dataclasses.replace(self, std=scaled[0] if len(scaled) == 1 else tuple(scaled))

    def _mean_and_log_std(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """The means, and log_std as a tensor that broadcasts against them."""
        values = at_least_float32(outputs)
        if self.noise == "per_input":
            if values.dim() == 0 or values.shape[-1] % 2:
                raise DataError(
                    f"gaussian: outputs have shape {tuple(values.shape)}; noise 'per_input' asks for an even "
                    "last axis (the means, then the log_stds)"
                )
            mean, log_std = values.chunk(2, dim=-1)
            return mean, widened_log(log_std.clamp(-LOG_LIMIT, LOG_LIMIT), self.noise_factor)
        found = values.shape[-1] if values.dim() > 1 else 1
        if self._count is not None and found != self._count:
            raise DataError(
                f"gaussian: outputs of shape {tuple(values.shape)} have {found} on their last axis; there is a noise "
                f"std for {self._count}"
            )
        return values, widened_log(log_of(self.log_std, self.std, values), self.noise_factor)
