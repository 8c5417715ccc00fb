"""The rooms of the package import downwards only; and the check that says so can fail."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from import_graph import LEVELS, cycles, edges_of, faults_of, main, modules_of

PACKAGE = Path(__file__).parents[2] / "src" / "bayeswell"

# A small house that is in order, with every kind of import that is allowed.
SOUND = {
    "__init__.py": "from bayeswell.methods import fit\nfrom .posteriors import mean_field\n",
    "__main__.py": "from bayeswell.cli import main\n",
    "errors.py": "",
    "tree.py": "",
    "types.py": "from . import tree\nfrom .errors import SettingError\n",
    "priors/__init__.py": "from .normal import Normal\n",
    "priors/normal.py": "from ..types import Prior\nfrom .shared import scale\n",
    "priors/shared.py": "import math\nimport torch.nn as nn\n",
    "posteriors/__init__.py": "from . import mean_field\n",
    "posteriors/mean_field.py": "import bayeswell.types as contracts\n",
    "estimators/__init__.py": "from bayeswell import types\n",
    "methods/__init__.py": "from bayeswell import posteriors, priors\nfrom ..estimators import flipout\n",
    "cli.py": "from bayeswell.methods import names\n",
    "studies/__init__.py": "from bayeswell.methods import fit\n",
}


def build(folder: Path, **changes: str) -> Path:
    """A package on disk: the sound one, with some files written otherwise (``__`` stands for ``/``)."""
    files = SOUND | {name.replace("__", "/") + ".py": text for name, text in changes.items()}
    package = folder / "bayeswell"
    for name, text in files.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return package


def test_rooms_import_downwards_only() -> None:
    assert faults_of(PACKAGE) == []


def test_a_sound_package_has_no_fault(tmp_path: Path) -> None:
    package = build(tmp_path)
    assert faults_of(package) == []
    # It was read in full: each import above is one of these, none more.
    edges = {(edge.importer, edge.imported) for edge in edges_of(modules_of(package))}
    assert edges == {
        ("bayeswell", "bayeswell.methods"),
        ("bayeswell", "bayeswell.posteriors.mean_field"),
        ("bayeswell.__main__", "bayeswell.cli"),
        ("bayeswell.types", "bayeswell.tree"),
        ("bayeswell.types", "bayeswell.errors"),
        ("bayeswell.priors", "bayeswell.priors.normal"),
        ("bayeswell.priors.normal", "bayeswell.types"),
        ("bayeswell.priors.normal", "bayeswell.priors.shared"),
        ("bayeswell.posteriors", "bayeswell.posteriors.mean_field"),
        ("bayeswell.posteriors.mean_field", "bayeswell.types"),
        ("bayeswell.estimators", "bayeswell.types"),
        ("bayeswell.methods", "bayeswell.posteriors"),
        ("bayeswell.methods", "bayeswell.priors"),
        ("bayeswell.methods", "bayeswell.estimators"),
        ("bayeswell.cli", "bayeswell.methods"),
        ("bayeswell.studies", "bayeswell.methods"),
    }


@pytest.mark.parametrize(
    "planted",
    [
        "from bayeswell.posteriors import mean_field",
        "import bayeswell.posteriors.mean_field",
        "from bayeswell import posteriors",
        "from ..posteriors.mean_field import MeanField",
        "from .. import posteriors",
        "def late():\n    from ..posteriors import MeanField",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..posteriors import MeanField",
        "import importlib\nimportlib.import_module('bayeswell.posteriors')",
    ],
)
def test_an_upward_import_is_caught(tmp_path: Path, planted: str) -> None:
    package = build(tmp_path, priors__shared=planted)
    (fault,) = faults_of(package)
    line = planted.count("\n") + 1
    assert fault.startswith(f"{package / 'priors' / 'shared.py'}:{line}: upward: ")
    assert "bayeswell.priors.shared (level 1) imports bayeswell.posteriors" in fault
    assert fault.endswith("(level 2)")


@pytest.mark.parametrize("planted", ["from bayeswell.posteriors import x", "from ..posteriors.mean_field import x"])
def test_two_rooms_of_one_level_may_not_know_each_other(tmp_path: Path, planted: str) -> None:
    (fault,) = faults_of(build(tmp_path, estimators__flipout=planted))
    assert "across" in fault
    assert "bayeswell.estimators.flipout (level 2) imports bayeswell.posteriors" in fault


def test_a_room_may_not_look_at_the_public_face(tmp_path: Path) -> None:
    fault, circle = faults_of(build(tmp_path, priors__shared="from bayeswell import __version__"))
    assert "upward" in fault
    assert "imports bayeswell (the public face)" in fault
    assert circle.startswith("circle: bayeswell -> bayeswell.methods -> bayeswell.priors -> ")


def test_studies_may_not_know_the_command_line(tmp_path: Path) -> None:
    package = build(tmp_path, studies__table="from ..cli import main\n")
    assert [fault.split(": ")[1] for fault in faults_of(package)] == ["upward"]


def test_an_unknown_room_is_caught(tmp_path: Path) -> None:
    package = build(tmp_path, utils="")
    (fault,) = faults_of(package)
    assert fault.startswith(f"{package / 'utils.py'}: room 'utils' stands on no level")


def test_a_circle_inside_a_room_is_caught(tmp_path: Path) -> None:
    package = build(tmp_path, priors__shared="def late():\n    from .normal import Normal\n")
    assert faults_of(package) == [
        "circle: bayeswell.priors.normal -> bayeswell.priors.shared -> bayeswell.priors.normal"
    ]


def test_a_circle_through_the_init_of_a_room_is_caught(tmp_path: Path) -> None:
    (fault,) = faults_of(build(tmp_path, priors__shared="from bayeswell.priors import Normal"))
    assert fault.startswith("circle: ")
    assert "bayeswell.priors.shared -> bayeswell.priors" in fault


@pytest.mark.parametrize("planted", ["from . import shared", "from bayeswell.priors import shared"])
def test_a_sibling_asked_for_through_the_init_of_a_room_is_a_circle(tmp_path: Path, planted: str) -> None:
    (fault,) = faults_of(build(tmp_path, priors__normal=planted))
    assert "normal.py:1: circle: bayeswell.priors.normal -> bayeswell.priors -> " in fault


def test_an_init_that_does_not_import_the_module_makes_no_circle(tmp_path: Path) -> None:
    assert faults_of(build(tmp_path, priors__laplace="from . import shared")) == []


def test_a_circle_on_the_ground_level_is_caught(tmp_path: Path) -> None:
    assert faults_of(build(tmp_path, tree="from .types import Site")) == [
        "circle: bayeswell.tree -> bayeswell.types -> bayeswell.tree"
    ]


def test_each_knot_is_told_once_and_a_module_that_only_leads_to_one_is_not_blamed(tmp_path: Path) -> None:
    package = build(tmp_path, priors__a="from . import b", priors__b="from . import c", priors__c="from . import b")
    assert cycles(edges_of(modules_of(package))) == [
        "circle: bayeswell.priors.b -> bayeswell.priors.c -> bayeswell.priors.b"
    ]


def test_an_empty_folder_is_not_taken_for_a_sound_package(tmp_path: Path) -> None:
    (fault,) = faults_of(tmp_path)
    assert "no Python files" in fault


def test_no_room_stands_on_two_levels() -> None:
    rooms = [room for rooms in LEVELS.values() for room in rooms]
    assert len(rooms) == len(set(rooms))


def test_contributors_are_told_the_same_levels() -> None:
    told = {}
    for line in (PACKAGE.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines():
        if row := re.fullmatch(r"\| (\d+) \| ([a-z_, ]+).*\|", line):
            rooms = row[2].split(", and ")[0]  # what follows lies outside the package
            told[int(row[1])] = tuple(name.strip() for name in rooms.split(","))
    assert told == dict(LEVELS)


def test_the_command_says_what_is_wrong_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(build(tmp_path))]) == 0
    assert "14 modules, 16 imports" in capsys.readouterr().out
    assert main([str(build(tmp_path, utils=""))]) == 1
    assert "room 'utils'" in capsys.readouterr().out
