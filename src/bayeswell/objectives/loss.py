"""Objective and network as one module: what DDP, Fabric, accelerate and autocast can wrap."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..types import Inputs, Objective, Progress, Terms


class Loss(nn.Module):
    """``loss(inputs, targets)`` is ``objective(model, inputs, targets).total``.

    Over several processes gradients are exchanged where a wrapped module's own ``forward`` is called, so the objective
    has to be inside. Each of R processes has total_r = mean NLL of its share of the batch + KL / N, with N the size of
    the whole data set and not of a share; the average over processes that DDP takes has the mean NLL of the whole batch
    (shares of one size) and the KL once.

    Only the total goes out (wrappers convert what they return): ``terms`` keeps what the last call found. ``at``,
    ``generator`` and ``weights`` are what the next calls are given, as in ``ELBO``: they are set here, since wrappers
    convert what passes through them too.
    """

    def __init__(self, objective: Objective, model: nn.Module) -> None:
        super().__init__()
        self.objective, self.model = objective, model
        self.at: Progress | None = None
        self.generator: torch.Generator | None = None
        self.weights: Tensor | None = None
        self.terms: Terms | None = None

    def forward(self, inputs: Inputs, targets: Tensor) -> Tensor:
        """The total of a batch, to be differentiated."""
        given = {"at": self.at, "generator": self.generator, "weights": self.weights}
        terms: Terms = self.objective(self.model, inputs, targets, **given)
        self.terms = terms
        return terms.total
