"""The papers' set-ups as files of settings: every one can be trained as it stands, and says what it is."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
import torch

from bayeswell.cli.app import main
from bayeswell.experiments import Experiment
from bayeswell.experiments.config_parsing import read_config
from bayeswell.experiments.schema import SETTINGS
from bayeswell.methods import assemble
from bayeswell.models import build_model
from bayeswell.random import make_generator

FOLDER = Path(__file__).parents[2] / "examples" / "settings"
FILES = sorted(FOLDER.glob("*.toml"))
SHAPES = {"mnist": (1, 28, 28), "fashion_mnist": (1, 28, 28), "cifar10": (3, 32, 32)}


def test_each_paper_has_one() -> None:
    names = {file.stem for file in FILES}
    for paper in ("k_tied", "variational_laplace", "flat", "hwa", "thesis"):
        assert any(name.startswith(paper) for name in names), paper


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_can_be_put_together(file: Path) -> None:
    assert file.read_text().startswith("# "), "it says where its numbers are from"
    experiment = Experiment(**read_config(file, SETTINGS))
    model = dict(experiment.model)  # type: ignore[arg-type]
    narrow = {"hidden": [3]} if model["name"] == "mlp" else {"width": 2}
    net = build_model({**model, **narrow}, SHAPES[experiment.data["name"]], 10)  # type: ignore[index]
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")  # few batches
        assembly = assemble(
            experiment.method_part, net, "categorical", dataset_size=5000, batches=5000 // (experiment.batch_size or 1),
            epochs=experiment.epochs, where=experiment.where, generator=make_generator(0),
        )  # fmt: skip
    # The rates are those of the file, in the group they are meant for.
    stepper = experiment.method["stepper"]  # type: ignore[index]
    assert assembly.optimizer.param_groups[0]["lr"] == stepper["lr"]


def test_one_trains_from_the_command_line(tmp_path: Path) -> None:
    command = ["train", "--config", str(FOLDER / "thesis_plateaus_cifar10.toml"), "-d", "digits", "-n", "mlp"]
    command += ["--model-set", "hidden=[8]", "-e", "1", "-q", "--out", str(tmp_path / "run")]
    assert main(command) == 0
    settings = json.loads((tmp_path / "run" / "config.json").read_text())["problem"]["experiment"]
    assert settings["method"]["plateau"]["stds"]["metric"] == "kl"
