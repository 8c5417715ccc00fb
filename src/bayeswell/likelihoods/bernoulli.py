"""Yes or no, once or for each of L labels: p(y = 1 given f) = sigmoid(f)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import DataError
from ..random import random_signs
from .matching import at_least_float32, first_index, match_shape, require_targets, sum_per_example


@dataclass(eq=False)
class Bernoulli(nn.Module):
    """Targets 0 or 1, independent given the outputs: p(y = 1 given f) = sigmoid(f).

    Outputs are logits (S,), (S, 1) or (S, L) for L labels that may hold at once (any further axes count as
    labels). Targets have the same shape, (S,) and (S, 1) being interchangeable. NLL in nats, summed over
    the labels.
    """

    name: ClassVar[str] = "bernoulli"
    paper: ClassVar[str] = "Cox 1958"

    def __post_init__(self) -> None:
        super().__init__()

    def check(self, targets: Tensor, outputs: Tensor) -> None:
        """Refuse anything but 0 and 1, and wrong shapes."""
        require_targets(self.name, targets, outputs)
        match_shape(self.name, targets, outputs.shape)
        wrong = (targets != 0) & (targets != 1)
        if bool(wrong.any()):
            raise DataError(
                f"bernoulli: target {targets[wrong][0].item():g} at index {first_index(wrong)}; targets must be 0 or 1"
            )

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """(S,): softplus(f) - y f."""
        logits = at_least_float32(outputs)
        matched = match_shape(self.name, targets, logits.shape).to(logits.dtype)
        return sum_per_example(F.binary_cross_entropy_with_logits(logits, matched, reduction="none"))

    @torch.no_grad()
    def sample_targets(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        """0 or 1 drawn from sigmoid(f), with the shape of the outputs."""
        return torch.bernoulli(torch.sigmoid(at_least_float32(outputs)), generator=generator)

    def curvature_root(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        """u = sqrt(p (1 - p)) z, z random signs: E[u u'] = diag(p (1 - p))."""
        logits = at_least_float32(outputs)
        # In logs: the derivative of sqrt is infinite where p (1 - p) underflows to 0.
        root = (F.logsigmoid(logits) + F.logsigmoid(-logits)).mul(0.5).exp()
        return root * random_signs(root.shape, like=root, generator=generator)

    def class_probabilities(self, outputs: Tensor) -> Tensor:
        """p(y = 0), p(y = 1) on the last axis: (S, 2) for one logit, (S, L, 2) for L."""
        logits = at_least_float32(outputs)
        if logits.dim() == 2 and logits.shape[1] == 1:
            logits = logits.squeeze(1)
        return torch.stack([torch.sigmoid(-logits), torch.sigmoid(logits)], dim=-1)
