"""The check that keeps the core free of the lab sees every way of breaking it."""

from __future__ import annotations

from pathlib import Path

import pytest

from import_graph import LAB, LEVEL_OF, faults_of


def package(folder: Path, **rooms: str) -> Path:
    """A package of rooms with one module each."""
    for room, text in {"errors": "", "datasets": "import sklearn", "training": "import torch", **rooms}.items():
        place = folder / "bayeswell" / room
        place.mkdir(parents=True, exist_ok=True)
        (place / "__init__.py").write_text(text + "\n")
    (folder / "bayeswell" / "__init__.py").write_text("")
    return folder / "bayeswell"


def test_a_sound_package_has_no_fault(tmp_path: Path) -> None:
    sound = "import json\nfrom numpy import ndarray\nimport lightning_fabric.utilities\nfrom rich.table import Table"
    assert faults_of(package(tmp_path, training=sound, plots="from matplotlib import pyplot\nimport torch")) == []
    assert set(LEVEL_OF) >= LAB


@pytest.mark.parametrize(
    "line",
    [
        "from ..datasets import load",
        "import bayeswell.datasets",
        "def late():\n    from bayeswell import datasets",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..datasets.load import Data",
    ],
)
def test_the_core_may_not_import_the_lab(tmp_path: Path, line: str) -> None:
    (fault,) = faults_of(package(tmp_path, training=line))
    assert "the core on the lab: bayeswell.training imports bayeswell.datasets" in fault


@pytest.mark.parametrize(
    ("room", "side", "line", "library"),
    [
        ("training", "of the core", "import matplotlib.pyplot", "matplotlib"),
        ("metrics", "of the core", "def late():\n    from sklearn.metrics import roc_auc_score", "sklearn"),
        ("training", "of the core", "import importlib\nimportlib.import_module('tensorboard')", "tensorboard"),
        ("metrics", "of the core", "from rich.table import Table", "rich"),
        ("plots", "of the lab", "import pandas", "pandas"),
    ],
)
def test_a_room_may_import_only_the_libraries_that_are_listed_for_it(
    tmp_path: Path, room: str, side: str, line: str, library: str
) -> None:
    (fault,) = faults_of(package(tmp_path, **{room: line}))
    assert f"bayeswell.{room}, {side}, imports {library}; for it there are lightning_fabric" in fault


def test_the_door_of_the_command_line_may_know_it(tmp_path: Path) -> None:
    made = package(tmp_path, cli="import typer")
    (made / "__main__.py").write_text("from .cli import main\n")
    assert faults_of(made) == []
