"""Yes or no, once or for each of L labels: p(y = 1 given f) = sigmoid(f)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import DataError, require_positive
from ..random import random_signs
from .class_weights import WeightedPlaces, as_class_weights, safe_root, weight_tensor
from .matching import at_least_float32, first_index, match_shape, require_targets, sum_per_example


@dataclass(eq=False)
class Bernoulli(nn.Module):
    """Targets 0 or 1, independent given the outputs: p(y = 1 given f) = sigmoid(f).

    Outputs are logits (S,), (S, 1) or (S, L) for L labels that may hold at once (any further axes count as
    labels). Targets have the same shape, (S,) and (S, 1) being interchangeable. NLL in nats, summed over
    the labels.

    ``class_weights``: two numbers, what a 0 and a 1 count for (the same for every label); the NLL of a label is
    multiplied by weight_y (``class_weights.py`` says what that means for the posterior). ``temperature`` T divides the
    logits, sigmoid(f / T): above 1 less sure; ``calibrate`` finds one.
    """

    class_weights: Sequence[float] | None = None
    temperature: float = 1.0

    name: ClassVar[str] = "bernoulli"
    paper: ClassVar[str] = "Cox 1958"

    def __post_init__(self) -> None:
        super().__init__()
        self.class_weights = as_class_weights(self.name, self.class_weights)
        require_positive(self.name, "temperature", self.temperature)

    def check(self, targets: Tensor, outputs: Tensor) -> None:
        """Refuse anything but 0 and 1, and wrong shapes."""
        require_targets(self.name, targets, outputs)
        match_shape(self.name, targets, outputs.shape)
        self._weights(outputs)
        wrong = (targets != 0) & (targets != 1)
        if bool(wrong.any()):
            raise DataError(
                f"bernoulli: target {targets[wrong][0].item():g} at index {first_index(wrong)}; targets must be 0 or 1"
            )

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """(S,): sum of weight_y (softplus(f) - y f)."""
        weights, losses = self._weights(outputs), self.place_nll(outputs, targets)
        if weights is not None:
            losses = losses * weights[match_shape(self.name, targets, losses.shape).long()]
        return sum_per_example(losses)

    def place_nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The NLL of every label, without weights; with the shape of the outputs."""
        logits = self._logits(outputs)
        matched = match_shape(self.name, targets, logits.shape).to(logits.dtype)
        return F.binary_cross_entropy_with_logits(logits, matched, reduction="none")

    @torch.no_grad()
    def sample_targets(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        """0 or 1 drawn from sigmoid(f), with the shape of the outputs."""
        return torch.bernoulli(torch.sigmoid(self._logits(outputs)), generator=generator)

    def curvature_root(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        """u = sqrt(p (1 - p)) z, z random signs: E[u u'] = diag(p (1 - p)) (over T^2 at another temperature).

        With class weights the Hessian depends on the label; here is its expectation over labels from the model,
        ((1 - p) weight_0 + p weight_1) p (1 - p).
        """
        root = self.plain_root(outputs, generator)
        weights = self._weights(outputs)
        if weights is None:
            return root
        p = torch.sigmoid(self._logits(outputs))
        return root * safe_root((1 - p) * weights[0] + p * weights[1])

    def plain_root(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        """The root without weights."""
        logits = self._logits(outputs)
        # In logs: the derivative of sqrt is infinite where p (1 - p) underflows to 0.
        root = (F.logsigmoid(logits) + F.logsigmoid(-logits)).mul(0.5).exp()
        return root * random_signs(root.shape, like=root, generator=generator) / self.temperature

    def class_probabilities(self, outputs: Tensor) -> Tensor:
        """p(y = 0), p(y = 1) on the last axis: (S, 2) for one logit, (S, L, 2) for L."""
        logits = self._logits(outputs)
        if logits.dim() == 2 and logits.shape[1] == 1:
            logits = logits.squeeze(1)
        return torch.stack([torch.sigmoid(-logits), torch.sigmoid(logits)], dim=-1)

    def weighted_as(self, targets: Tensor) -> Bernoulli | WeightedPlaces:
        """This likelihood for drawn labels and curvature, each label weighted as it is for these targets."""
        if self.class_weights is None:
            return self
        weights = torch.tensor(self.class_weights, device=targets.device)
        return WeightedPlaces(self, weights[targets.long()])

    def spread(self, places: Tensor, outputs: Tensor) -> Tensor:
        """A number for each label, in the shape of the outputs."""
        return match_shape(self.name, places, outputs.shape)

    def widened(self, factor: float) -> Bernoulli:
        """This likelihood at a temperature so many times as high."""
        return dataclasses.replace(self, temperature=self.temperature * factor)

    def _logits(self, outputs: Tensor) -> Tensor:
        """f / T; the outputs themselves at T = 1."""
        values = at_least_float32(outputs)
        return values if self.temperature == 1 else values / self.temperature

    def _weights(self, outputs: Tensor) -> Tensor | None:
        if self.class_weights is None:
            return None
        return weight_tensor(self.name, tuple(self.class_weights), 2, self._logits(outputs))
