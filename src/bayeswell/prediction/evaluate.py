"""Scores of a model on data, each with its standard error over the examples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..core.errors import DataError, nearest
from ..core.protocols import Likelihood
from ..core.pytree import num_examples
from ..likelihoods import LIKELIHOODS
from ..metrics import Estimate, flat_record, measure, measure_examples, nll, sample_crps
from ..nn import BayesianModule
from ..tables import Preparation
from .inputs import as_inputs, as_targets, with_targets
from .mixture import PredictiveMixture
from .outputs import stacked_outputs
from .predict import PredictionFold, make_source, mixture_nll, nll_by_draw, predict
from .predictions import ClassPrediction, RealPrediction

CRPS_SAMPLES = 1000
"""Targets drawn for the CRPS; their noise adds little to the standard error over examples."""
AT_ONCE = 1 << 21
LEVEL = 0.9

Arrays = dict[str, Tensor]


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation(Mapping[str, Estimate]):
    """Scores by key: ``evaluation["nll"].value`` and ``.se``.

    Args:
        scores: in the order of ``metrics.SCORES``; real targets in the user's units.
        predicted: None for a likelihood that cannot predict.
        per_example: by key, the numbers whose mean is a score; for paired comparisons of models.
    """

    scores: Mapping[str, Estimate]
    examples: int
    draws: int
    prediction: str
    likelihood: str
    predicted: ClassPrediction | RealPrediction | None = None
    per_example: Mapping[str, Tensor] = field(default_factory=dict)

    def __getitem__(self, key: str) -> Estimate:
        if key not in self.scores:
            raise KeyError(f"there is no score {key!r}; {nearest(str(key), self.scores)}")
        return self.scores[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.scores)

    def __len__(self) -> int:
        return len(self.scores)

    def to_json(self) -> dict[str, float]:
        """Return ``key`` and, where it is known, ``key_se`` of each score."""
        return flat_record(self.scores)

    def __repr__(self) -> str:
        lines = [
            f"Evaluation({self.examples:,} examples, {self.draws} draws, prediction {self.prediction}, "
            f"likelihood {self.likelihood})"
        ]
        for key, score in self.items():
            lines.append(f"  {key:<22} {score.value:>10.4g}" + ("" if score.se is None else f" ± {score.se:.2g}"))
        return "\n".join(lines)


def evaluate(
    model: BayesianModule,
    inputs: Any,
    targets: Any,
    likelihood: Any,
    *,
    draws: int = 30,
    batch_size: int | None = 1000,
    seed: int = 0,
    prediction: str | None = None,
    preparation: Preparation | None = None,
    ood: Any = None,
) -> Evaluation:
    """Return every score of a model on data, from one pass of each drawn network.

    "nll" is that of the averaged prediction, -log 1/D sum_d p(y | x, w_d); "expected_nll" is the mean over draws.
    Labels that the likelihood ignores are left out, and classes count without its class weights.

    Args:
        model: a ``BayesianModule``.
        inputs: as in ``predict``; a DataLoader or Dataset may bring the targets.
        targets: None: those of the loader.
        likelihood: an object, a name or a mapping.
        draws: the number of drawn networks.
        batch_size: examples of one pass.
        seed: of the draws.
        prediction: "sampled", "linearized" or "mean"; None: as the model says.
        preparation: of the user's data; scores of real targets are in the user's units.
        ood: out-of-distribution inputs, to be detected by the uncertainty of classes.
    """
    inputs, targets = with_targets(inputs, targets)
    if preparation is not None:
        inputs, targets = preparation.inputs(inputs), preparation.targets(targets)
        ood = None if ood is None else preparation.inputs(ood)
    likelihood, inputs = LIKELIHOODS.resolve(likelihood), as_inputs(model, inputs)
    targets = as_targets(targets, num_examples(inputs))
    source, joint = make_source(model, None, seed, draws, batch_size), not likelihood.supports("probabilities")
    stacks = stacked_outputs(model, inputs, draws, source, batch_size, prediction=prediction, joint=joint)
    predicted, matrix = _predict_and_score(stacks, targets, likelihood, draws)
    shift = 0.0 if preparation is None else preparation.nll_shift
    arrays = {"losses": mixture_nll(matrix) + shift, "expected_losses": matrix.mean(0) + shift}
    if isinstance(predicted, ClassPrediction):
        arrays |= _class_arrays(predicted, likelihood, targets)
        if ood is not None:
            far: Any = predict(model, ood, likelihood, draws, batch_size=batch_size, seed=seed, prediction=prediction)
            arrays["ood_probabilities"] = far.probabilities.cpu()
            arrays["ood_mutual_information"] = far.mutual_information.cpu()
    if preparation is not None and predicted is not None:
        predicted = preparation.restore(predicted)
    if isinstance(predicted, RealPrediction):
        scaling = None if preparation is None else preparation.target_scaling
        arrays |= _real_arrays(predicted, targets if scaling is None else scaling.restore(targets.double()), seed)
    return Evaluation(
        scores=measure(arrays),
        examples=len(targets),
        draws=len(matrix),
        prediction=prediction or model.prediction,
        likelihood=likelihood.name or type(likelihood).__name__,
        predicted=predicted,
        per_example=_per_example(arrays, len(targets)),
    )


def _predict_and_score(
    stacks: Iterator[Tensor], targets: Tensor, likelihood: Likelihood, draws: int
) -> tuple[ClassPrediction | RealPrediction | None, Tensor]:
    predicts = likelihood.supports("probabilities") or likelihood.supports("mean_and_variance")
    fold = PredictionFold(likelihood, draws, keep_outputs=True)
    rows: list[Tensor] = []
    for stack in stacks:
        if not rows:
            likelihood.check(targets.to(stack.device), stack[0])
        means = fold.update(stack) if predicts else None
        if fold.is_class and means is not None:
            rows.append(_label_nll(means, likelihood, targets))
        else:
            rows.append(nll_by_draw(likelihood, stack, targets))
    return (fold.result() if predicts else None), torch.cat(rows)


def _label_nll(samples: Tensor, likelihood: Likelihood, targets: Tensor) -> Tensor:
    # (D, ...): without class weights and ignored labels, as the "nll" of the averaged probabilities.
    labels, valid = _valid_labels(likelihood, targets, samples.shape[1:-1])
    indices = labels.to(samples.device).expand(samples.shape[:-1])[..., None]
    probabilities = samples.gather(-1, indices).squeeze(-1).clamp_min(torch.finfo(samples.dtype).tiny)
    return -probabilities.log().cpu()[:, valid]


def _valid_labels(likelihood: Likelihood, targets: Tensor, shape: torch.Size) -> tuple[Tensor, Any]:
    # Labels with the shape of the predictions (0 where they are ignored), and the index of those that count.
    targets = targets.cpu()
    labels, mask = likelihood.aligned_targets(targets), likelihood.valid_mask(targets)
    if labels.numel() != shape.numel():
        raise DataError(f"targets have shape {tuple(targets.shape)}; predicted were {tuple(shape)}")
    labels = labels.long().reshape(shape)
    if mask is None:
        return labels, ...
    if not bool(mask.any()):
        raise DataError("the likelihood ignores every target; there is nothing to score")
    mask = mask.reshape(shape)
    return labels.where(mask, 0), mask


def _class_arrays(predicted: ClassPrediction, likelihood: Likelihood, targets: Tensor) -> Arrays:
    labels, valid = _valid_labels(likelihood, targets, predicted.entropy.shape)
    probabilities, labels = predicted.probabilities.cpu()[valid], labels[valid]
    return {
        "probabilities": probabilities,
        "labels": labels,
        "mutual_information": predicted.mutual_information.cpu()[valid],
        "losses": nll.by_example(probabilities, labels),
    }


def _real_arrays(predicted: RealPrediction, targets: Tensor, seed: int) -> Arrays:
    if targets.numel() != predicted.mean.numel():
        raise DataError(f"targets have shape {tuple(targets.shape)}; predicted were {tuple(predicted.mean.shape)}")
    targets = targets.cpu().double().reshape(predicted.mean.shape)
    arrays = {"mean": predicted.mean.cpu(), "targets": targets}
    mixture = predicted.mixture
    if mixture is None:
        return arrays
    can_sample = mixture.likelihood.supports("sample")
    if mixture.likelihood.supports("cdf") or can_sample:
        arrays["pit"] = mixture.cdf(targets).cpu().clamp(0, 1)
        if mixture.likelihood.is_discrete:
            arrays["below"] = mixture.cdf_below(targets).cpu().clamp(0, 1)
        arrays["lower_90"], arrays["upper_90"] = (end.cpu() for end in predicted.interval(LEVEL, seed=seed))
    # Without a finite variance, drawn targets have no useful mean of pairwise distances.
    if can_sample and bool(predicted.variance.isfinite().all()):
        arrays["crps"] = _crps(mixture, targets, seed)
    return arrays


@torch.no_grad()
def _crps(mixture: PredictiveMixture, targets: Tensor, seed: int) -> Tensor:
    size = max(1, AT_ONCE // (CRPS_SAMPLES * max(1, targets[0].numel())))
    parts = []
    for start in range(0, len(targets), size):
        drawn = mixture.examples(start, start + size).sample(CRPS_SAMPLES, seed)
        parts.append(sample_crps.by_example(drawn, targets[start : start + size]))
    return torch.cat(parts)


def _per_example(arrays: Arrays, examples: int) -> dict[str, Tensor]:
    by_key = measure_examples(arrays).items()
    return {key: values.reshape(examples, -1).mean(1) for key, values in by_key if len(values) == examples}
