"""What prediction needs of a likelihood besides the NLL: it is about classes, or about real numbers."""

from __future__ import annotations

from typing import ClassVar, Protocol, runtime_checkable

from torch import Tensor

from ..types import Likelihood


class LikelihoodPart(Likelihood, Protocol):
    """A likelihood with a registry entry.

    Each is an ``nn.Module`` whose dataclass fields are its settings: settings and ``state_dict`` together
    rebuild it, and noise that is learned is found by ``parameters()``.
    """

    paper: ClassVar[str]


@runtime_checkable
class ClassLikelihood(Likelihood, Protocol):
    """A likelihood of class labels."""

    def class_probabilities(self, outputs: Tensor) -> Tensor:
        """(S, ..., K): the probability of each class, with the classes on the last axis."""
        ...


@runtime_checkable
class RealLikelihood(Likelihood, Protocol):
    """A likelihood of real numbers."""

    def mean_and_variance(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """E[y] and Var[y] given the outputs, both with the shape of y."""
        ...
