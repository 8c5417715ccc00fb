"""The temperature that follows from the fit (``temperature="auto"``)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..core.protocols import Likelihood
from ..objectives import ELBO

AUTO = "auto"
COLD_START, SHARE, PRIOR_WEIGHT = 1e-3, 0.1, 0.1
ADAPTS_FROM, SETTLED = 0.3, 0.5
"""Shares of training: the first change, and the last one where an averager watches."""
_UNKNOWN = 0.05
"""The unexplained share where the targets do not tell it."""


class TargetSpread:
    """Uncertainty of the targets before the inputs are known: class counts and moments, from the first epoch."""

    def __init__(self) -> None:
        self.examples = 0
        self.counts = torch.zeros(0, dtype=torch.float64)
        self.moments = torch.zeros(0, dtype=torch.float64)

    def observe(self, likelihood: Likelihood, targets: Tensor) -> None:
        """Add the targets of one batch; called in the first epoch, before each step."""
        if not targets.numel():
            return
        labels = likelihood.aligned_targets(targets).detach()
        self.examples += len(labels)
        rows = labels.reshape(len(labels), -1).double().cpu()
        moments = torch.stack([torch.full_like(rows[0], len(rows)), rows.sum(0), rows.square().sum(0)])
        self.moments = moments if self.moments.shape != moments.shape else self.moments + moments
        # Counts of a Poisson likelihood are integers too, but may be as large as memory.
        if likelihood.supports("probabilities") and not labels.is_floating_point():
            mask = likelihood.valid_mask(targets)
            valid = labels.flatten() if mask is None else labels[mask]
            counts = valid.long().bincount(minlength=len(self.counts)).double().cpu()
            counts[: len(self.counts)] += self.counts
            self.counts = counts

    def unexplained(self, likelihood: Likelihood, metrics: Mapping[str, float]) -> float:
        """MSE / variance where the metrics have "rmse"; else NLL / entropy, of class frequencies or of counts."""
        if not self.examples:
            return _UNKNOWN
        count, total, squares = self.moments
        mean, variance = total / count, squares / count - (total / count).square()
        if "rmse" in metrics:
            return _ratio(metrics["rmse"] ** 2, float(variance.mean()))
        if len(self.counts):
            entropy = float(torch.special.entr(self.counts / self.counts.sum()).sum())
            return _ratio(metrics["nll"], float(self.counts.sum()) / self.examples * entropy)
        if bool(((mean >= 0) & (mean <= 1) & (squares == total)).all()):
            return _ratio(metrics["nll"], float(torch.special.entr(torch.stack([mean, 1 - mean])).sum()))
        if likelihood.is_discrete:
            # Counts: the entropy of a Gaussian with their variance, widened by that of rounding.
            return _ratio(metrics["nll"], float((2 * math.pi * math.e * (variance + 1 / 12)).log().sum() / 2))
        return _UNKNOWN


class AutoTemperature:
    """A cold posterior whose temperature is set by the share of the targets' uncertainty that the fit leaves.

    The target is exp(-(NLL - ``PRIOR_WEIGHT`` log p(w)) / T). T starts at ``COLD_START``, so that the means are found
    first; after each epoch from ``ADAPTS_FROM`` of training on it is ``SHARE`` x (unexplained share). The pull of the
    prior on the means is the same at each T. At T = 1 a nearly exact fit would drown in the width of its posterior.

    Only ``elbo.temperature``, the temperature of a sampler, the effective sample size of IVON (N / T) and the
    probability of ``dropout`` (= T) change; the model's prior never does.

    Args:
        dropout: dropout that was added to a network without any.
        until: the share of training after which T stays.
    """

    def __init__(
        self, elbo: ELBO, optimizer: torch.optim.Optimizer, dropout: Sequence[nn.Module] = (), *, until: float = 1.0
    ) -> None:
        self.elbo, self.optimizer, self.dropout, self.until = elbo, optimizer, list(dropout), until
        self.spread = TargetSpread()
        self._set(COLD_START)

    @property
    def temperature(self) -> float:
        return float(self.elbo.temperature)

    def after_epoch(self, fraction: float, metrics: Mapping[str, float]) -> None:
        """Set T by the epoch that ended at this share of training; ``metrics`` are means over it."""
        if not ADAPTS_FROM <= fraction <= self.until:
            return
        temperature = SHARE * max(self.spread.unexplained(self.elbo.likelihood, metrics), COLD_START)
        ratio = temperature / self.temperature
        for group in self.optimizer.param_groups:
            if "temperature" in group:
                group["temperature"] *= ratio
            if "ess" in group:
                group["ess"] /= ratio
        self._set(temperature)

    def _set(self, temperature: float) -> None:
        self.elbo.temperature = temperature
        for layer in self.dropout:
            layer.p = temperature  # type: ignore[assignment]

    def state_dict(self) -> dict[str, Any]:
        return {"temperature": self.temperature, **vars(self.spread)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the state; the optimizer loads its groups itself."""
        self.spread.examples = int(state["examples"])
        self.spread.counts, self.spread.moments = state["counts"], state["moments"]
        self._set(float(state["temperature"]))


def _ratio(part: float, whole: float) -> float:
    return min(1.0, max(0.0, part / whole)) if whole > 0 and math.isfinite(part) else _UNKNOWN
