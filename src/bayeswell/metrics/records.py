"""Every number of a prediction at once, each with its standard error over test examples.

``flat_record`` makes of them plain numbers for JSON: ``<name>``, and ``<name>_error`` where there is one (one example
has none). ``over_seeds`` puts the records of several runs together.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from ..errors import DataError
from .calibration import classwise_ece, ece, mce
from .checks import require_numbers
from .classification import accuracy, brier, expected_nll, nll, tfp_brier
from .detection import aupr, auroc, fpr_at_recall
from .estimates import Estimate, estimate_mean
from .probabilities import require_probabilities
from .regression import (
    calibration_error,
    expected_gaussian_nll,
    gaussian_crps,
    gaussian_nll,
    gaussian_pit,
    interval_coverage,
    mixture_crps,
    mixture_nll,
    mixture_pit,
    r2,
    rmse,
)
from .selective import aurc
from .uncertainty import entropy, least_confidence, without_rounding
from .uncertainty import mutual_information as information_of

COVERAGE_LEVELS = (0.5, 0.9, 0.95)


def classification_estimates(
    probabilities: Tensor,
    labels: Tensor,
    *,
    samples: Tensor | None = None,
    mutual_information: Tensor | None = None,
    ood: Tensor | None = None,
    ood_samples: Tensor | None = None,
    ood_mutual_information: Tensor | None = None,
) -> dict[str, Estimate]:
    """All numbers of averaged probabilities (S, ..., K) against labels (S, ...).

    - always: accuracy, nll, brier, tfp_brier, ece (15 bins), ece_20, ece_quantile (15), ece_classwise (15), mce (15),
      predictive_entropy, aurc (errors ranked by 1 - max p);
    - with ``samples`` (D, S, ..., K): expected_nll, expected_entropy, mutual_information;
    - with ``mutual_information`` (S, ...), as a prediction has it without keeping samples: the last two;
    - with ``ood``, averaged probabilities of inputs from elsewhere: ``ood_estimates``, named ``ood_...``; by mutual
      information where it is known of both sides.
    """
    values = require_probabilities(probabilities)
    hits = accuracy.of_examples(values, labels)
    uncertainty = entropy(values.double())
    found = {
        "accuracy": estimate_mean(hits),
        "nll": nll(values, labels),
        "brier": brier(values, labels),
        "tfp_brier": tfp_brier(values, labels),
        "ece": ece(values, labels),
        "ece_20": ece(values, labels, bins=20),
        "ece_quantile": ece(values, labels, binning="quantile"),
        "ece_classwise": classwise_ece(values, labels),
        "mce": mce(values, labels),
        "predictive_entropy": estimate_mean(uncertainty),
        "aurc": aurc(1 - hits, least_confidence(values)),
    }
    if samples is not None:
        _require_draws_of("samples", samples, values)
        found["expected_nll"] = expected_nll(samples, labels)
    information = _information("mutual_information", values, samples, mutual_information)
    if information is not None:
        found["expected_entropy"] = estimate_mean(uncertainty - information)
        found["mutual_information"] = estimate_mean(information)
    if ood is not None:
        outside = ood_estimates(
            values,
            ood,
            mutual_information=information,
            ood_mutual_information=_information("ood_mutual_information", ood, ood_samples, ood_mutual_information),
        )
        found |= {f"ood_{name}": estimate for name, estimate in outside.items()}
    elif ood_samples is not None or ood_mutual_information is not None:
        raise DataError("ood: None, but ood_samples or ood_mutual_information was given; give the probabilities too")
    return found


def ood_estimates(
    probabilities: Tensor,
    ood: Tensor,
    *,
    mutual_information: Tensor | None = None,
    ood_mutual_information: Tensor | None = None,
) -> dict[str, Estimate]:
    """How well uncertainty tells ``ood`` inputs (M, ..., K) from ordinary ones (S, ..., K), and how large it is there.

    ``<metric>_<score>``: auroc, aupr and fpr95 by entropy, max_probability (1 - max p) and, where it is known of both
    sides, mutual_information; the score of an input with several places is the mean over them. And
    ``predictive_entropy``, ``max_probability`` and ``mutual_information``: their means over the ``ood`` inputs.
    """
    here, there = require_probabilities(probabilities), require_probabilities(ood)
    scores = {
        "entropy": (entropy(here.double()), entropy(there.double())),
        "max_probability": (least_confidence(here), least_confidence(there)),
    }
    found = {
        "predictive_entropy": estimate_mean(scores["entropy"][1]),
        "max_probability": estimate_mean(1 - scores["max_probability"][1]),
    }
    if ood_mutual_information is not None:
        outside = _information("ood_mutual_information", there, None, ood_mutual_information)
        assert outside is not None
        found["mutual_information"] = estimate_mean(outside)
        inside = _information("mutual_information", here, None, mutual_information)
        if inside is not None:
            scores["mutual_information"] = (inside, outside)
    for name, (inside_scores, outside_scores) in scores.items():
        pair = _of_inputs(inside_scores), _of_inputs(outside_scores)
        found[f"auroc_{name}"] = auroc(*pair)
        found[f"aupr_{name}"] = aupr(*pair)
        found[f"fpr95_{name}"] = fpr_at_recall(*pair)
    return found


def regression_estimates(
    mean: Tensor,
    variance: Tensor,
    targets: Tensor,
    *,
    samples: Tensor | None = None,
    noise_variance: Tensor | None = None,
) -> dict[str, Estimate]:
    """All numbers of a prediction's mean and variance (noise included), (S,) or (S, C), against targets.

    - always, of the Gaussian with this mean and variance: rmse, nll, crps, coverage_50, coverage_90, coverage_95,
      calibration_error;
    - with ``samples``, each draw's mean (D, S, ...), and ``noise_variance``, of each draw (D, S, ...) or shared by all
      (S, ...): expected_nll, and of the mixture over draws mixture_nll, mixture_crps, mixture_coverage_50 (90, 95),
      mixture_calibration_error.
    """
    found = {
        "rmse": rmse(mean, targets),
        "nll": gaussian_nll(mean, variance, targets),
        "crps": gaussian_crps(mean, variance, targets),
        **_calibration("", gaussian_pit(mean, variance, targets)),
    }
    if (samples is None) != (noise_variance is None):
        missing, given = ("samples", "noise_variance") if samples is None else ("noise_variance", "samples")
        raise DataError(f"{missing}: None, but {given} was given; the mixture over draws needs both")
    if samples is not None and noise_variance is not None:
        mixture = samples, noise_variance, targets
        found |= {
            "expected_nll": expected_gaussian_nll(*mixture),
            "mixture_nll": mixture_nll(*mixture),
            "mixture_crps": mixture_crps(*mixture),
            **_calibration("mixture_", mixture_pit(*mixture)),
        }
    return found


def predictive_estimates(
    mean: Tensor,
    targets: Tensor,
    losses: Tensor,
    *,
    expected_losses: Tensor | None = None,
    pit: Tensor | None = None,
    below: Tensor | None = None,
    crps: Tensor | None = None,
) -> dict[str, Estimate]:
    """All numbers of a prediction whose law is that of its own likelihood, against targets (S,) or (S, C).

    - always: rmse and r2 of the means, nll from the NLL of each example (S,) under the averaged prediction;
    - with ``expected_losses`` (S,), the mean NLL of single draws: expected_nll;
    - with ``crps`` of each target: crps;
    - with ``pit``, P(Y <= y) of each target: coverage_50, coverage_90, coverage_95, calibration_error; of counts, with
      ``below``, P(Y < y), no calibration_error, which is of quantiles that every level has.
    """
    found = {"rmse": rmse(mean, targets), "r2": r2(mean, targets), "nll": estimate_mean(losses)}
    if expected_losses is not None:
        found["expected_nll"] = estimate_mean(expected_losses)
    if crps is not None:
        found["crps"] = estimate_mean(crps)
    if pit is not None:
        for level in COVERAGE_LEVELS:
            found[f"coverage_{round(100 * level)}"] = interval_coverage(pit, level, below=below)
        if below is None:
            found["calibration_error"] = calibration_error(pit)
    return found


def _calibration(prefix: str, pit: Tensor) -> Mapping[str, Estimate]:
    coverage = {f"{prefix}coverage_{round(100 * q)}": interval_coverage(pit, q) for q in COVERAGE_LEVELS}
    return coverage | {f"{prefix}calibration_error": calibration_error(pit)}


def _information(name: str, probabilities: Tensor, samples: Tensor | None, given: Tensor | None) -> Tensor | None:
    """Mutual information (S, ...) as given or from samples; None if neither is there."""
    if given is not None:
        information = require_numbers(name, given)
        wanted = probabilities.shape[:-1]
        if information.shape != wanted:
            raise DataError(f"{name}: shape {tuple(information.shape)}; the probabilities ask for {tuple(wanted)}")
        return without_rounding(information)
    if samples is None:
        return None
    _require_draws_of(name.replace("mutual_information", "samples"), samples, probabilities)
    return information_of.of_examples(samples)


def _require_draws_of(name: str, samples: Tensor, probabilities: Tensor) -> None:
    if not isinstance(samples, Tensor) or samples.shape[1:] != probabilities.shape:
        found = tuple(samples.shape) if isinstance(samples, Tensor) else type(samples).__name__
        raise DataError(f"{name}: {found}; they must be (D, *{tuple(probabilities.shape)}), each draw's probabilities")


def _of_inputs(scores: Tensor) -> Tensor:
    return scores.reshape(len(scores), -1).mean(1)
