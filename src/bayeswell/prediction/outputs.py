"""The generator of outputs over which predictions, scores and calibration fold."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..core.errors import BayeswellError, DataError, NetworkError
from ..core.protocols import LINEARIZED, MEAN, Inputs
from ..core.pytree import num_examples, tree_tensors
from ..nn import BayesianModule, check_prediction, evaluation_mode
from .draws import Network, draws, mean_networks
from .inputs import batches_of, can_be_called, like_of, on_device
from .linearized import GROUP, linearized_stacks


def outputs(
    model: BayesianModule,
    inputs: Inputs,
    count: int,
    generator: torch.Generator | None = None,
    batch_size: int | None = None,
    *,
    prediction: str | None = None,
    joint: bool = True,
) -> Iterator[Tensor]:
    """Yield the outputs (S, ...) of one network after another, in evaluation mode and without gradients.

    The draws depend on the generator alone, not on the batch size. Neither the model nor the inputs change. Several
    threads may predict with one model: they take turns.

    Args:
        model: a ``BayesianModule``.
        inputs: tensors, from ``as_inputs``.
        count: the number of draws; fewer networks if some would only repeat others.
        generator: None: torch's global generator.
        batch_size: examples of one pass; None: all.
        prediction: "sampled", "linearized" or "mean"; None: as the model says.
        joint: linearized draws are networks, the same for all examples. Otherwise they may come from the Gaussian of
            each example's outputs, which costs less.
    """
    stacks = stacked_outputs(model, inputs, count, generator, batch_size, prediction=prediction, joint=joint)
    return (output for stack in stacks for output in stack)


def stacked_outputs(
    model: BayesianModule,
    inputs: Inputs,
    count: int,
    generator: torch.Generator | None,
    batch_size: int | None,
    *,
    prediction: str | None = None,
    joint: bool = True,
) -> Iterator[Tensor]:
    """Yield ``outputs`` in stacks (D, S, ...) of as many draws as stay below ``GROUP`` numbers."""
    prediction = model.prediction if prediction is None else prediction
    check_prediction(model.posterior, prediction)
    inputs = on_device(inputs, like_of(model).device)
    if prediction == LINEARIZED:
        stacks = linearized_stacks(model, inputs, count, generator, batch_size, joint)
    else:
        networks = mean_networks(model) if prediction == MEAN else draws(model, count, generator)
        stacks = _stacks_of(model, networks, inputs, batch_size)
    return _naming_wrong_inputs(stacks, model, inputs)


def _naming_wrong_inputs(stacks: Iterator[Tensor], model: BayesianModule, inputs: Inputs) -> Iterator[Tensor]:
    try:
        yield from stacks
    except (RuntimeError, TypeError, IndexError) as error:
        if isinstance(error, BayeswellError) or can_be_called(model, inputs):
            raise
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tree_tensors(inputs))
        is_pair = isinstance(inputs, tuple) and len(inputs) == 2 and isinstance(error, TypeError)
        hint = "; predict takes inputs alone, without targets" if is_pair else ""
        reason = " ".join(str(error).split())
        raise DataError(f"the network cannot be called with inputs of shape {shapes}: {reason:.160}{hint}") from error


def _stacks_of(
    model: BayesianModule, networks: Iterator[Network], inputs: Inputs, batch_size: int | None
) -> Iterator[Tensor]:
    batches, size = list(batches_of(inputs, batch_size)), num_examples(inputs)
    while outputs_of_draws := _next_outputs(model, networks, batches):
        shape = tuple(outputs_of_draws[0].shape)
        if not shape or shape[0] != size:
            raise NetworkError(
                f"the network returned shape {shape} for {size} examples; the first axis must count them"
            )
        yield torch.stack(outputs_of_draws)


@torch.no_grad()
def _next_outputs(model: BayesianModule, networks: Iterator[Network], batches: list[Inputs]) -> list[Tensor]:
    by_draw: list[Tensor] = []
    with evaluation_mode(model):
        for weights in networks:
            by_batch = [model.call(weights, batch) for batch in batches]
            by_draw.append(by_batch[0] if len(by_batch) == 1 else torch.cat(by_batch))
            if (len(by_draw) + 1) * by_draw[0].numel() > GROUP:
                break
    return by_draw
