"""How good predictions are on given data: every number with its standard error over the examples.

``nll`` is that of the averaged prediction under the likelihood itself, -log 1/D sum_d p(y given x, w_d): of counts,
heavy tails and real numbers alike, in the units of the targets. Coverage is that of the mixture's own intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..errors import DataError
from ..likelihoods import LIKELIHOODS, ClassLikelihood, counted, labels_of
from ..metrics import (
    Estimate,
    accuracy,
    brier,
    classification_estimates,
    estimate_mean,
    flat_record,
    nll,
    predictive_estimates,
    r2,
    sample_crps,
)
from ..registry import kind_of
from ..types import Inputs
from .contracts import Drawable
from .evaluate import predict_and_score
from .frames import data_frame
from .inputs import as_targets, with_targets
from .laws import TargetLaw
from .linearised import choose_prediction
from .predictions import ClassPrediction, RealPrediction

CRPS_SAMPLES = 1000
"""Targets drawn from a prediction for its CRPS: their noise is a twentieth of the standard error over examples."""

_AT_ONCE = 1 << 21
Scores = dict[str, Estimate]
Each = dict[str, Tensor]
Restore = Callable[[Any], Any]
"""Brings a prediction from the units of the likelihood to those of the user."""


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation(Mapping[str, Estimate]):
    """Scores by name, each with its standard error: ``evaluation["nll"].error``.

    ``draws`` are those that were used, ``prediction`` how ("sampled", "linearised" or "mean"); ``found`` is what was
    predicted, None of a likelihood that does not predict. ``by_example`` has the numbers (S,) of each example whose
    mean is a score: two models on the same examples are compared by their differences. ``expected_nll`` is the mean NLL
    of single draws, E_q[-log p(y given x, w)]: with KL / N it is the negative ELBO per datum.
    """

    estimates: Mapping[str, Estimate]
    examples: int
    draws: int
    prediction: str
    likelihood: str
    found: ClassPrediction | RealPrediction | None = None
    by_example: Mapping[str, Tensor] = field(default_factory=dict)
    expected_nll: Estimate | None = None

    def __getitem__(self, name: str) -> Estimate:
        return self.estimates[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.estimates)

    def __len__(self) -> int:
        return len(self.estimates)

    def as_dict(self) -> dict[str, float]:
        """Plain numbers for JSON: ``<name>``, and ``<name>_error`` where one is known."""
        return flat_record(self.estimates)

    def to_frame(self) -> Any:
        """A pandas DataFrame, one row a score: value and error."""
        values, errors = [float(score) for score in self.values()], [score.error for score in self.values()]
        return data_frame({"value": values, "error": errors}, index=list(self))

    def __repr__(self) -> str:
        head = f"Evaluation({self.examples:,} examples, {self.draws} draw{'' if self.draws == 1 else 's'}"
        lines = [f"{head}, prediction {self.prediction}, likelihood {self.likelihood})"]
        for name, score in self.items():
            error = "" if score.error is None else f" ± {score.error:.2g}"
            lines.append(f"  {name:<20} {score:>9.4g}{error}")
        return "\n".join(lines)


def evaluate(
    model: Drawable,
    inputs: Inputs,
    targets: Any,
    likelihood: Any,
    *,
    draws: int = 100,
    batch_size: int | None = 1000,
    seed: int = 0,
    prediction: str | None = None,
    restore: Restore | None = None,
    nll_shift: float = 0.0,
) -> Evaluation:
    """Every score of a model on data; arguments as in ``predict``.

    Targets are those of the likelihood; ``restore`` brings real predictions, and them, to other units, in which the NLL
    of an example is greater by ``nll_shift``. Labels that the likelihood ignores are left out. What each draw says of
    every real target is held meanwhile: draws x outputs numbers.
    """
    part = LIKELIHOODS.resolve(likelihood)
    inputs, targets = with_targets(model, inputs, targets)
    scored = predict_and_score(
        model, inputs, targets, part, draws=draws, batch_size=batch_size, seed=seed, prediction=prediction,
        keep_samples=not isinstance(part, ClassLikelihood),
    )  # fmt: skip
    found, truth = scored.prediction, as_targets(targets, len(scored.losses))
    losses = scored.losses.double() + nll_shift
    if isinstance(found, ClassPrediction):
        estimates, each = _of_classes(found, labels_of(part, truth), counted(part, truth))
        found = found if restore is None else restore(found)
    elif isinstance(found, RealPrediction):
        truth = _shaped(truth, found.mean)
        if restore is not None:
            zeros = torch.zeros_like(truth)
            found, truth = restore(found), restore(RealPrediction(truth, zeros, zeros, draws=1)).mean
        estimates, each = _of_reals(found, truth, losses, scored.expected_losses.double() + nll_shift, seed)
    else:
        estimates, each = {"nll": estimate_mean(losses)}, {"nll": losses}
    name = str(getattr(part, "name", None) or kind_of(part))
    how = choose_prediction(model, prediction)
    expected = estimate_mean(scored.expected_losses.double() + nll_shift)
    return Evaluation(estimates, len(losses), scored.draws, how, name, found, each, expected)


def score_of(found: ClassPrediction | RealPrediction, targets: Tensor, places: Tensor | None = None) -> Estimate:
    """Accuracy of classes, R^2 of real numbers (the mean over outputs): scikit-learn's ``score``."""
    if isinstance(found, ClassPrediction):
        probabilities, labels, _ = _labelled(found, targets, places)
        return accuracy(probabilities, labels)
    return r2(found.mean.cpu(), _shaped(targets, found.mean))


def _of_classes(found: ClassPrediction, targets: Tensor, places: Tensor | None) -> tuple[Scores, Each]:
    probabilities, labels, information = _labelled(found, targets, places)
    each = {"accuracy": accuracy, "nll": nll, "brier": brier}
    return (
        classification_estimates(probabilities, labels, mutual_information=information),
        {name: score.of_examples(probabilities, labels) for name, score in each.items()},
    )


def _labelled(found: ClassPrediction, targets: Tensor, places: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Probabilities, labels and mutual information on the CPU, of the places that count (None: all)."""
    probabilities, information = found.probabilities.cpu(), found.mutual_information.cpu()
    if targets.numel() != information.numel():
        raise DataError(f"targets have shape {tuple(targets.shape)}; predicted were {tuple(information.shape)}")
    labels = targets.cpu().long().reshape(information.shape)
    if places is None:
        return probabilities, labels, information
    kept = places.cpu().reshape(labels.shape)
    if not bool(kept.any()):
        raise DataError("every target is one that the likelihood ignores; there is nothing to score")
    return probabilities[kept], labels[kept], information[kept]


def _of_reals(
    found: RealPrediction, truth: Tensor, losses: Tensor, expected_losses: Tensor, seed: int
) -> tuple[Scores, Each]:
    law = found.law
    assert law is not None  # it was asked for
    of_law = _of_law(law, truth, seed, bool(found.variance.isfinite().all()))
    estimates = predictive_estimates(found.mean.cpu(), truth, losses, expected_losses=expected_losses, **of_law)
    squares = (found.mean.cpu().double() - truth).square()
    each = {"squared_error": squares, "nll": losses, **({"crps": of_law["crps"]} if "crps" in of_law else {})}
    return estimates, {name: values.reshape(len(values), -1).mean(1) for name, values in each.items()}


def _of_law(law: TargetLaw, truth: Tensor, seed: int, finite: bool) -> dict[str, Tensor]:
    """What the law of targets says of the true ones; nothing where the likelihood can neither be drawn from nor asked.

    Tails so heavy that the variance is not ``finite`` have no CRPS that could be drawn.
    """
    found: dict[str, Tensor] = {}
    if hasattr(law.likelihood, "cdf") or hasattr(law.likelihood, "sample_targets"):
        found["pit"] = law.cdf(truth).cpu().clamp(0, 1)
        if law.is_discrete:
            found["below"] = law.cdf_below(truth).cpu().clamp(0, 1)
    if hasattr(law.likelihood, "sample_targets") and finite:
        size = max(1, _AT_ONCE // (CRPS_SAMPLES * max(1, truth[0].numel())))
        parts = [
            sample_crps.of_examples(law.of_examples(at, at + size).sample(CRPS_SAMPLES, seed), truth[at : at + size])
            for at in range(0, len(truth), size)
        ]
        found["crps"] = torch.cat(parts)
    return found


def _shaped(targets: Tensor, like: Tensor) -> Tensor:
    """Targets in the shape of what was predicted, as float64 on the CPU."""
    if targets.numel() != like.numel():
        raise DataError(f"targets have shape {tuple(targets.shape)}; predicted were {tuple(like.shape)}")
    return targets.detach().cpu().double().reshape(like.shape)
