"""Several seeds of each trial: its value is the mean of theirs, with its standard error, and nothing is run twice."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

import bayeswell as bw
from bayeswell.cli import main
from bayeswell.errors import SettingError
from bayeswell.experiments import Experiment, load_problem
from bayeswell.experiments.problem import data_of
from bayeswell.metrics.estimates import Estimate
from bayeswell.sweeps import run_sweep, sweep_result
from bayeswell.sweeps.definition import read_definition
from bayeswell.sweeps.ledger import Ledger

COMMAND = ("sweep", "-d", "wine", "-m", "bbb", "-e", "2", "--draws", "10", "--sampler", "grid", "--seed", "4",
           "--seeds", "3", "--space", "stepper.lr=0.01,0.1", "-q")  # fmt: skip


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seeds") / "s"
    assert main([*COMMAND, "--out", str(folder)]) == 0
    return folder


def score_by_hand(folder: Path) -> float:
    """The mean negative log-likelihood of the run's model on what its own seed held out."""
    config = json.loads((folder / "config.json").read_text())["problem"]["experiment"]
    inputs, labels = load_problem(Experiment.from_json(config)).data.validation  # type: ignore[misc]
    probabilities = bw.load(folder / "model").predict(inputs, draws=10, seed=0).probabilities
    return -probabilities[torch.arange(len(labels)), labels].double().log().mean().item()


def test_the_score_is_the_mean_over_seeds_with_its_standard_error(done: Path) -> None:
    trials = json.loads((done / "result.json").read_text())["trials"]
    assert len(trials) == 2
    for trial in trials:
        folder = done / "trials" / f"{trial['number']:04d}"
        assert sorted(place.name for place in folder.iterdir()) == ["seed4", "seed5", "seed6"]
        seeds = [json.loads((folder / f"seed{n}" / "config.json").read_text())["seed"] for n in (4, 5, 6)]
        assert seeds == [4, 5, 6]
        scores = [score_by_hand(folder / f"seed{n}") for n in (4, 5, 6)]
        assert len(set(scores)) == 3
        assert trial["value"] == pytest.approx(sum(scores) / 3, rel=1e-5)
        by_hand = math.sqrt(sum((score - sum(scores) / 3) ** 2 for score in scores) / 2 / 3)
        assert trial["error"] == pytest.approx(by_hand, rel=1e-4)


def test_what_is_done_is_kept_and_the_error_is_shown(done: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in (done / "trials").rglob("*"))
    assert main(["sweep", "--join", str(done), "-q"]) == 0
    shown = capsys.readouterr().out
    trials = json.loads((done / "result.json").read_text())["trials"]
    assert "± over seeds" in shown
    assert all(f"{trial['error']:.2g}" in shown for trial in trials)
    assert main([*COMMAND, "--out", str(done)]) == 0
    assert sorted((path, path.stat().st_mtime_ns) for path in (done / "trials").rglob("*")) == before
    assert main(["sweep", *COMMAND[1:12], "2", *COMMAND[13:], "--out", str(done)]) == 2
    assert "seeds" in capsys.readouterr().err


def test_a_trial_that_is_cut_off_between_seeds_keeps_those_that_ended(
    done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bayeswell.workbench import trials

    trained: list[str] = []
    train = trials.run

    def dies(experiment: Experiment, folder: Path, **options: Any) -> Any:
        trained.append(f"{folder.parent.name}/{folder.name}")
        if len(trained) == 2:
            raise KeyboardInterrupt
        return train(experiment, folder, **options)

    monkeypatch.setattr(trials, "run", dies)
    command = [*COMMAND, "--out", str(tmp_path / "s")]
    assert main(command) == 130
    first = (tmp_path / "s" / "trials" / "0000" / "seed4" / "result.json").stat().st_mtime_ns
    assert main(command) == 0
    assert trained == [
        "0000/seed4",
        "0000/seed5",
        *(f"{trial}/seed{n}" for trial in ("0000", "0001") for n in (4, 5, 6)),
    ]
    assert (tmp_path / "s" / "trials" / "0000" / "seed4" / "result.json").stat().st_mtime_ns == first
    one, two = (sweep_result(place).trials for place in (done, tmp_path / "s"))
    assert [(trial.value, trial.error) for trial in one] == [(trial.value, trial.error) for trial in two]


def noisy(settings: Mapping[str, Any], folder: Path) -> float:
    return Estimate(float(settings["x"]), 0.25, over="seeds")


def test_a_function_may_give_an_estimate_and_a_note_on_the_lease_keeps_its_error(tmp_path: Path) -> None:
    result = run_sweep(noisy, {"x": "1,2"}, tmp_path / "a", sampler="grid")
    assert [(trial.value, trial.error) for trial in result.trials] == [(1.0, 0.25), (2.0, 0.25)]
    plain = run_sweep(lambda settings, folder: 1.0, {"x": "1,2"}, tmp_path / "b", sampler="grid")
    assert [trial.error for trial in plain.trials] == [None, None]
    # A worker that died between its note and the book.
    with pytest.raises(KeyboardInterrupt):
        run_sweep(_stops, {"x": "1,2"}, tmp_path / "c", sampler="grid")
    book = Ledger(read_definition(tmp_path / "c"), tmp_path / "c")
    claim = book.claim()
    assert claim is not None
    claim.lease.write(json.dumps({"value": 7.5, "error": 0.5}))
    claim.lease.give_back()
    book.claim()
    found = book.result().trials[0]
    assert (found.state, found.value, found.error) == ("complete", 7.5, 0.5)


def _stops(settings: Mapping[str, Any], folder: Path) -> float:
    raise KeyboardInterrupt


def test_from_python(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(60, 2)
    net = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    found = bw.sweep(
        net, (x, (x[:, 0] > 0).long()), {"temperature": "0.1,1"},
        method="bbb", epochs=1, sampler="grid", seeds=2, folder=tmp_path / "s",
    )  # fmt: skip
    assert [row["temperature"] for row in sorted(found.table, key=lambda row: row["trial"])] == [0.1, 1]
    for row in found.table:
        trial = found.result.trials[row["trial"]]
        scores = [
            found.function.score(found.function.changed({**trial.settings, "seed": n}), _place(found.folder, trial, n))
            for n in (0, 1)
        ]
        assert row["nll"] == pytest.approx(statistics.mean(scores), rel=1e-9)
        assert row["nll_error_over_seeds"] == pytest.approx(abs(scores[0] - scores[1]) / 2, rel=1e-9)
    with pytest.raises(SettingError, match="seeds = 0"):
        bw.sweep(net, (x, (x[:, 0] > 0).long()), {"temperature": "0.1,1"}, method="bbb", seeds=0)


def _place(folder: Path, trial: Any, seed: int) -> Path:
    return folder / "trials" / f"{trial.number:04d}" / f"seed{seed}"


@pytest.mark.parametrize(("rule", "same"), [("seed", False), ("last", True)])
def test_seeds_share_their_test_examples_and_by_the_rule_last_their_held_out_ones(rule: str, same: bool) -> None:
    """What an error over seeds is of, as docs/sweeps.md and ``metrics.estimates`` have it."""
    first, second = (
        data_of(
            Experiment(data="wine", method="bbb", seed=seed, validation=0.25, validation_rule=rule, standardise=False)
        )
        for seed in (0, 1)
    )
    assert torch.equal(first.test[0], second.test[0])
    assert first.validation is not None
    assert second.validation is not None
    assert torch.equal(first.validation[0], second.validation[0]) == same
