"""Running averages over draws for one batch: their memory does not grow with the number of draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from ..errors import NetworkError
from ..likelihoods import Categorical, ClassLikelihood, RealLikelihood
from ..metrics import entropy
from ..types import Likelihood
from .predictions import ClassPrediction, RealPrediction

_FEW_CLASSES = 64


def widened(outputs: Tensor) -> Tensor:
    """Outputs in float64, so that sums over many draws and differences of entropies keep their digits."""
    return outputs.float() if outputs.device.type == "mps" else outputs.double()


def result_dtype(outputs: Tensor) -> torch.dtype:
    """The dtype of results: that of the network's outputs, float32 at least."""
    return torch.promote_types(outputs.dtype, torch.float32)


class Collector(Protocol):
    """What is gathered over the draws for one batch."""

    def add(self, outputs: Tensor) -> None:
        """Take in the outputs of one more draw."""
        ...


class ClassAverage:
    """Sums over draws of p_d and H[p_d]."""

    def __init__(self, likelihood: ClassLikelihood, keep_samples: bool) -> None:
        self.likelihood = likelihood
        self.samples: list[Tensor] | None = [] if keep_samples else None
        self.dtype = torch.float32
        self.draws = 0
        self.probabilities = torch.zeros(())
        self.entropy = torch.zeros(())

    def add(self, outputs: Tensor) -> None:
        """Take in the outputs of one more draw."""
        self.dtype = result_dtype(outputs)
        probabilities = _class_probabilities(self.likelihood, widened(outputs))
        if self.samples is not None:
            self.samples.append(probabilities.to(self.dtype))
        self.draws += 1
        self.probabilities = self.probabilities + probabilities
        self.entropy = self.entropy + entropy(probabilities)


def _class_probabilities(likelihood: ClassLikelihood, outputs: Tensor) -> Tensor:
    if type(likelihood) is Categorical and outputs.dim() == 2 and 2 <= outputs.shape[1] <= _FEW_CLASSES:
        # The same numbers, as if the examples were places of a single one: loops then run along many examples and not
        # along a few classes.
        return likelihood.class_probabilities(outputs.T.contiguous()[None])[0]
    return likelihood.class_probabilities(outputs)


def class_prediction(averages: Sequence[ClassAverage]) -> ClassPrediction:
    """The batches put together."""
    draws, dtype = averages[0].draws, averages[0].dtype
    probabilities = torch.cat([average.probabilities for average in averages]) / draws
    _require_finite(probabilities)
    expected = torch.cat([average.entropy for average in averages]) / draws
    total = entropy(probabilities)
    return ClassPrediction(
        probabilities=probabilities.to(dtype),
        entropy=total.to(dtype),
        expected_entropy=expected.to(dtype),
        # Never negative in exact arithmetic (Jensen).
        mutual_information=(total - expected).clamp_min(0).to(dtype),
        draws=draws,
        kept=_join([average.samples for average in averages]),
    )


class RealAverage:
    """Mean and summed squared deviation of the draws' means (Welford 1962), and the sum of their variances.

    Welford's update, because mean(m^2) - mean(m)^2 loses all digits when the spread is small.
    """

    def __init__(self, likelihood: RealLikelihood, keep_samples: bool) -> None:
        self.likelihood = likelihood
        self.samples: list[Tensor] | None = [] if keep_samples else None
        self.dtype = torch.float32
        self.draws = 0
        self.mean = torch.zeros(())
        self.squares = torch.zeros(())
        self.variance = torch.zeros(())

    def add(self, outputs: Tensor) -> None:
        """Take in the outputs of one more draw."""
        self.dtype = result_dtype(outputs)
        mean, variance = self.likelihood.mean_and_variance(widened(outputs))
        if self.samples is not None:
            self.samples.append(mean.to(self.dtype))
        self.draws += 1
        away = mean - self.mean
        self.mean = self.mean + away / self.draws
        self.squares = self.squares + away * (mean - self.mean)
        self.variance = self.variance + variance


def real_prediction(averages: Sequence[RealAverage]) -> RealPrediction:
    """The batches put together."""
    draws, dtype = averages[0].draws, averages[0].dtype
    mean = torch.cat([average.mean for average in averages])
    _require_finite(mean)
    return RealPrediction(
        mean=mean.to(dtype),
        epistemic_variance=(torch.cat([average.squares for average in averages]) / draws).to(dtype),
        aleatoric_variance=(torch.cat([average.variance for average in averages]) / draws).to(dtype),
        draws=draws,
        kept=_join([average.samples for average in averages]),
    )


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
            self.likelihood.check(targets, outputs)
        self.sums.append(self.likelihood.nll(widened(outputs), targets).sum())


def _join(samples: Sequence[list[Tensor] | None]) -> Tensor | None:
    """(D, S, ...) from each batch's list of draws."""
    kept = [torch.stack(draws) for draws in samples if draws is not None]
    return torch.cat(kept, dim=1) if kept else None


def _require_finite(averaged: Tensor) -> None:
    wrong = ~torch.isfinite(averaged).flatten(1).all(1) if averaged.dim() > 1 else ~torch.isfinite(averaged)
    if bool(wrong.any()):
        raise NetworkError(
            f"the prediction for example {int(wrong.nonzero()[0])} is not finite: for at least one draw the "
            "network's outputs are NaN or infinite"
        )
