"""Real targets with heavy-tailed noise: an outlier costs the logarithm of its distance, not its square."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.distributions import StudentT as TorchStudentT

from ..core.errors import SettingError, check_choice, check_number
from .common import (
    DiagonalCurvature,
    as_float64,
    at_least_float32,
    check_real,
    check_tensors,
    learned_log,
    log_of,
    with_settings,
)
from .distribution import DistributionLikelihood


@dataclass(eq=False)
class StudentT(DiagonalCurvature, DistributionLikelihood):
    """Real targets: y = f + scale * t, with t from Student's t of ``df`` degrees of freedom.

    The variance is scale^2 df / (df - 2), infinite for df <= 2. The predicted mean is the median f for any df.

    Args:
        noise: "learned" (a trainable ``log_scale`` that starts at log ``scale``) or "known".
        learn_df: a trainable ``log_df`` that starts at log ``df``.
        noise_factor: multiplies the scale (calibration).
    """

    noise: str = "learned"
    scale: float = 1.0
    df: float = 4.0
    learn_df: bool = False
    noise_factor: float = 1.0

    name: ClassVar[str] = "student_t"
    paper: ClassVar[str] = "Lange, Little & Taylor 1989"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self.name, "noise", self.noise, ("known", "learned"))
        for setting in ("scale", "df", "noise_factor"):
            check_number(self.name, setting, getattr(self, setting), 0, above=True)
        learned = self.noise == "learned"
        self.log_scale = learned_log(self.name, "scale", self.scale) if learned else None
        self.log_df = learned_log(self.name, "df", self.df) if self.learn_df else None

    def distribution(self, outputs: Tensor) -> Distribution:
        # In float64: for a large df, log gamma functions of large numbers are subtracted.
        location = as_float64(outputs)
        scale, df = self._scale_and_df(location)
        return TorchStudentT(df, location, scale, validate_args=False)

    def check(self, targets: Tensor, outputs: Tensor) -> None:
        check_real(self.name, check_tensors(self.name, targets, outputs), at_least_float32(outputs).dtype)
        super().check(targets, outputs)

    def curvature_diagonal(self, outputs: Tensor) -> Tensor:
        """(df + 1) / ((df + 3) scale^2): the expected Hessian. The Hessian itself is negative far from f."""
        location = at_least_float32(outputs)
        scale, df = self._scale_and_df(location)
        return ((df + 1) / ((df + 3) * scale.square())).expand_as(location)

    def mean_and_variance(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        location = at_least_float32(outputs)
        scale, df = self._scale_and_df(location)
        ratio = torch.where(df > 2, df / (df - 2).clamp_min(1e-30), math.inf)
        return location, (ratio * scale.square()).expand_as(location)

    def tempered(self, factor: float) -> StudentT:
        return with_settings(self, noise_factor=self.noise_factor * factor)

    def for_scaled_targets(self, scale: Sequence[float]) -> StudentT:
        """Return the likelihood of (y - shift) / scale: a fixed scale is divided by that of the targets."""
        if self.noise != "known":
            return self
        if max(scale) > min(scale):
            raise SettingError("student_t: noise 'known' is one scale for all outputs, but their units differ")
        return dataclasses.replace(self, scale=self.scale / scale[0])

    def _scale_and_df(self, like: Tensor) -> tuple[Tensor, Tensor]:
        log_scale = log_of(self.log_scale, self.scale, like)
        return log_scale.exp() * self.noise_factor, log_of(self.log_df, self.df, like).exp()
