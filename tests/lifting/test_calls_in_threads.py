"""Calls of a lifted network from several threads: each is what it would be alone."""

from __future__ import annotations

import copy
import itertools
import threading
import time

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.guards import alone, guarded, together
from bayeswell.lifting import BayesianModule
from side_by_side import in_threads

THREADS = 8
EACH = 25
LOSSES = 6
"""A loss goes through more than a mere call: without a guard some of so few have always been seen to go wrong."""
SHAPE = (6, 1, 8, 8)


def _net() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Softplus(), nn.Flatten(), nn.Linear(144, 3))


def _lifted(estimator: str = "weight_sampling", net: nn.Module | None = None) -> BayesianModule:
    return bw.bayesian(net or _net(), {"name": "mean_field", "initial_std": 0.1}, estimator=estimator)


def test_in_evaluation_mode() -> None:
    model = _lifted().eval()
    inputs = [torch.randn(SHAPE) for _ in range(THREADS)]
    alone = [model(x) for x in inputs]

    def repeat(index: int) -> int:
        return sum(not torch.equal(model(inputs[index]), alone[index]) for _ in range(EACH))

    assert in_threads([lambda index=index: repeat(index) for index in range(THREADS)]) == [0] * THREADS  # type: ignore[misc]


@pytest.mark.parametrize("estimator", list(bw.ESTIMATORS))
def test_losses_and_gradients(estimator: str) -> None:
    """The objective of each thread's own batch and generator, while other threads predict with the same model."""
    model = _lifted(estimator)
    objective = bw.ELBO(bw.Categorical(), dataset_size=60)
    labels = torch.arange(6) % 3

    def loss(seed: int) -> tuple[Tensor, ...]:
        inputs = torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed))
        terms = objective(model, inputs, labels, generator=torch.Generator().manual_seed(seed))
        return terms.total, *torch.autograd.grad(terms.total, list(model.posterior.parameters()))

    alone = [loss(seed) for seed in range(4)]

    def repeat(seed: int) -> int:
        found = (loss(seed) for _ in range(LOSSES))
        return sum(not all(map(torch.equal, one, alone[seed])) for one in found)

    def predict() -> int:
        # What comes out depends on the running statistics, which every loss moves.
        for _ in range(LOSSES):
            bw.predict(model, torch.randn(SHAPE), bw.Categorical(), draws=2, seed=5)
        return 0

    tasks = [*(lambda seed=seed: repeat(seed) for seed in range(4)), predict, predict]  # type: ignore[misc]
    assert in_threads(tasks) == [0] * 6
    assert all(module.training for module in model.modules())


def test_state_and_description_while_others_predict() -> None:
    """Drawn weights stand in the network during a prediction: no state, description or mode shows them."""
    model, inputs = _lifted(net=nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))).eval(), torch.randn(4, 5)
    names, table = list(model.state_dict()), str(model.describe())
    running = threading.Event()

    def predict() -> None:
        for _ in range(2 * EACH):
            bw.predict(model, inputs, bw.Categorical(), draws=3, seed=1)
        running.set()

    def look() -> int:
        wrong = 0
        while not running.is_set():
            wrong += list(model.state_dict()) != names
            wrong += str(model.describe()) != table
            wrong += list(copy.deepcopy(model).state_dict()) != names
        return wrong

    assert in_threads([predict, look])[1] == 0


def test_a_mode_that_is_set_while_others_predict_stays() -> None:
    model, inputs = _lifted(), torch.randn(SHAPE)
    model.train()
    begun = threading.Event()

    class Slow(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            begun.set()
            time.sleep(0.02)
            return x

    model.net.append(Slow())  # type: ignore[operator]

    def predict() -> None:
        bw.predict(model, inputs, bw.Categorical(), draws=3, seed=0)

    def switch() -> None:
        begun.wait()
        model.eval()

    in_threads([predict, switch])
    assert not any(module.training for module in model.modules())


def test_one_guard_for_all_that_share_a_network() -> None:
    first = _lifted()
    second = first.with_posterior(first.posterior_part, first.posterior)
    other = copy.deepcopy(first)
    assert guarded(first) is guarded(second) is guarded(first.net)
    assert guarded(other) is guarded(other.net)
    assert guarded(other) is not guarded(first)


def test_who_is_alone() -> None:
    """Any number together or one alone; each may ask for the other within, and none waits for ever."""
    inside: list[tuple[str, int]] = []
    counter = itertools.count()

    def entered(kind: str) -> None:
        inside.append((kind, threading.get_ident()))
        next(counter)
        time.sleep(0.0005)
        kinds = [(k, who) for k, who in inside if who != threading.get_ident()]
        if kind == "alone":
            assert not kinds, "someone else is here too"
        else:
            assert all(k != "alone" for k, _ in kinds)
        inside.remove((kind, threading.get_ident()))

    def task() -> None:
        for _ in range(10):
            with together():
                entered("together")
                with alone():
                    entered("alone")
                    with together(), alone():
                        entered("alone")
                    entered("alone")
                entered("together")

    in_threads([task] * 5)
    assert next(counter) == 5 * 10 * 5


def test_who_asks_to_be_alone_comes_on_though_others_never_leave_together() -> None:
    """And the others too, though one asks to be alone again and again."""
    served = threading.Event()

    def stay() -> int:
        count = 0
        while not served.is_set():
            with together():
                time.sleep(0.002)
            count += 1
        return count

    def ask() -> None:
        for _ in range(5):
            with alone():
                time.sleep(0.001)
        served.set()

    counts = in_threads([stay, stay, stay, ask])
    assert all(count > 0 for count in counts[:3])
