"""What all estimators that average over draws share."""

from __future__ import annotations

from torch import Tensor

from ..types import BayesianModel, Estimator, ExpectedNLL, Step


def average_nll(
    estimator: Estimator, model: BayesianModel, weights: Tensor | None, step: Step, draws: int
) -> ExpectedNLL:
    """The mean of the batch NLL over ``draws`` stochastic passes; row d of ``weights`` serves pass d."""
    total = None
    outputs = None
    # Not weights[draw]: its derivative is a vector of zeros with one row filled in, for every draw.
    rows = [None] * draws if weights is None else [weights.squeeze(0)] if draws == 1 else weights.unbind(0)
    for drawn in rows:
        outputs = estimator.forward(model, drawn, step)
        nll = step.nll(outputs)
        total = nll if total is None else total + nll
    assert total is not None
    return ExpectedNLL(nll=total / draws if draws > 1 else total, outputs=outputs)
