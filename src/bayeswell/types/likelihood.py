"""p(y given network outputs): one method is enough to train, others are asked for by the parts that use them."""

from __future__ import annotations

from typing import ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor


@runtime_checkable
class Likelihood(Protocol):
    """p(y given network outputs). ``nll`` is all that every method needs; it works along the first axis.

    An object may have more, and parts that use it say so (``likelihood_needs``):

    - ``check(targets, outputs)``: refuse targets that cannot be meant (wrong type, label out of range, wrong shape);
    - ``sample_targets(outputs, generator)``: targets drawn from the model itself, without gradient;
    - ``curvature_root(outputs, generator)``: random u, differentiable in the outputs, with E[u u'] = Hessian of the NLL
      in the outputs (its expectation over targets from the model where it depends on them);
    - ``class_probabilities(outputs)`` or ``mean_and_variance(outputs)``: to predict with; or ``for_outputs(outputs)``,
      an object that has one of them, where only outputs can tell which;
    - ``cdf(outputs, values)``: P(y <= value) of every output of an example, with the shape of y, for quantiles and
      intervals (without it they are found from ``sample_targets``); ``is_discrete`` is true where y is a count;
    - ``curvature_diagonal(outputs)``: that Hessian, with the shape of the outputs, where it is diagonal;
    - ``counted(targets)``: which places of the targets count, as booleans of their shape (None: all);
    - ``weighted_as(targets)``: an object with ``nll``, ``sample_targets`` and ``curvature_root`` for drawn targets,
      each place weighted as it is for the given ones (class weights, ignored labels);
    - ``widened(factor)``: the same likelihood made less sure by a factor (logits divided by it, noise stds multiplied),
      for ``calibrate``.

    One that learns something (a noise std) is an ``nn.Module``: training finds its parameters.
    """

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """(S,): -log p(y given outputs) in nats, summed over everything but the first axis."""
        ...


class LikelihoodPart(Likelihood, Protocol):
    """A likelihood with everything, and a registry entry.

    Each is an ``nn.Module`` whose dataclass fields are its settings: settings and ``state_dict`` together
    rebuild it, and noise that is learned is found by ``parameters()``.
    """

    name: ClassVar[str]
    paper: ClassVar[str]

    def check(self, targets: Tensor, outputs: Tensor) -> None:
        """Refuse targets that cannot be meant (wrong type, label out of range, wrong shape)."""
        ...

    def sample_targets(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        """Targets drawn from the model itself."""
        ...

    def curvature_root(self, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        """Random u, differentiable in the outputs, with E[u u'] = Hessian of the NLL in the outputs."""
        ...


@runtime_checkable
class ClassLikelihood(Likelihood, Protocol):
    """A likelihood of class labels."""

    def class_probabilities(self, outputs: Tensor) -> Tensor:
        """(S, ..., K): the probability of each class, with the classes on the last axis."""
        ...


@runtime_checkable
class RealLikelihood(Likelihood, Protocol):
    """A likelihood of real numbers (or counts)."""

    def mean_and_variance(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """E[y] and Var[y] given the outputs, both with the shape of y."""
        ...
