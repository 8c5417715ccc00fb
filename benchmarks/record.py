"""The record of all that was measured: one JSON file, always written whole."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bayeswell import native

from .summary import Summary, ratios, summarise
from .timing import Times, from_json

FOLDER = Path(__file__).parent
DEFAULT = FOLDER / "results" / "record.json"
ELSEWHERE = FOLDER / "results" / "elsewhere"
"""Records of other kinds of machine, whole or in part, each in a file that says which by its name."""

_PACKAGES = (
    "torch", "numpy", "bayesian-torch", "torchbnn", "torchbayesian", "blitz-bayesian-pytorch", "ivon-opt", "posteriors",
    "laplace-torch",
)  # fmt: skip


def read(path: Path) -> dict[str, Any]:
    """What an earlier run left, or an empty record."""
    if not path.exists():
        return {"parts": {}}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def elsewhere(folder: Path = ELSEWHERE) -> dict[str, dict[str, Any]]:
    """The records of other kinds of machine by name (``_`` for a space); a run here reads them and writes none."""
    return {path.stem.replace("_", " "): read(path) for path in sorted(folder.glob("*.json"))}


def write(path: Path, record: Mapping[str, Any]) -> None:
    """The whole record, in the place of the old one at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    parts = {name: record["parts"][name] for name in sorted(record["parts"])}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(part)}" for name, part in parts.items())
    new.write_text(f'{{"parts": {{\n{lines}\n}}}}\n', encoding="utf-8")  # a line for each part
    new.replace(path)


def circumstances() -> dict[str, Any]:
    """Where and when a part is measured, and of what."""
    return {
        "when": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _commit(),
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
        "compiled": native.available(),
        "versions": {name: _version(name) for name in _PACKAGES},
    }


def times_of(part: Mapping[str, Any]) -> Times:
    """The times of a part whose cases took turns."""
    return from_json(part)


def ratio(part: Mapping[str, Any], case: str, over: str | None = None) -> Summary | None:
    """The median ratio of a case to another (the part's reference if None); None where it was not measured."""
    reference = part["reference"]
    times = times_of(part)
    over = reference if over is None else over
    if case not in times.seconds or over not in times.seconds:
        return None
    return summarise(ratios(times, case, over, reference))


def _commit() -> str:
    """The commit, and whether anything differs from it but what the benchmark itself writes."""
    own = [f":(top,exclude){name}" for name in ("benchmarks/results", "benchmarks/README.md", "docs/quality.md")]
    try:
        commit, changes = (
            subprocess.run(["git", *words], cwd=FOLDER, capture_output=True, text=True, check=True).stdout.strip()
            for words in (["describe", "--always"], ["status", "--porcelain", "--", ":(top)", *own])
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{commit}-dirty" if changes else commit


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
