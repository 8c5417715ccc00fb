"""What the training loop costs beside the steps themselves: `python benchmarks/loop_overhead.py`.

The same mean-field step of LeNet-5 (28x28, batch 100) is timed in the engine (batches, schedules, checks, metrics,
Fabric, callbacks) and in a bare loop over shuffled data (objective, backward, optimizer); so is a step of ordinary
training. The three take turns, step by step, in one process; the ratios of medians are printed.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Iterator

import torch
from torch import Tensor, nn

import bayeswell as bw

ENGINE, BARE, PLAIN = "bbb in fit", "bbb in a bare loop", "deterministic"
_EXAMPLES, _BATCH = 2000, 100
_WARM_UP = 5


def now() -> float:
    """Seconds: of this process alone where it has one thread, so that other work on the machine does not count."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def bare_steps(name: str, inputs: Tensor, targets: Tensor) -> Iterator[None]:
    """The same step without any engine, for ever."""
    torch.manual_seed(0)
    method = bw.find_method("bbb")
    model = bw.bayesian(bw.build_model(name, (1, 28, 28), 10), method.posterior, method.prior, method.estimator)
    objective = bw.ELBO("categorical", len(targets), temperature=method.temperature)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, fused=True)
    generator = bw.make_generator(0)
    while True:
        for chosen in torch.randperm(len(targets), generator=generator).split(_BATCH):
            optimizer.zero_grad(set_to_none=True)
            objective(model, inputs[chosen], targets[chosen], generator=generator).total.backward()
            optimizer.step()
            yield


def plain_steps(name: str, inputs: Tensor, targets: Tensor) -> Iterator[None]:
    """Ordinary training, for ever."""
    model = bw.build_model(name, (1, 28, 28), 10)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, fused=True)
    while True:
        for chosen in torch.randperm(len(targets)).split(_BATCH):
            optimizer.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(model(inputs[chosen]), targets[chosen]).backward()
            optimizer.step()
            yield


class Turns(bw.Callback):
    """After each step of the engine one of every other kind; the seconds of all."""

    def __init__(self, others: dict[str, Iterator[None]]) -> None:
        self.others, self.ended = others, 0.0
        self.seconds: dict[str, list[float]] = {name: [] for name in (ENGINE, *others)}

    def after_step(self, run: bw.Run) -> None:
        began = now()
        self.seconds[ENGINE].append(began - self.ended)
        for name, steps in self.others.items():
            next(steps)
            self.ended = now()
            self.seconds[name].append(self.ended - began)
            began = self.ended


def measure(name: str, epochs: int) -> dict[str, list[float]]:
    """Seconds of the steps of each kind, in turns, on a model by name; epochs of 20 steps."""
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    inputs, targets = torch.randn(_EXAMPLES, 1, 28, 28), torch.randint(0, 10, (_EXAMPLES,))
    turns = Turns({BARE: bare_steps(name, inputs, targets), PLAIN: plain_steps(name, inputs, targets)})
    net = bw.build_model(name, (1, 28, 28), 10)
    bw.fit(net, (inputs, targets), "bbb", epochs=epochs, batch_size=_BATCH, callbacks=[turns], progress=False)
    return {kind: seconds[_WARM_UP:] for kind, seconds in turns.seconds.items()}


def main() -> None:
    """Take turns, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=30, help="of 20 steps each")
    options = parser.parse_args()
    middle = {kind: statistics.median(seconds) for kind, seconds in measure("lenet5", options.epochs).items()}
    engine, bare, plain = middle[ENGINE], middle[BARE], middle[PLAIN]
    print(f"engine {1e3 * engine:.2f} ms, bare {1e3 * bare:.2f} ms a step; engine / bare = {engine / bare:.3f}")
    print(f"ordinary training {1e3 * plain:.2f} ms; engine / ordinary training = {engine / plain:.3f}")


if __name__ == "__main__":
    main()
