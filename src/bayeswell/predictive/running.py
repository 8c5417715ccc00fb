"""Draw by draw, batch by batch: what every prediction does before anything is averaged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from ..errors import DataError, NetworkError
from ..guards import together
from ..modes import evaluation_mode
from ..outputs import require_tensor
from ..refusals import one_line, with_row
from ..types import LINEARISED, MEAN, Covariance, Inputs
from .contracts import Accumulator, Drawable, HasMean, LaidOut, Linearisable, ManyAtOnce
from .function_space import NetworkDraws, OutputDraws, find_jacobian
from .inputs import Batch, Home
from .linearised import LinearisedNetwork


def run_draws(
    model: Drawable,
    batches: Sequence[Batch],
    collectors: Sequence[Accumulator],
    draws: int,
    generator: torch.Generator | None,
    home: Home,
    prediction: str,
) -> None:
    """Give every batch's own collector the outputs of all draws.

    A model may know that some draws only repeat others (a point, a small bank): those are left out.
    """
    # The model's guard is held from the first draw to the last: other threads that predict with it wait.
    with torch.no_grad(), evaluation_mode(model), one_line(batches[0].inputs):
        if prediction == MEAN and isinstance(model, HasMean):
            for weights in model.mean_networks():
                _run_one_draw(model.call, weights, batches, collectors, home)
        else:
            count = getattr(model, "useful_draws", int)(draws)
            if prediction == LINEARISED and isinstance(model, Linearisable):
                _run_linearised(model, batches, collectors, count, generator, home)
            else:
                stack = _find_stack(model, batches, home)
                laid_out = None if stack is not None else _find_layout(model, batches, home)
                _run_networks(model, model.call, stack, batches, collectors, count, generator, home, laid_out)
        for collector in collectors:
            collector.finish()


@torch.no_grad()
def draws_outputs(model: Drawable, inputs: Inputs, draws: int) -> bool:
    """Whether NLLs come from the law of each example's outputs, so that more draws cost next to nothing."""
    if getattr(model, "prediction", None) != LINEARISED or not isinstance(model, Linearisable):
        return False
    with evaluation_mode(model):
        found = find_jacobian(LinearisedNetwork(model), inputs, draws)
    return found is not None and found.model.posterior.covariance() is not None


def _run_linearised(
    model: Linearisable,
    batches: Sequence[Batch],
    collectors: Sequence[Accumulator],
    draws: int,
    generator: torch.Generator | None,
    home: Home,
) -> None:
    network = LinearisedNetwork(model)
    found = find_jacobian(network, batches[0].on(home.device), draws)
    if found is None:
        _run_networks(model, network.call, None, batches, collectors, draws, generator, home)
        return
    covariance: Covariance | None = None
    if collectors[0].by_example(found.outputs):
        covariance = found.model.posterior.covariance()
    if covariance is None:
        together = NetworkDraws(found, max(batch.stop - batch.start for batch in batches))
        _run_networks(model, network.call, together, batches, collectors, draws, generator, home)
        return
    law = OutputDraws(found, covariance, generator)
    for batch, collector in zip(batches, collectors, strict=True):
        for outputs in law.outputs(batch.on(home.device), draws):
            _take(collector, outputs, batch)


def _run_networks(
    model: Drawable,
    call: Callable[[Mapping[str, Tensor], Inputs], Any],
    stack: ManyAtOnce | None,
    batches: Sequence[Batch],
    collectors: Sequence[Accumulator],
    draws: int,
    generator: torch.Generator | None,
    home: Home,
    laid_out: LaidOut | None = None,
) -> None:
    """One network after another, or groups of them where a stack runs several at once."""
    # One at a time none is needed any more when the next is asked for: collectors copy what they keep.
    drawn = getattr(model, "passing_draws", model.draws) if stack is None else model.draws
    networks = drawn(draws, generator) if laid_out is None else laid_out.networks(draws, generator)
    if laid_out is not None:
        call = partial(laid_out.called, call)
    # Groups of one size, or nearly so.
    groups = draws if stack is None else -(-draws // stack.most_draws)
    for group in range(groups):
        # In a function of its own so that no draw (or group) is held here when the next is asked for.
        if stack is None:
            _run_one_draw(call, next(networks), batches, collectors, home)
        else:
            count = draws * (group + 1) // groups - draws * group // groups
            _run_together(stack, list(islice(networks, count)), batches, collectors, home)


def _find_stack(model: Drawable, batches: Sequence[Batch], home: Home) -> ManyAtOnce | None:
    """A way to run several draws at once, if the model has one that takes these inputs."""
    stack: ManyAtOnce | None = getattr(model, "stack", _no_stack)()
    if stack is None or home.device.type != "cpu" or not all(stack.takes(batch.inputs) for batch in batches):
        return None
    return stack


def _no_stack() -> None:
    return None


def _find_layout(model: Drawable, batches: Sequence[Batch], home: Home) -> LaidOut | None:
    """A faster layout of the weights for images like these, if the model has one."""
    find = getattr(model, "find_layout", None)
    if find is None or home.device.type != "cpu":
        return None
    found: LaidOut | None = find(batches[0].inputs, batches[-1].stop - batches[0].start)
    return found


def _run_together(
    stack: ManyAtOnce,
    networks: Sequence[Mapping[str, Tensor]],
    batches: Sequence[Batch],
    collectors: Sequence[Accumulator],
    home: Home,
) -> None:
    for batch, collector in zip(batches, collectors, strict=True):
        with together():
            for outputs in stack.outputs(networks, batch.on(home.device)):
                _take(collector, outputs, batch)


def _run_one_draw(
    call: Callable[[Mapping[str, Tensor], Inputs], Any],
    weights: Mapping[str, Tensor],
    batches: Sequence[Batch],
    collectors: Sequence[Accumulator],
    home: Home,
) -> None:
    for batch, collector in zip(batches, collectors, strict=True):
        _take(collector, call(weights, batch.on(home.device)), batch)


def _take(collector: Accumulator, outputs: Any, batch: Batch) -> None:
    try:
        collector.add(_require_outputs(outputs, batch.stop - batch.start))
    except DataError as error:  # of targets, by their place in the batch
        raise with_row(error, range(batch.start, batch.stop), "row {} of the data") from None


def _require_outputs(found: Any, examples: int) -> Tensor:
    outputs = require_tensor(found)
    if outputs.dim() == 0 or outputs.shape[0] != examples:
        raise NetworkError(
            f"the network returned shape {tuple(outputs.shape)} for {examples} examples; "
            "the first axis must count the examples"
        )
    return outputs
