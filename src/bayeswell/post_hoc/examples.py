"""Gradients of single examples, in pieces that fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ..nested import map_tensors, taken
from ..types import Inputs

CHUNK_NUMBERS = 1 << 24
"""How many numbers the gradients of one chunk may hold: 64 MB in float32."""

Network = Callable[[Tensor, Inputs], Tensor]
"""(weights, inputs of a batch) -> outputs of the batch."""


def weight_gradients(network: Network, weights: Tensor, inputs: Inputs, columns: Tensor) -> Iterator[Tensor]:
    """J_n' u for every example n and every column u of its own, as matrices of rows (..., P), chunk by chunk.

    J_n is the Jacobian of example n's outputs in the weights (P,); ``columns`` (C, S, ...) are vectors in the space
    of outputs. Networks that ``torch.vmap`` cannot take are gone through one example at a time.
    """
    size = max(weights.numel(), 1)
    at_once = min(len(columns), max(1, CHUNK_NUMBERS // size))
    examples = max(1, CHUNK_NUMBERS // (size * at_once))
    vectorise = True
    for start in range(0, columns.shape[1], examples):
        part = slice(start, start + examples)
        some = taken(inputs, part)
        for chosen in columns[:, part].split(at_once):
            if vectorise:
                try:
                    yield _vectorised(network, weights, some, chosen)
                    continue
                except (RuntimeError, ValueError, NotImplementedError):
                    vectorise = False  # an error that is not vmap's comes up again below
            yield _one_by_one(network, weights, some, chosen)


def _vectorised(network: Network, weights: Tensor, inputs: Inputs, columns: Tensor) -> Tensor:
    def of_example(own: Inputs, vectors: Tensor) -> Tensor:
        batch_of_one = map_tensors(own, lambda tensor: tensor.unsqueeze(0))
        pull = torch.func.vjp(lambda flat: network(flat, batch_of_one)[0], weights)[1]
        rows: Tensor = torch.vmap(lambda vector: pull(vector)[0])(vectors)
        return rows

    # The functions of torch.func differentiate all the same; what is off is the ordinary graph around them.
    with torch.no_grad():
        rows: Tensor = torch.vmap(of_example, in_dims=(0, 1), randomness="different")(inputs, columns)
    return rows.reshape(-1, weights.numel())


def _one_by_one(network: Network, weights: Tensor, inputs: Inputs, columns: Tensor) -> Tensor:
    leaf = weights.detach().clone().requires_grad_()
    rows = []
    with torch.enable_grad():
        for index in range(columns.shape[1]):
            outputs = network(leaf, taken(inputs, slice(index, index + 1)))[0]
            rows += [
                torch.autograd.grad(outputs, leaf, vector, retain_graph=True, materialize_grads=True)[0]
                for vector in columns[:, index]
            ]
    return torch.stack(rows)
