"""Binary labels, one or several for each example: p(y = 1 | f) = sigmoid(f)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from ..core.errors import DataError, DataWarning, SettingError, check_number
from ..core.protocols import Likelihood
from .common import (
    DiagonalCurvature,
    as_class_weights,
    at_least_float32,
    check_tensors,
    first_wrong,
    match_shape,
    sum_per_example,
    weighted_copy,
    with_settings,
)


@dataclass(eq=False)
class Bernoulli(DiagonalCurvature):
    """Targets 0 or 1, independent given the outputs: p(y = 1 | f) = sigmoid(f / T).

    Outputs are logits (S,), (S, 1) or (S, L) for L labels that may hold at once (further axes count as labels).
    Targets have the same shape; (S,) and (S, 1) are interchangeable. NLL in nats, summed over the labels.

    Args:
        class_weights: what a 0 and a 1 count for, the same for every label (see ``Categorical``).
        temperature: T divides the logits; above 1 the probabilities are less sure.
    """

    class_weights: Sequence[float] | None = None
    temperature: float = 1.0

    name: ClassVar[str] = "bernoulli"
    paper: ClassVar[str] = "Cox 1958"

    def __post_init__(self) -> None:
        super().__init__()
        self._position_roots: Tensor | None = None
        self.class_weights = as_class_weights(self.name, self.class_weights)
        if self.class_weights is not None and len(self.class_weights) != 2:
            raise SettingError(f"bernoulli: `class_weights` must be two numbers, got {self.class_weights!r}")
        check_number(self.name, "temperature", self.temperature, 0, above=True)

    def check(self, targets: Tensor, outputs: Tensor) -> None:
        """Refuse targets other than 0 and 1 and wrong shapes; warn about sigmoid outputs."""
        targets = check_tensors(self.name, targets, outputs)
        match_shape(self.name, targets, outputs.shape)
        wrong = (targets != 0) & (targets != 1)
        if bool(wrong.any()):
            raise DataError(f"bernoulli: {first_wrong(targets, wrong)}; targets must be 0 or 1")
        values = at_least_float32(outputs.detach())
        # Untrained logits scatter around 0, untrained sigmoids around 1/2.
        inside = (values >= 0).all() & (values <= 1).all()
        if values.numel() >= 16 and bool(inside & ((values.mean() - 0.5).abs() < 0.15)):
            message = (
                "the outputs lie in 0 to 1; the likelihood applies the sigmoid itself, so remove it from the network"
            )
            warnings.warn(f"bernoulli: {message}", DataWarning, stacklevel=2)

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """(S,): sum of weight_y (softplus(f) - y f)."""
        logits = self._logits(outputs)
        labels = match_shape(self.name, targets, logits.shape)
        losses = F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="none")
        if self.class_weights is not None:
            losses = losses * losses.new_tensor(self.class_weights)[labels.long()]
        elif self._position_roots is not None:
            losses = losses * self._position_roots.reshape(losses.shape)
        return sum_per_example(losses)

    @torch.no_grad()
    def sample(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return torch.bernoulli(torch.sigmoid(self._logits(outputs)), generator=generator)

    def curvature_diagonal(self, outputs: Tensor) -> Tensor:
        """p (1 - p) / T^2: the Hessian, which is diagonal.

        With class weights it depends on the label; here is its expectation over labels, larger by the factor
        (1 - p) weight_0 + p weight_1.
        """
        logits = self._logits(outputs)
        # In logs: 1 - p would round to 0.
        diagonal = (F.logsigmoid(logits) + F.logsigmoid(-logits)).exp() / self.temperature**2
        if self._position_roots is not None:
            return diagonal * self._position_roots.square().reshape(diagonal.shape).to(diagonal.dtype)
        if self.class_weights is None:
            return diagonal
        p = torch.sigmoid(logits)
        return diagonal * ((1 - p) * self.class_weights[0] + p * self.class_weights[1])

    def probabilities(self, outputs: Tensor) -> Tensor:
        """p(y = 0), p(y = 1) on the last axis: (S, 2) for one logit, (S, L, 2) for L."""
        logits = self._logits(outputs)
        if logits.dim() == 2 and logits.shape[1] == 1:
            logits = logits.squeeze(1)
        return torch.stack([torch.sigmoid(-logits), torch.sigmoid(logits)], dim=-1)

    def tempered(self, factor: float) -> Bernoulli:
        return with_settings(self, temperature=self.temperature * factor)

    def for_sampled_targets(self, targets: Tensor) -> Likelihood:
        if self.class_weights is None:
            return self
        return weighted_copy(self, torch.tensor(self.class_weights, device=targets.device)[targets.long()])

    def _logits(self, outputs: Tensor) -> Tensor:
        values = at_least_float32(outputs)
        return values if self.temperature == 1 else values / self.temperature
