"""Weights of classes: how much a label of each class counts.

A weighted likelihood has the NLL sum over places of weight_y * -log p(y given f). It is not divided by the sum of the
weights (as the mean of torch's weighted ``cross_entropy`` is): a weight of 2 is the label met twice. So the posterior
is that of p(y given f)^weight_y, a generalised one: weights of 1 on average over the data keep the balance of data and
prior, weights twice as large halve the temperature of the likelihood. Predictions stay softmax(f) or sigmoid(f),
and lean towards the classes that were given more weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from ..errors import DataError, SettingError
from .matching import sum_per_example


def as_class_weights(owner: str, values: Sequence[float] | None) -> tuple[float, ...] | None:
    """Plain numbers, one for each class: finite, none below 0, at least one above."""
    if values is None:
        return None
    listed = values.tolist() if hasattr(values, "tolist") else values  # tensors and arrays
    numbers = tuple(listed) if isinstance(listed, list | tuple) else ()
    plain = all(isinstance(value, int | float) and not isinstance(value, bool) for value in numbers)
    if len(numbers) < 2 or not plain or not all(0 <= value < float("inf") for value in numbers) or not any(numbers):
        raise SettingError(
            f"{owner}: class_weights = {values!r}; give a number of at least 0 for each class, as in (1.0, 2.5)"
        )
    return numbers


def weight_tensor(owner: str, weights: tuple[float, ...], classes: int, like: Tensor) -> Tensor:
    """(K,): the weights with dtype and device of ``like``; refused where there is not one for each class."""
    if len(weights) != classes:
        raise DataError(f"{owner}: class_weights has {len(weights)} numbers; the outputs have {classes} classes")
    return torch.tensor(weights, dtype=like.dtype, device=like.device)


def safe_root(values: Tensor) -> Tensor:
    """sqrt, with the slope 0 where the derivative is infinite."""
    return values.clamp_min(torch.finfo(values.dtype).tiny).sqrt()


class Places(Protocol):
    """A likelihood of labels at places that are independent given the outputs, before any weights."""

    def place_nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """(S, ...): the NLL of every place."""
        ...

    def plain_root(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        """Random u with E[u u'] = the Hessian of the NLL in the outputs."""
        ...

    def spread(self, places: Tensor, outputs: Tensor) -> Tensor:
        """A number for each place, in a shape that multiplies outputs."""
        ...

    def sample_targets(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        """Labels drawn from the model."""
        ...


class WeightedPlaces:
    """A likelihood whose places count by weights of their own: for the curvature at observed labels.

    With roots of weights in the NLL, labels drawn from the model have scores s with E[s s'] = weight H, where H is the
    Hessian of the NLL at that place, which does not depend on the label: together they are the Hessian of the weighted
    NLL at the observed labels. ``nll`` is therefore of use for drawn labels only.
    """

    def __init__(self, likelihood: Places, weights: Tensor) -> None:
        self._likelihood, self._roots = likelihood, weights.sqrt()

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """(S,): sum over places of sqrt(weight) * -log p(y given f), for drawn labels."""
        losses = self._likelihood.place_nll(outputs, targets)
        return sum_per_example(self._roots.reshape(losses.shape).to(losses.dtype) * losses)

    def sample_targets(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        """Labels drawn from the model."""
        return self._likelihood.sample_targets(outputs, generator)

    def curvature_root(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        """Random u with E[u u'] = weight H."""
        u = self._likelihood.plain_root(outputs, generator)
        return u * self._likelihood.spread(self._roots, outputs).to(u.dtype)
