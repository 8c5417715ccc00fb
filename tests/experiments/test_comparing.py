"""Methods side by side: means and errors over seeds, and nothing is trained twice."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from bayeswell.errors import DataError, SettingError
from bayeswell.experiments import Experiment, compare, run
from bayeswell.persistence import read_document
from bayeswell.training import Interrupted

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.errors.BayeswellWarning")


def stamps_of(out: Path) -> dict[Path, int]:
    """When each file of the runs was last written."""
    files = [path for path in out.rglob("*") if path.is_file() and path.name != "comparison.json"]
    assert len(files) > 20
    return {path: path.stat().st_mtime_ns for path in files}


def test_the_table_is_that_of_the_runs_and_a_second_time_trains_nothing(tmp_path: Path, small: Experiment) -> None:
    strange = small.changed({"ood": "noise"})
    methods = {"map": strange, "cold": strange.changed({"method.temperature": 0.01})}
    told: list[tuple[str, str]] = []
    record = compare(methods, range(2), tmp_path / "out", told=lambda *what: told.append(what))
    assert told == [(f"{label}-seed{seed}", "begun") for label in methods for seed in range(2)]
    runs = [json.loads((tmp_path / "out" / f"map-seed{seed}" / "result.json").read_text()) for seed in range(2)]
    assert [each["seed"] for each in runs] == [0, 1]
    row = record["rows"][0]
    assert row["method"] == "map"
    for part, name in (("test", "accuracy"), ("test", "ece"), ("ood", "auroc")):
        first, second = (each[part]["values"][name] for each in runs)
        assert first != second
        score = row["scores"][name]
        assert score["mean"] == pytest.approx((first + second) / 2)
        assert score["standard_error_over_seeds"] == pytest.approx(abs(first - second) / 2)
        errors = [each[part]["standard_errors_over_examples"][name] for each in runs]
        assert score["standard_error_over_examples"] == pytest.approx(math.fsum(errors) / 2)
    written = read_document(tmp_path / "out" / "comparison.json")
    assert written == json.loads(json.dumps(record))
    stamps = stamps_of(tmp_path / "out")
    told.clear()
    again = compare(methods, range(2), tmp_path / "out", told=lambda *what: told.append(what))
    assert {state for _, state in told} == {"finished"}
    assert again == record
    assert stamps_of(tmp_path / "out") == stamps


def test_one_seed_has_no_error_over_seeds(tmp_path: Path, small: Experiment) -> None:
    scores = compare({"map": small}, [5], tmp_path)["rows"][0]["scores"]
    assert scores["nll"]["standard_error_over_seeds"] is None
    assert scores["nll"]["standard_error_over_examples"] > 0


def test_a_run_that_fails_does_not_stop_the_others(tmp_path: Path, small: Experiment) -> None:
    wild = small.changed({"method": {"name": "map", "stepper": {"name": "sgd", "lr": 1e30}}})
    rows = compare({"wild": wild, "map": small}, [0], tmp_path)["rows"]
    assert [row["finished"] for row in rows] == [0, 1]
    assert "step" in rows[0]["failed"][0]["error"]
    assert rows[0]["scores"] == {}


def test_nor_does_a_fault_of_any_other_kind(tmp_path: Path, small: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(experiment: Experiment, *arguments: Any, **options: Any) -> dict[str, Any]:
        if experiment.seed == 1:
            raise RuntimeError("no kernel image")
        return run(experiment, *arguments, **options)

    monkeypatch.setattr("bayeswell.experiments.side_by_side.run", broken)
    rows = compare({"map": small, "twin": small}, [1, 2], tmp_path)["rows"]
    assert [row["finished"] for row in rows] == [1, 1]
    assert rows[0]["failed"] == [{"run": "map-seed1", "error": "RuntimeError: no kernel image"}]

    def stopped(*arguments: Any, **options: Any) -> dict[str, Any]:
        raise Interrupted(2, "stopped")

    monkeypatch.setattr("bayeswell.experiments.side_by_side.run", stopped)
    with pytest.raises(Interrupted):
        compare({"new": small}, [0], tmp_path)


def test_what_all_refuse_is_refused(tmp_path: Path, small: Experiment) -> None:
    with pytest.raises(DataError, match="targets"):
        compare({"map": small.changed({"likelihood": "gaussian"})}, [0, 1], tmp_path / "out")
    assert not (tmp_path / "out" / "comparison.json").exists()


def test_each_method_is_put_together_before_any_is_trained(tmp_path: Path, small: Experiment) -> None:
    """Two epochs are too few for the 20 columns that swag is asked for."""
    swag = small.changed({"method": {"name": "swag", "collector": {"rank": 20}}})
    with pytest.raises(SettingError, match=r"^swag: .*snapshots"):
        compare({"map": small, "swag": swag}, [0], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_other_settings_in_the_same_place_are_refused_before_any_training(tmp_path: Path, small: Experiment) -> None:
    compare({"map": small}, [0], tmp_path)
    with pytest.raises(SettingError, match="epochs was 2, is now 3"):
        compare({"new": small, "map": small.changed({"epochs": 3})}, [0], tmp_path)
    assert not (tmp_path / "new-seed0").exists()


@pytest.mark.parametrize("label", ["../out", "a/b", ""])
def test_a_label_cannot_leave_the_folder(tmp_path: Path, small: Experiment, label: str) -> None:
    with pytest.raises(SettingError, match="run name"):
        compare({label: small}, [0], tmp_path / "in")
    assert not any(tmp_path.iterdir())
