"""What can be predicted with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from ..types import Inputs


class Drawable(Protocol):
    """A network with a distribution over its weights: any ``nn.Module`` with ``draws`` and ``call``."""

    training: bool

    def draws(self, count: int, generator: torch.Generator | None) -> Iterator[Mapping[str, Tensor]]:
        """``count`` draws of the Bayesian parameters, by name, one at a time."""
        ...

    def call(self, weights: Mapping[str, Tensor], inputs: Inputs) -> Any:
        """The network's outputs with these tensors in place of its Bayesian parameters."""
        ...

    def train(self, mode: bool = True) -> Any:
        """As in ``nn.Module``."""
        ...

    def modules(self) -> Iterator[nn.Module]:
        """As in ``nn.Module``."""
        ...


@runtime_checkable
class Linearisable(Drawable, Protocol):
    """A drawable network whose weights have one centre, around which it may be linearised."""

    def centre(self) -> Mapping[str, Tensor]:
        """The posterior's mean: tensors by name for ``call``."""
        ...


@runtime_checkable
class HasMean(Drawable, Protocol):
    """A drawable network that knows the network at its posterior's mean."""

    def mean_networks(self) -> Sequence[Mapping[str, Tensor]]:
        """That network, or for a mixture one of each component: tensors by name for ``call``."""
        ...


class ManyAtOnce(Protocol):
    """What ``stack()`` of a drawable network may give: a way to run several draws together, in less time."""

    most_draws: int

    def takes(self, inputs: Inputs) -> bool:
        """Whether it can be called with these inputs."""
        ...

    def outputs(self, networks: Sequence[Mapping[str, Tensor]], inputs: Inputs) -> Iterator[Any]:
        """What ``call`` would return for each of at most ``most_draws`` networks, in turn."""
        ...


class LaidOut(Protocol):
    """What ``find_layout(inputs, examples)`` of a drawable network may give: a faster way to run draws on images."""

    def networks(self, count: int, generator: torch.Generator | None) -> Iterator[Mapping[str, Tensor]]:
        """Those of ``draws``, with weights that lie otherwise in memory; the next may overwrite the one before."""
        ...

    def called(
        self, call: Callable[[Mapping[str, Tensor], Inputs], Any], weights: Mapping[str, Tensor], images: Inputs
    ) -> Any:
        """What ``call`` gives for these weights and images that lie likewise; as ever in memory."""
        ...


class Accumulator(Protocol):
    """What is gathered over the draws for one batch."""

    def by_example(self, outputs: Tensor) -> bool:
        """Whether, of outputs like these, only the law of each example by itself is asked for.

        Then it need not be the same network that says something of two of them.
        """
        ...

    def add(self, outputs: Tensor) -> None:
        """Take in the outputs of one more draw."""
        ...

    def finish(self) -> None:
        """After the last draw."""
        ...
