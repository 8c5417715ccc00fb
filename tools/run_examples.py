"""Run every example in smoke mode, two at a time, each in a process of its own.

python tools/run_examples.py [examples/digits.py ...]
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
JOBS, LIMIT_SECONDS = 2, 300


def run(example: Path) -> tuple[str, bool, str]:
    """Return the state of the example, whether it passed, and its output."""
    began = time.monotonic()
    environment = os.environ | {"BAYESWELL_SMOKE": "1", "MPLBACKEND": "Agg"}
    try:
        done = subprocess.run(
            [sys.executable, str(example)], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False, timeout=LIMIT_SECONDS,
        )  # fmt: skip
        passed, output = done.returncode == 0, done.stdout
    except subprocess.TimeoutExpired:
        passed, output = False, f"stopped after {LIMIT_SECONDS} s\n"
    return f"{'pass' if passed else 'FAIL'} {time.monotonic() - began:6.1f} s  {example.name}", passed, output


def main() -> int:
    """Return 1 if an example fails, and show its output."""
    examples = [Path(name) for name in sys.argv[1:]] or sorted((ROOT / "examples").glob("*.py"))
    failed = 0
    with ThreadPoolExecutor(JOBS) as pool:
        for state, passed, output in pool.map(run, examples):
            failed += not passed
            print(state if passed else f"{state}\n{output}", flush=True)
    print(f"{len(examples)} examples, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
