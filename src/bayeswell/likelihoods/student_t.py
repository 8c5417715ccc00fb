"""Real numbers with heavy-tailed noise: an outlier costs the logarithm of its distance, not its square."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..errors import DataError, SettingError, require_positive
from ..random import random_signs, standard_normal
from .incomplete_beta import incomplete_beta
from .matching import at_least_float32, match_shape, require_finite_targets, require_targets, sum_per_example
from .noise import in_double, learned_log, log_of, require_noise, widened_log, with_noise_factor

_FAR, _FARTHEST = 1e10, 1e38


@dataclass(eq=False)
class StudentT(nn.Module):
    """Real targets: y = f + scale * t, with t from Student's law of ``df`` degrees of freedom.

        NLL = (df + 1) / 2 log(1 + z^2 / df) + log scale + log(df pi) / 2 + log Gamma(df / 2) - log Gamma((df + 1) / 2)

    with z = (y - f) / scale, in nats and summed over the outputs of an example, which are independent. As df grows it
    is a Gaussian of std ``scale``. ``noise`` says whether the scale is ``known`` or ``learned`` (one trainable
    ``log_scale`` that starts at log ``scale``); with ``learn_df`` there is a trainable ``log_df`` too, that starts at
    log ``df``. Both are clamped to +-20. ``noise_factor`` multiplies the scale; ``calibrate`` finds one.

    The variance of y is scale^2 df / (df - 2) and exists for df > 2 only: with less, training and curvature are as
    sound as ever, ``mean_and_variance`` gives an infinite variance, and for df <= 1, where there is no mean either, the
    median f stands in its place.

    Outputs (S,), (S, C) or more axes are the locations; targets have the same shape, (S,) and (S, 1) being
    interchangeable.
    """

    noise: str = "learned"
    scale: float = 1.0
    df: float = 4.0
    learn_df: bool = False
    noise_factor: float = 1.0

    name: ClassVar[str] = "student_t"
    paper: ClassVar[str] = "Lange, Little & Taylor 1989"

    def __post_init__(self) -> None:
        super().__init__()
        require_noise(self.name, self.noise)
        require_positive(self.name, "scale", self.scale)
        require_positive(self.name, "df", self.df)
        require_positive(self.name, "noise_factor", self.noise_factor)
        if not isinstance(self.learn_df, bool):
            raise SettingError(f"student_t: learn_df = {self.learn_df!r}; it must be true or false")
        self.log_scale: nn.Parameter | None = None
        self.log_df: nn.Parameter | None = None
        if self.noise == "learned":
            self.log_scale = learned_log(self.name, "scale", self.scale)
        if self.learn_df:
            self.log_df = learned_log(self.name, "df", self.df)

    def check(self, targets: Tensor, outputs: Tensor) -> None:
        """Refuse NaN, infinity and wrong shapes."""
        require_targets(self.name, targets, outputs)
        if targets.is_complex():
            raise DataError(f"student_t: targets are {targets.dtype}; they must be real numbers")
        match_shape(self.name, targets, outputs.shape)
        require_finite_targets(self.name, targets, at_least_float32(outputs).dtype)

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """(S,): the sum of the NLL of the class's docstring."""
        location = at_least_float32(outputs)
        log_scale, log_df = self._logs(location)
        z = (match_shape(self.name, targets, location.shape).to(location.dtype) - location) * torch.exp(-log_scale)
        # log(1 + z^2 / df), in two pieces: far out the square would overflow.
        near, beyond = z.clamp(-_FAR, _FAR), (z.abs().clamp(_FAR, _FARTHEST) / _FAR).log()
        distance = torch.log1p(near.square() * torch.exp(-log_df)) + 2 * beyond
        df = in_double(log_df).exp()
        normaliser = 0.5 * (df * math.pi).log() + torch.lgamma(df / 2) - torch.lgamma((df + 1) / 2)
        constant = (in_double(log_scale) + normaliser).to(location.dtype)
        return sum_per_example(0.5 * (log_df.exp() + 1) * distance + constant)

    @torch.no_grad()
    def sample_targets(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        """f + scale * N(0, 1) / sqrt(chi^2_df / df)."""
        location = at_least_float32(outputs)
        log_scale, log_df = self._logs(location)
        half = log_df.exp() / 2
        normal = standard_normal(location.shape, like=location, generator=generator)
        gamma = torch._standard_gamma(half.expand_as(location).contiguous(), generator=generator)
        return location + log_scale.exp() * normal * (half / gamma).sqrt()

    def curvature_root(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        """u = sqrt((df + 1) / (df + 3)) / scale * z, z random signs: E[u u'] = the expected Hessian.

        The Hessian itself is negative for |y - f| > scale sqrt(df); the expectation over targets takes its place.
        """
        root = self.curvature_diagonal(outputs).sqrt()
        return root * random_signs(root.shape, like=root, generator=generator)

    def curvature_diagonal(self, outputs: Tensor) -> Tensor:
        """(df + 1) / ((df + 3) scale^2): the expected Hessian of the NLL in the locations, which is diagonal."""
        location = at_least_float32(outputs)
        log_scale, log_df = self._logs(location)
        df = log_df.exp()
        return ((df + 1) / (df + 3) * torch.exp(-2 * log_scale)).expand_as(location)

    def mean_and_variance(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """f and scale^2 df / (df - 2), both with the shape of the targets; an infinite variance for df <= 2."""
        location = at_least_float32(outputs)
        log_scale, log_df = self._logs(location)
        df = log_df.exp()
        ratio = torch.where(df > 2, df / (df - 2).clamp_min(1e-30), math.inf)
        return location, (ratio * torch.exp(2 * log_scale)).expand_as(location)

    def cdf(self, outputs: Tensor, values: Tensor) -> Tensor:
        """P(y <= value) = I_x(df/2, 1/2) / 2 below the location, x = df / (df + z^2), and 1 minus that above it."""
        location = at_least_float32(outputs)
        log_scale, log_df = self._logs(location)
        z, df = in_double((values.to(location.dtype) - location) * torch.exp(-log_scale)), in_double(log_df).exp()
        square = z.clamp(-_FAR, _FAR).square()
        tail = 0.5 * incomplete_beta(df / 2, torch.tensor(0.5), df / (df + square), square / (df + square))
        return torch.where(z < 0, tail, 1 - tail).to(location.dtype)

    def widened(self, factor: float) -> StudentT:
        """This likelihood with a scale so many times as large."""
        return with_noise_factor(self, self.noise_factor * factor)

    def for_scaled_targets(self, scale: Sequence[float]) -> StudentT:
        """The likelihood of (y - shift) / scale, where this is of y: a known ``scale`` is divided by theirs.

        One that is learned is learned in the scaled units, from where it starts.
        """
        if self.noise != "known":
            return self
        if max(scale) > min(scale):
            raise SettingError(
                "student_t: noise 'known' is one scale for all outputs, whose units differ: scale yourself"
            )
        return dataclasses.replace(self, scale=self.scale / scale[0])

    def _logs(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """log scale and log df."""
        log_scale = widened_log(log_of(self.log_scale, self.scale, like), self.noise_factor)
        return log_scale, log_of(self.log_df, self.df, like)
