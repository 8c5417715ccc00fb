"""Have the chains of a sampler converged, do members agree? Asked of the function they draw, not of weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import SettingError
from ..lifting import BayesianModule
from ..likelihoods import ClassLikelihood, RealLikelihood, for_outputs
from ..metrics.chains import ChainReport, chain_report
from ..nested import map_tensors
from ..predictive import evaluation_mode
from ..random import make_generator
from ..types import BANK, MIXTURE, Inputs, Likelihood
from .disagreement import Disagreement, disagreement_of


def function_space_report(model: BayesianModule, chains: int, inputs: Inputs, likelihood: Likelihood) -> ChainReport:
    """R-hat and ESS of the predictions (class probabilities, or means; else outputs) at the given inputs.

    The model's bank holds the draws of the chains one chain after the other, in the order they were drawn. Weights
    themselves have symmetries on which chains need not agree (Izmailov et al. 2021 compare in function space too).
    """
    drawn = torch.stack([_prediction(outputs, likelihood) for outputs in outputs_of_members(model, inputs)])
    return chain_report(drawn.view(chains, len(drawn) // chains, *drawn.shape[1:]))


def disagreement(
    model: BayesianModule, members: int, inputs: Sequence[Inputs], likelihood: Likelihood
) -> Disagreement | None:
    """Of the members of a bank, each with as many networks as the others; at training inputs, and elsewhere.

    The components of a mixture speak by their mean networks.
    """
    found = []
    for some in inputs:
        outputs = torch.stack(outputs_of_members(model, some))
        # A member of several networks speaks by the mean of their outputs.
        own = outputs.view(members, len(outputs) // members, *outputs.shape[1:]).mean(1)
        found.append(disagreement_of(own, likelihood))
    at_training, elsewhere = found
    return None if at_training is None or elsewhere is None else Disagreement(members, at_training, elsewhere)


@torch.no_grad()
def outputs_of_members(model: BayesianModule, inputs: Inputs) -> list[Tensor]:
    """What each network of a bank gives, or the mean network of each component of a mixture."""
    if MIXTURE in model.posterior_part.provides:
        mixture: Any = model.posterior
        with evaluation_mode(model):
            return [model.call(centre, inputs) for centre in mixture.centres()]
    if BANK not in model.posterior_part.provides:
        raise SettingError(f"posterior '{model.posterior_part.name}' is not a bank of draws; it has no chains")
    posterior = model.posterior
    with evaluation_mode(model):
        return [model.call(posterior.member(index), inputs) for index in range(posterior.members)]


def away_from(inputs: Inputs, seed: int = 0) -> Inputs:
    """As many inputs beside the given ones: where data say little, and priors and chains say the rest.

    Each feature is taken from an example of its own (their dependence is gone, their range and type stay); real numbers
    of every second example are also moved by noise of the feature's std.
    """
    generator = make_generator(seed)

    def moved(tensor: Tensor) -> Tensor:
        if tensor.dim() < 2 or len(tensor) < 2:
            return tensor
        flat = tensor.detach().cpu().reshape(len(tensor), -1)
        order = torch.rand(flat.shape, generator=generator).argsort(0)
        mixed = flat.gather(0, order)
        if mixed.is_floating_point():
            noise = torch.randn(mixed[1::2].shape, generator=generator).to(mixed.dtype)
            mixed[1::2] += noise * flat.std(0)
        return mixed.reshape(tensor.shape).to(tensor)

    return map_tensors(inputs, moved)


def _prediction(outputs: Tensor, likelihood: Likelihood) -> Tensor:
    form = for_outputs(likelihood, outputs)
    if isinstance(form, ClassLikelihood):
        return form.class_probabilities(outputs)
    if isinstance(form, RealLikelihood):
        return form.mean_and_variance(outputs)[0]
    return outputs
