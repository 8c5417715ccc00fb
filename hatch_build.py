"""Build the native kernels when the package is installed: `python hatch_build.py` does it by hand.

One shared library for each instruction set; the package loads the best one that the machine has. Without a C++
compiler, or where compilation fails, the package is installed without them and computes the same, slower, by torch's
operations.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # by hand, outside a build
    BuildHookInterface = object

FOLDER = Path(__file__).resolve().parent / "src" / "bayeswell" / "native"
# No errno and no floating-point traps, which keep loops from being vectorised; sums keep their order, but a product
# and a sum may be rounded once.
FLAGS = ["-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fPIC", "-shared"]
INSTRUCTION_SETS = {
    "avx512": ["-march=skylake-avx512", "-mprefer-vector-width=512"],
    "avx2": ["-march=haswell"],
    "default": [],
}
X86 = ("x86_64", "AMD64")


def build(folder: Path = FOLDER) -> list[Path]:
    """Compile what can be compiled; say what cannot."""
    compiler = next((c for c in (os.environ.get("CXX"), "g++", "clang++") if c and shutil.which(c)), None)
    if compiler is None or os.name != "posix":
        reason = "no C++ compiler was found" if os.name == "posix" else f"compiled formulas are not made on {os.name}"
        print(f"bayeswell: {reason}: it will compute by torch's operations alone", file=sys.stderr)
        return []
    sources = [str(path) for path in sorted(folder.glob("*.cpp"))]
    # The library says which sources it is made of; library.py asks, so that one left behind is not called.
    version = 0
    for path in sorted([*folder.glob("*.cpp"), *folder.glob("*.h")]):
        version = zlib.crc32(path.read_bytes(), version)
    for old in folder.glob("kernels-*.so"):
        old.unlink()
    made = []
    for name, flags in INSTRUCTION_SETS.items():
        if flags and platform.machine() not in X86:
            continue
        target = folder / f"kernels-{name}.so"
        # Some compilers come without OpenMP (Apple's): then on one thread.
        for threads in (["-fopenmp"], []):
            fresh = target.with_suffix(f".so.{os.getpid()}")
            command = [compiler, *FLAGS, *flags, *threads, f"-DSOURCES={version}u", "-o", str(fresh), *sources]
            try:
                found = subprocess.run(command, capture_output=True, text=True, check=False)
            except OSError as error:  # it may be executed, but is no program
                note = f"the C++ compiler {compiler} does not run ({error.strerror})"
                print(f"bayeswell: {note}: it will compute by torch's operations alone", file=sys.stderr)
                return made
            if found.returncode == 0:
                fresh.replace(target)
                made.append(target)
                break
            fresh.unlink(missing_ok=True)
        else:
            reason = (found.stderr.strip().splitlines() or ["no message"])[-1]
            print(f"bayeswell: {target.name} was not made ({reason})", file=sys.stderr)
    return made


class NativeKernels(BuildHookInterface):
    """Puts the libraries into the wheel, or into the source folder of an editable install."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before the build."""
        if self.target_name != "wheel":
            return
        made = build()
        if made:
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            build_data["artifacts"] += [f"src/bayeswell/native/{path.name}" for path in made]


if __name__ == "__main__":
    for path in build():
        print(path)
