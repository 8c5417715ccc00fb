"""What the training loop costs beside the steps themselves: `python benchmarks/loop_overhead.py`.

The same mean-field step of LeNet-5 (28x28, batch 100) is timed in the engine (batches, schedules, checks, metrics,
Fabric, callbacks) and in a bare loop over shuffled data (objective, backward, optimizer). The two take turns, step by
step, in one process; the ratio of medians is printed.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Iterator

import torch
from torch import Tensor

import bayeswell as bw


def now() -> float:
    """Seconds: of this process alone where it has one thread, so that other work on the machine does not count."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def bare_steps(inputs: Tensor, targets: Tensor) -> Iterator[None]:
    """The same step without any engine, for ever."""
    torch.manual_seed(0)
    method = bw.find_method("bbb")
    model = bw.bayesian(bw.build_model("lenet5", (1, 28, 28), 10), method.posterior, method.prior, method.estimator)
    objective = bw.ELBO("categorical", len(targets), temperature=method.temperature)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, fused=True)
    generator = bw.make_generator(0)
    while True:
        for chosen in torch.randperm(len(targets), generator=generator).split(100):
            optimizer.zero_grad(set_to_none=True)
            objective(model, inputs[chosen], targets[chosen], generator=generator).total.backward()
            optimizer.step()
            yield


class Turns(bw.Callback):
    """After each step of the engine one bare step; the seconds of both."""

    def __init__(self, bare: Iterator[None]) -> None:
        self.bare, self.ended = bare, 0.0
        self.seconds: dict[str, list[float]] = {"engine": [], "bare": []}

    def after_step(self, run: bw.Run) -> None:
        began = now()
        self.seconds["engine"].append(began - self.ended)
        next(self.bare)
        self.ended = now()
        self.seconds["bare"].append(self.ended - began)


def main() -> None:
    """Take turns, and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=30, help="of 20 steps each")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    inputs, targets = torch.randn(2000, 1, 28, 28), torch.randint(0, 10, (2000,))
    turns = Turns(bare_steps(inputs, targets))
    net = bw.build_model("lenet5", (1, 28, 28), 10)
    bw.fit(net, (inputs, targets), "bbb", epochs=options.epochs, batch_size=100, callbacks=[turns], progress=False)
    engine, bare = (statistics.median(turns.seconds[name][5:]) for name in ("engine", "bare"))
    print(f"engine {1e3 * engine:.2f} ms, bare {1e3 * bare:.2f} ms a step; engine / bare = {engine / bare:.3f}")


if __name__ == "__main__":
    main()
