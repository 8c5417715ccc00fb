"""From the end of a run to the model that is kept."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
from torch import Tensor

from ..errors import BayeswellError
from ..lifting import FROZEN, BayesianModule
from ..lifting.statistics import has_statistics, reestimate, statistics_over
from ..posteriors import Empirical, EmpiricalPosterior
from ..random import derive_seed, make_generator
from ..types import BANK, POINT, Collector, Inputs
from .run import Run

BANK_WITH_STATISTICS = 30
"""Draws kept of a posterior whose networks need BatchNorm statistics of their own (SWAG's usual number)."""


def final_model(run: Run) -> BayesianModule:
    """The trained model under its final posterior, with BatchNorm statistics that belong to it."""
    assembly, model = run.assembly, run.assembly.model
    # A stream of its own: every rank ends with the same network.
    generator = make_generator(derive_seed(run.streams.seed, "ending", "noise"), run.engine.device)
    if assembly.post_hoc is not None:
        examples = run.batches.examples
        post_hoc = assembly.post_hoc.tempered(assembly.temperature)
        part, posterior = post_hoc.finish(model, assembly.likelihood, one_pass(run), examples, generator)
        return model.with_posterior(part, posterior)
    if assembly.collector is None:
        return model

    def pass_over_inputs() -> Iterator[Inputs]:
        return (inputs for inputs, _ in one_pass(run))

    return collected_model(model, assembly.collector, pass_over_inputs, run.batches.count, generator)


def collected_model(
    model: BayesianModule, collector: Collector, inputs: Callable[[], Iterable[Inputs]], batches: int,
    generator: torch.Generator,
) -> BayesianModule:  # fmt: skip
    """The model under the posterior that a collector ends with; it shares the network with the given one.

    ``inputs()`` is a pass over the training inputs in so many batches, asked for where the network has BatchNorm
    statistics: those belong to the weights that they were gathered with.
    """
    ended = model.with_posterior(*collector.result())
    average_the_rest(ended, collector)
    if not has_statistics(model.net) or model.rest == FROZEN or BANK in ended.posterior_part.provides:
        return ended
    if POINT in model.posterior_part.provides:
        return with_own_statistics(ended, inputs, generator)
    _restore_statistics(ended, inputs(), batches, generator)
    return ended


def average_so_far(run: Run) -> BayesianModule | None:
    """A copy of the model as the collector would end it now; None without one, or with too few snapshots so far.

    It draws from torch's global stream: enter one of its own before.
    """
    collector = run.assembly.collector
    if collector is None:
        return None
    try:
        return collected_model(
            copy.deepcopy(run.assembly.model), collector, lambda: (inputs for inputs, _ in one_pass(run)),
            run.batches.count, make_generator(0, run.engine.device),
        )  # fmt: skip
    except BayeswellError:
        return None


def one_pass(run: Run) -> Iterator[tuple[Inputs, Tensor]]:
    """The training data once more, in an order of its own, on the run's device."""
    for batch in run.batches.epoch(derive_seed(run.streams.seed, "ending")):
        yield run.engine.placed(batch)


def average_the_rest(model: BayesianModule, collector: Collector) -> None:
    """Trained parameters without a posterior (BatchNorm's scale and offset) end at their average too."""
    averages: Mapping[str, Tensor] = collector.deterministic()
    with torch.no_grad():
        for name, value in averages.items():
            model.net.get_parameter(name).copy_(value)


def _restore_statistics(
    model: BayesianModule, inputs: Iterable[Inputs], batches: int, generator: torch.Generator
) -> None:  # fmt: skip
    """A posterior that was trained by draws stays one: one pass, with a draw for every batch as in training.

    (A Gaussian around the path of single networks, SWAG, has draws that no BatchNorm layer has met: each gets its own.)
    """
    found = statistics_over(model, model.posterior.draws(batches, generator), inputs)
    with torch.no_grad():
        for name, value in found.items():
            model.net.get_buffer(name).copy_(value)


def with_own_statistics(
    model: BayesianModule, inputs: Callable[[], Iterable[Inputs]], generator: torch.Generator
) -> BayesianModule:
    """A bank of draws, each with statistics re-estimated by a pass over the training inputs, ``inputs()``."""
    count = 1 if POINT in model.posterior_part.provides else BANK_WITH_STATISTICS
    weights: list[Tensor] = []
    extras: dict[str, list[Tensor]] = {}
    for tensors in model.posterior.draws(count, generator):
        weights.append(model.layout.flatten(tensors))
        complete = reestimate(model, tensors, inputs())
        for name, value in complete.items():
            if name not in tensors:
                extras.setdefault(name, []).append(value)
    stacked: dict[str, Tensor] = {name: torch.stack(values) for name, values in extras.items()}
    bank = EmpiricalPosterior(model.layout, torch.stack(weights), stacked)
    return model.with_posterior(Empirical(count, tuple(stacked)), bank)
