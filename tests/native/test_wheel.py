"""The build: new libraries are put in place of old ones, never after them; the wheel says what it truly needs."""

from __future__ import annotations

import shutil
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
REAL = shutil.which("g++") or shutil.which("clang++")
needs_compiler = pytest.mark.skipif(REAL is None, reason="no C++ compiler")
glibc_on_x86 = pytest.mark.skipif(
    sysconfig.get_platform() != "linux-x86_64" or not sys.platform.startswith("linux"), reason="tags of Linux on x86"
)


def compiler(place: Path, lines: str) -> str:
    place.write_text(f"#!/bin/sh\n{lines}\n")
    place.chmod(0o755)
    return str(place)


@needs_compiler
def test_an_old_library_stays_until_the_new_one_takes_its_place(
    builder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler looks: while it works, every library is there, whole, the old one or the new one."""
    (tmp_path / "one.cpp").write_text('extern "C" int bayeswell_version() { return 1; }\n')
    old = {f"kernels-{name}.so" for name in builder.INSTRUCTION_SETS}
    for name in old:
        (tmp_path / name).write_text("old")
    seen = tmp_path / "seen"
    looks = f'for each in {tmp_path}/kernels-*.so; do [ -s "$each" ] && basename "$each" >> {seen}; done'
    monkeypatch.setenv("CXX", compiler(tmp_path / "looking", f'{looks}\nexec {REAL} "$@"'))
    made = builder.build(tmp_path)
    assert made
    names = seen.read_text().split()
    assert len(names) == len(old) * len(made)
    assert set(names) == old
    for path in made:
        assert path.read_bytes() != b"old"


def test_where_compiling_fails_the_old_library_stays(
    builder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """library.py asks it for its version, and does not call one of other sources."""
    (tmp_path / "one.cpp").write_text("")
    (tmp_path / "kernels-default.so").write_text("old")
    monkeypatch.setenv("CXX", compiler(tmp_path / "failing", "exit 1"))
    assert builder.build(tmp_path) == []
    assert (tmp_path / "kernels-default.so").read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"one.cpp", "kernels-default.so", "failing"}


@needs_compiler
def test_the_compiler_may_be_named_with_its_options(
    builder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one.cpp").write_text("#ifndef ASKED\n#error without its option\n#endif\n")
    monkeypatch.setenv("CXX", f"{REAL} -DASKED=1")
    assert builder.build(tmp_path)


USUAL = [b"libc.so.6", b"GLIBC_2.2.5", b"GLIBC_2.14", b"libstdc++.so.6", b"GLIBCXX_3.4", b"CXXABI_1.3", b"GCC_3.0"]


@glibc_on_x86
@pytest.mark.parametrize(
    ("needs", "tag"),
    [
        (USUAL, "manylinux_2_17_x86_64"),
        ([*USUAL, b"libm.so.6", b"GLIBC_2.29"], "manylinux_2_29_x86_64"),
        ([*USUAL, b"libgomp.so.1"], "linux_x86_64"),  # may be missing
        ([*USUAL, b"GLIBCXX_3.4.32"], "linux_x86_64"),  # of a newer compiler than any old system has
        ([*USUAL, b"CXXABI_1.3.9"], "linux_x86_64"),
        ([b"libc.musl-x86_64.so.1"], "linux_x86_64"),  # another C library
    ],
)
def test_the_tag_is_that_of_the_newest_thing_needed(
    builder: ModuleType, tmp_path: Path, needs: list[bytes], tag: str
) -> None:
    library = tmp_path / "kernels-default.so"
    library.write_bytes(b"\x7fELF\x01\0" + b"\0".join(needs) + b"\0\x02")
    assert builder.wheel_tag([library]) == f"py3-none-{tag}"


@glibc_on_x86
@needs_compiler
def test_what_is_built_here_asks_for_nothing_that_may_be_missing(builder: ModuleType) -> None:
    made = sorted(builder.FOLDER.glob("kernels-*.so"))
    if not made:
        pytest.skip("the libraries were not made")
    assert builder.wheel_tag(made).startswith("py3-none-manylinux_2_")
