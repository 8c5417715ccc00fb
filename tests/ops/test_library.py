"""Finding the compiled library, and building it."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from bayeswell.ops import library


@pytest.fixture
def build() -> ModuleType:
    path = Path(__file__).parents[2] / "hatch_build.py"
    if not path.is_file():
        pytest.skip("the build script is not installed")
    spec = importlib.util.spec_from_file_location("hatch_build", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def fresh() -> None:
    library.load.cache_clear()
    yield
    library.load.cache_clear()


def copy_sources(folder: Path) -> None:
    for path in [*library.FOLDER.glob("*.cpp"), *library.FOLDER.glob("*.h"), *library.FOLDER.glob("*.so")]:
        shutil.copy(path, folder)


@pytest.mark.usefixtures("fresh")
def test_environment_turns_the_library_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAYESWELL_NATIVE", "0")
    assert library.load() is None


@pytest.mark.usefixtures("fresh")
def test_library_of_other_sources_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy_sources(tmp_path)
    (tmp_path / "gaussian.cpp").write_text("// changed")
    monkeypatch.setattr(library, "FOLDER", tmp_path)
    assert library.load() is None


def test_build_without_a_compiler_says_so_in_one_line(
    build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert build.build(tmp_path) == []
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="no C++ compiler")
def test_sources_that_fail_to_compile_leave_no_file(
    build: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.cpp").write_text("int f( {")
    assert build.build(tmp_path) == []
    assert [path.name for path in tmp_path.iterdir()] == ["broken.cpp"]
    assert capsys.readouterr().err.count("\n") == 1


def test_wheel_tag_follows_the_symbols(build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build.sys, "platform", "linux")
    monkeypatch.setattr(build.sysconfig, "get_platform", lambda: "linux-x86_64")
    made = tmp_path / "kernels.so"
    for content, tag in (
        (b"\0GLIBC_2.14\0\0GLIBCXX_3.4\0", "manylinux_2_17_x86_64"),
        (b"\0GLIBC_2.29\0", "manylinux_2_29_x86_64"),
        (b"\0GLIBC_2.14\0\0GLIBCXX_3.4.29\0", "linux_x86_64"),
        (b"musl", "linux_x86_64"),
    ):
        made.write_bytes(content)
        assert build.wheel_tag([made]) == f"py3-none-{tag}"
