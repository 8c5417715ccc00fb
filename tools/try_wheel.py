"""Build the sdist and two wheels, with and without a C++ compiler, and try both wheels in an empty environment.

python tools/try_wheel.py

The wheels are built from the sdist alone. In the new environment the large dependencies come from this interpreter's
site-packages; the package itself must come from the wheel.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILDER = ROOT / "build" / "wheel-builder"
SMOKE = """
import sys, tempfile
from pathlib import Path
import torch
import bayeswell as bw
from bayeswell import ops

assert Path(bw.__file__).is_relative_to(sys.prefix), f"{bw.__file__} is not of the wheel"
assert ops.available() == (sys.argv[1] == "compiled"), "compiled formulas: " + str(ops.available())
torch.manual_seed(0)
x = torch.randn(64, 3)
net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
result = bw.fit(net, (x, (x[:, 0] > 0).long()), "bbb", epochs=2, progress=False)
with tempfile.TemporaryDirectory() as folder:
    result.save(Path(folder) / "model")
    loaded = bw.load(Path(folder) / "model")
assert torch.equal(loaded.predict(x).probabilities, result.predict(x).probabilities)
print(f"bayeswell {bw.__version__}, {sys.argv[1]}: trains, saves and loads")
"""


def run(command: list[str | Path], folder: Path, **changes: str) -> str:
    """Run a command that must succeed, without the shell's settings for Python, and return its output."""
    dropped = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    environment = {key: value for key, value in os.environ.items() if key not in dropped} | changes
    done = subprocess.run(
        list(map(str, command)), cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{done.stdout[-4000:]}\ntry_wheel: {' '.join(map(str, command))} failed ({done.returncode})")
    return done.stdout


def builder() -> Path:
    """Return a Python with hatchling, installed once."""
    python = BUILDER / "bin" / "python"
    if not (BUILDER / "installed").exists():
        shutil.rmtree(BUILDER, ignore_errors=True)
        run([sys.executable, "-m", "venv", BUILDER], ROOT)
        run([python, "-m", "pip", "install", "--progress-bar", "off", "hatchling>=1.27"], ROOT)
        (BUILDER / "installed").touch()
    return python


def build(folder: Path) -> tuple[Path, dict[str, Path]]:
    """Return the sdist, and the wheels that are built from it."""
    python, dist = builder(), folder / "dist"
    run([python, "-m", "hatchling", "build", "-t", "sdist", "-d", dist], ROOT)
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (source,) = (folder / "unpacked").iterdir()
    wheels = {}
    for kind, changes in {"plain": {"CXX": "", "PATH": str(folder)}, "compiled": {}}.items():
        run([python, "-m", "hatchling", "build", "-t", "wheel", "-d", dist / kind], source, **changes)
        (wheels[kind],) = (dist / kind).glob("*.whl")
    if not wheels["plain"].name.endswith("-py3-none-any.whl"):
        raise SystemExit(f"try_wheel: a wheel without libraries must be for any platform: {wheels['plain'].name}")
    return sdist, wheels


def make_environment(folder: Path) -> Path:
    """Return the Python of an empty environment that finds the dependencies of this one."""
    run([sys.executable, "-m", "venv", folder], ROOT)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "python"


def main() -> None:
    """Build, check and try."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="try-wheel-") as name:
        folder = Path(name).resolve()
        sdist, wheels = build(folder)
        print(f"built {', '.join(path.name for path in (sdist, *wheels.values()))}", flush=True)
        if importlib.util.find_spec("twine"):
            print(run([sys.executable, "-m", "twine", "check", "--strict", sdist, *wheels.values()], folder).strip())
        python = make_environment(folder / "environment")
        for kind, wheel in wheels.items():
            run([python, "-m", "pip", "install", "--no-deps", "--no-index", "--force-reinstall", wheel], folder)
            print(run([python, "-c", SMOKE, kind], folder, OMP_NUM_THREADS="1").strip().splitlines()[-1], flush=True)
        print(run([folder / "environment" / "bin" / "bayeswell", "--version"], folder).strip())
    print(f"the wheels work ({time.monotonic() - began:.0f} s)")


if __name__ == "__main__":
    main()
