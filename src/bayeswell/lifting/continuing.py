"""A trained model as the beginning of another training."""

from __future__ import annotations

import copy
from dataclasses import dataclass

from ..composition import check_estimator
from ..errors import CompositionError
from ..priors import FlatPrior, LearnedPrior, PriorChoice, is_posterior, lay_out
from ..registry import bare
from ..types import WITHOUT_CENTRE, Estimator, PosteriorPart
from .module import BayesianModule


@dataclass(frozen=True)
class Trained:
    """A trained model to go on from, under its own prior or another.

    ``refilled``: every number will be filled in from the state that its training ended with.
    """

    model: BayesianModule
    keeps_prior: bool = True
    refilled: bool = False


def continued(
    trained: Trained, posterior: PosteriorPart, prior: PriorChoice, estimator: Estimator, prediction: str
) -> BayesianModule:
    """A copy of a trained model, to be trained on.

    A posterior of the same family goes on as it is; another one starts at its mean. ``prior`` "posterior" makes the
    trained posterior the prior. A bank of networks has no mean that is a network: it is refused, unless all numbers
    will be filled in.
    """
    check_estimator(posterior, estimator)
    copied = copy.deepcopy(trained.model)
    own = copied.posterior_part
    if own.provides & WITHOUT_CENTRE and not trained.refilled:
        raise CompositionError(
            f"posterior '{own.name}' is a bank of networks or of distributions, from which no training can go on (but "
            "that of the result of `fit` itself, with the same data); train a network anew"
        )
    laid_out: FlatPrior | LearnedPrior = copied.prior
    if is_posterior(prior) and not trained.keeps_prior:
        laid_out = LearnedPrior(own, copied.posterior)
    elif not trained.keeps_prior:
        laid_out = lay_out(prior, copied.layout, like=copied.posterior.mean_vector().detach())
    state = copied.posterior
    if bare(own) != bare(posterior):  # another family, or other settings of it
        state = posterior.build(copied.layout, laid_out, copied.posterior.mean_vector().detach())
        own = posterior
    return copied.with_parts(own, state, laid_out, estimator, prediction)
