"""From the end of training to the model that predicts."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ..core.protocols import EMPIRICAL, POINT, Averager, Inputs
from ..core.random import derive_seed, make_generator
from ..methods import TrainState
from ..nn import FROZEN, BayesianModule, has_statistics, reestimate_statistics, statistics_of
from ..posteriors import Empirical
from .data import Data
from .devices import Devices, Engine, device_of

NETWORKS_WITH_STATISTICS = 30
"""Draws that are kept where each draw needs its own BatchNorm statistics (the number of SWAG)."""

InputPass = Callable[[], Iterator[Inputs]]


def finalize(state: TrainState, data: Data, seed: int = 0, engine: Engine | None = None) -> BayesianModule:
    """Return the trained model under its final posterior, with BatchNorm statistics that belong to it."""
    place = (Engine(Devices("cpu")) if engine is None else engine).place
    model = state.model.eval()
    generator = make_generator(derive_seed(seed, "finalize"), device_of(model))

    def batches() -> Iterator[tuple[Inputs, Tensor]]:
        return (place((batch.inputs, batch.targets)) for batch in data.epoch(derive_seed(seed, "finalize order")))

    if state.post_hoc is not None:
        posterior = state.post_hoc.fit(
            model.with_prior(state.elbo.prior_for(model)),
            state.likelihood,
            batches(),
            dataset_size=data.examples,
            temperature=state.temperature,
            generator=generator,
        )
        return model.with_posterior(posterior, state.method.prediction)
    if state.averager is None:
        return model
    return averaged_model(model, state.averager, lambda: (inputs for inputs, _ in batches()), generator)


def averaged_model(
    model: BayesianModule, averager: Averager, inputs: InputPass | None, generator: torch.Generator
) -> BayesianModule:
    """Return a copy of the model under the posterior of the averager; the model may train further.

    Args:
        inputs: makes a pass over the training inputs, for BatchNorm statistics; None: they stay.
    """
    frozen = {id(p): p for p in model.net.parameters() if not p.requires_grad}
    own = copy.deepcopy(model, frozen).eval()  # frozen weights are shared
    averaged = own.with_posterior(averager.finalize(own))
    with torch.no_grad():
        for name, value in averager.other_params().items():
            averaged.net.get_parameter(name).copy_(value)
    if inputs is None:
        return averaged
    return with_statistics(averaged, inputs, generator, each_draw=POINT in model.posterior.provides)


def with_statistics(
    model: BayesianModule, inputs: InputPass, generator: torch.Generator, *, each_draw: bool
) -> BayesianModule:
    """Return the model with BatchNorm statistics from a pass over the training inputs.

    Args:
        inputs: makes one pass.
        each_draw: the draws were never trained (SWAG), so each gets statistics of its own; else one set serves all.
    """
    kept = model.selection.other_params == FROZEN or EMPIRICAL in model.posterior.provides
    if kept or not has_statistics(model.net):
        return model
    if not each_draw:
        reestimate_statistics(model, inputs(), generator)
        return model
    count = 1 if POINT in model.posterior.provides else NETWORKS_WITH_STATISTICS
    weights, extras = [], []
    for tensors in model.posterior.draws(count, generator):
        weights.append(model.layout.flatten(tensors))
        extras.append(statistics_of(model, itertools.repeat(tensors), inputs()))
    stacked = {name: torch.stack([extra[name] for extra in extras]) for name in extras[0]}
    return model.with_posterior(Empirical(model.layout, torch.stack(weights), stacked))
