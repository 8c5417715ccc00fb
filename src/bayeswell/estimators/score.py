"""The score function: E_q[NLL] by values alone; no gradient passes through the network.

Since E_q[d/dtheta log q(w)] = 0, a baseline that does not depend on w may be subtracted from the values that multiply
the score: the expectation stays, and the variance is smallest near the mean of the values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..core.errors import SettingError, check_choice, check_integer
from ..core.protocols import INDEPENDENT_DRAWS, LOG_PROB, WEIGHT_SAMPLE, BatchContext, BayesianModel, Estimator
from .weight_sampling import weight_noise

NONE, LEAVE_ONE_OUT = "none", "leave_one_out"


def check_baseline(owner: str, baseline: str, draws: int | None = None) -> None:
    """Refuse an unknown baseline, and leave-one-out with a single draw."""
    check_choice(owner, "baseline", baseline, (NONE, LEAVE_ONE_OUT))
    if baseline == LEAVE_ONE_OUT and draws is not None and draws < 2:
        raise SettingError(f"{owner}: baseline 'leave_one_out' needs an estimator with at least 2 draws, got {draws}")


def subtract_baseline(values: Tensor, baseline: str) -> Tensor:
    """Return (D,) values less their baseline; leave-one-out: v_d - mean of the others = D / (D - 1) (v_d - mean)."""
    if baseline == NONE:
        return values
    count = len(values)
    return (values - values.mean()) * (count / (count - 1))


@dataclass(frozen=True)
class ScoreSampling(Estimator):
    """E_q[NLL] ~ mean over draws of NLL(w), its gradient (NLL(w) - b) d/dtheta log q(w) at w held fixed: REINFORCE.

    The likelihood's part of the thesis' eq. (2.2.2), which with divergence ``score_function`` at the same draws is

        d/dtheta L = E_q[log(q(w) / (p(y given x, w) p(w))) d/dtheta log q(w)]

    as a whole, here divided by N (the NLL is a mean over the batch). The network need not be differentiable in its
    Bayesian weights. Parameters without a posterior (normalization layers, learned noise) keep their ordinary gradient.

    Unbiased; the variance is that of NLL(w) (w - mean) / std^2 instead of d NLL / dw and grows with the number of
    weights. With ``baseline="leave_one_out"`` b is the mean NLL of the step's other draws, which does not depend on w;
    it needs at least two draws.
    """

    draws: int = 1
    baseline: str = NONE

    name: ClassVar[str] = "score_function"
    paper: ClassVar[str] = "Williams 1992; Book 2020, eq. (2.2.2); Kool et al. 2019 (leave-one-out)"
    needs: ClassVar[frozenset[str]] = frozenset({WEIGHT_SAMPLE, LOG_PROB})
    provides: ClassVar[frozenset[str]] = frozenset({WEIGHT_SAMPLE, INDEPENDENT_DRAWS})
    uses_weight_gradient: ClassVar[bool] = False  # type: ignore[misc]

    def __post_init__(self) -> None:
        check_integer("score_function", "draws", self.draws)
        check_baseline("score_function", self.baseline, self.draws)

    @property
    def cost(self) -> float:  # type: ignore[override]
        return float(self.draws)

    def noise(self, model: BayesianModel, batch: BatchContext) -> Tensor | None:
        return weight_noise(self.draws, model, batch)

    def nll(self, model: BayesianModel, weights: Tensor, batch: BatchContext) -> tuple[Tensor, Any]:
        fixed = weights.detach()
        losses: list[Tensor] = []
        outputs = None
        for drawn in fixed.unbind(0):
            outputs = model.call(model.layout.unflatten(drawn), batch.inputs)
            losses.append(batch.mean_nll(outputs))
        values = torch.stack(losses)
        log_q = model.posterior.log_prob(fixed)
        # The score's own value is zero; only its gradient is added.
        score = log_q - log_q.detach()
        return (values + subtract_baseline(values.detach(), self.baseline) * score).mean(), outputs
