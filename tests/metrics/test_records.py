"""One call for every number: names, values, errors, and that it is plain JSON."""

from __future__ import annotations

import json
import math

import pytest
import torch
from torch import Tensor

from bayeswell import metrics
from bayeswell.errors import DataError
from bayeswell.random import make_generator
from metrics.inputs import awkward, random_labels, random_probabilities


def classification_record(*given: Tensor, **named: Tensor) -> dict[str, float]:
    return metrics.flat_record(metrics.classification_estimates(*given, **named))


def regression_record(*given: Tensor, **named: Tensor) -> dict[str, float]:
    return metrics.flat_record(metrics.regression_estimates(*given, **named))


CASES = awkward()
ALWAYS = {
    "accuracy": metrics.accuracy,
    "nll": metrics.nll,
    "brier": metrics.brier,
    "tfp_brier": metrics.tfp_brier,
    "ece": metrics.ece,
    "ece_20": lambda p, y: metrics.ece(p, y, bins=20),
    "ece_quantile": lambda p, y: metrics.ece(p, y, binning="quantile"),
    "ece_classwise": metrics.classwise_ece,
    "mce": metrics.mce,
    "predictive_entropy": lambda p, y: metrics.predictive_entropy(p),
    "aurc": lambda p, y: metrics.aurc(1 - metrics.accuracy.of_examples(p, y), 1 - p.amax(-1)),
}


@pytest.mark.parametrize("case", CASES)
def test_classification_record_says_what_the_metrics_say(case: str) -> None:
    p, y = CASES[case]
    record = classification_record(p, y)
    names = {name for name in record if not name.endswith("_error")}
    assert names == set(ALWAYS)
    for name, metric in ALWAYS.items():
        assert record[name] == pytest.approx(metric(p, y), rel=1e-12, abs=1e-14), name
    plain = json.loads(json.dumps(record, allow_nan=False))
    assert plain == record
    errors = {name for name in record if name.endswith("_error")}
    if len(y) == 1:
        assert not errors
    else:
        assert errors >= {f"{name}_error" for name in ALWAYS if name != "mce"}
        assert all(record[name] >= 0 for name in errors)


def test_classification_record_with_samples_and_outside_inputs() -> None:
    samples, y = random_probabilities(9, 60, 4), random_labels(60, classes=4)
    ood_samples = random_probabilities(9, 25, 4, seed=5, scale=4.0)
    p, ood = samples.mean(0), ood_samples.mean(0)
    record = classification_record(p, y, samples=samples, ood=ood, ood_samples=ood_samples)
    assert record["expected_nll"] == pytest.approx(metrics.expected_nll(samples, y), rel=1e-12)
    assert record["expected_entropy"] == pytest.approx(metrics.expected_entropy(samples), rel=1e-10)
    assert record["mutual_information"] == pytest.approx(metrics.mutual_information(samples), rel=1e-12)
    assert record["ood_mutual_information"] == pytest.approx(metrics.mutual_information(ood_samples), rel=1e-12)
    assert record["ood_predictive_entropy"] == pytest.approx(metrics.predictive_entropy(ood), rel=1e-12)
    assert record["ood_max_probability"] == pytest.approx(float(ood.amax(-1).mean()), rel=1e-12)
    information = metrics.mutual_information.of_examples
    scores = {
        "entropy": (metrics.entropy(p), metrics.entropy(ood)),
        "max_probability": (-p.amax(-1), -ood.amax(-1)),
        "mutual_information": (information(samples), information(ood_samples)),
    }
    for score, pair in scores.items():
        assert record[f"ood_auroc_{score}"] == pytest.approx(metrics.auroc(*pair))
        assert record[f"ood_aupr_{score}"] == pytest.approx(metrics.aupr(*pair))
        assert record[f"ood_fpr95_{score}"] == pytest.approx(metrics.fpr_at_recall(*pair))
        assert record[f"ood_auroc_{score}_error"] > 0
    # Without samples, but with what a prediction keeps of them.
    short = classification_record(
        p,
        y,
        mutual_information=information(samples),
        ood=ood,
        ood_mutual_information=information(ood_samples),
    )
    assert set(record) - set(short) == {"expected_nll", "expected_nll_error"}
    assert all(short[name] == pytest.approx(record[name]) for name in short)
    # Where it is known of one side alone, nothing is told apart by it.
    one_side = classification_record(p, y, ood=ood, ood_samples=ood_samples)
    assert "ood_mutual_information" in one_side
    assert not any("auroc_mutual" in name for name in one_side)


def test_a_point_prediction_is_told_nothing_by_mutual_information() -> None:
    p, ood = random_probabilities(30, 3), random_probabilities(20, 3, seed=2)
    record = classification_record(
        p, random_labels(30, classes=3), samples=p.expand(11, 30, 3), ood=ood, ood_samples=ood.expand(11, 20, 3)
    )
    assert record["ood_auroc_mutual_information"] == 0.5
    assert record["ood_fpr95_mutual_information"] == 1.0
    assert record["mutual_information"] == 0


def test_examples_with_several_places() -> None:
    p, y, ood = random_probabilities(12, 5, 3), random_labels(12, 5, classes=3), random_probabilities(8, 5, 3, seed=4)
    record = classification_record(p, y, ood=ood)
    assert record["accuracy"] == pytest.approx(metrics.accuracy(p.reshape(60, 3), y.reshape(60)))
    here, there = (metrics.entropy(values).mean(1) for values in (p, ood))
    assert record["ood_auroc_entropy"] == pytest.approx(metrics.auroc(here, there))


def test_regression_record() -> None:
    generator = make_generator(4)
    samples, y = torch.randn(6, 40, 2, generator=generator).double(), torch.randn(40, 2, generator=generator).double()
    noise = torch.rand(40, 2, generator=generator).double() + 0.1
    mean, variance = samples.mean(0), samples.var(0, correction=0) + noise
    record = regression_record(mean, variance, y, samples=samples, noise_variance=noise)
    gaussian, mixture = metrics.gaussian_pit(mean, variance, y), metrics.mixture_pit(samples, noise, y)
    expected = {
        "rmse": metrics.rmse(mean, y),
        "nll": metrics.gaussian_nll(mean, variance, y),
        "crps": metrics.gaussian_crps(mean, variance, y),
        "expected_nll": metrics.expected_gaussian_nll(samples, noise, y),
        "mixture_nll": metrics.mixture_nll(samples, noise, y),
        "mixture_crps": metrics.mixture_crps(samples, noise, y),
        "calibration_error": metrics.calibration_error(gaussian),
        "mixture_calibration_error": metrics.calibration_error(mixture),
    }
    for level in (50, 90, 95):
        expected[f"coverage_{level}"] = metrics.interval_coverage(gaussian, level / 100)
        expected[f"mixture_coverage_{level}"] = metrics.interval_coverage(mixture, level / 100)
    assert {name: record[name] for name in expected} == pytest.approx(expected, rel=1e-12)
    assert set(record) == set(expected) | {f"{name}_error" for name in expected}
    json.dumps(record, allow_nan=False)
    alone = regression_record(mean, variance, y)
    assert {name for name in expected if name in alone} == {
        name for name in expected if "mixture" not in name and name != "expected_nll"
    }
    assert regression_record(mean[:1], variance[:1], y[:1]).keys() == {name for name in alone if name in expected}
    seeds = metrics.over_seeds([record, record])
    assert set(seeds) == set(expected)
    assert seeds["nll"].error == 0


def test_bad_input_is_one_line() -> None:
    p, y = random_probabilities(4, 3), random_labels(4, classes=3)
    with pytest.raises(DataError, match=r"samples: \(2, 5, 3\); they must be \(D, \*\(4, 3\)\)"):
        classification_record(p, y, samples=random_probabilities(2, 5, 3))
    with pytest.raises(DataError, match=r"ood_samples: \(2, 4, 3\); they must be \(D, \*\(5, 3\)\)"):
        classification_record(p, y, ood=random_probabilities(5, 3), ood_samples=random_probabilities(2, 4, 3))
    with pytest.raises(DataError, match=r"mutual_information: shape \(3,\); the probabilities ask for \(4,\)"):
        classification_record(p, y, mutual_information=torch.zeros(3))
    with pytest.raises(DataError, match="give the probabilities too"):
        classification_record(p, y, ood_samples=random_probabilities(2, 4, 3))
    with pytest.raises(DataError, match="ood_mutual_information: NaN"):
        classification_record(p, y, ood=p, ood_mutual_information=torch.full((4,), math.nan))
    with pytest.raises(DataError, match="noise_variance: None, but samples was given"):
        regression_record(torch.zeros(3), torch.ones(3), torch.zeros(3), samples=torch.zeros(2, 3))
