"""Weight sampling: one weight vector for the whole batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..core.errors import SettingError, check_integer
from ..core.protocols import INDEPENDENT_DRAWS, WEIGHT_SAMPLE, BatchContext, BayesianModel, Estimator
from ..core.random import standard_normal


@dataclass(frozen=True)
class WeightSampling(Estimator):
    """E_q[NLL] ~ mean over draws of NLL(w), w = mean + std * noise, the noise shared by the batch.

    Works with every posterior and every layer. ``antithetic`` draws come in pairs +noise and -noise: terms of odd order
    cancel, at the cost of the same number of passes.
    """

    draws: int = 1
    antithetic: bool = False

    name: ClassVar[str] = "weight_sampling"
    paper: ClassVar[str] = "Blundell et al. 2015; Kingma & Welling 2014"
    needs: ClassVar[frozenset[str]] = frozenset({WEIGHT_SAMPLE})

    def __post_init__(self) -> None:
        check_integer("weight_sampling", "draws", self.draws)
        if self.antithetic and self.draws % 2:
            raise SettingError(f"weight_sampling: antithetic pairs need an even number of `draws`, got {self.draws}")

    @property
    def provides(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({WEIGHT_SAMPLE} if self.antithetic else {WEIGHT_SAMPLE, INDEPENDENT_DRAWS})

    @property
    def cost(self) -> float:  # type: ignore[override]
        return 3.0 * self.draws

    def noise(self, model: BayesianModel, batch: BatchContext) -> Tensor | None:
        """(draws, noise_size); the second half is minus the first if antithetic."""
        if not self.antithetic:
            return weight_noise(self.draws, model, batch)
        half = weight_noise(self.draws // 2, model, batch)
        return torch.cat([half, -half])

    def nll(self, model: BayesianModel, weights: Tensor, batch: BatchContext) -> tuple[Tensor, Any]:
        def forward(drawn: Tensor, offset: Tensor | None) -> Tensor:
            return model.call(model.layout.unflatten(drawn), batch.inputs)

        return average_nll(forward, weights, batch)


def weight_noise(draws: int, model: BayesianModel, batch: BatchContext) -> Tensor:
    """(draws, noise_size) standard normal numbers."""
    posterior = model.posterior
    like = next(posterior.parameters())
    return standard_normal((draws, posterior.noise_size), like=like, generator=batch.generator)


def average_nll(
    forward: Callable[[Tensor, Tensor | None], Tensor], weights: Tensor, batch: BatchContext
) -> tuple[Tensor, Any]:
    """Return the mean over the draws of the batch NLL, and the outputs of the last pass.

    Args:
        forward: (weights (P,), their offset or None) -> outputs.
        weights: (D, P).
        batch: with ``offset`` (D, P) or None.
    """
    count, outputs = len(weights), None
    if count == 1:
        # Not weights[0]: its derivative fills a tensor of zeros.
        outputs = forward(weights.squeeze(0), None if batch.offset is None else batch.offset.squeeze(0))
        return batch.mean_nll(outputs), outputs
    offsets = [None] * count if batch.offset is None else batch.offset.unbind(0)
    losses: list[Tensor] = []
    for drawn, offset in zip(weights.unbind(0), offsets, strict=True):
        outputs = forward(drawn, offset)
        losses.append(batch.mean_nll(outputs))
    return torch.stack(losses).mean(), outputs
