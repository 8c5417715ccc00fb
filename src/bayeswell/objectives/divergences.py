"""Estimates of KL(q || p) and of its gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.func import functional_call

from ..core.protocols import ENTROPY, INDEPENDENT_DRAWS, LOG_PROB, WEIGHT_SAMPLE, Divergence, Posterior, Prior
from ..core.registry import Registry
from ..estimators.score import NONE, check_baseline, subtract_baseline


@dataclass(frozen=True)
class Analytic:
    """KL = -H[q] - E_q[log p] in closed form: no noise in value or gradient. For a delta it is -log p(w)."""

    name: ClassVar[str] = "analytic"
    paper: ClassVar[str] = "Kingma & Welling 2014, appendix B"
    needs: ClassVar[frozenset[str]] = frozenset({ENTROPY})

    def __call__(self, posterior: Posterior, prior: Prior, noise: Tensor | None) -> tuple[Tensor | None, Tensor]:
        return posterior.rsample_and_kl(noise, prior)


@dataclass(frozen=True)
class MonteCarlo:
    """KL ~ mean over draws of log q(w) - log p(w), differentiated through everything (total derivative)."""

    name: ClassVar[str] = "monte_carlo"
    paper: ClassVar[str] = "Blundell et al. 2015, eq. (2)"
    needs: ClassVar[frozenset[str]] = frozenset({WEIGHT_SAMPLE, LOG_PROB})

    def __call__(self, posterior: Posterior, prior: Prior, noise: Tensor | None) -> tuple[Tensor | None, Tensor]:
        weights = _draw(posterior, noise)
        return weights, (posterior.log_prob(weights) - prior.log_prob(weights)).mean()


@dataclass(frozen=True)
class PathDerivative:
    """The Monte Carlo KL without the score term: gradients flow through the draw only.

    With w = t(eps, theta): d/dtheta = dt/dtheta . d/dw [log q(w) - log p(w)]; the dropped term d/dtheta log q(w) has
    mean zero. The gradient of the whole objective is zero for every draw once q is the exact posterior. Far from it,
    with tiny stds, it is noisier than the analytic form (eps/std for each weight).
    """

    name: ClassVar[str] = "path_derivative"
    paper: ClassVar[str] = "Roeder et al. 2017; Book 2020, eq. (2.2.5)"
    needs: ClassVar[frozenset[str]] = frozenset({WEIGHT_SAMPLE, LOG_PROB})

    def __call__(self, posterior: Posterior, prior: Prior, noise: Tensor | None) -> tuple[Tensor | None, Tensor]:
        weights = _draw(posterior, noise)
        constant = {name: parameter.detach() for name, parameter in posterior.named_parameters()}
        log_q: Tensor = functional_call(posterior, constant, (weights,))
        return weights, (log_q - prior.log_prob(weights)).mean()


@dataclass(frozen=True)
class ScoreFunction:
    """The Monte Carlo KL with the score-function gradient (log q - log p) d/dtheta log q(w).

    Nothing of the KL flows through the draw, so the variance is high; it is here for comparison. It is the KL's part of
    the thesis' eq. (2.2.2), whose other part is estimator ``score_function``. ``baseline="leave_one_out"`` subtracts
    the mean of the step's other draws from log q - log p: the same expectation with less noise, from two draws on.
    """

    baseline: str = NONE

    name: ClassVar[str] = "score_function"
    paper: ClassVar[str] = "Williams 1992; Book 2020, eq. (2.2.2)"

    def __post_init__(self) -> None:
        check_baseline("divergence score_function", self.baseline)

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({WEIGHT_SAMPLE, LOG_PROB, *([INDEPENDENT_DRAWS] if self.baseline != NONE else [])})

    def __call__(self, posterior: Posterior, prior: Prior, noise: Tensor | None) -> tuple[Tensor | None, Tensor]:
        weights = _draw(posterior, noise)
        check_baseline("divergence score_function", self.baseline, len(weights))
        fixed = weights.detach()
        log_q = posterior.log_prob(fixed)
        value = (log_q - prior.log_prob(fixed)).detach()
        # The surrogate has value zero; only its gradient is added.
        surrogate = subtract_baseline(value, self.baseline) * (log_q - log_q.detach())
        return weights, (value + surrogate).mean()


def _draw(posterior: Posterior, noise: Tensor | None) -> Tensor:
    assert noise is not None  # WEIGHT_SAMPLE is among the needs.
    return posterior.rsample(noise)


DIVERGENCES: Registry[Divergence] = Registry(
    "divergence", Analytic, MonteCarlo, PathDerivative, ScoreFunction, requires=("__call__",)
)
"""Divergences by name."""
