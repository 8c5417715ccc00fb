"""What a result says of the bound on test data, and of the data that settings are chosen by."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bayeswell.experiments import Experiment, load_model, run
from bayeswell.experiments.evaluating import scores_of
from bayeswell.experiments.problem import data_of
from bayeswell.predictive import expected_nll

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.errors.BayeswellWarning")


def test_the_bound_is_the_expected_nll_of_the_test_set_and_a_training_examples_share_of_the_kl(
    tmp_path: Path, small: Experiment
) -> None:
    experiment = small.changed({"method": {"name": "bbb", "temperature": 0.3}, "validation": 0.2})
    record = run(experiment, tmp_path / "run", progress=False)
    predictor, data = load_model(tmp_path / "run"), data_of(experiment)
    bound = record["bound"]
    wanted = expected_nll(predictor.model, *data.test, predictor.likelihood, draws=5, batch_size=1000, seed=0)
    assert bound["expected_nll"] == pytest.approx(wanted, rel=1e-6)
    assert bound["expected_nll"] > record["test"]["values"]["nll"]  # Jensen
    per_example = record["elbo"]["kl"] / len(data.train[1])
    assert bound["kl_per_example"] == pytest.approx(per_example)
    assert bound["minus_elbo"] == pytest.approx(wanted + per_example, rel=1e-6)
    assert bound["minus_elbo_tempered"] == pytest.approx(wanted + 0.3 * per_example, rel=1e-6)
    # What settings are chosen by is the final model on the examples that were held out.
    assert data.validation is not None
    held_out = scores_of(predictor, replace(data, test=data.validation), None, draws=5)
    values = held_out["test"]["values"]
    assert {name: record["validation"][name] for name in values} == values
    there = held_out["expected_nll"]
    assert record["validation"]["minus_elbo"] == pytest.approx(there + per_example, rel=1e-6)
    assert record["validation"]["minus_elbo_tempered"] == pytest.approx(there + 0.3 * per_example, rel=1e-6)
    assert record["validation"]["nll"] != record["test"]["values"]["nll"]


def test_a_model_that_predicts_at_its_mean_has_the_bound_of_its_draws(tmp_path: Path, small: Experiment) -> None:
    method = {"name": "bbb", "temperature": 0.3}
    sampled = run(small.changed({"method": method}), tmp_path / "sampled", progress=False)
    mean = run(small.changed({"method": method, "prediction": "mean"}), tmp_path / "mean", progress=False)
    assert mean["test"]["values"]["nll"] != sampled["test"]["values"]["nll"]
    assert mean["bound"] == pytest.approx(sampled["bound"], rel=1e-6)


def test_a_single_network_has_no_bound(tmp_path: Path, small: Experiment) -> None:
    record = run(small, tmp_path / "run", progress=False)
    assert record["bound"] is None
    assert "validation" not in record
