"""The build: with any compiler, a broken one or none it ends well."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import stat
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SOURCES = {
    "one.cpp": 'extern "C" int bayeswell_version() { return 1; }\n',
    "two.cpp": '#include "number.h"\nextern "C" int bayeswell_number() { return NUMBER; }\n',
    "number.h": "#define NUMBER 7\n",
}

needs_compiler = pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="no C++ compiler")


def write_sources(folder: Path) -> None:
    """Several, of which one library is made."""
    for name, text in SOURCES.items():
        (folder / name).write_text(text)


def names_of_libraries(builder: ModuleType) -> list[str]:
    """What is made on a machine like this one."""
    sets = builder.INSTRUCTION_SETS
    return [f"kernels-{name}.so" for name in sets if not sets[name] or platform.machine() in builder.X86]


@pytest.mark.parametrize("compiler", ["", "no-such-compiler"])
def test_without_a_compiler_nothing_is_built(
    builder: ModuleType, compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    write_sources(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", compiler)
    assert builder.build(tmp_path) == []
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "bayeswell: no C++ compiler was found: it will compute by torch's operations alone\n"
    assert {path.name for path in tmp_path.iterdir()} == set(SOURCES)


@needs_compiler
def test_a_source_that_does_not_compile_is_no_error(
    builder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """One line for each library, and nothing is left behind."""
    monkeypatch.delenv("CXX", raising=False)
    write_sources(tmp_path)
    (tmp_path / "one.cpp").write_text("this is not C++\n")
    assert builder.build(tmp_path) == []
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(names_of_libraries(builder))
    for line, name in zip(lines, names_of_libraries(builder), strict=True):
        assert line.startswith(f"bayeswell: {name} was not made (")
    assert {path.name for path in tmp_path.iterdir()} == set(SOURCES)


@needs_compiler
def test_a_compiler_without_openmp_builds_all_the_same(
    builder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """As Apple's: it refuses the option, and is asked again without."""
    real = shutil.which("g++") or shutil.which("clang++")
    picky = tmp_path / "picky"
    picky.write_text(f'#!/bin/sh\nfor given; do case $given in -fopenmp*) exit 1;; esac; done\nexec {real} "$@"\n')
    picky.chmod(0o755)
    write_sources(tmp_path)
    monkeypatch.setenv("CXX", str(picky))
    made = builder.build(tmp_path)
    assert [path.name for path in made] == names_of_libraries(builder)
    assert capsys.readouterr().err == ""
    for path in made:
        made_of_all = ctypes.CDLL(str(path))
        assert (made_of_all.bayeswell_version(), made_of_all.bayeswell_number()) == (1, 7)


@pytest.mark.parametrize("content", [b"", b"neither a program nor a script\n", b"#!/no/such/interpreter\n"])
def test_a_compiler_that_is_no_program_is_no_error(
    builder: ModuleType, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """It may be executed, says the file system, but it cannot: one line, and nothing is made or left behind."""
    write_sources(tmp_path)
    broken = tmp_path / "broken"
    broken.write_bytes(content)
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    assert builder.build(tmp_path) == []
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert line.startswith(f"bayeswell: the C++ compiler {broken} does not run (")
    assert line.endswith("): it will compute by torch's operations alone")
    assert {path.name for path in tmp_path.iterdir()} == {"broken", *SOURCES}


@needs_compiler
def test_an_unknown_compiler_gives_way_to_one_that_is_there(
    builder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_sources(tmp_path)
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert [path.name for path in builder.build(tmp_path)] == names_of_libraries(builder)


def test_libraries_can_be_read_whatever_the_umask(
    builder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made beside the old ones and moved into their place: a file that a process may have loaded is not written to."""
    write_sources(tmp_path)
    compiler = tmp_path / "compiler"
    compiler.write_text('#!/bin/sh\nwhile [ "$1" != "-o" ]; do shift; done\necho new > "$2"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    old = tmp_path / "kernels-default.so"
    old.write_text("old\n")
    with open(old, encoding="utf-8") as loaded:
        previous = os.umask(0o077)
        try:
            made = builder.build(tmp_path)
        finally:
            os.umask(previous)
        assert loaded.read() == "old\n"
    assert [path.name for path in made] == names_of_libraries(builder)
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o755}
    assert old.read_text() == "new\n"
    assert not list(tmp_path.glob("*.so.*"))
