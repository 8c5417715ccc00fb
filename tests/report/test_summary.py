"""Rows, means, standard errors and marks against numbers worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from bayeswell.cli import main
from bayeswell.report.commands import train_command
from bayeswell.report.figures import pictures_of
from bayeswell.report.numbers import shown
from bayeswell.report.reading import RunRecord
from bayeswell.report.summary import tables_of


def record(label: str, seed: int, nll: float, accuracy: float, *, data: str = "digits", lr: float = 0.1) -> RunRecord:
    experiment = {"method": {"name": label, "stepper": {"lr": lr}}, "data": {"name": data}, "seed": seed}
    values = {"nll": nll, "accuracy": accuracy}
    result = {"data": data, "test": {"values": values, "standard_errors_over_examples": {"nll": 0.03 * (seed + 1)}}}
    return RunRecord(Path(f"runs/{label}-{lr}-seed{seed}"), "", {"problem": {"experiment": experiment}}, [], result)


def test_means_errors_and_marks() -> None:
    runs = [record("a", 0, 0.5, 0.9), record("a", 1, 0.7, 0.8), record("b", 0, 0.4, 0.85), record("b", 1, 0.9, 0.85)]
    (table,) = tables_of(runs)
    first, second = table.rows
    assert (first.label, len(first.runs)) == ("a", 2)
    cell = first.cells["nll"]
    assert cell.mean == pytest.approx(0.6)
    assert cell.over_seeds == pytest.approx(0.1)  # std 0.1 sqrt 2, over sqrt 2
    assert cell.over_examples == pytest.approx(0.045)
    assert cell.best  # 0.6 against 0.65, lower is better
    assert second.cells["nll"].best, "at the same seeds -0.1 and 0.2 apart: level"
    assert second.cells["nll"].over_seeds == pytest.approx(0.25)
    # Accuracies 0.85 and 0.85: a tie marks both, and only one of them varies.
    assert first.cells["accuracy"].mean == pytest.approx(second.cells["accuracy"].mean)
    assert second.cells["accuracy"].over_seeds == 0
    assert second.cells["accuracy"].over_examples is None


def test_other_settings_and_other_data_are_not_mixed() -> None:
    runs = [record("a", 0, 0.5, 0.9), record("a", 0, 0.7, 0.9, lr=0.2), record("a", 0, 9.0, 0.1, data="wine")]
    tables = tables_of(runs)
    assert [table.data for table in tables] == ["digits", "wine"]
    assert [row.label for row in tables[0].rows] == ["a (a-0.1-seed0)", "a (a-0.2-seed0)"]
    assert tables[0].rows[0].cells["nll"].over_seeds is None
    assert not tables[1].rows[0].cells["nll"].best, "alone is not best"


def test_numbers_that_are_none_are_left_out() -> None:
    (table,) = tables_of([record("a", 0, math.nan, 0.9), record("b", 0, 0.5, 0.8)])
    assert "nll" not in table.rows[0].cells
    assert not table.rows[1].cells["nll"].best


@pytest.mark.parametrize(
    ("value", "text"), [(0.12345, "0.1235"), (-2.0, "-2.0000"), (1.2e-5, "1.2e-05"), (123456.0, "1.23e+05"),
                        (345.678, "345.7"), (0.0, "0.0000"), (None, "")]
)  # fmt: skip
def test_how_numbers_look(value: float | None, text: str) -> None:
    assert shown(value) == text


ODD = [
    ["--method", "k-tied", "--set", "posterior.rank=3", "--set", "temperature=0.5", "--set", "stepper.lr=0.02"],
    ["--method", "bbb", "--set", "stepper=sgd", "--set", "stepper.momentum=0.5", "--model", "mlp"],
    ["--model", "mlp", "--model-set", "hidden=[7,9]", "--model-set", "activation=tanh", "--ood", "noise"],
    ["--data", "wine", "--validation", "0.25", "--early-stopping", "4", "--early-stopping-metric", "brier"],
    ["--data", "odd name's.csv", "--data-set", "target=a b", "--raw", "--seed", "7", "--draws", "9"],
    ["--epochs", "3", "--batch-size", "17", "--accumulate", "2", "--augment", "--precision", "bf16-mixed"],
    ["--data", "digits", "--likelihood", "categorical", "--workers", "2", "--accelerator", "cpu", "--diagnose"],
]


@pytest.mark.parametrize("options", ODD)
def test_the_command_makes_the_same_experiment(options: list[str], monkeypatch: Any, tmp_path: Path) -> None:
    """What the page prints, given to a shell, asks for the same run."""
    import shlex

    import bayeswell.experiments as experiments

    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd name's.csv").write_text("a b,c\n1,2\n3,4\n")
    asked: list[Any] = []
    monkeypatch.setattr(experiments, "run", lambda experiment, *_, **__: asked.append(experiment) or {})
    assert main(["train", *options, "--out", "x"]) == 0
    run = RunRecord(Path("runs/it's"), "", {"problem": {"experiment": asked[0].as_json()}})
    command = train_command(run)
    assert command is not None
    words = shlex.split(command, comments=True)
    assert words[:2] == ["bayeswell", "train"]
    assert words[-2:] == ["--out", "runs/it's"]
    assert main(words[1:]) == 0
    assert asked[1].as_json() == asked[0].as_json()


def test_a_step_of_an_ensemble_is_one_of_each_member() -> None:
    """20 s for 400 steps of one member each are 50 ms; of five members, 250 ms a step."""
    runs = [record("map", 0, 0.5, 0.9), record("ensemble", 0, 0.4, 0.9)]
    for run, members in zip(runs, (1, 5), strict=True):
        run.config["method"] = {"name": run.method, "members": members}
        run.result["time"] = {"train_seconds": 20.0, "timed_steps": 400, "resumed": False}
    (table,) = tables_of(runs)
    (picture,) = [one for one in pictures_of(table, "t0", most=0).together if one.key == "t0-step-times"]
    assert picture.alt == "Milliseconds of a training step: map 50; ensemble 250."


def test_the_same_seed_twice_is_not_two_seeds() -> None:
    runs = [record("a", 0, 0.5, 0.9), record("a", 0, 0.5, 0.9)]
    for run in runs:
        run.config["seed"] = 0
    (table,) = tables_of(runs)
    assert [len(row.runs) for row in table.rows] == [1, 1]
    assert table.rows[0].cells["nll"].over_seeds is None
