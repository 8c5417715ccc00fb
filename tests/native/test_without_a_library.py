"""A library that is missing, broken or of another version: everything is computed all the same."""

from __future__ import annotations

import _ctypes
import ctypes
import importlib.metadata
import importlib.util
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from bayeswell import native
from bayeswell.native import library
from bayeswell.posteriors.one_pass import draws_and_kl
from bayeswell.posteriors.std_forms import FROM_LOG_STD
from bayeswell.random import normals_of_key
from native.formulas import CONSTANT, KEY, ROOT, gaussian, machine_runs, needs_library


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder in which libraries are looked for; the real ones are back afterwards."""
    monkeypatch.setattr(library, "_FOLDER", tmp_path)
    monkeypatch.setattr(library._Switch, "on", True)
    library._library.cache_clear()
    yield tmp_path
    monkeypatch.undo()
    library._library.cache_clear()


def damage_nothing(folder: Path) -> None:
    """No file at all."""


def damage_text(folder: Path) -> None:
    """Files that hold something else."""
    for name in machine_runs():
        (folder / f"kernels-{name}.so").write_text("This was to be a library.\n" * 400)


def damage_empty(folder: Path) -> None:
    """Files that hold nothing."""
    for name in machine_runs():
        (folder / f"kernels-{name}.so").touch()


def damage_folders(folder: Path) -> None:
    """Folders instead of files."""
    for name in machine_runs():
        (folder / f"kernels-{name}.so").mkdir()


def damage_foreign(folder: Path) -> None:
    """A library, but another one."""
    for name in machine_runs():
        shutil.copy(_ctypes.__file__, folder / f"kernels-{name}.so")


@pytest.mark.parametrize("damage", [damage_nothing, damage_text, damage_empty, damage_folders, damage_foreign])
def test_without_a_library_everything_is_computed_all_the_same(
    damage: Callable[[Path], None], folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """And nothing is said: a warning would be an error here."""
    damage(folder)
    assert not native.available()
    assert not native.takes(torch.ones(3))
    drawn = normals_of_key(KEY, 1000)
    with native.disabled():
        assert torch.equal(drawn, normals_of_key(KEY, 1000))
    mean, state = torch.zeros(9, requires_grad=True), torch.full((9,), -1.3, requires_grad=True)
    _, kl = draws_and_kl(mean, state, None, gaussian("scalar", 9), CONSTANT, FROM_LOG_STD)
    assert kl.item() == pytest.approx(9 * (math.exp(-2.6) / 1.7**2 / 2 + 1.3) + CONSTANT.item(), rel=1e-6)
    assert capfd.readouterr() == ("", "")


@needs_library
def test_a_library_of_another_version_is_not_used(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(library, "version_of", lambda folder: 12345)
    library._library.cache_clear()
    try:
        assert not native.available()
        assert capfd.readouterr() == ("", "")
    finally:
        monkeypatch.undo()
        library._library.cache_clear()
    assert native.available()


@needs_library
def test_where_the_best_library_is_broken_the_next_one_serves(folder: Path) -> None:
    real = Path(native.__file__).parent
    best, *rest = machine_runs()
    if not rest or not (real / "kernels-default.so").is_file():
        pytest.skip("this machine has one library only")
    (folder / f"kernels-{best}.so").write_text("This was to be a library.\n")
    shutil.copy(real / "kernels-default.so", folder)
    assert native.available()
    found = library._library()
    assert isinstance(found, ctypes.CDLL)
    assert Path(found._name).name == "kernels-default.so"


def test_every_change_of_a_source_is_another_version(tmp_path: Path) -> None:
    for path in [*Path(native.__file__).parent.glob("*.cpp"), *Path(native.__file__).parent.glob("*.h")]:
        shutil.copy(path, tmp_path)
    seen = {library.version_of(tmp_path)}
    assert seen == {library.version_of(Path(native.__file__).parent)}
    for path in sorted(tmp_path.iterdir()):
        path.write_text(path.read_text() + "// changed\n")
        seen.add(library.version_of(tmp_path))
    assert len(seen) == 1 + len(list(tmp_path.iterdir()))


def _installed_from_here() -> bool:
    try:
        origin = importlib.metadata.distribution("bayeswell").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return False
    return origin is not None and json.loads(origin).get("url") == ROOT.as_uri()


def test_an_install_with_a_compiler_has_the_library() -> None:
    if os.environ.get("BAYESWELL_NATIVE") == "0":
        pytest.skip("the library is turned off by BAYESWELL_NATIVE")
    if not (shutil.which("g++") or shutil.which("clang++")):
        pytest.skip("there is no C++ compiler")
    if not _installed_from_here() and not list(Path(native.__file__).parent.glob("*.so")):
        pytest.skip("the package was not installed from this tree, nor its library made by hand")
    assert native.available(), "`python hatch_build.py` says why"
    made = {path.name for path in Path(native.__file__).parent.glob("kernels-*.so")}
    assert f"kernels-{machine_runs()[0]}.so" in made, "the best library for this machine is missing"
