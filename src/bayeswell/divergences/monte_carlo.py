"""Divergences estimated at the step's own weight draws: E_q[log q(w) - log p(w)]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.func import functional_call

from ..baselines import NONE, check_baseline, deviations
from ..types import LOG_PROB, WEIGHT_SAMPLE, Posterior, Prior


def log_prob_at_constant_parameters(posterior: Posterior, weights: Tensor) -> Tensor:
    """log q(w) as a function of w alone: the posterior's parameters are held constant."""
    constant = {name: parameter.detach() for name, parameter in posterior.named_parameters()}
    value: Tensor = functional_call(posterior, constant, (weights,))
    return value


def _draw(posterior: Posterior, noise: Tensor | None) -> Tensor:
    assert noise is not None  # assembly has made sure that the estimator draws weights
    return posterior.sample(noise)


@dataclass(frozen=True)
class MonteCarlo:
    """KL ~ mean over draws of log q(w) - log p(w), differentiated through everything (total derivative)."""

    name: ClassVar[str] = "monte_carlo"
    paper: ClassVar[str] = "Blundell et al. 2015, eq. (2)"
    needs: ClassVar[frozenset[str]] = frozenset({WEIGHT_SAMPLE, LOG_PROB})

    def __call__(self, posterior: Posterior, prior: Prior, noise: Tensor | None) -> tuple[Tensor | None, Tensor]:
        """Draws and the estimate."""
        weights = _draw(posterior, noise)
        return weights, (posterior(weights) - prior.log_prob(weights)).mean()


@dataclass(frozen=True)
class PathDerivative:
    """The Monte Carlo KL without the score term: gradients flow through the draw only.

    With w = t(eps, theta): d/dtheta = dt/dtheta . d/dw [log q(w) - log p(w)]; the dropped term
    d/dtheta log q(w) has mean zero. The gradient of the whole objective is zero for every draw once q is the
    exact posterior; far from it, with tiny stds, it is noisier than the analytic form (eps/std for each weight).
    """

    name: ClassVar[str] = "path_derivative"
    paper: ClassVar[str] = "Roeder et al. 2017; Book 2020, eq. (2.2.5)"
    needs: ClassVar[frozenset[str]] = frozenset({WEIGHT_SAMPLE, LOG_PROB})

    def __call__(self, posterior: Posterior, prior: Prior, noise: Tensor | None) -> tuple[Tensor | None, Tensor]:
        """Draws and the estimate."""
        weights = _draw(posterior, noise)
        return weights, (log_prob_at_constant_parameters(posterior, weights) - prior.log_prob(weights)).mean()


@dataclass(frozen=True)
class ScoreFunction:
    """The Monte Carlo KL with the score-function gradient (log q - log p) d/dtheta log q(w): for the record.

    Nothing of the KL flows through the draw, so the variance is high; it is here to be compared with. Of the thesis'
    eq. (2.2.2), which has the likelihood under the score too, it is the KL's part; with estimator ``score_function``,
    which is the NLL's, it is the whole. ``baseline`` ``"leave_one_out"`` subtracts the mean of the step's other draws
    from log q - log p: the same expectation, less noise; it needs an estimator with two draws or more.
    """

    baseline: str = NONE

    name: ClassVar[str] = "score_function"
    paper: ClassVar[str] = "Williams 1992; Book 2020, eq. (2.2.2)"
    needs: ClassVar[frozenset[str]] = frozenset({WEIGHT_SAMPLE, LOG_PROB})

    def __post_init__(self) -> None:
        check_baseline("divergence score_function", self.baseline)

    def __call__(self, posterior: Posterior, prior: Prior, noise: Tensor | None) -> tuple[Tensor | None, Tensor]:
        """Draws and the estimate; the value is the Monte Carlo KL, the gradient the score function's."""
        weights = _draw(posterior, noise)
        check_baseline("divergence score_function", self.baseline, len(weights))
        fixed = weights.detach()
        log_q = posterior(fixed)
        value = (log_q - prior.log_prob(fixed)).detach()
        # value + (surrogate - its own value): only the surrogate's gradient remains.
        surrogate = deviations(value, self.baseline) * (log_q - log_q.detach())
        return weights, (value + surrogate).mean()
