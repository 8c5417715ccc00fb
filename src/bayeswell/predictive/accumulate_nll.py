"""NLLs gathered over draws for one batch."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..likelihoods import check_targets
from ..types import Likelihood
from .accumulate import widened


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


class MixtureNLL:
    """-log mean_d p(y given outputs of draw d) of every example of the batch."""

    def __init__(self, likelihood: Likelihood, targets: Tensor) -> None:
        self.likelihood = likelihood
        self.targets = targets
        self._log_sum = torch.full((), -math.inf)
        self._draws = 0

    def add(self, outputs: Tensor) -> None:
        """Take in the outputs of one more draw."""
        targets = self.targets.to(outputs.device)
        if not self._draws:
            check_targets(self.likelihood, targets, outputs)
        log_p = -self.likelihood.nll(widened(outputs), targets)
        self._log_sum = log_p if not self._draws else torch.logaddexp(self._log_sum, log_p)
        self._draws += 1

    def finish(self) -> None:
        """Nothing waits."""

    @property
    def losses(self) -> Tensor:
        """(S,)."""
        return math.log(self._draws) - self._log_sum
