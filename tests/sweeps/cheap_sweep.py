"""A sweep as a program, so that it can be killed: ``python -m sweeps.cheap_sweep FOLDER LOG --workers 3``."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from bayeswell.sweeps import join_sweep, run_sweep
from sweeps.sleeper import SPACE, Sleeper


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("log")
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("--together", type=int, default=1)
    parser.add_argument("--join", action="store_true")
    parser.add_argument("--storage")
    parser.add_argument("--name")
    parser.add_argument("--number", type=Path, help="where it writes that of its process, by which to kill it")
    given = parser.parse_args()
    if given.number:
        given.number.write_text(str(os.getpid()))
    function = Sleeper(given.log, given.seconds, given.together)
    database = {"storage": given.storage, "name": given.name}
    if given.join:
        join_sweep(function, given.folder, workers=given.workers, **database)
    else:
        run_sweep(
            function, SPACE, given.folder, trials=given.trials, workers=given.workers, sampler="random", seed=3,
            **database,
        )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
