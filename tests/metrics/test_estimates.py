"""Standard errors over examples and over seeds, and what they are called in a record."""

from __future__ import annotations

import json
import math
import pickle

import pytest
import torch

from bayeswell import metrics
from bayeswell.errors import DataError, SettingError
from bayeswell.metrics import Estimate
from bayeswell.random import make_generator
from metrics.inputs import BOOTSTRAP_TOLERANCE, bootstrap, labels_from, random_probabilities


def test_error_of_a_mean() -> None:
    values = torch.tensor([1.0, 4.0, 7.5, 2.0])
    found = metrics.estimate_mean(values)
    assert found.value == pytest.approx(3.625)
    assert found.error == pytest.approx(float(values.std()) / 2)
    assert metrics.estimate_mean(values[:1]) == Estimate(1.0, None)


def test_the_standard_errors_that_the_k_tied_paper_prints() -> None:
    # sqrt(a (1 - a) / n): 0.15 % for an accuracy of 97.6 % over 10,000 examples; the paper's errors are over examples.
    for share, count, printed in ((0.976, 10_000, 0.15), (0.421, 10_000, 0.49), (0.801, 25_000, 0.25)):
        hits = (torch.arange(count) < round(share * count)).double()
        error = metrics.estimate_mean(hits).error
        assert error is not None
        assert round(100 * error, 2) == printed


def test_places_of_one_example_are_not_independent() -> None:
    generator = make_generator(3)
    # 100 pictures of 50 places each that are all but equal.
    values = torch.randn(100, 1, generator=generator) + 0.01 * torch.randn(100, 50, generator=generator)
    found = metrics.estimate_mean(values)
    assert found.value == pytest.approx(float(values.mean()), rel=1e-5)
    assert found.error == pytest.approx(1 / math.sqrt(100), rel=0.25)
    direct = bootstrap(lambda values: values.double().mean((-2, -1)), found.value, (values,))
    assert found.error == pytest.approx(direct, rel=BOOTSTRAP_TOLERANCE)


def test_errors_of_calibration_with_places() -> None:
    p = random_probabilities(400, 3, scale=1.0)
    y = labels_from(p)
    p = metrics.scale_by_temperature(p, 0.3)
    single = metrics.ece(p, y, bins=5)
    # The same example four times over: no more is known than from one.
    four = metrics.ece(p[:, None].expand(400, 4, 3), y[:, None].expand(400, 4), bins=5)
    assert four.value == pytest.approx(single.value)
    assert four.error == pytest.approx(single.error)


def test_runs_that_agree_have_no_error() -> None:
    assert metrics.estimate_over_seeds([0.1, 0.1, 0.1]) == Estimate(0.1, 0.0, "seeds")


def test_over_seeds() -> None:
    records = [
        {"nll": 0.3, "nll_error": 0.01, "calibration_error": 0.1, "calibration_error_error": 0.2, "extra": 1.0},
        {"nll": 0.5, "nll_error": 0.02, "calibration_error": 0.3},
        {"nll": 0.4, "nll_error": 0.03, "calibration_error": 0.2},
    ]
    found = metrics.over_seeds(records)
    assert set(found) == {"nll", "calibration_error"}
    assert found["nll"].value == pytest.approx(0.4)
    assert found["nll"].error == pytest.approx(0.1 / math.sqrt(3))
    assert found["nll"].over == "seeds"
    assert metrics.over_seeds(records[:1])["nll"] == Estimate(0.3, None, "seeds")


def test_names_say_what_an_error_is_over() -> None:
    assert Estimate(0.4, 0.1).as_record("nll") == {"nll": 0.4, "nll_error": 0.1}
    assert Estimate(0.4, 0.1, "seeds").as_record("nll") == {"nll": 0.4, "nll_error_over_seeds": 0.1}
    assert Estimate(0.4, None).as_record("nll") == {"nll": 0.4}
    assert metrics.flat_record({"a": Estimate(1.0, 0.5), "b": Estimate(2.0, None)}) == {
        "a": 1.0,
        "a_error": 0.5,
        "b": 2.0,
    }
    assert str(Estimate(0.41234, 0.0123)) == "0.4123 +- 0.012 (over examples)"
    assert str(Estimate(0.41234, None, "seeds")) == "0.4123 +- unknown (over seeds)"


def test_bad_input_is_one_line() -> None:
    with pytest.raises(SettingError, match="over = 'runs'; allowed: examples, seeds"):
        Estimate(0.1, 0.2, "runs")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="no records"):
        metrics.over_seeds([])
    with pytest.raises(DataError, match=r"values over seeds: shape \(0,\)"):
        metrics.estimate_over_seeds([])
    with pytest.raises(DataError, match="values over seeds: NaN"):
        metrics.estimate_over_seeds([0.1, math.nan])
    with pytest.raises(DataError, match=r"values: torch\.complex64"):
        metrics.estimate_mean(torch.zeros(2, dtype=torch.complex64))


def test_an_estimate_is_a_number() -> None:
    found = Estimate(0.41234, 0.0123)
    assert found + 1 == 1.41234
    assert f"{found:.2f}" == "0.41"
    assert json.dumps({"nll": found}) == '{"nll": 0.41234}'
    assert pickle.loads(pickle.dumps(found)) == found  # with its error
    assert found == 0.41234
    assert found != Estimate(0.41234, None)
    assert {found: "a"}[0.41234] == "a"  # type: ignore[index]


def test_a_mean_score_is_the_mean_of_its_examples_and_goes_to_another_process() -> None:
    p, y = random_probabilities(50, 3), torch.arange(50) % 3
    for score in (metrics.accuracy, metrics.nll, metrics.brier):
        assert score(p, y) == metrics.estimate_mean(score.of_examples(p, y))
        assert pickle.loads(pickle.dumps(score)) is score
        assert score.__doc__
