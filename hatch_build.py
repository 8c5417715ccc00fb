"""Compile the formulas of `ops` when the package is installed; `python hatch_build.py` does it in place.

One shared library for each instruction set; the package loads the best one that the machine has. Without a C++
compiler the package computes the same in torch's operations, slower. `CXX` names the compiler. The libraries use
neither Python's nor torch's ABI, so one wheel serves every Python: `py3-none-<platform>`.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import zlib
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # in place, outside a build
    BuildHookInterface = object

FOLDER = Path(__file__).resolve().parent / "src" / "bayeswell" / "ops"
# No errno and no floating-point traps, which keep loops from being vectorized; sized deallocation is missing in old
# versions of libstdc++.
FLAGS = "-std=c++17 -O3 -fno-math-errno -fno-trapping-math -ffp-contract=fast -fno-sized-deallocation -fPIC -shared"
INSTRUCTION_SETS = {
    "avx512": ["-march=skylake-avx512", "-mprefer-vector-width=512"],
    "avx2": ["-march=haswell"],
    "default": [],
}
OLDEST_SYSTEM = {"GLIBCXX": (3, 4, 19), "CXXABI": (1, 3, 7), "GCC": (4, 8, 0)}
"""Newest symbol versions of libstdc++ and libgcc in manylinux_2_17."""


def build(folder: Path = FOLDER) -> list[Path]:
    """Compile one library for each instruction set; report the first failure on stderr."""
    commands = (shlex.split(os.environ.get("CXX", "")), ["g++"], ["clang++"])
    compiler = next((command for command in commands if command and shutil.which(command[0])), None)
    if compiler is None or os.name != "posix":
        return _without(f"no C++ compiler was found for {os.name}")
    version = 0
    for path in sorted([*folder.glob("*.cpp"), *folder.glob("*.h")]):
        version = zlib.crc32(path.read_bytes(), version)
    common = [*compiler, *FLAGS.split(), f"-DSOURCES={version}u", *map(str, sorted(folder.glob("*.cpp")))]
    made = []
    for name, flags in INSTRUCTION_SETS.items():
        if flags and platform.machine() not in ("x86_64", "AMD64"):
            continue
        target = folder / f"kernels-{name}.so"
        try:
            _compile([*common, *flags], target)
        except (OSError, subprocess.CalledProcessError) as error:
            return _without(f"{compiler[0]} failed for {name} ({error})")
        made.append(target)
    return made


def _compile(command: list[str], target: Path) -> None:
    """Compile beside the target and rename: running processes keep the library that they have loaded."""
    fresh = target.with_suffix(f".so.{os.getpid()}")
    try:
        subprocess.run([*command, "-fopenmp-simd", "-o", str(fresh)], capture_output=True, check=True)
        fresh.chmod(0o755)
        fresh.replace(target)
    finally:
        fresh.unlink(missing_ok=True)


def _without(reason: str) -> list[Path]:
    print(f"bayeswell: {reason}; the package will use torch's operations alone", file=sys.stderr)
    return []


def wheel_tag(libraries: list[Path]) -> str:
    """Return the tag for every Python 3 on systems that have what the libraries need."""
    if sys.platform == "darwin":
        return f"py3-none-macosx_{platform.mac_ver()[0].split('.')[0]}_0_{platform.machine()}"
    tag = re.sub(r"\W", "_", sysconfig.get_platform())
    return f"py3-none-{(_manylinux(libraries) if tag == 'linux_x86_64' else None) or tag}"


def _manylinux(libraries: list[Path]) -> str | None:
    """Return the `manylinux` tag (PEP 600) of the symbol versions in the libraries; None if they need more."""
    needs = [
        (family.decode(), tuple(map(int, number.split(b"."))))
        for library in libraries
        for family, number in re.findall(rb"\0(GLIBC|GLIBCXX|CXXABI|GCC)_([0-9.]+)(?=\0)", library.read_bytes())
    ]
    newest = max((version[1] for family, version in needs if family == "GLIBC"), default=None)
    if newest is None or any(version > OLDEST_SYSTEM.get(family, version) for family, version in needs):
        return None
    return f"manylinux_2_{max(17, newest)}_x86_64"


class NativeKernels(BuildHookInterface):
    """Hook of hatchling that puts the libraries into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        made = build()
        if made:
            build_data["pure_python"] = False
            build_data["tag"] = wheel_tag(made)
            build_data["artifacts"] += [f"src/bayeswell/ops/{path.name}" for path in made]


if __name__ == "__main__":
    for path in build():
        print(path)
