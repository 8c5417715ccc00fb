"""What every part that finishes training owes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from ..types import BayesianModel, Inputs, Likelihood, Posterior, PosteriorPart


class FinisherPart(Protocol):
    """The settings of a step after training that turns a trained model and its data into another posterior."""

    name: ClassVar[str]
    paper: ClassVar[str]
    needs: ClassVar[frozenset[str]]

    def check(self, model: BayesianModel) -> None:
        """Refuse a model that cannot be finished, before it is trained."""
        ...

    def finish(
        self,
        model: BayesianModel,
        likelihood: Likelihood,
        batches: Iterable[tuple[Inputs, Tensor]],
        dataset_size: int,
        generator: torch.Generator | None = None,
    ) -> tuple[PosteriorPart, Posterior]:
        """The new posterior, with the settings that describe it; the model itself is left as it is."""
        ...
