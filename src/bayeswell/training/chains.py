"""Have the chains of a sampler converged? Asked of the function they draw, not of weights."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import SettingError
from ..lifting import BayesianModule
from ..likelihoods import ClassLikelihood, RealLikelihood, for_outputs
from ..metrics.chains import ChainReport, chain_report
from ..predictive import evaluation_mode
from ..types import BANK, Inputs, Likelihood


def function_space_report(model: BayesianModule, chains: int, inputs: Inputs, likelihood: Likelihood) -> ChainReport:
    """R-hat and ESS of the predictions (class probabilities, or means; else outputs) at the given inputs.

    The model's bank holds the draws of the chains one chain after the other, in the order they were drawn. Weights
    themselves have symmetries on which chains need not agree (Izmailov et al. 2021 compare in function space too).
    """
    posterior = model.posterior
    if BANK not in model.posterior_part.provides:
        raise SettingError(f"posterior '{model.posterior_part.name}' is not a bank of draws; it has no chains")
    with torch.no_grad(), evaluation_mode(model):
        values = [
            _prediction(model.call(posterior.member(index), inputs), likelihood) for index in range(posterior.members)
        ]
    drawn = torch.stack(values)
    return chain_report(drawn.view(chains, len(values) // chains, *drawn.shape[1:]))


def _prediction(outputs: Tensor, likelihood: Likelihood) -> Tensor:
    form = for_outputs(likelihood, outputs)
    if isinstance(form, ClassLikelihood):
        return form.class_probabilities(outputs)
    if isinstance(form, RealLikelihood):
        return form.mean_and_variance(outputs)[0]
    return outputs
