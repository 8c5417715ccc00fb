"""The generator of outputs over which predictions, scores and calibration fold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from ..core.errors import NetworkError
from ..core.protocols import LINEARIZED, MEAN, Inputs
from ..core.pytree import num_examples
from ..nn import check_prediction, evaluation_mode
from .draws import Model, draws, mean_networks
from .inputs import batches_of, like_of, on_device
from .linearized import linearized_outputs

GROUP = 1 << 17
"""Numbers that a fold takes in at a time; more draws at once save calls for small data."""


def outputs(
    model: Model,
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
    threads may predict with one model: they take turns pass by pass.

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
    prediction = model.prediction if prediction is None else prediction
    check_prediction(model.posterior, prediction)
    if prediction == LINEARIZED:
        return linearized_outputs(model, inputs, count, generator, batch_size, joint=joint)
    networks = mean_networks(model) if prediction == MEAN else draws(model, count, generator)
    return _outputs_of(model, networks, inputs, batch_size)


@torch.no_grad()
def _outputs_of(
    model: Model, networks: Iterator[Mapping[str, Tensor]], inputs: Inputs, batch_size: int | None
) -> Iterator[Tensor]:
    device = like_of(model).device
    batches = [(batch, num_examples(batch)) for batch in batches_of(inputs, batch_size)]
    for weights in networks:
        found = [_run(model, weights, on_device(batch, device), size) for batch, size in batches]
        yield found[0] if len(found) == 1 else torch.cat(found)


def _run(model: Model, weights: Mapping[str, Tensor], inputs: Inputs, size: int) -> Tensor:
    with evaluation_mode(model):
        found: Tensor = model.call(weights, inputs)
    if found.dim() == 0 or len(found) != size:
        raise NetworkError(
            f"the network returned shape {tuple(found.shape)} for {size} examples; the first axis must count them"
        )
    return found


def grouped(found: Iterator[Tensor]) -> Iterator[Tensor]:
    """Yield (D, S, ...) stacks of outputs in float64, of as many draws as stay below ``GROUP`` numbers."""
    waiting: list[Tensor] = []
    for one in found:
        if waiting and one.shape != waiting[0].shape:
            raise NetworkError(
                f"the network returned shapes {tuple(waiting[0].shape)} and {tuple(one.shape)} for two draws"
            )
        waiting.append(one)
        if (len(waiting) + 1) * one.numel() > GROUP:
            yield torch.stack(waiting).double()
            waiting = []
    if waiting:
        yield torch.stack(waiting).double()
