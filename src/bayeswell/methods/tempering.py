"""The temperature of a run that finds it by itself."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..lifting import DrawnDropout
from ..objectives import ELBO
from ..priors import FlatPrior
from ..types import Prior

AUTO = "auto"
"""As a temperature: the fit finds it, see ``Tempering``."""
COLD_START = 1e-3
SHARE = 0.1
PRIOR_WEIGHT = 0.1
DROPOUT_PER_TEMPERATURE = 1.0
ADAPTS_FROM, SETTLED = 0.3, 0.5
_FULL = 0.05
"""The share that is taken for unexplained where the targets do not tell."""


class TargetSpread:
    """How uncertain the targets are before anything is known of the inputs: class counts, or moments.

    Filled during the first epoch, from whole batches, so that every rank finds the same.
    """

    def __init__(self) -> None:
        self.examples = 0
        self.counts = torch.zeros(0, dtype=torch.float64)
        self.moments = torch.zeros(0, dtype=torch.float64)

    def observe(self, targets: Tensor) -> None:
        """Add the targets of one batch; labels below zero are those that a likelihood ignores."""
        self.examples += len(targets)
        rows = targets.detach().reshape(len(targets), -1).double().cpu()
        own = torch.stack([torch.full_like(rows[0], len(rows)), rows.sum(0), rows.square().sum(0)])
        self.moments = own if self.moments.shape != own.shape else self.moments + own
        if not targets.is_floating_point():
            labels = targets.long() if targets.dtype == torch.bool else targets
            found = labels[labels >= 0].flatten().bincount(minlength=len(self.counts)).double().cpu()
            found[: len(self.counts)] += self.counts
            self.counts = found

    def unexplained(self, nll: float, scores: Mapping[str, float]) -> float:
        """The share of it that a fit leaves, from 0 to 1.

        Where the running score is an error (real targets): mean squared error / variance. Classes: NLL / entropy of the
        class frequencies, by place where an example has several labels.
        """
        if not self.examples:
            return _FULL
        count, total, squares = self.moments
        mean = total / count
        if "rmse" in scores:
            variance = float((squares / count - mean.square()).mean())
            return _clipped(scores["rmse"] ** 2 / variance if variance > 0 else math.nan)
        if len(self.counts):
            frequencies = self.counts[self.counts > 0] / self.counts.sum()
            places = float(self.counts.sum()) / self.examples
            entropy = -float((frequencies * frequencies.log()).sum())
            return _clipped(nll / (places * entropy) if entropy > 0 else math.nan)
        if bool(((mean >= 0) & (mean <= 1) & (squares == total)).all()):  # zeros and ones: Bernoulli
            entropy = float(torch.special.entr(torch.stack([mean, 1 - mean])).sum())
            return _clipped(nll / entropy if entropy > 0 else math.nan)
        return _FULL


class Tempering:
    """A cold posterior whose temperature follows from how much of the targets the fit explains.

    The posterior aims at exp(-(NLL + PRIOR_WEIGHT * -log p(w)) / T), NLL summed over the data: q minimises

        E_q[NLL] + PRIOR_WEIGHT E_q[-log p] - T H[q].

    That is ``temperature`` T under a Gaussian prior whose stds are multiplied by sqrt(T / PRIOR_WEIGHT), and that is
    how it is carried out: the pull of the prior on the means is the same at every T (that of ordinary training with
    this prior as its weight decay), and T only says how wide q is. It starts at COLD_START, so that the means find
    their way first; from the share ADAPTS_FROM of training on it is, after each epoch,

        T = SHARE * (unexplained share of the targets' uncertainty).

    Where draws are collected on the way, it is fixed from SETTLED on. Where a fit can be nearly exact, an approximate
    posterior at a temperature that suits noisy targets would drown it in its own width; docs/decisions.md has the
    measurements. A prior that is not Gaussian keeps its width: the whole divergence is multiplied by T then.
    A number as temperature scales the whole divergence, so its prior has the weight T unless ``prior_weight`` says
    otherwise; ``temperature=1`` is Bayes' rule.

    Dropout that was put into a network without any is the spread of mc-dropout: its p is DROPOUT_PER_TEMPERATURE T. A
    network's own dropout, or a p that was given, is left alone.
    """

    def __init__(
        self, elbo: ELBO, prior: Prior, optimizer: Optimizer, dropout: Sequence[DrawnDropout], *, in_objective: bool,
        until: float,
    ) -> None:  # fmt: skip
        self.elbo, self.prior, self.optimizer, self.dropout = elbo, prior, optimizer, dropout
        self.in_objective, self.until, self.shown_first = in_objective, until, elbo.shown_temperature
        self.targets = TargetSpread()
        self.temperature = COLD_START
        self.frozen = False
        """Set by a run that goes on after its planned end: what was found stays."""
        self._set_dropout()

    def after_epoch(self, done: float, nll: float, scores: Mapping[str, float]) -> None:
        """Look at an epoch that ended with this share of training done."""
        if ADAPTS_FROM <= done <= self.until and not self.frozen:
            self._move_to(max(SHARE * self.targets.unexplained(nll, scores), COLD_START * SHARE))

    def _move_to(self, temperature: float) -> None:
        ratio = temperature / self.temperature
        self._set(temperature)
        for group in self.optimizer.param_groups:
            if "temperature" in group:  # a sampler
                group["temperature"] *= ratio
            if "ess" in group:  # IVON: N / T
                group["ess"] /= ratio

    def state_dict(self) -> dict[str, Any]:
        """Where it stands; prior and optimizer keep their own."""
        spread = self.targets
        numbers = {"temperature": self.temperature, "frozen": self.frozen, "examples": spread.examples}
        return {**numbers, "counts": spread.counts, "moments": spread.moments}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of ``state_dict``."""
        self.targets.counts, self.targets.moments = state["counts"], state["moments"]
        self.targets.examples, self.frozen = int(state["examples"]), bool(state["frozen"])
        self._set(float(state["temperature"]))

    def _set(self, temperature: float) -> None:
        if self.in_objective:
            self.elbo.temperature = temperature
        elif self.shown_first is not None:  # of the temperature alone: a run that was cut off shows the same
            self.elbo.shown_temperature = self.shown_first * (temperature / COLD_START)
        self.temperature = temperature
        scale_prior(self.prior, temperature)
        self._set_dropout()

    def _set_dropout(self) -> None:
        for layer in self.dropout:
            layer.p = DROPOUT_PER_TEMPERATURE * self.temperature


def scale_prior(prior: Prior, temperature: float) -> None:
    """Prior stds that pull on the means as those of the parts do at temperature PRIOR_WEIGHT."""
    if isinstance(prior, FlatPrior):
        prior.set_scale(math.sqrt(temperature / PRIOR_WEIGHT))


def _clipped(share: float) -> float:
    return _FULL if math.isnan(share) else min(1.0, max(0.0, share))
