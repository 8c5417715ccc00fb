"""NLLs, or the outputs that they are made of, gathered over draws for one batch."""

from __future__ import annotations

import math
from collections.abc import Sequence

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


class MixtureNLLs:
    """-log mean_d p(y given outputs of draw d) of every example of the batch, under each of several likelihoods."""

    def __init__(self, likelihoods: Sequence[Likelihood], targets: Tensor) -> None:
        self.likelihoods = likelihoods
        self.targets = targets
        self._log_sums: list[Tensor] = []
        self._draws = 0

    def add(self, outputs: Tensor) -> None:
        """Take in the outputs of one more draw."""
        targets, wide = self.targets.to(outputs.device), widened(outputs)
        if not self._draws:
            check_targets(self.likelihoods[0], targets, outputs)
        logs = [-likelihood.nll(wide, targets) for likelihood in self.likelihoods]
        together = zip(self._log_sums, logs, strict=True)
        self._log_sums = [torch.logaddexp(a, b) for a, b in together] if self._draws else logs
        self._draws += 1

    def finish(self) -> None:
        """Nothing waits."""

    @property
    def losses(self) -> Tensor:
        """(L, S)."""
        return math.log(self._draws) - torch.stack(self._log_sums)


class KeptOutputs:
    """The outputs of every draw."""

    def __init__(self) -> None:
        self.outputs: list[Tensor] = []

    def add(self, outputs: Tensor) -> None:
        """Take in the outputs of one more draw."""
        self.outputs.append(outputs.clone())

    def finish(self) -> None:
        """Nothing waits."""
