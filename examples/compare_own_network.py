"""Which way of training suits *my* network and *my* data? Four methods, two seeds, one table and one page.

The network is an ordinary class, the data ordinary arrays: a noisy spiral of two arms, and a test set of its own. Every
method is trained with every seed, measured on the same test examples and compared in pairs; what is finished is kept in
a folder, so that a second run of this file trains nothing.
"""

from __future__ import annotations

import os
import tempfile
import warnings

import numpy as np
import torch
from torch import Tensor, nn

import bayeswell as bw

SMOKE = bool(os.environ.get("BAYESWELL_SMOKE"))
EPOCHS, EXAMPLES, DRAWS = (6, 120, 5) if SMOKE else (150, 600, 100)
METHODS = ("map", "bbb", "swag", "deep-ensemble")


class SpiralNet(nn.Module):
    """A residual network of one's own; nothing in it knows of Bayes."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.lift, self.block, self.head = nn.Linear(2, width), nn.Linear(width, width), nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.lift(x))
        return self.head(hidden + torch.relu(self.block(hidden)))


def spiral(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points on two arms with noise, and which arm each is on."""
    random = np.random.default_rng(seed)
    arm = random.integers(0, 2, count)
    turn = random.uniform(0.3, 1.0, count) * 2 * np.pi
    angle = turn + np.pi * arm
    points = np.stack([turn * np.cos(angle), turn * np.sin(angle)], axis=1) / 4
    return (points + 0.08 * random.standard_normal(points.shape)).astype(np.float32), arm


def main() -> None:
    """Compare, print the table and the differences, write the page."""
    warnings.simplefilter("ignore" if SMOKE else "default", bw.BayeswellWarning)
    torch.set_num_threads(1)
    folder = tempfile.mkdtemp(prefix="compare-own-") if SMOKE else "runs/spiral"
    found = bw.compare(
        SpiralNet, spiral(EXAMPLES, 0), METHODS, test=spiral(EXAMPLES, 1), class_names=("left arm", "right arm"),
        name="spiral", seeds=2, epochs=EPOCHS, batch_size=50, draws=DRAWS, folder=folder,
        told=lambda run, state: print(f"{run}: {state}", flush=True),
    )  # fmt: skip
    print(f"\n{found}\n\nNLL against map, in pairs of the same seed (negative is better):")
    for row in found.differences(base="map"):
        if row["score"] == "nll":
            sense = "told apart" if row["told"] else "within two standard errors"
            print(f"  {row['method']:14} {row['difference']:+.4f} ± {row['error']:.4f} over {row['over']}: {sense}")
    print(f"\nthe page is {found.report()}")


if __name__ == "__main__":
    main()
