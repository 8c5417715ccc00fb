"""Build the package as it would be published, and try it where nothing but the core is installed.

    python tools/try_wheel.py [--folder build/wheel-check] [--other-python /path/to/python3 ...]

1. The source archive, and from that, unpacked, two wheels: with the compiler that is found, and without one.
2. Each wheel in a clean environment (the pinned versions of the core, no extra): tools/core_smoke.py, from outside the
   tree. The environment is kept in the folder and used again while constraints.txt stays as it is.
3. Each wheel is offered to pip for every Python from 3.11 on. Where another interpreter is found or named, it
   compiles every file, imports the package, says the command's one line and loads the libraries (torch is not needed).
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
OUTSIDE = """
import compileall, ctypes, sys
from pathlib import Path
folder = Path(sys.argv[1])
sys.path.insert(0, str(folder))
assert compileall.compile_dir(folder, quiet=1), "a file does not compile"
import bayeswell
assert Path(bayeswell.__file__).is_relative_to(folder)
assert "fit" in dir(bayeswell) and bayeswell.__version__ and issubclass(bayeswell.MissingExtra, ImportError)
from bayeswell.__main__ import main
assert main() == 2
libraries = sorted(folder.glob("bayeswell/native/*.so"))
for library in libraries:
    assert ctypes.CDLL(str(library)).bayeswell_version()
print(f"Python {sys.version.split()[0]} imports it and loads {len(libraries)} libraries")
"""


def run(command: Sequence[str | Path], *, cwd: Path | None = None, changed: Mapping[str, str] | None = None) -> str:
    """Run a command that must succeed, without what a shell may hold for Python; what it printed."""
    kept = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}}
    found = subprocess.run(
        list(map(str, command)), cwd=cwd, env={**kept, "PYTHONNOUSERSITE": "1", **(changed or {})},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    if found.returncode:
        print(found.stdout[-4000:])
        raise SystemExit(f"try_wheel: {' '.join(map(str, command))} ended with {found.returncode}: see above")
    return found.stdout


def make_environment(folder: Path, installed: Sequence[str]) -> Path:
    """A virtual environment with these installed; used again while they and constraints.txt are the same."""
    pins = ROOT / "constraints.txt"
    made_of = hashlib.sha256("\n".join([pins.read_text(), sys.version, *installed]).encode()).hexdigest()
    stamp, python = folder / "made_of", folder / "bin" / "python"
    if not stamp.is_file() or stamp.read_text() != made_of:
        shutil.rmtree(folder, ignore_errors=True)
        run([sys.executable, "-m", "venv", folder])
        # What is imported is compiled then; pip would compile all of torch.
        run([python, "-m", "pip", "install", "--no-compile", "--progress-bar", "off", "-c", pins, *installed])
        stamp.write_text(made_of)
    return python


def build(folder: Path) -> dict[str, Path]:
    """The wheels, from the source archive alone: with a compiler, and without."""
    python = make_environment(folder / "builder", ["hatchling>=1.27"])
    dist = folder / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    run([python, "-m", "hatchling", "build", "-t", "sdist", "-d", dist], cwd=ROOT)
    (archive,) = dist.glob("*.tar.gz")
    wheels = {}
    empty = folder / "no programs"
    empty.mkdir(exist_ok=True)
    environments: dict[str, dict[str, str]] = {"compiled": {}, "plain": {"CXX": "", "PATH": str(empty)}}
    for kind, changed in environments.items():
        unpacked = folder / f"unpacked-{kind}"
        shutil.rmtree(unpacked, ignore_errors=True)
        with tarfile.open(archive) as files:
            files.extractall(unpacked, filter="data")
        (source,) = unpacked.iterdir()
        run([python, "-m", "hatchling", "build", "-t", "wheel", "-d", dist / kind], cwd=source, changed=changed)
        (wheels[kind],) = (dist / kind).glob("*.whl")
        shutil.rmtree(unpacked)
    return wheels


def check_tags(wheels: Mapping[str, Path]) -> None:
    """No wheel may ask for one Python; the plain one is for every system."""
    assert wheels["plain"].name.endswith("-py3-none-any.whl"), wheels["plain"].name
    compiled = wheels["compiled"].name
    if "-py3-none-any" in compiled:
        raise SystemExit("try_wheel: no compiled libraries were made: is there a C++ compiler?")
    assert "-py3-none-" in compiled, compiled


def try_core(folder: Path, wheels: Mapping[str, Path]) -> None:
    """Both wheels, one after the other, in one environment with the core alone, from outside the tree."""
    core = make_environment(folder / "core", ["torch", "numpy", "safetensors", "lightning-fabric"])
    outside = folder / "outside"
    outside.mkdir(exist_ok=True)
    for kind, wheel in wheels.items():
        run([core, "-m", "pip", "uninstall", "--yes", "bayeswell"])
        # Nothing more is downloaded: what was installed above is all that the wheel may need.
        run([core, "-m", "pip", "install", "--no-index", "--progress-bar", "off", wheel])
        run([core, "-m", "pip", "check"])
        smoke: list[str | Path] = [core, "-I", ROOT / "tools" / "core_smoke.py", kind]
        print(run(smoke, cwd=outside, changed={"OMP_NUM_THREADS": "1"}).splitlines()[-1])


def try_other_pythons(folder: Path, wheels: Mapping[str, Path], named: Sequence[str]) -> None:
    """What pip says for other versions; and what other interpreters do, where there are any."""
    target = folder / "accepted"
    for kind, wheel in wheels.items():
        for version in VERSIONS:
            shutil.rmtree(target, ignore_errors=True)
            options: list[str | Path] = [
                "--no-deps",
                "--no-compile",
                "--only-binary",
                ":all:",
                "--python-version",
                version,
                "--target",
                target,
            ]
            run([sys.executable, "-m", "pip", "install", "--no-index", *options, wheel])
        print(f"{wheel.name}: pip takes it for Python {', '.join(VERSIONS)}")
        for python in [*named, *other_pythons()]:
            said = run([python, "-I", "-S", "-c", OUTSIDE, target], cwd=folder)
            print(f"{kind}: {said.splitlines()[-1]}")


def other_pythons() -> list[str]:
    """Interpreters of other versions on the machine; one that stands there but does not run is left out."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = [shutil.which(f"python{version}") for version in VERSIONS if version != here]
    return [
        python for python in found
        if python and subprocess.run([python, "-I", "-c", ""], capture_output=True, check=False).returncode == 0
    ]  # fmt: skip


def main() -> None:
    """Build, check, try."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "wheel-check")
    parser.add_argument(
        "--other-python", action="append", default=[], help="another interpreter to try the wheels with"
    )
    given = parser.parse_args()
    folder = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    wheels = build(folder)
    check_tags(wheels)
    print(f"built {', '.join(wheel.name for wheel in wheels.values())} ({time.monotonic() - start:.0f} s)")
    try_other_pythons(folder, wheels, given.other_python)
    try_core(folder, wheels)
    print(f"the wheels are good ({time.monotonic() - start:.0f} s)")


if __name__ == "__main__":
    main()
