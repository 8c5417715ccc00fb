"""Real numbers with Gaussian noise, whose std is known, learned, or an output of the network."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..errors import DataError, SettingError, nearest, require_positive
from ..random import random_signs, standard_normal
from .matching import at_least_float32, first_index, match_shape, require_targets, sum_per_example

_NOISE = ("known", "learned", "per_input")
_LOG_STD_LIMIT = 20.0
"""A trained log_std is clamped to +-20 (std 2e-9 to 5e8): its inverse square stays far inside float32."""


@dataclass(eq=False)
class Gaussian(nn.Module):
    """Real targets: y = mean + std * N(0, 1), independent over the outputs of an example.

    ``noise`` says where std comes from:

    - ``known``: ``std`` is given and fixed;
    - ``learned``: one trainable ``log_std``, that starts at log ``std`` (give the optimizer this module's
      parameters too);
    - ``per_input``: the network has twice the channels on its last axis, the means first and then the
      log_stds (Nix & Weigend 1994); ``std`` is not used.

    Outputs (S,), (S, C) or more axes; targets have the shape of the means, (S,) and (S, 1) being
    interchangeable. NLL in nats with its normaliser log(2 pi) / 2, summed over the outputs of an example.
    """

    noise: str = "learned"
    std: float = 1.0

    name: ClassVar[str] = "gaussian"
    paper: ClassVar[str] = "Nix & Weigend 1994 (per_input)"

    def __post_init__(self) -> None:
        super().__init__()
        if self.noise not in _NOISE:
            raise SettingError(f"gaussian: noise = {self.noise!r}; {nearest(str(self.noise), _NOISE)}")
        require_positive("gaussian", "std", self.std)
        if self.noise == "per_input" and self.std != 1.0:
            raise SettingError(
                f"gaussian: std = {self.std!r} has no use with noise 'per_input': the network gives log_std"
            )
        self.log_std: nn.Parameter | None = None
        if self.noise == "learned":
            if abs(math.log(self.std)) > _LOG_STD_LIMIT:
                low, high = math.exp(-_LOG_STD_LIMIT), math.exp(_LOG_STD_LIMIT)
                raise SettingError(f"gaussian: std = {self.std!r}; learned noise must start in {low:.1g} to {high:.1g}")
            self.log_std = nn.Parameter(torch.tensor(math.log(self.std)))

    def check(self, targets: Tensor, outputs: Tensor) -> None:
        """Refuse NaN, infinity and wrong shapes."""
        require_targets(self.name, targets, outputs)
        mean, _ = self._mean_and_log_std(outputs)
        if targets.is_complex():
            raise DataError(f"gaussian: targets are {targets.dtype}; they must be real numbers")
        match_shape(self.name, targets, mean.shape)
        wrong = ~torch.isfinite(targets.to(mean.dtype))
        if bool(wrong.any()):
            raise DataError(
                f"gaussian: target {targets[wrong][0].item():g} at index {first_index(wrong)}; "
                f"targets must be finite (as {mean.dtype})"
            )

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
        """u = z / std, z random signs: E[u u'] = I / std^2.

        With noise ``per_input`` the Hessian depends on y and can be negative; its expectation over y, the
        Fisher diag(1 / std^2, 2) in (mean, log_std), takes its place.
        """
        mean, log_std = self._mean_and_log_std(outputs)
        signs = random_signs(outputs.shape, like=mean, generator=generator)
        if self.noise != "per_input":
            return signs * torch.exp(-log_std)
        for_mean, for_log_std = signs.chunk(2, dim=-1)
        return torch.cat([for_mean * torch.exp(-log_std), for_log_std * math.sqrt(2)], dim=-1)

    def mean_and_variance(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """The mean and std^2, both with the shape of the targets."""
        mean, log_std = self._mean_and_log_std(outputs)
        return mean, torch.exp(2 * log_std).to(mean.dtype).expand_as(mean)

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
            return mean, log_std.clamp(-_LOG_STD_LIMIT, _LOG_STD_LIMIT)
        if self.log_std is not None:
            return values, self.log_std.clamp(-_LOG_STD_LIMIT, _LOG_STD_LIMIT)
        return values, values.new_full((), math.log(self.std))
