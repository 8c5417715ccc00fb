"""A setting is declared once: as argument in Python, key in a file, option of each command and line in config.json."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest
import typer
from typer.testing import CliRunner

import bayeswell.experiments as experiments
from bayeswell.cli import app, command
from bayeswell.experiments import SETTINGS, Experiment
from bayeswell.experiments.schema import HOW
from bayeswell.experiments.setting import Setting, count
from bayeswell.methods import find_method
from bayeswell.optimizers import OPTIMIZERS
from bayeswell.priors import Normal
from bayeswell.registry import GROUP
from bayeswell.samplers import SAMPLERS
from bayeswell.sweeps.toml import to_toml

SAID: Mapping[str, tuple[list[str], Any]] = {
    "method": (["--method", "k-tied", "--set", "posterior.rank=3"], {"name": "k-tied", "posterior": {"rank": 3}}),
    "data": (["--data", "wine", "--data-set", "split=3"], {"name": "wine", "split": 3}),
    "model": (["--model", "mlp", "--model-set", "hidden=[7,9]"], {"name": "mlp", "hidden": [7, 9]}),
    "likelihood": (["--likelihood", "gaussian", "--likelihood-set", "std=2"], {"name": "gaussian", "std": 2}),
    "where": (["--where", "dense1,head*"], ["dense1", "head*"]),
    "init": (["--init", "runs/first"], os.path.abspath("runs/first")),
    "epochs": (["--epochs", "7"], 7),
    "batch_size": (["--batch-size", "33"], 33),
    "seed": (["--seed", "5"], 5),
    "validation": (["--validation", "120"], 120),
    "validation_rule": (["--validation-rule", "last"], "last"),
    "fold": (["--fold", "2/5"], "2/5"),
    "early_stopping": (["--validation", "0.2", "--early-stopping", "3"], 3),
    "early_stopping_metric": (["--early-stopping-metric", "brier"], "brier"),
    "standardise": (["--raw"], False),
    "augment": (["--augment"], {}),
    "calibrate": (["--calibrate"], True),
    "accumulate": (["--accumulate", "4"], 4),
    "workers": (["--workers", "2"], 2),
    "accelerator": (["--accelerator", "cpu"], "cpu"),
    "devices": (["--devices", "2"], 2),
    "precision": (["--precision", "bf16-mixed"], "bf16-mixed"),
    "ood": (["--ood", "corrupted", "--ood-set", "severity=5"], {"name": "corrupted", "severity": 5}),
    "draws": (["--draws", "9"], 9),
    "prediction": (["--prediction", "mean"], "mean"),
    "trace": (["--trace", "test"], "test"),
    "trace_steps": (["--trace-steps", "30"], 30),
    "train_size": (["--train-size", "0.5"], 0.5),
    "trace_draws": (["--trace", "test", "--trace-draws", "25"], 25),
    "diagnose": (["--diagnose"], True),
}


def test_every_setting_is_tried_here() -> None:
    assert set(SAID) == set(SETTINGS)
    assert set(Experiment().as_json()) == set(SETTINGS)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_means_the_same_wherever_it_is_said(
    name: str, bayeswell: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, value = SAID[name]
    more: dict[str, Any] = {"early_stopping": {"validation": 0.2}, "trace_draws": {"trace": "test"}}.get(name, {})
    asked: list[Experiment] = []
    monkeypatch.setattr(experiments, "run", lambda experiment, *_, **__: asked.append(experiment) or {})
    (tmp_path / "s.toml").write_text(to_toml({name: value, **more}), encoding="utf-8")
    assert bayeswell("train", *options, "--out", tmp_path / "x").code == 0
    assert bayeswell("train", "--config", tmp_path / "s.toml", "--out", tmp_path / "x").code == 0
    expected = Experiment(**{name: value, **more})
    assert asked == [expected, expected]
    assert type(getattr(asked[0], name)) is type(getattr(expected, name))
    assert expected.as_json()[name] == value
    assert expected != Experiment(**more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "elsewhere"),
    [
        ("train", {}),
        ("compare", {"method", "seed", "devices", "fold", "workers"}),
        ("sweep", {"devices", "ood", "diagnose", "fold", "workers"}),
    ],
)
def test_commands_that_train_have_an_option_for_each_setting(
    name: str, elsewhere: set[str], bayeswell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    words = bayeswell(name, "--help").out.replace("│", " ").split()
    for setting in SETTINGS.values():
        if setting.name not in elsewhere:
            assert setting.option in words, setting.name
            assert setting.off is None or setting.off in words
            assert setting.settings is None or setting.settings_option in words


def test_a_setting_declared_anew_is_an_option_with_its_help(monkeypatch: pytest.MonkeyPatch) -> None:
    new = replace(Setting(HOW, "Turns of the crank.", short="-t", check=count), name="turns", kind=int, default=3)
    monkeypatch.setattr(command, "SETTINGS", {**SETTINGS, "turns": new})
    seen: list[Any] = []

    @command.with_settings(without=("seed",))
    def crank(*, given: Mapping[str, Any], turns: Annotated[bool, typer.Option("--own")] = False) -> None:
        """An option of its own goes by the same name in Python."""
        seen.append((given["turns"], given["epochs"], given["data_set"], "seed" in given, turns))

    app = typer.Typer()
    app.command()(crank)
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output
    assert "Turns of the crank. [default: (3)]" in shown
    assert CliRunner().invoke(app, ["-t", "5", "-e", "2", "--data-set", "a=1", "--own"]).exit_code == 0
    assert seen == [(5, 2, ["a=1"], False, True)]


def test_options_are_known_without_torch() -> None:
    code = "import bayeswell.cli, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_lr_is_the_rate_of_the_methods_own_stepper(
    bayeswell: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Experiment] = []
    monkeypatch.setattr(experiments, "run", lambda experiment, *_, **__: asked.append(experiment) or {})
    (tmp_path / "s.toml").write_text("[method]\nname = 'swag'\nlr = 0.07\n", encoding="utf-8")
    for options in (["-m", "swag", "--set", "lr=0.07"], ["--config", tmp_path / "s.toml"]):
        assert bayeswell("train", *options, "--out", tmp_path / "x").code == 0
    assert asked[0] == asked[1]
    assert asked[0].method_part == find_method("swag").changed(lr=0.07)
    assert bayeswell("train", "--set", "lr=0.07", "--set", "stepper=sgd", "--out", tmp_path / "x").code == 0
    assert asked[2].method_part.stepper == {"name": "sgd", "lr": 0.07}
    for file, option in (("lr = 0.07", "stepper.lr=0.3"), ("stepper.lr = 0.07", "lr=0.3")):
        (tmp_path / "s.toml").write_text(f"[method]\nname = 'swag'\n{file}\n", encoding="utf-8")
        said = bayeswell("train", "--config", tmp_path / "s.toml", "--set", option, "--out", tmp_path / "x")
        assert said.code == 0
        assert asked[-1].method_part == find_method("swag").changed(lr=0.3)  # the command line wins
        assert asked[-1].changed({"method.lr": 0.5}).method_part == find_method("swag").changed(lr=0.5)
        assert asked[-1].changed({"method.stepper.lr": 0.5}).method_part == find_method("swag").changed(lr=0.5)
    said = bayeswell("train", "--set", "lrr=0.07", "--out", tmp_path / "x")
    assert (said.code, "did you mean 'lr'" in said.err) == (2, True)


@dataclass(frozen=True)
class FromOutside(Normal):
    """A prior of another package."""

    name: ClassVar[str] = "from_outside"
    paper: ClassVar[str] = "Elsewhere 2026"


def test_parts_of_other_packages_are_listed_and_chosen_by_name(
    bayeswell: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bayeswell.registry import AXES

    entry = EntryPoint("prior.from_outside", f"{__name__}:FromOutside", GROUP)
    monkeypatch.setattr("bayeswell.registry.entry_points", lambda group: [entry] if group == GROUP else [])
    prior = AXES["prior"]
    monkeypatch.setattr(prior, "_parts", dict(prior._parts))
    listed = {one["name"]: one for one in json.loads(bayeswell("parts", "prior", "--json").out)}
    assert listed["from_outside"]["paper"] == "Elsewhere 2026"
    assert listed["from_outside"]["settings"] == listed["normal"]["settings"]
    monkeypatch.setattr(prior, "_parts", {key: part for key, part in prior._parts.items() if key != "from_outside"})
    small = ["--model", "mlp", "--model-set", "hidden=[4]", "--epochs", "1", "--batch-size", "600", "--draws", "2"]
    said = bayeswell("train", "--set", "prior=from_outside", *small, "--quiet", "--out", tmp_path / "run")
    assert said.code == 0, said.err


def test_every_part_is_listed_with_its_settings(bayeswell: Any) -> None:
    listed = {(one["part"], one["name"]): one for one in json.loads(bayeswell("parts", "--json").out)}
    assert listed["sharpness", "sharpness"]["settings"] == {"rho": 0.05, "geometry": "identity", "norm": "paper"}
    assert listed["plateau", "plateau"]["settings"]["patience"] == 1
    assert listed["rate", "linear"]["settings"] == {"begin": 0.375, "end": 0.675, "final": 0.2}
    # Whatever a method may be given by name, and has settings, is there.
    parts = {"posterior", "prior", "estimator", "divergence", "kl_weight", "stepper", "rate", "collector", "post_hoc"}
    assert {part for part, _ in listed} == parts | {"likelihood", "sharpness", "plateau"}
    assert all(one["summary"] and one["paper"] for one in listed.values())


def test_parts_go_by_the_words_of_a_method(bayeswell: Any) -> None:
    steppers = {one["name"] for one in json.loads(bayeswell("parts", "stepper", "--json").out)}
    assert steppers == {*OPTIMIZERS, *SAMPLERS}
    said = bayeswell("parts", "priro")
    assert said.code == 2
    assert "did you mean 'prior'" in said.err
    assert "k_tied" in bayeswell("parts").out


def test_no_option_means_two_things() -> None:
    for name, one in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        options = [option for parameter in one.params for option in (*parameter.opts, *parameter.secondary_opts)]
        assert len(set(options)) == len(options), (name, sorted(options))
