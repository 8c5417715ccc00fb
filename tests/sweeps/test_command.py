"""``bayeswell sweep``: runs in folders, judged by held-out data, and the best settings as a file."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import bayeswell
from bayeswell.cli import main
from bayeswell.experiments import Experiment, load_problem
from bayeswell.sweeps import run_sweep
from bayeswell.sweeps.toml import to_toml

SMALL = ("sweep", "-d", "wine", "-m", "bbb", "-e", "2", "--draws", "10", "--sampler", "random")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("command") / "s"
    space = ("--space", "stepper.lr=1e-3:1e-1:log", "--space", "batch_size=20:40", "--validation", "0.25")
    assert main([*SMALL, *space, "--trials", "3", "--out", str(folder), "-q"]) == 0
    return folder


def test_a_trial_is_a_run_judged_by_its_model_on_held_out_data(done: Path) -> None:
    result = json.loads((done / "result.json").read_text())
    assert (result["complete"], result["failed"], result["direction"]) == (3, 0, "minimize")
    for trial in result["trials"]:
        folder = done / "trials" / f"{trial['number']:04d}"
        config = json.loads((folder / "config.json").read_text())["problem"]["experiment"]
        assert config["method"]["stepper"]["lr"] == trial["settings"]["stepper.lr"]
        assert config["batch_size"] == trial["settings"]["batch_size"]
        inputs, labels = load_problem(Experiment.from_json(config)).data.validation  # type: ignore[misc]
        assert len(labels) == 34  # a quarter of wine's 134 training examples
        probabilities = bayeswell.load(folder / "model").predict(inputs, draws=10, seed=0).probabilities
        by_hand = -probabilities[torch.arange(34), labels].double().log().mean().item()
        assert trial["value"] == pytest.approx(by_hand, rel=1e-5)
    assert len({trial["value"] for trial in result["trials"]}) == 3
    best = min(result["trials"], key=lambda trial: trial["value"])
    assert result["best"] == best["number"]


def test_the_best_settings_are_a_file_for_train(done: Path, tmp_path: Path) -> None:
    result = json.loads((done / "result.json").read_text())
    best = result["trials"][result["best"]]
    settings = tomllib.loads((done / "best.toml").read_text())
    assert settings["method"]["stepper"]["lr"] == best["settings"]["stepper.lr"]
    assert main(["train", "--config", str(done / "best.toml"), "--out", str(tmp_path / "run"), "-q", "--json"]) == 0
    again = json.loads((tmp_path / "run" / "result.json").read_text())
    there = json.loads((done / "trials" / f"{best['number']:04d}" / "result.json").read_text())
    assert again["test"] == there["test"]


def test_the_same_command_again_does_nothing_more_and_prints_json(
    done: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in (done / "trials").rglob("*"))
    assert main(["sweep", "--join", str(done), "--json", "-q"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["metric"] == "nll"
    assert [trial["state"] for trial in shown["trials"]] == ["complete"] * 3
    assert sorted((path, path.stat().st_mtime_ns) for path in (done / "trials").rglob("*")) == before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--space", "stepper.lrr=1:2"], "did you mean 'lr'"),
        (["--space", "stepper.lr=0.1:1.0", "--space", "posterior=mean_field,mean_feeld"], "did you mean 'mean_field'"),
        (["--space", "stepper.lr=-1:1"], "at stepper.lr=-1:"),
        (["--space", "posterior.nothing=1:2"], "has no setting 'nothing'"),
        (["--space", "stepper.lr=2:1"], "the low end must be below the high end"),
        ([], "nothing to vary"),
        (["--space", "stepper.lr=0.1:1.0", "--metric", "nlll"], "did you mean 'nll'"),
        (["--space", "stepper.lr=0.1:1.0", "--metric", "rmse"], "'wine' has none"),
        (["--space", "stepper.lr=0.1:1.0", "--validation", "0"], "hold some out"),
        (["--space", "seed=0:9"], "judged by other data"),
        (["--space", "stepper.lr=0.1:1.0", "--workers", "0"], "workers = 0"),
        (["--space", "stepper.lr=0.1:1.0", "--trials", "0"], "trials = 0"),
        (["--space", "stepper.lr=0.1:1.0", "--join", "x"], "leave out --space"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line_before_any_work(
    options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SMALL, *options, "--out", str(tmp_path / "s")]) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert shown.count("\n") == 1
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--seeds", "3"], "--seeds"),
        (["-k", "1"], "--seeds"),
        (["--trials", "9"], "--trials"),
        (["--sampler", "grid"], "--sampler"),
        (["--sampler-seed", "1"], "--sampler-seed"),
        (["--metric", "accuracy"], "--metric"),
        (["--attempts", "2"], "--attempts"),
        (["-e", "9"], "--epochs"),
        (["--set", "stepper.lr=0.1"], "--set"),
        (["--data-workers", "1"], "--data-workers"),
        (["--model", "mlp"], "--model"),
        (["--seeds", "3", "-d", "digits", "--trials", "2"], "--trials, --seeds and --data"),
        (["--space", "stepper.lr=0.1,1", "--out", "x"], "--space and --out"),
    ],
)
def test_what_a_join_cannot_change_is_refused_by_name(
    options: list[str], named: str, done: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["sweep", "--join", str(done), *options, "-q"]) == 2
    shown = capsys.readouterr().err
    assert f"--join takes the sweep as its folder has it: leave out {named}\n" in shown
    assert shown.count("\n") == 1


def test_a_join_takes_what_is_its_own(done: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = ["--workers", "1", "--threads", "1", "--threshold", "1e9", "--name", "s", "--json", "-q"]
    assert main(["sweep", "--join", str(done), *own]) == 0
    assert json.loads(capsys.readouterr().out)["success"]["rate"] == 1.0


def test_a_join_takes_the_code_of_the_network_where_it_is_code(
    done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "net.py").write_text("from torch import nn\n\ndef net():\n    return nn.Linear(13, 3)\n")
    code = ("--model", f"{tmp_path / 'net.py'}:net")
    assert main(["sweep", "--join", str(done), *code, "-q"]) == 2
    assert "the network of this sweep is no code; leave it out\n" in capsys.readouterr().err
    space = ("--space", "stepper.lr=0.01,0.1", "--trials", "1")
    assert main([*SMALL, *space, *code, "--out", str(tmp_path / "s"), "-q"]) == 0
    assert main(["sweep", "--join", str(tmp_path / "s"), *code, "-q"]) == 0


def test_the_sweep_of_a_program_is_not_joined_by_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_sweep(lambda settings, folder: float(settings["x"]), {"x": "0.0:1.0"}, tmp_path / "s", trials=1)
    capsys.readouterr()
    assert main(["sweep", "--join", str(tmp_path / "s")]) == 2
    said = capsys.readouterr().err
    assert "program of its own" in said
    assert said.count("\n") == 1


def test_help_shows_how_ranges_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "--help"]) == 0
    assert "stepper.lr=1e-4:1e-1:log" in capsys.readouterr().out


plain = st.recursive(
    st.one_of(st.booleans(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), plain, max_size=4))
def test_toml_reads_back_the_same(settings: Mapping[str, Any]) -> None:
    assert tomllib.loads(to_toml(settings)) == settings
