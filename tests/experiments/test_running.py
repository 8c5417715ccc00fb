"""A run ends with the same result however often it was cut off, and leaves nothing behind if it was refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import bayeswell as bw
from bayeswell.errors import BayeswellError, DataError, FileError, SettingError
from bayeswell.experiments import (
    Experiment,
    RunFailed,
    evaluate,
    finished_result,
    load_problem,
    resume_run,
    run,
)
from bayeswell.persistence import read_document
from bayeswell.training import Callback, CSVLogger, Run, run_folder

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.errors.BayeswellWarning")


class Cut(Callback):
    """As a kill would: nothing is saved after the step at which it comes."""

    def __init__(self, step: int, member: int = 0) -> None:
        self.step, self.member = step, member

    def after_step(self, run: Run) -> None:
        if (run.step, run.member) == (self.step, self.member):
            raise KeyboardInterrupt


def result_of(folder: Path) -> dict[str, Any]:
    """Everything in a result but the time."""
    record = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    del record["time"]
    return dict(record)


def test_two_runs_of_one_experiment_have_one_result(tmp_path: Path, small: Experiment) -> None:
    chosen = small.changed({"method": {"name": "k-tied", "posterior": {"rank": 1}}, "ood": "noise"})
    first = run(chosen, tmp_path / "a")
    torch.manual_seed(99)  # where torch's own generator stands makes no difference
    run(chosen, tmp_path / "b")
    assert result_of(tmp_path / "a") == result_of(tmp_path / "b")
    assert first["cost"] == {
        "unit": "forward passes of a batch; a backward pass counts as two",
        "per_step": 3.0, "members": 1, "steps": 10, "total": 30.0,
    }  # fmt: skip
    assert first["time"]["timed_steps"] == 10
    assert not first["time"]["resumed"]
    other = run(chosen.changed({"seed": 1}), tmp_path / "c")
    assert other["test"]["values"] != first["test"]["values"]
    networks = [json.loads((tmp_path / name / "config.json").read_text())["network"] for name in "abc"]
    assert networks[0] == networks[1] != networks[2]


@pytest.mark.parametrize(
    ("changes", "cut"),
    [
        ({"method": "bbb"}, Cut(7)),
        ({"method": {"name": "deep-ensemble", "members": 2}}, Cut(3, member=1)),
        ({"validation": 0.25, "early_stopping": 2, "epochs": 3}, Cut(5)),
        ({"method": "sgld", "augment": {"pad": 1, "flip": False}}, Cut(9)),
    ],
    ids=["mean-field", "second member", "early stopping", "sampler with augmentation"],
)
def test_a_run_that_was_cut_off_ends_as_if_it_had_not_been(
    tmp_path: Path, small: Experiment, changes: dict[str, Any], cut: Cut
) -> None:
    chosen = small.changed(changes)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    run(chosen, whole, loggers=[CSVLogger(whole / "metrics.csv")])
    with pytest.raises(KeyboardInterrupt):
        run(chosen, broken, checkpoint_steps=2, loggers=[CSVLogger(broken / "metrics.csv"), cut])
    assert finished_result(broken) is None
    with pytest.raises(FileError, match="not finished"):
        evaluate(broken)
    # Without the logger that cut it off: how many look on may change.
    record = resume_run(broken, loggers=[CSVLogger(broken / "metrics.csv")])
    assert record["time"]["resumed"]
    assert result_of(broken) == result_of(whole)
    for name in ("metrics.jsonl", "metrics.csv"):
        assert (broken / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.parametrize(
    ("method", "names"), [("map", {"snr", "schedules"}), ("bbb", {"snr", "schedules", "std_paths"})]
)
def test_a_point_has_no_path_of_stds(tmp_path: Path, small: Experiment, method: str, names: set[str]) -> None:
    run(small.changed({"method": method, "diagnose": True}), tmp_path / "a")
    assert set(read_document(tmp_path / "a" / "records.json")) == names


def test_a_run_that_lost_only_its_result_makes_it_again(tmp_path: Path, small: Experiment) -> None:
    run(small, tmp_path / "a")
    before = result_of(tmp_path / "a")
    (tmp_path / "a" / "result.json").unlink()
    record = resume_run(tmp_path / "a")
    assert record["time"]["timed_steps"] == 0
    assert result_of(tmp_path / "a") == before


@pytest.mark.parametrize("text", ["", "{}", '{"format": 1}'])
def test_an_emptied_result_is_none(tmp_path: Path, small: Experiment, text: str) -> None:
    run(small, tmp_path / "a")
    before = result_of(tmp_path / "a")
    (tmp_path / "a" / "result.json").write_text(text)
    assert finished_result(tmp_path / "a") is None
    resume_run(tmp_path / "a")
    assert result_of(tmp_path / "a") == before


def test_a_network_that_tells_its_noise_has_an_output_for_it(tmp_path: Path) -> None:
    """diabetes: the std of the targets is 77, and a network must do better than the mean of all."""
    chosen = Experiment(
        method={"name": "map", "stepper": {"lr": 0.02}}, data="diabetes", epochs=15, batch_size=50, draws=1,
        model={"name": "mlp", "hidden": [12]}, likelihood={"name": "gaussian", "noise": "per_input"},
    )  # fmt: skip
    problem = load_problem(chosen)
    assert problem.net(problem.data.test[0][:3]).shape == (3, 2)
    record = run(chosen, tmp_path / "a")
    assert record["test"]["values"]["rmse"] < 65
    found = bw.load(tmp_path / "a" / "model").predict(problem.data.test[0], draws=1)
    assert isinstance(found, bw.RealPrediction)
    assert found.mean.shape == (110, 1)
    assert float(found.aleatoric_variance.std()) > 0  # each input its own
    assert evaluate(tmp_path / "a", draws=1)["test"] == record["test"]


def test_a_finished_run_is_not_run_again(tmp_path: Path, small: Experiment) -> None:
    first = run(small, tmp_path / "a")
    assert run(small, tmp_path / "a", resume=True) == first
    with pytest.raises(SettingError, match="epochs was 2, is now 3"):
        run(small.changed({"epochs": 3}), tmp_path / "a", resume=True)
    with pytest.raises(FileError, match="already holds a run"):
        run(small, tmp_path / "a")


def test_a_changed_setting_is_refused_half_way_too(tmp_path: Path, small: Experiment) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(small, tmp_path / "a", checkpoint_steps=2, loggers=[Cut(7)])
    with pytest.raises(SettingError, match=r"seed was 0, is now 3"):
        run(small.changed({"seed": 3}), tmp_path / "a", resume=True)
    assert run(small, tmp_path / "a", resume=True)["time"]["resumed"]


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"method.stepper.lrr": 1}, SettingError),
        ({"method": {"name": "sgld", "collector": None}}, BayeswellError),
        ({"likelihood": "gaussian"}, DataError),
        ({"data": "wine", "augment": {}}, DataError),
        ({"data": "diabetes", "ood": "noise"}, SettingError),
        ({"validation": 0.2, "early_stopping": 2, "early_stopping_metric": "rmse"}, SettingError),
    ],
)
def test_what_is_refused_leaves_nothing_behind(
    tmp_path: Path, small: Experiment, changes: dict[str, Any], kind: type[Exception]
) -> None:
    with pytest.raises(kind) as caught:
        run(small.changed(changes), tmp_path / "a")
    assert not isinstance(caught.value, RunFailed)
    assert not (tmp_path / "a").exists()


def test_what_is_refused_leaves_the_run_of_another_process_alone(
    tmp_path: Path, small: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two begin at the same moment: neither sees a run, one gets the lock, the other must not tidy up after it."""
    monkeypatch.setattr(run_folder, "LOCK_SECONDS", 0.2)
    other = run_folder.RunFolder(tmp_path / "a")
    look = run_folder.RunFolder._lock

    def after_the_other(folder: run_folder.RunFolder) -> None:
        if folder is not other:
            other.open({"by": "another"})
        look(folder)

    monkeypatch.setattr(run_folder.RunFolder, "_lock", after_the_other)
    with pytest.raises(FileError, match="another process is working"):
        run(small, tmp_path / "a")
    assert other.config().items() >= {"by": "another", "problem": {}}.items()
    assert (tmp_path / "a" / run_folder.LOCK).exists()
    other.close()
    with pytest.raises(FileError, match="already holds a run"):
        run(small, tmp_path / "a")
    assert other.config().items() >= {"by": "another", "problem": {}}.items()


def test_a_folder_of_other_things_is_left_as_it_was(tmp_path: Path, small: Experiment) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "letter.txt").write_text("dear")
    with pytest.raises(FileError, match="is not empty and holds no run"):
        run(small, tmp_path / "a")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["letter.txt"]


def test_a_run_that_diverges_fails_and_keeps_its_checkpoint(tmp_path: Path, small: Experiment) -> None:
    wild = small.changed({"method": {"name": "map", "stepper": {"name": "sgd", "lr": 1e30}}})
    with pytest.raises(RunFailed, match=r"step \d+") as caught:
        run(wild, tmp_path / "a", checkpoint_steps=1)
    assert caught.value.model is not None
    assert (tmp_path / "a" / "checkpoints").is_dir()
    assert finished_result(tmp_path / "a") is None


def test_the_result_is_that_of_the_saved_model(tmp_path: Path, small: Experiment) -> None:
    """And of a fit by hand: names lead to the same network and data as objects do."""
    chosen = small.changed({"method": {"name": "swag", "temperature": 0.3}, "ood": "noise", "epochs": 8})
    record = run(chosen, tmp_path / "a")
    again = evaluate(tmp_path / "a", draws=5, ood="noise")
    assert again["test"] == record["test"]
    assert again["ood"] == record["ood"]
    problem = load_problem(chosen)
    by_hand = bw.fit(problem.net, problem.data.train, "swag", temperature=0.3, epochs=8, batch_size=300, seed=0)
    found = by_hand.predict(problem.data.test[0], draws=5)
    assert isinstance(found, bw.ClassPrediction)
    assert record["test"]["values"]["accuracy"] == float((found.labels == problem.data.test[1]).double().mean())
    assert record["std_ratio"] == by_hand.std_ratio


def test_other_data_are_scaled_as_the_run_was(tmp_path: Path, small: Experiment) -> None:
    """The same test set with other training data would be scaled otherwise: the run's scaling must win."""
    run(small, tmp_path / "a")
    own = evaluate(tmp_path / "a", draws=5)
    named = evaluate(tmp_path / "a", "digits", draws=5)
    assert named["test"]["values"] == pytest.approx(own["test"]["values"], rel=1e-4)
    harder = evaluate(tmp_path / "a", {"name": "corrupted", "severity": 5}, draws=5)
    assert harder["test"]["values"]["nll"] > own["test"]["values"]["nll"]
    with pytest.raises(DataError, match="shape"):
        evaluate(tmp_path / "a", "wine")


# Python 3.12 and later speak of forks in a process with threads.
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_workers_read_the_same_data_and_resume_too(tmp_path: Path, small: Experiment) -> None:
    chosen = small.changed({"workers": 1, "augment": {"pad": 1}, "epochs": 1, "batch_size": 500})
    run(chosen, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(chosen, tmp_path / "broken", checkpoint_steps=1, loggers=[Cut(2)])
    resume_run(tmp_path / "broken")
    assert result_of(tmp_path / "broken") == result_of(tmp_path / "whole")
    plain = run(small.changed({"epochs": 1, "batch_size": 500, "augment": {"pad": 1}}), tmp_path / "plain")
    assert plain["cost"]["steps"] == json.loads((tmp_path / "whole" / "result.json").read_text())["cost"]["steps"] == 3
