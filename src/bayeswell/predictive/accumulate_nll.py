"""NLLs, or the outputs that they are made of, gathered over draws for one batch."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..likelihoods import check_targets
from ..types import Likelihood
from .contracts import Accumulator
from .precision import widened

_GROUP = 1 << 16
"""At most so many outputs wait to be taken in at a time (but one draw's)."""


class NLLSums:
    """The summed NLL of the batch under each draw: one number a draw."""

    def __init__(self, likelihood: Likelihood, targets: Tensor) -> None:
        self.likelihood = likelihood
        self.targets = targets
        self.sums: list[Tensor] = []

    def by_example(self, outputs: Tensor) -> bool:
        """A number of all examples under one network."""
        return False

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

    def by_example(self, outputs: Tensor) -> bool:
        """Rows belong to networks."""
        return False

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
        self._sums: Tensor | float = 0.0
        self.draws = 0

    def by_example(self, outputs: Tensor) -> bool:
        """Each is averaged by itself."""
        return True

    def add(self, outputs: Tensor) -> None:
        """Take in the outputs of one more draw."""
        if not self.draws:
            check_targets(self.likelihoods[0], self.targets.to(outputs.device), outputs)
        self.draws += 1
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
        self._sums = self._sums + torch.stack(logs).sum(1)
        sums = torch.stack(logs).logsumexp(1)
        self._log_sums = sums if self._log_sums is None else torch.logaddexp(self._log_sums, sums)

    @property
    def losses(self) -> Tensor:
        """(L, S)."""
        assert self._log_sums is not None  # there was a draw
        return math.log(self.draws) - self._log_sums

    @property
    def expected(self) -> Tensor:
        """(L, S): the mean NLL over draws."""
        assert isinstance(self._sums, Tensor)  # there was a draw
        return -self._sums / self.draws


class Together:
    """Several accumulators of one batch, from the same draws."""

    def __init__(self, *parts: Accumulator) -> None:
        self.parts = parts

    def by_example(self, outputs: Tensor) -> bool:
        """If all ask for no more."""
        return all(part.by_example(outputs) for part in self.parts)

    def add(self, outputs: Tensor) -> None:
        """Take in the outputs of one more draw."""
        for part in self.parts:
            part.add(outputs)

    def finish(self) -> None:
        """After the last draw."""
        for part in self.parts:
            part.finish()


class KeptOutputs:
    """The outputs of every draw."""

    def __init__(self) -> None:
        self.outputs: list[Tensor] = []

    def by_example(self, outputs: Tensor) -> bool:
        """Rows belong to networks."""
        return False

    def add(self, outputs: Tensor) -> None:
        """Take in the outputs of one more draw."""
        self.outputs.append(outputs.clone())

    def finish(self) -> None:
        """Nothing waits."""
