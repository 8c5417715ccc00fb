"""Every example in smoke mode, each in a process of its own that has the libraries already.

    python tools/run_examples.py                       examples/*.py
    python tools/run_examples.py examples/digits.py    one of them

What an example says is shown when it has ended; the others run even if one fails.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from preloaded import Preloaded

ROOT = Path(__file__).resolve().parents[1]


def main(arguments: Sequence[str] | None = None) -> int:
    """1 if one of them fails."""
    parser = argparse.ArgumentParser(description="Run examples in smoke mode.")
    parser.add_argument("examples", nargs="*", type=Path, help="all of examples/ without any")
    parser.add_argument("--jobs", type=int, default=1, help="examples at a time")
    given = parser.parse_args(arguments)
    examples = given.examples or sorted((ROOT / "examples").glob("*.py"))
    if not examples:
        parser.error("there is no examples/*.py")
    environment = os.environ | {"BAYESWELL_SMOKE": "1"}
    failed = 0
    with Preloaded(environment=environment) as python, ThreadPoolExecutor(given.jobs) as pool:

        def run(example: Path) -> tuple[Path, int, str, float]:
            begun = time.monotonic()
            done = subprocess.run(
                [python.command, str(example)], env=environment, check=False, text=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
            return example, done.returncode, done.stdout, time.monotonic() - begun

        for example, code, said, seconds in pool.map(run, examples):
            failed += code != 0
            state = "ok" if code == 0 else f"FAILED ({code})"
            print(f"{state} {seconds:6.1f} s  BAYESWELL_SMOKE=1 python {os.path.relpath(example)}\n{said}", flush=True)
    print(f"{len(examples)} examples, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
