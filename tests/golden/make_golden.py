"""Run every golden case with ten seeds and write ``golden.json`` beside this file.

``OMP_NUM_THREADS=1 python tests/golden/make_golden.py``. A record is the behaviour of one commit: it is written again
only where a change of behaviour is wanted and said in the changelog.
"""

from __future__ import annotations

import json
import platform
import subprocess
from pathlib import Path

import torch
from cases import cases, run

SEEDS = range(24)
HERE = Path(__file__).parent


def rounded(values: torch.Tensor) -> list[float]:
    """Six significant digits."""
    return [float(f"{value:.6g}") for value in values.tolist()]


def main() -> None:
    """Of each number: the mean and the sample std over seeds, the standard error of the mean, and that of seed 0."""
    torch.set_num_threads(1)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=HERE, capture_output=True, text=True, check=True)
    about = {"commit": commit.stdout.strip(), "torch": torch.__version__, "python": platform.python_version()}
    records = {}
    for name, case in cases().items():
        runs = [run(**case, seed=seed) for seed in SEEDS]
        records[name] = {}
        for number, first in runs[0].items():
            values = torch.tensor([found[number] for found in runs], dtype=torch.float64)
            mean, std = values.mean(0), values.std(0)
            kept = {"mean": mean, "std": std, "se": std / len(SEEDS) ** 0.5, "seed_0": torch.tensor(first).double()}
            records[name][number] = {key: rounded(value) for key, value in kept.items()}
        print(name, flush=True)
    lines = [f"  {json.dumps(name)}: {json.dumps(record)}" for name, record in records.items()]
    head = f'"about": {json.dumps({**about, "seeds": len(SEEDS)})},\n"cases": {{\n'
    (HERE / "golden.json").write_text("{" + head + ",\n".join(lines) + "\n}}\n")


if __name__ == "__main__":
    main()
