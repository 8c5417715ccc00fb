"""The averaged model along training: measured on a copy, and training goes on as if nobody had looked."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayeswell.experiments import Experiment, load_model, run
from bayeswell.experiments.paths import epochs_of
from bayeswell.experiments.problem import data_of
from bayeswell.experiments.run_records import averages_of
from bayeswell.training.scores import validation_on

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.errors.BayeswellWarning")


def test_the_last_average_is_the_model_that_is_kept_and_looking_changes_nothing(
    tmp_path: Path, small: Experiment
) -> None:
    method = {"name": "hwa", "collector": {"start": 0.5, "cycle": 2}}
    experiment = small.changed({"method": method, "epochs": 4, "validation": 0.2})
    looked = run(experiment.changed({"diagnose": True}), tmp_path / "looked", progress=False)
    plain = run(experiment, tmp_path / "plain", progress=False)
    assert looked["test"] == plain["test"]
    assert averages_of(tmp_path / "plain") == []
    found = averages_of(tmp_path / "looked")
    assert [one["epoch"] for one in found] == [2, 3]  # none before the first snapshot
    predictor, data = load_model(tmp_path / "looked"), data_of(experiment)
    assert data.validation is not None
    wanted = validation_on(*data.validation, draws=10)(predictor.model, predictor.likelihood)
    assert {name: found[-1][name] for name in wanted} == pytest.approx(wanted, rel=1e-6)
    # The iterate, which the log has, is another model.
    assert epochs_of(tmp_path / "looked")[-1]["validation.nll"] != pytest.approx(found[-1]["nll"], rel=1e-3)


def test_a_method_without_averages_has_none(tmp_path: Path, small: Experiment) -> None:
    run(small.changed({"diagnose": True}), tmp_path / "run", progress=False)
    assert averages_of(tmp_path / "run") == []
