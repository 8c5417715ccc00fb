"""What a program waits for before its first step: imports, and the first step, with and without a compiler's cache.

python -m benchmarks.start NET CASE
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from typing import Any

import torch

from . import ours
from .nets import NETS
from .timing import Case

IMPORTS = {
    "torch": "import torch",
    "bayeswell": "import torch, bayeswell",
    "bayeswell, names for a loop of one's own": "import torch, bayeswell as bw; bw.bayesian, bw.ELBO, bw.predict",
    "bayeswell, fit": "import torch, bayeswell as bw; bw.fit",
}
IMPORT_TORCH, TRAIN = "import torch", "bayeswell train"
FIRST = (ours.PLAIN, "bbb", "k-tied")
_CACHE = "TORCHINDUCTOR_CACHE_DIR"


def import_seconds(repeats: int) -> dict[str, list[float]]:
    """Seconds of a process that imports, in turns; the time of Python's own start is in all of them."""
    found: dict[str, list[float]] = {name: [] for name in IMPORTS}
    for number in range(repeats + 1):
        for name, code in IMPORTS.items():
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
            if number > 0:  # the first time fills the caches of the disk
                found[name].append(time.perf_counter() - began)
    return found


def command_cases() -> list[Case]:
    """A whole `bayeswell train` of one epoch of digits, beside a process that only imports torch."""

    def train() -> None:
        with tempfile.TemporaryDirectory() as folder:
            words = ["train", "-d", "digits", "-m", "bbb", "-e", "1", "-q", "--out", f"{folder}/run"]
            subprocess.run([sys.executable, "-m", "bayeswell", *words], check=True, capture_output=True)

    def import_torch() -> None:
        subprocess.run([sys.executable, "-c", "import torch"], check=True, capture_output=True)

    ways = ((IMPORT_TORCH, import_torch), (TRAIN, train))
    return [Case(name, lambda work=work: work, calls=1, settle=0) for name, work in ways]


def first_steps(net: str, threads: int, repeats: int) -> dict[str, Any]:
    """For each case the seconds of building it, of its first step and of a later one; without a cache, then with."""
    found: dict[str, Any] = {f"{case}, {cache} cache": [] for case in FIRST for cache in ("empty", "warm")}
    for _ in range(repeats):
        for case in FIRST:
            with tempfile.TemporaryDirectory() as folder:
                for cache in ("empty", "warm"):
                    found[f"{case}, {cache} cache"].append(_first_step(net, case, threads, folder))
    return found


def _first_step(net: str, case: str, threads: int, folder: str) -> dict[str, float]:
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.start", net, case, str(threads)]
    settings = {**os.environ, _CACHE: folder}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=settings)
    seconds: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def main(net: str, case: str, threads: str) -> None:
    """Print the seconds as JSON."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(int(threads))
    torch.optim.Adam(
        [torch.nn.Parameter(torch.zeros(1))]
    )  # torch's own first optimizer loads a second's worth of modules
    began = time.perf_counter()
    step = ours.plain_step(NETS[net], fused=True) if case == ours.PLAIN else ours.method_step(case, NETS[net])
    built = time.perf_counter()
    step()
    first = time.perf_counter()
    for _ in range(5):
        step()
    later = time.perf_counter()
    print(json.dumps({"build": built - began, "first": first - built, "later": (later - first) / 5}))


if __name__ == "__main__":
    main(*sys.argv[1:])
