"""Test curves and records by step of a run: written down, found again, and nothing more."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from bayeswell.errors import SettingError
from bayeswell.experiments import Experiment, load_model, run
from bayeswell.experiments.paths import epochs_of
from bayeswell.experiments.problem import data_of
from bayeswell.experiments.run_records import RECORDS, averages_of, steps_of
from bayeswell.studies.cells import Cell
from bayeswell.studies.results import line_of, places_of
from bayeswell.training import Callback, CSVLogger, Run
from bayeswell.training.loggers import csv_rows
from bayeswell.training.scores import validation_on

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.errors.BayeswellWarning")
AVERAGING = {"name": "hwa", "collector": {"start": 0.5, "cycle": 2}}


def test_the_last_point_of_a_test_curve_is_the_final_model(tmp_path: Path, small: Experiment) -> None:
    experiment = small.changed({"method": AVERAGING, "epochs": 4, "trace": "test", "trace_draws": 6, "trace_steps": 5})
    record = run(experiment, tmp_path / "run", progress=False)
    plain = run(small.changed({"method": AVERAGING, "epochs": 4}), tmp_path / "plain", progress=False)
    assert record["test"] == plain["test"]  # looking changes nothing
    assert not any(name.startswith("test.") for epoch in epochs_of(tmp_path / "plain") for name in epoch)
    epochs = epochs_of(tmp_path / "run")
    averaged = [epoch["epoch"] for epoch in epochs if "test.average.nll" in epoch]
    assert averaged == [2, 3]  # none before the first snapshot
    predictor, data = load_model(tmp_path / "run"), data_of(experiment)
    wanted = validation_on(*data.test, draws=6)(predictor.model, predictor.likelihood)
    last = epochs[-1]
    assert {name: last[f"test.average.{name}"] for name in wanted} == pytest.approx(wanted, rel=1e-6)
    assert last["test.nll"] != pytest.approx(last["test.average.nll"], rel=1e-3)
    assert last["test.minus_elbo"] > last["test.expected_nll"] > last["test.nll"]
    steps = steps_of(tmp_path / "run")
    assert [row["step"] for row in steps] == [5, 10, 15, 20]
    assert steps[-1]["test.nll"] == pytest.approx(last["test.nll"], rel=1e-9)  # of the iterate
    assert steps[-1]["minus_elbo"] == pytest.approx(last["nll"] + last["kl"] / record["examples"]["train"], rel=1e-9)


def test_a_csv_file_has_a_column_for_each_curve_and_nothing_where_there_is_no_average(
    tmp_path: Path, small: Experiment
) -> None:
    experiment = small.changed({"method": AVERAGING, "epochs": 4, "trace": "test"})
    run(experiment, tmp_path / "run", progress=False, loggers=[CSVLogger(tmp_path / "run" / "metrics.csv")])
    with open(tmp_path / "run" / "metrics.csv", newline="") as file:
        heading, *rows = list(csv.reader(file))
    lines = epochs_of(tmp_path / "run")
    assert [heading, *rows] == csv_rows(lines)
    assert {len(row) for row in rows} == {len(heading)}
    place = heading.index("test.average.nll")
    assert [row[place] for row in rows[:2]] == ["", ""]
    assert [float(row[place]) for row in rows[2:]] == [line["test.average.nll"] for line in lines[2:]]


class _Stop(Callback):
    def after_step(self, run: Run) -> None:
        if run.step == 13:
            raise KeyboardInterrupt


def test_a_run_that_was_cut_off_has_all_of_its_curves(tmp_path: Path, small: Experiment) -> None:
    settings: dict[str, Any] = {"epochs": 4, "trace": "test", "trace_steps": 4, "diagnose": True, "validation": 0.2}
    experiment = small.changed({"method": AVERAGING, **settings})
    run(experiment, tmp_path / "whole", progress=False)
    with pytest.raises(KeyboardInterrupt):
        run(experiment, tmp_path / "cut", progress=False, loggers=[_Stop()], checkpoint_steps=3)
    run(experiment, tmp_path / "cut", progress=False, resume=True)
    for read in (epochs_of, steps_of, averages_of):
        assert read(tmp_path / "cut") == read(tmp_path / "whole")
        assert read(tmp_path / "cut")


def test_a_study_has_them_as_curves_and_scores(tmp_path: Path, small: Experiment) -> None:
    settings = {"method": AVERAGING, "epochs": 4, "trace": "test", "trace_steps": 6, "validation": 0.2}
    experiment = small.changed(settings)
    record = run(experiment, tmp_path / "run", progress=False)
    line = line_of("cpu", Cell("hwa", {}, experiment, tmp_path), 0, tmp_path / "run", record)
    for name in ("validation.minus_elbo", "validation.minus_elbo_tempered", "test.nll", "test.accuracy"):
        assert len(line.curves[name]) == len(line.curves[places_of(name)]) == 4
        assert line.scores[f"{name}.last"] == pytest.approx(line.curves[name][-1], rel=1e-5)
    assert line.curves[places_of("test.average.nll")] == [3, 4]
    assert len(line.curves["test.average.nll"]) == 2
    assert places_of("steps.minus_elbo") == "steps.step"
    assert line.curves["steps.step"] == [6, 12, 16]
    assert len(line.curves["steps.minus_elbo"]) == len(line.curves["steps.validation.minus_elbo"]) == 3
    # The final model's, by which settings may be chosen.
    per_example = record["bound"]["kl_per_example"]
    assert line.scores["validation.minus_elbo"] == pytest.approx(line.scores["validation.expected_nll"] + per_example)
    assert json.dumps(line.as_json(), allow_nan=False)


def test_steps_of_signal_to_noise_are_those_of_the_trace(tmp_path: Path, small: Experiment) -> None:
    experiment = small.changed({"method": "bbb", "epochs": 6, "batch_size": 100, "diagnose": True, "trace_steps": 20})
    run(experiment, tmp_path / "run", progress=False)
    windows = json.loads((tmp_path / "run" / RECORDS).read_text())["snr"]
    assert [window["step"] for window in windows] == [row["step"] for row in steps_of(tmp_path / "run")][: len(windows)]


def test_settings_at_rest_are_no_part_of_what_a_cell_is(tmp_path: Path, small: Experiment) -> None:
    cell = Cell("one", {}, small, tmp_path)
    assert not {"trace", "trace_steps", "trace_draws"} & cell.settings.keys()
    assert "trace" in Cell("one", {}, small.changed({"trace": "test"}), tmp_path).settings


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"trace": "train"}, "trace = 'train'; it may be 'test'"),
        ({"trace_steps": 0}, "trace_steps = 0"),
        ({"trace": "test", "trace_draws": 0}, "trace_draws = 0"),
        ({"trace_draws": 4}, "trace_draws = 4: nothing is traced"),
        (
            {"trace": "test", "validation": 0.2, "early_stopping": 2, "early_stopping_metric": "test.nll"},
            "'test.nll': nothing is chosen by test data",
        ),
        ({"trace": "test", "method": {"name": "bbb", "plateau": {"means": "test.nll"}}}, "nothing is chosen by test"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(settings: dict[str, Any], words: str, small: Experiment) -> None:
    with pytest.raises(SettingError) as caught:
        small.changed(settings)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
