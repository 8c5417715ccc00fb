"""Plain records that travel through a step of training. Losses are in nats per datum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .likelihood import Likelihood

Inputs = Any
"""What the network is called with: a tensor, a tuple (positional) or a mapping (keywords)."""


@dataclass(frozen=True)
class Progress:
    """Where training stands; what schedules and lazy estimators may depend on.

    ``batch`` counts from 0 within the epoch of ``batches``; ``step`` from 0 over ``total_steps``. ``examples`` is how
    many an epoch shows, where that is not all of them (a loader that drops its last batch).

    A step may be cut into pieces (several ranks, gradient accumulation). ``nll_share`` is then what the piece's mean
    NLL counts for, ``kl_share`` what its KL counts for, so that the pieces together make the objective of the step.
    """

    step: int = 0
    total_steps: int | None = None
    batch: int = 0
    batches: int | None = None
    examples: int | None = None
    nll_share: float | None = None
    kl_share: float = 1.0


@dataclass(frozen=True)
class Step:
    """One batch on its way through objective, gradient wrappers and estimator.

    ``targets`` and ``likelihood`` are None where only outputs are wanted (a stochastic pass). ``weights`` (S,) say how
    often each example counts: a weight of 2 is the example met twice.
    """

    inputs: Inputs
    targets: Tensor | None = None
    likelihood: Likelihood | None = None
    generator: torch.Generator | None = None
    at: Progress | None = None
    weights: Tensor | None = None

    @property
    def examples(self) -> int | None:
        """How many there are, where that is known."""
        return None if self.targets is None else len(self.targets)

    def nll(self, outputs: Any) -> Tensor:
        """The batch mean of (weighted) -log p(y given outputs): 1/S sum_n weight_n nll_n."""
        assert self.likelihood is not None
        assert self.targets is not None
        losses = self.likelihood.nll(outputs, self.targets)
        return losses.mean() if self.weights is None else (self.weights * losses).mean()


@dataclass(frozen=True)
class ExpectedNLL:
    """What an estimator returns: E_q[NLL] per datum, and the network outputs of its last pass."""

    nll: Tensor
    outputs: Any


@dataclass(frozen=True)
class Terms:
    """The parts of the objective for one batch.

    ``total`` is what to differentiate (nats per datum); ``nll`` is the batch mean, ``kl`` the whole sum in
    nats, both without any weight or temperature. ``outputs`` are the network's, for running metrics.
    """

    total: Tensor
    nll: Tensor
    kl: Tensor
    dataset_size: int
    outputs: Any

    @property
    def elbo(self) -> Tensor:
        """The unscaled ELBO of the whole data set in nats: -(N nll + kl)."""
        return -(self.dataset_size * self.nll + self.kl)

    @property
    def elbo_per_datum(self) -> Tensor:
        """The unscaled ELBO divided by N."""
        return self.elbo / self.dataset_size
