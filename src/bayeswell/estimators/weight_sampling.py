"""Weight sampling: one weight vector for the whole batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import SettingError, require_count
from ..random import standard_normal
from ..types import WEIGHT_SAMPLE, BayesianModel, Estimator, ExpectedNLL, Step
from .sampling import average_nll


@dataclass(frozen=True)
class WeightSampling(Estimator):
    """E_q[NLL] ~ mean over draws of NLL(w), w = mean + std * noise, the noise shared by the batch.

    Works with every posterior and every layer. ``antithetic`` draws come in pairs +noise and -noise: terms of
    odd order cancel, at the cost of the same number of passes.
    """

    draws: int = 1
    antithetic: bool = False

    name: ClassVar[str] = "weight_sampling"
    paper: ClassVar[str] = "Blundell et al. 2015; Kingma & Welling 2014"
    needs: ClassVar[frozenset[str]] = frozenset({WEIGHT_SAMPLE})
    provides: ClassVar[frozenset[str]] = frozenset({WEIGHT_SAMPLE})

    def __post_init__(self) -> None:
        require_count("weight_sampling", "draws", self.draws)
        if self.antithetic and self.draws % 2:
            raise SettingError(f"weight_sampling: draws = {self.draws}; antithetic pairs need an even number")

    @property
    def draws_one_vector(self) -> bool:
        """One draw, by itself."""
        return self.draws == 1

    def noise(self, model: BayesianModel, step: Step) -> Tensor | None:
        """(draws, noise_size), the second half minus the first if antithetic."""
        size, like = model.posterior.noise_size, model.posterior.like()
        if not self.antithetic:
            return standard_normal((self.draws, size), like=like, generator=step.generator)
        half = standard_normal((self.draws // 2, size), like=like, generator=step.generator)
        return torch.cat([half, -half])

    def forward(self, model: BayesianModel, weights: Tensor | None, step: Step) -> Any:
        """The network at one weight draw."""
        assert weights is not None
        return model.call(model.layout.unflatten(weights), step.inputs)

    def expected_nll(self, model: BayesianModel, weights: Tensor | None, step: Step) -> ExpectedNLL:
        """The mean over the draws."""
        return average_nll(self, model, weights, step, self.draws)

    @property
    def passes(self) -> int:
        """One for each draw."""
        return self.draws

    @property
    def shares_draws(self) -> bool:
        """The batch sees the drawn weights themselves."""
        return True

    @property
    def cost(self) -> float:
        """In forward passes."""
        return 3.0 * self.draws
