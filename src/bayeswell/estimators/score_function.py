"""The score function: the expected log-likelihood by values alone, no gradient passes through the network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..baselines import NONE, check_baseline, deviations
from ..errors import require_count
from ..random import standard_normal
from ..types import LOG_PROB, WEIGHT_SAMPLE, BayesianModel, Estimator, ExpectedNLL, Step


@dataclass(frozen=True)
class ScoreSampling(Estimator):
    """E_q[NLL] ~ mean over draws of NLL(w), its gradient (NLL(w) - b) d/dtheta log q(w) at w held fixed: REINFORCE.

    The likelihood's part of the thesis' eq. (2.2.2), which with divergence ``score_function`` at the same draws is

        d/dtheta L = E_q[log(q(w) / (p(y given x, w) p(w))) d/dtheta log q(w)]

    as a whole, here divided by N (the NLL is a mean over the batch). With any other divergence the KL keeps that one's
    gradient. The network need not be differentiable in its Bayesian weights, and no backward pass goes through them;
    what has no posterior (normalisation layers, learned noise) keeps its ordinary gradient.

    Unbiased, and for the record: the variance is that of NLL(w) (w - mean) / std^2 instead of d NLL / dw, larger
    by about the squared NLL over the std (times the slope), and grows with the number of weights. ``baseline``
    ``"leave_one_out"`` takes for b the mean NLL of the step's other draws, which does not know w, so that the
    expectation stays; it needs ``draws`` of at least 2.
    """

    draws: int = 1
    baseline: str = NONE

    name: ClassVar[str] = "score_function"
    paper: ClassVar[str] = "Williams 1992; Book 2020, eq. (2.2.2); Kool et al. 2019 (leave-one-out)"
    needs: ClassVar[frozenset[str]] = frozenset({WEIGHT_SAMPLE, LOG_PROB})
    provides: ClassVar[frozenset[str]] = frozenset({WEIGHT_SAMPLE})

    def __post_init__(self) -> None:
        require_count("score_function", "draws", self.draws)
        check_baseline("score_function", self.baseline, self.draws)

    @property
    def differentiates_weights(self) -> bool:
        """Never: draws are held fixed."""
        return False

    @property
    def shares_draws(self) -> bool:
        """The batch sees the drawn weights themselves."""
        return True

    def noise(self, model: BayesianModel, step: Step) -> Tensor | None:
        """(draws, noise_size)."""
        size = model.posterior.noise_size
        return standard_normal((self.draws, size), like=model.posterior.like(), generator=step.generator)

    def forward(self, model: BayesianModel, weights: Tensor | None, step: Step) -> Any:
        """The network at one weight draw, held fixed."""
        assert weights is not None
        return model.call(model.layout.unflatten(weights.detach()), step.inputs)

    def expected_nll(self, model: BayesianModel, weights: Tensor | None, step: Step) -> ExpectedNLL:
        """The mean over the draws, with the score's gradient for what the posterior is made of."""
        assert weights is not None
        fixed = weights.detach()
        outputs, found = None, []
        for drawn in fixed.unbind(0):
            outputs = self.forward(model, drawn, step)
            found.append(step.nll(outputs))
        losses = torch.stack(found)
        log_q = model.posterior(fixed)
        # A score whose own value is zero: only its gradient is added.
        score = log_q - log_q.detach()
        return ExpectedNLL((losses + deviations(losses.detach(), self.baseline) * score).mean(), outputs)

    @property
    def passes(self) -> int:
        """One for each draw."""
        return self.draws

    @property
    def cost(self) -> float:
        """In forward passes; there is no backward pass through the weights."""
        return float(self.draws)
