"""Build the native kernels when the package is installed: `python hatch_build.py` does it by hand.

One shared library for each instruction set; the package loads the best one that the machine has. Without a C++
compiler, or where compilation fails, the package is installed without them and computes the same, slower, by torch's
operations. `CXX` names the compiler.

The libraries use neither Python's nor torch's ABI, so one wheel serves every Python: `py3-none-<platform>`. They are
made without OpenMP's library (threads are torch's, asked for when a library is loaded) and need of the system only what
torch itself needs: libc and libstdc++.
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
except ImportError:  # by hand, outside a build
    BuildHookInterface = object

FOLDER = Path(__file__).resolve().parent / "src" / "bayeswell" / "native"
# No errno and no floating-point traps, which keep loops from being vectorised; sums keep their order, but a product
# and a sum may be rounded once. Deallocation without a size is what every libstdc++ has.
FLAGS = [
    "-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast",
    "-fno-sized-deallocation", "-fPIC", "-shared",
]  # fmt: skip
INSTRUCTION_SETS = {
    "avx512": ["-march=skylake-avx512", "-mprefer-vector-width=512"],
    "avx2": ["-march=haswell"],
    "default": [],
}
X86 = ("x86_64", "AMD64")


def build(folder: Path = FOLDER) -> list[Path]:
    """Compile what can be compiled; say what cannot.

    Each library is made beside its place and then moved there: a process that starts meanwhile finds the old one or the
    new one, and one that has the old one loaded keeps it.
    """
    compiler = _compiler()
    if not compiler or os.name != "posix":
        reason = "no C++ compiler was found" if os.name == "posix" else f"compiled formulas are not made on {os.name}"
        print(f"bayeswell: {reason}: it will compute by torch's operations alone", file=sys.stderr)
        return []
    sources = [str(path) for path in sorted(folder.glob("*.cpp"))]
    # The library says which sources it is made of; library.py asks, so that one left behind is not called.
    version = 0
    for path in sorted([*folder.glob("*.cpp"), *folder.glob("*.h")]):
        version = zlib.crc32(path.read_bytes(), version)
    made = []
    for name, flags in INSTRUCTION_SETS.items():
        if flags and platform.machine() not in X86:
            continue
        target = folder / f"kernels-{name}.so"
        fresh = target.with_suffix(f".so.{os.getpid()}")
        for marks in (["-fopenmp-simd"], []):  # marks of loops, which need no library; a compiler may not know them
            command = [*compiler, *FLAGS, *flags, *marks, f"-DSOURCES={version}u", "-o", str(fresh), *sources]
            try:
                found = subprocess.run(command, capture_output=True, text=True, check=False)
            except OSError as error:  # it may be executed, but is no program
                note = f"the C++ compiler {compiler[0]} does not run ({error.strerror})"
                print(f"bayeswell: {note}: it will compute by torch's operations alone", file=sys.stderr)
                return made
            if found.returncode == 0:
                fresh.chmod(0o755)  # whatever the umask: whoever may use the package may read it
                fresh.replace(target)
                made.append(target)
                break
            fresh.unlink(missing_ok=True)
        else:
            reason = (found.stderr.strip().splitlines() or ["no message"])[-1]
            print(f"bayeswell: {target.name} was not made ({reason})", file=sys.stderr)
    return made


def _compiler() -> list[str]:
    """The command of the compiler that is named, or else found; empty if there is none."""
    asked = (shlex.split(os.environ.get("CXX", "")), ["g++"], ["clang++"])
    return next((command for command in asked if command and shutil.which(command[0])), [])


def wheel_tag(libraries: list[Path]) -> str:
    """For every Python 3, on systems that have what the libraries ask for."""
    machine = platform.machine()
    if sys.platform == "darwin":  # made for this processor and this system, whatever Python itself was made for
        return f"py3-none-macosx_{platform.mac_ver()[0].split('.')[0]}_0_{machine}"
    plain = re.sub(r"\W", "_", sysconfig.get_platform())
    return f"py3-none-{_manylinux(libraries) or plain}"


def _manylinux(libraries: list[Path]) -> str | None:
    """The `manylinux` tag (PEP 600) that these libraries keep to; None where that is not sure.

    What they need of the system stands in them as text: the versions of glibc's symbols (GLIBC_2.14), and none of
    libstdc++ or libgcc that is newer than those of the oldest system named.
    """
    if not sys.platform.startswith("linux") or sysconfig.get_platform() != "linux-x86_64":
        return None
    newest = 17
    oldest = {"GLIBCXX": (3, 4, 19), "CXXABI": (1, 3, 7), "GCC": (4, 8, 0)}  # of manylinux_2_17
    for library in libraries:
        text = library.read_bytes()
        needs = re.findall(rb"\0(GLIBC|GLIBCXX|CXXABI|GCC)_([0-9.]+)(?=\0)", text)
        if not any(family == b"GLIBC" for family, _ in needs):
            return None  # another C library: musl
        for family, number in needs:
            version = tuple(map(int, number.decode().split(".")))
            if family == b"GLIBC":
                newest = max(newest, version[1])
            elif version > oldest[family.decode()]:
                return None
        shared = set(re.findall(rb"\0(lib[\w+-]+\.so[.\d]*)(?=\0)", text))
        if not shared <= {b"libc.so.6", b"libm.so.6", b"libstdc++.so.6", b"libgcc_s.so.1"}:
            return None
    return f"manylinux_2_{newest}_x86_64"


class NativeKernels(BuildHookInterface):
    """Puts the libraries into the wheel, or into the source folder of an editable install."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before the build."""
        if self.target_name != "wheel":
            return
        made = build()
        if made:
            build_data["pure_python"] = False
            build_data["tag"] = wheel_tag(made)
            build_data["artifacts"] += [f"src/bayeswell/native/{path.name}" for path in made]


if __name__ == "__main__":
    for path in build():
        print(path)
