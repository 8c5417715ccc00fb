"""What the training loop costs beside the steps themselves: `python benchmarks/loop_overhead.py`.

The same mean-field step of LeNet-5 (28x28, batch 100) is timed in a bare loop (objective, backward, optimizer) and in
the engine (batches, schedules, checks, Fabric, callbacks), in turns in one process; the ratio of medians is printed.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings

import torch
from torch import Tensor

import bayeswell as bw


def now() -> float:
    """Seconds: of this process alone where it has one thread, so that other work on the machine does not count."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


class Clock(bw.Callback):
    """The seconds between steps."""

    def __init__(self) -> None:
        self.marks: list[float] = []

    def after_step(self, run: bw.Run) -> None:
        self.marks.append(now())

    @property
    def seconds(self) -> list[float]:
        """Of every step but the first few."""
        return [after - before for before, after in zip(self.marks[3:], self.marks[4:], strict=False)]


def bare_seconds(inputs: Tensor, targets: Tensor, steps: int) -> list[float]:
    """The same step without any engine."""
    torch.manual_seed(0)
    method = bw.find_method("bbb")
    model = bw.bayesian(bw.build_model("lenet5", (1, 28, 28), 10), method.posterior, method.prior, method.estimator)
    objective = bw.ELBO("categorical", len(targets), temperature=method.temperature)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, fused=True)
    generator = bw.make_generator(0)
    found = []
    for step in range(steps):
        chosen = slice(100 * step % 2000, 100 * step % 2000 + 100)
        began = now()
        optimizer.zero_grad(set_to_none=True)
        objective(model, inputs[chosen], targets[chosen], generator=generator).total.backward()
        optimizer.step()
        found.append(now() - began)
    return found[4:]


def engine_seconds(inputs: Tensor, targets: Tensor, steps: int) -> list[float]:
    """The step in ``fit``."""
    clock = Clock()
    torch.manual_seed(0)
    net = bw.build_model("lenet5", (1, 28, 28), 10)
    epochs = max(1, steps // 20)
    bw.fit(net, (inputs, targets), "bbb", epochs=epochs, batch_size=100, callbacks=[clock], progress=False)
    return clock.seconds


def main() -> None:
    """Take turns, and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    inputs, targets = torch.randn(2000, 1, 28, 28), torch.randint(0, 10, (2000,))
    ratios = []
    for turn in range(options.rounds):
        pair = [bare_seconds, engine_seconds]
        times = {f: statistics.median(f(inputs, targets, options.steps)) for f in (pair if turn % 2 else pair[::-1])}
        ratios.append(times[engine_seconds] / times[bare_seconds])
        print(f"round {turn}: bare {1e3 * times[bare_seconds]:.2f} ms, engine {1e3 * times[engine_seconds]:.2f} ms")
    spread = f"{min(ratios):.3f} to {max(ratios):.3f}"
    print(f"engine / bare = {statistics.median(ratios):.3f} (median of {len(ratios)} rounds, {spread})")


if __name__ == "__main__":
    main()
