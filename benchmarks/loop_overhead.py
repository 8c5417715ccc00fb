"""What the training loop costs beside the steps themselves: `python benchmarks/loop_overhead.py`.

The same mean-field step is timed in ``fit`` as people run it (a run folder with its checkpoints and metrics, a
progress bar, checks for NaN, schedules, callbacks) and in a bare loop over shuffled data (objective, backward,
optimizer); so is a step of ordinary training. The three take turns in one process, an epoch each: step by step each
would find the caches full of the others' code and data, which no run does. A measurement is the mean over an epoch, so
that what is done once an epoch counts too; the medians of the ratios are printed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import statistics
import tempfile
import time
import warnings
from collections.abc import Iterator

import torch
from torch import Tensor, nn

import bayeswell as bw

ENGINE, BARE, PLAIN = "bbb in fit", "bbb in a bare loop", "deterministic"
_STEPS = 100
"""Of an epoch: fewer than usual, so what is done once an epoch costs more here than in most runs."""
_WARM_UP = 1


def now() -> float:
    """Seconds: of this process alone where it has one thread, so that other work on the machine does not count."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def bare_steps(name: str, inputs: Tensor, targets: Tensor, batch: int) -> Iterator[None]:
    """The same step without any engine, for ever."""
    torch.manual_seed(0)
    method = bw.find_method("bbb")
    model = bw.bayesian(bw.build_model(name, (1, 28, 28), 10), method.posterior, method.prior, method.estimator)
    objective = bw.ELBO("categorical", len(targets), temperature=0.1)  # fit finds its own in training
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, fused=True)
    generator = bw.make_generator(0)
    while True:
        for chosen in torch.randperm(len(targets), generator=generator).split(batch):
            optimizer.zero_grad(set_to_none=True)
            objective(model, inputs[chosen], targets[chosen], generator=generator).total.backward()
            optimizer.step()
            yield


def plain_steps(name: str, inputs: Tensor, targets: Tensor, batch: int) -> Iterator[None]:
    """Ordinary training, for ever."""
    model = bw.build_model(name, (1, 28, 28), 10)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, fused=True)
    while True:
        for chosen in torch.randperm(len(targets)).split(batch):
            optimizer.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(model(inputs[chosen]), targets[chosen]).backward()
            optimizer.step()
            yield


class Turns(bw.Callback):
    """After each epoch of the engine one of every other kind; the mean seconds of a step of all, epoch by epoch."""

    def __init__(self, others: dict[str, Iterator[None]]) -> None:
        self.others, self.ended, self.steps = others, 0.0, 0
        self.seconds: dict[str, list[float]] = {name: [] for name in (ENGINE, *others)}

    def after_step(self, run: bw.Run) -> None:
        """What the engine does at the end of an epoch comes after its last step: it counts in the next one."""
        self.steps += 1
        if self.steps % _STEPS:
            return
        began = now()
        self.seconds[ENGINE].append((began - self.ended) / _STEPS)
        for name, steps in self.others.items():
            for _ in range(_STEPS):
                next(steps)
            self.ended = now()
            self.seconds[name].append((self.ended - began) / _STEPS)
            began = self.ended


class _Terminal(io.StringIO):
    """Where the progress bar is drawn."""

    def isatty(self) -> bool:
        return True


def measure(name: str, epochs: int, batch: int) -> dict[str, list[float]]:
    """Seconds of a step of each kind, the mean over each epoch, in turns, on a model by name."""
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    examples = _STEPS * batch
    inputs, targets = torch.randn(examples, 1, 28, 28), torch.randint(0, 10, (examples,))
    given = (name, inputs, targets, batch)
    turns = Turns({BARE: bare_steps(*given), PLAIN: plain_steps(*given)})
    net = bw.build_model(name, (1, 28, 28), 10)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(_Terminal()):
        bw.fit(
            net, (inputs, targets), "bbb", epochs=epochs + _WARM_UP, batch_size=batch, callbacks=[turns],
            progress=True, folder=f"{folder}/run",
        )  # fmt: skip
    return {kind: seconds[_WARM_UP:] for kind, seconds in turns.seconds.items()}


def main() -> None:
    """Take turns, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=15, help=f"of {_STEPS} steps each")
    options = parser.parse_args()
    for name, batch in (("lenet5", 100), ("mlp", 128)):
        found = measure(name, options.epochs, batch)
        ratios = {
            other: statistics.median(a / b for a, b in zip(found[ENGINE], found[other], strict=True))
            for other in (BARE, PLAIN)
        }
        step = 1e3 * statistics.median(found[ENGINE])
        over = ", ".join(f"over {other} {ratio:.3f}" for other, ratio in ratios.items())
        print(f"{name}, batch {batch}: a step in fit {step:.2f} ms, {over}")


if __name__ == "__main__":
    main()
