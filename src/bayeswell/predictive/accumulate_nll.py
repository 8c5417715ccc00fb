"""NLLs, or the outputs that they are made of, gathered over draws for one batch."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..likelihoods import check_targets
from ..types import Likelihood
from .precision import widened

_GROUP = 1 << 16
"""At most so many outputs wait to be taken in at a time (but one draw's)."""


class NLLSums:
    """The summed NLL of the batch under each draw: one number a draw."""

    def __init__(self, likelihood: Likelihood, targets: Tensor) -> None:
        self.likelihood = likelihood
        self.targets = targets
        self.sums: list[Tensor] = []

    def add(self, outputs: Tensor) -> None:
        """Take in the outputs of one more draw."""
        targets = self.targets.to(outputs.device)
        if not self.sums:
            check_targets(self.likelihood, targets, outputs)
        self.sums.append(self.likelihood.nll(widened(outputs), targets).sum())

    def finish(self) -> None:
        """Nothing waits."""


class NLLRows:
    """The NLL of every example of the batch under each draw."""

    def __init__(self, likelihood: Likelihood, targets: Tensor) -> None:
        self.likelihood = likelihood
        self.targets = targets
        self.rows: list[Tensor] = []

    def add(self, outputs: Tensor) -> None:
        """Take in the outputs of one more draw."""
        targets = self.targets.to(outputs.device)
        if not self.rows:
            check_targets(self.likelihood, targets, outputs)
        self.rows.append(self.likelihood.nll(widened(outputs), targets).cpu())

    def finish(self) -> None:
        """Nothing waits."""


class MixtureNLLs:
    """-log mean_d p(y given outputs of draw d) of every example of the batch, under each of several likelihoods.

    Draws are taken in a group at a time: for a small batch the operations cost far more to start than to do.
    """

    def __init__(self, likelihoods: Sequence[Likelihood], targets: Tensor) -> None:
        self.likelihoods = likelihoods
        self.targets = targets
        self._waiting: list[Tensor] = []
        self._log_sums: Tensor | None = None
        self._draws = 0

    def add(self, outputs: Tensor) -> None:
        """Take in the outputs of one more draw."""
        if not self._draws:
            check_targets(self.likelihoods[0], self.targets.to(outputs.device), outputs)
        self._draws += 1
        self._waiting.append(outputs.clone())  # the network may use the memory again
        if (len(self._waiting) + 1) * outputs.numel() > _GROUP:
            self.finish()

    def finish(self) -> None:
        """Take in what waits: after the last draw."""
        if not self._waiting:
            return
        group, self._waiting = self._waiting, []
        outputs, targets = widened(torch.cat(group)), torch.cat([self.targets.to(group[0].device)] * len(group))
        # A likelihood's first axis counts examples, whichever draw they belong to.
        logs = [-likelihood.nll(outputs, targets).unflatten(0, (len(group), -1)) for likelihood in self.likelihoods]
        sums = torch.stack(logs).logsumexp(1)
        self._log_sums = sums if self._log_sums is None else torch.logaddexp(self._log_sums, sums)

    @property
    def losses(self) -> Tensor:
        """(L, S)."""
        assert self._log_sums is not None  # there was a draw
        return math.log(self._draws) - self._log_sums


class KeptOutputs:
    """The outputs of every draw."""

    def __init__(self) -> None:
        self.outputs: list[Tensor] = []

    def add(self, outputs: Tensor) -> None:
        """Take in the outputs of one more draw."""
        self.outputs.append(outputs.clone())

    def finish(self) -> None:
        """Nothing waits."""
