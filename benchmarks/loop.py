"""The cost of ``fit`` over a bare loop: the same mean-field step, an epoch of each in turn."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch

import bayeswell as bw
from bayeswell.training import EpochRecord, Run

from .nets import Net
from .timing import Summary, summarize

STEPS = 100


def bare_steps(net: Net, inputs: torch.Tensor, targets: torch.Tensor) -> Iterator[None]:
    """Take steps in a custom loop forever."""
    model = bw.bayesian(net.build())
    elbo = bw.ELBO("categorical", len(targets), temperature=0.1)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    generator = bw.make_generator(0)
    while True:
        for chosen in torch.randperm(len(targets)).split(net.batch):
            optimizer.zero_grad(set_to_none=True)
            elbo(model, inputs[chosen], targets[chosen], generator=generator).total.backward()
            optimizer.step()
            yield


class Turns(bw.Callback):
    """Time an epoch of the bare loop after each epoch of ``fit``."""

    def __init__(self, bare: Iterator[None]) -> None:
        self.bare, self.begin = bare, time.perf_counter()
        self.ratios: list[float] = []

    def after_epoch(self, run: Run, record: EpochRecord) -> None:
        middle = time.perf_counter()
        for _ in range(STEPS):
            next(self.bare)
        end = time.perf_counter()
        self.ratios.append((middle - self.begin) / (end - middle))
        self.begin = time.perf_counter()


def measure(net: Net, rounds: int) -> dict[str, Summary]:
    """Return the ratio of an epoch of ``fit`` to an epoch of the bare loop."""
    count = STEPS * net.batch
    inputs, targets = net.inputs(count), torch.randint(0, net.outputs, (count,))
    turns = Turns(bare_steps(net, inputs, targets))
    bw.fit(
        net.build(),
        (inputs, targets),
        "bbb",
        epochs=rounds + 1,
        batch_size=net.batch,
        callbacks=[turns],
        progress=False,
    )
    return {"fit": summarize(turns.ratios[1:])}
