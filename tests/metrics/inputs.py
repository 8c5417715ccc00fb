"""Predictions to measure: random ones and awkward ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from bayeswell.random import make_generator


def random_probabilities(*shape: int, seed: int = 1, scale: float = 2.0) -> Tensor:
    return (scale * torch.randn(shape, dtype=torch.float64, generator=make_generator(seed))).softmax(-1)


def random_labels(*shape: int, classes: int, seed: int = 2) -> Tensor:
    return torch.randint(classes, shape, generator=make_generator(seed))


def labels_from(probabilities: Tensor, seed: int = 3) -> Tensor:
    """Labels for which the probabilities are exactly right."""
    return torch.multinomial(probabilities, 1, generator=make_generator(seed)).squeeze(-1)


def awkward() -> dict[str, tuple[Tensor, Tensor]]:
    """Probabilities and labels by what is awkward about them."""
    eye = torch.eye(3, dtype=torch.float64)
    ties = torch.tensor([[0.4, 0.4, 0.2], [0.2, 0.4, 0.4], [1 / 3, 1 / 3, 1 / 3], [0.5, 0.5, 0.0]] * 4).double()
    return {
        "random": (random_probabilities(300, 4), random_labels(300, classes=4)),
        "calibrated": (random_probabilities(300, 3), labels_from(random_probabilities(300, 3))),
        "tied classes": (ties, random_labels(16, classes=3)),
        "missing class": (random_probabilities(50, 5), random_labels(50, classes=3)),
        "zeros and ones": (eye[random_labels(40, classes=3, seed=4)], random_labels(40, classes=3)),
        "all right": (eye[random_labels(40, classes=3)], random_labels(40, classes=3)),
        "one example": (random_probabilities(1, 3), torch.tensor([2])),
        "all equal": (torch.full((20, 4), 0.25, dtype=torch.float64), random_labels(20, classes=4)),
    }


def bootstrap(
    statistic: Callable[..., Tensor], value: float, *sides: tuple[Tensor, ...], resamples: int = 400
) -> float:
    """The std of a statistic over resamples; each side's tensors are drawn again together.

    The statistic takes all resamples at once, (resamples, examples, ...) -> (resamples,). It is a formula of its own:
    of the data themselves it must give the metric's ``value``.
    """
    assert float(statistic(*(tensor[None] for side in sides for tensor in side))) == pytest.approx(value, rel=1e-9)
    generator = make_generator(99)
    drawn: list[Tensor] = []
    for side in sides:
        index = torch.randint(len(side[0]), (resamples, len(side[0])), generator=generator)
        drawn += [tensor[index] for tensor in side]
    return float(statistic(*drawn).std())


BOOTSTRAP_TOLERANCE = 0.15
"""A std from 400 resamples is itself off by 1 / sqrt(800) = 3.5 % (more with heavy tails): four of those."""
