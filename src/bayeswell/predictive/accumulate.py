"""Running averages over draws for one batch: beyond a bound their memory does not grow with the number of draws."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import AbsentError, NetworkError
from ..likelihoods import Categorical, ClassLikelihood, RealLikelihood, for_outputs
from ..metrics import entropy
from ..registry import kind_of
from ..types import Likelihood
from .laws import TargetLaw
from .precision import result_dtype, widened
from .predictions import ClassPrediction, RealPrediction

_FEW_CLASSES = 64
_GROUP, _ALL_GROUPS = 1 << 17, 1 << 22
"""At most so many outputs of a batch, and of all batches, wait to be taken in at a time (but one draw's)."""


KEPT_NUMBERS = 1 << 24
"""Outputs of all draws that a prediction of real numbers keeps without being asked: 64 MB in float32."""


@dataclass(frozen=True)
class Keeping:
    """What is kept of each draw besides the averages.

    ``samples``: what it says of the targets. The outputs of each draw of real numbers are kept along, or where all
    ``draws`` of all ``examples`` are few. ``batches`` share a bound on what waits.
    """

    samples: bool
    batches: int
    draws: int
    examples: int

    def outputs(self, batch: Tensor) -> bool:
        """Whether outputs like these of a batch are kept: the same answer for every batch."""
        each = batch.numel() // max(1, len(batch))
        return self.samples or self.draws * self.examples * each <= KEPT_NUMBERS


class _InGroups(ABC):
    """Takes in draws a group at a time: for a small batch the operations cost far more to start than to do.

    ``keeping.batches`` is how many of these there are: what waits in all of them together is bounded.
    """

    def __init__(self, keeping: Keeping) -> None:
        self._most_waiting = min(_GROUP, _ALL_GROUPS // keeping.batches)
        self.keeping = keeping
        self.samples: list[Tensor] | None = [] if keeping.samples else None
        self.dtype = torch.float32
        self.draws = 0
        self._shape: torch.Size | None = None
        self._waiting: list[Tensor] = []

    def add(self, outputs: Tensor) -> None:
        """Take in the outputs of one more draw."""
        if self._shape is not None and outputs.shape != self._shape:
            raise NetworkError(
                f"the network returned shape {tuple(self._shape)} for one draw and {tuple(outputs.shape)} for another"
            )
        first, self._shape = self._shape is None, outputs.shape
        # The first goes alone, so that a likelihood that refuses it does so before the work. What waits is a copy: the
        # network may use the memory again, or the outputs be a small part of it.
        alone = first or 2 * outputs.numel() > self._most_waiting
        self._waiting.append(outputs if alone else outputs.clone())
        if alone or (len(self._waiting) + 1) * outputs.numel() > self._most_waiting:
            self.finish()

    def finish(self) -> None:
        """Take in what waits: after the last draw."""
        if not self._waiting:
            return
        group, self._waiting = self._waiting, []
        self.dtype = result_dtype(group[0])
        self.draws += len(group)
        # A likelihood's first axis counts examples, whichever draw they belong to.
        self._take(torch.cat(group), len(group))

    @abstractmethod
    def _take(self, outputs: Tensor, count: int) -> None:
        """The outputs (count * S, ...) of ``count`` draws, which are counted in ``draws`` already."""

    def _keep(self, values: Tensor) -> None:
        """What each of a few draws says: (draws, S, ...)."""
        if self.samples is not None:
            self.samples += values.to(self.dtype).unbind()


class ClassAverage(_InGroups):
    """Sums over draws of p_d and H[p_d]."""

    def __init__(self, likelihood: ClassLikelihood, keeping: Keeping) -> None:
        super().__init__(keeping)
        self.likelihood = likelihood
        self.probabilities = torch.zeros(())
        self.entropy = torch.zeros(())

    def _take(self, outputs: Tensor, count: int) -> None:
        probabilities = _class_probabilities(self.likelihood, widened(outputs)).unflatten(0, (count, -1))
        self._keep(probabilities)
        self.probabilities = self.probabilities + probabilities.sum(0)
        self.entropy = self.entropy + entropy(probabilities).sum(0)


def _class_probabilities(likelihood: ClassLikelihood, outputs: Tensor) -> Tensor:
    plain = type(likelihood) is Categorical and likelihood.class_axis in (None, 1, -1) and outputs.dim() == 2
    if plain and 2 <= outputs.shape[1] <= _FEW_CLASSES:
        # The same numbers; loops then run along many examples and not along a few classes.
        logits, temperature = outputs.T.contiguous(), getattr(likelihood, "temperature", 1.0)
        return torch.softmax(logits if temperature == 1 else logits / temperature, 0).T
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


class RealAverage(_InGroups):
    """Mean and summed squared deviation of the draws' means, and the sum of their variances.

    Groups of draws are joined as Chan, Golub and LeVeque (1979) do it: mean(m^2) - mean(m)^2 would lose all digits when
    the spread is small.
    """

    def __init__(self, likelihood: RealLikelihood, keeping: Keeping) -> None:
        super().__init__(keeping)
        self.likelihood = likelihood
        self.outputs: list[Tensor] = []
        self.mean = torch.zeros(())
        self.squares = torch.zeros(())
        self.variance = torch.zeros(())

    def _take(self, outputs: Tensor, count: int) -> None:
        if self.keeping.outputs(outputs[: len(outputs) // count]):
            self.outputs.append(outputs.unflatten(0, (count, -1)))
        moments = self.likelihood.mean_and_variance(widened(outputs))
        means, variances = (part.unflatten(0, (count, -1)) for part in moments)
        self._keep(means)
        mean = means.mean(0)
        away, before = mean - self.mean, self.draws - count
        self.mean = self.mean + away * (count / self.draws)
        self.squares = self.squares + (means - mean).square().sum(0) + away.square() * (before * count / self.draws)
        self.variance = self.variance + variances.sum(0)


def real_prediction(averages: Sequence[RealAverage]) -> RealPrediction:
    """The batches put together."""
    draws, dtype = averages[0].draws, averages[0].dtype
    mean = torch.cat([average.mean for average in averages])
    _require_finite(mean)
    epistemic = (torch.cat([average.squares for average in averages]) / draws).to(dtype)
    aleatoric = (torch.cat([average.variance for average in averages]) / draws).to(dtype)
    _require_variance(epistemic, dtype, "epistemic")
    if getattr(averages[0].likelihood, "finite_variance", False):
        _require_variance(aleatoric, dtype, "aleatoric")
    return RealPrediction(
        mean=mean.to(dtype),
        epistemic_variance=epistemic,
        aleatoric_variance=aleatoric,
        draws=draws,
        kept=_join([average.samples for average in averages]),
        law=_law(averages),
    )


def _law(averages: Sequence[RealAverage]) -> TargetLaw | None:
    if not averages[0].outputs:
        return None
    outputs = torch.cat([torch.cat(average.outputs) for average in averages], dim=1)
    # A copy: the likelihood may learn more, what was predicted stays.
    with torch.no_grad():
        return TargetLaw(outputs, copy.deepcopy(averages[0].likelihood))


class PredictionAverage:
    """Of classes or of real numbers: what a likelihood says, or what it says once it has seen outputs."""

    def __init__(self, likelihood: Likelihood, keeping: Keeping) -> None:
        if not isinstance(likelihood, ClassLikelihood | RealLikelihood) and not hasattr(likelihood, "for_outputs"):
            raise _cannot_predict(likelihood)
        self._likelihood, self._keeping = likelihood, keeping
        self.average: ClassAverage | RealAverage | None = None

    def by_example(self, outputs: Tensor) -> bool:
        """Unless what each draw says is kept, which may be looked at for several examples together."""
        if isinstance(for_outputs(self._likelihood, outputs), ClassLikelihood):
            return not self._keeping.samples
        return not self._keeping.outputs(outputs)

    def add(self, outputs: Tensor) -> None:
        """Take in the outputs of one more draw."""
        if self.average is None:
            self.average = self._begun(outputs)
        self.average.add(outputs)

    def finish(self) -> None:
        """After the last draw."""
        if self.average is not None:
            self.average.finish()

    def _begun(self, outputs: Tensor) -> ClassAverage | RealAverage:
        form = for_outputs(self._likelihood, outputs)
        if isinstance(form, ClassLikelihood):
            return ClassAverage(form, self._keeping)
        if isinstance(form, RealLikelihood):
            return RealAverage(form, self._keeping)
        raise _cannot_predict(self._likelihood)


def joined(averages: Sequence[PredictionAverage]) -> ClassPrediction | RealPrediction:
    """The batches put together."""
    found = [average.average for average in averages]
    classes = [average for average in found if isinstance(average, ClassAverage)]
    reals = [average for average in found if isinstance(average, RealAverage)]
    return class_prediction(classes) if classes else real_prediction(reals)


def _cannot_predict(likelihood: Likelihood) -> AbsentError:
    return AbsentError(
        f"likelihood {kind_of(likelihood)} lacks `class_probabilities` or `mean_and_variance`, needed to predict"
    )


def _join(samples: Sequence[list[Tensor] | None]) -> Tensor | None:
    """(D, S, ...) from each batch's list of draws."""
    kept = [torch.stack(draws) for draws in samples if draws is not None]
    return torch.cat(kept, dim=1) if kept else None


def _require_variance(variance: Tensor, dtype: torch.dtype, kind: str) -> None:
    """A likelihood whose variance is always finite has its ``finite_variance`` say so; heavy tails may have none."""
    wrong = ~torch.isfinite(variance.reshape(len(variance), -1)).all(1)
    if bool(wrong.any()):
        raise NetworkError(
            f"the {kind} variance of the prediction for example {int(wrong.nonzero()[0])} is beyond {dtype}: the "
            "inputs or targets are too large to compute with; scale them (fit(..., standardise=True))"
        )


def _require_finite(averaged: Tensor) -> None:
    wrong = ~torch.isfinite(averaged).flatten(1).all(1) if averaged.dim() > 1 else ~torch.isfinite(averaged)
    if bool(wrong.any()):
        raise NetworkError(
            f"the prediction for example {int(wrong.nonzero()[0])} is not finite: for at least one draw the "
            "network's outputs are NaN or infinite"
        )
