"""Time training steps and predictions: ``python -m benchmarks [--only PART] [--check] [--no-run] [--quick]``.

Each part runs in a process of its own. The record is ``results/speed.json``; ``--check`` compares it with the goals and
exits with code 1 if one is missed. Ratios are to an ordinary step with torch's Adam, or to plain passes.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch

from . import loop, ours, peers
from .goals import GOALS, PEER_GOALS, Record, verdicts
from .nets import NETS
from .timing import measure

RECORD = Path(__file__).parent / "results" / "speed.json"
PARTS = {
    "step/lenet": 31,
    "step/mlp": 31,
    "step/transformer": 5,
    "predict/lenet": 3,
    "predict/mlp": 9,
    "loop/lenet": 9,
    "loop/mlp": 9,
}
"""Rounds of each part."""
MARK = "benchmark part: "


def run_part(part: str, rounds: int, threads: int) -> dict[str, Any]:
    """Measure one part in this process."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    group, _, name = part.partition("/")
    net = NETS[name]
    if group == "loop":
        summaries, failed = loop.measure(net, rounds), {}
    elif group == "step":
        summaries, failed = measure(ours.step_cases(net) + peers.step_cases(net), ours.PLAIN, rounds)
    else:
        cases = ours.prediction_cases(net) + peers.prediction_cases(net)
        summaries, failed = measure(cases, ours.PLAIN, rounds, warm_up=1)
    ratios = {name: [round(found.median, 3), round(found.error, 3)] for name, found in summaries.items()}
    return {
        "ratios": ratios,
        "failed": failed,
        "rounds": rounds,
        "threads": threads,
        "cpu": cpu_name(),
        "torch": torch.__version__,
        "when": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }


def cpu_name() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def in_process(part: str, rounds: int, threads: int) -> dict[str, Any]:
    """Measure one part in a new process."""
    command = [sys.executable, "-m", "benchmarks", "--part", part, "--rounds", str(rounds), "--threads", str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if not lines:
        raise SystemExit(f"{part} failed:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(lines[-1].removeprefix(MARK))
    return found


def show(record: Record) -> bool:
    """Print the goals beside the record; return True if none is missed."""
    found = verdicts(record)
    for verdict in found:
        print(verdict)
    missed = [verdict for verdict in found if verdict.word == "missed"]
    print(f"{len(found) - len(missed)} of {len(GOALS) + len(PEER_GOALS)} goals met")
    return not missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="one part, or the beginning of its name")
    parser.add_argument("--check", action="store_true", help="exit code 1 if a goal is missed")
    parser.add_argument("--no-run", action="store_true", help="measure nothing")
    parser.add_argument("--quick", action="store_true", help="three rounds, nothing is recorded")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--part", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        print(MARK + json.dumps(run_part(options.part, options.rounds, options.threads)))
        return 0
    record: Record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for part, rounds in {} if options.no_run else PARTS.items():
        if options.only and not part.startswith(options.only):
            continue
        record[part] = in_process(part, 3 if options.quick else rounds, options.threads)
        best = sorted(record[part]["ratios"].items(), key=lambda item: item[1][0])
        print(f"{part}: " + ", ".join(f"{name} {ratio:.2f} ± {error:.2f}" for name, (ratio, error) in best))
        if not options.quick:
            RECORD.write_text(json.dumps(record, indent=1) + "\n")
    met = show(record)
    return 0 if met or not options.check else 1


if __name__ == "__main__":
    raise SystemExit(main())
