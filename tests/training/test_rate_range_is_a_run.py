"""The range test is an ordinary run: the same numbers as a bare loop over the same batches."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.methods import assemble, find_method
from bayeswell.optimizers import set_rates
from bayeswell.random import derive_seed, make_generator
from bayeswell.training import as_batches, rate_range
from bayeswell.types import Progress


def problem(count: int = 47) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return x, x[:, :3].argmax(1)


def network(normalised: bool = False) -> nn.Module:
    torch.manual_seed(1)
    middle = nn.BatchNorm1d(8) if normalised else nn.Dropout(0.3)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), middle, nn.Linear(8, 3)).double()


def bare_loop(net: nn.Module, data: Any, method: str, steps: int, lowest: float, highest: float, **settings: Any):
    """Smoothed objectives and rates by hand: objective, backward, step."""
    chosen = find_method(method).changed(**settings)
    chosen = chosen.changed(rate="constant", collector="bank" if method == "sgld" else None, alternate=None)
    batches = as_batches(data, 10, torch.float64)
    epochs = math.ceil(steps / batches.count)
    rates, smoothed, average = [], [], 0.0
    with torch.random.fork_rng():
        torch.manual_seed(derive_seed(7, "global"))
        noise = make_generator(derive_seed(7, "noise"))
        sizes = {"dataset_size": batches.examples, "batches": batches.count, "epochs": epochs}
        parts = assemble(chosen, net, "categorical", **sizes, generator=noise)
        model, optimizer = parts.model.train(), parts.optimizer
        stream = (batch for epoch in range(epochs) for batch in batches.epoch(derive_seed(7, "order", epoch)))
        for step, (inputs, targets) in zip(range(steps), stream, strict=False):
            rates.append(lowest * (highest / lowest) ** (step / (steps - 1)))
            set_rates(optimizer, rates[-1] / optimizer.param_groups[0]["base_lr"])
            optimizer.zero_grad(set_to_none=True)
            at = Progress(step, epochs * batches.count, step % batches.count, batches.count)
            total = parts.objective(model, inputs, targets, at=at, generator=noise).total
            total.backward()
            if chosen.clip_norm is not None:
                nn.utils.clip_grad_norm_([p for g in optimizer.param_groups for p in g["params"]], chosen.clip_norm)
            optimizer.step()
            average = 0.9 * average + 0.1 * float(total.detach())
            smoothed.append(average / (1 - 0.9 ** (step + 1)))
    return rates, smoothed


@pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")
@pytest.mark.parametrize(
    ("method", "normalised", "settings"),
    [
        ("map", False, {}),
        ("bbb", True, {}),
        ("flipout", False, {"alternate": 1}),  # alternation is left out: all groups move
        ("k-tied", False, {"clip_norm": 0.5}),
        ("sgld", False, {"lr": 0.1}),
        ("f-bbb", False, {}),
    ],
)
def test_the_same_numbers_as_a_bare_loop(method: str, normalised: bool, settings: dict[str, Any]) -> None:
    """13 steps of 5 batches an epoch, the last of 7: it ends in the middle of the third epoch."""
    steps, lowest, highest = 13, 1e-4, 3e-2
    expected = bare_loop(network(normalised), problem(), method, steps, lowest, highest, **settings)
    found = rate_range(
        network(normalised), problem(), method, lowest=lowest, highest=highest, steps=steps, batch_size=10, seed=7,
        **settings,
    )  # fmt: skip
    assert found.broke_at is None
    assert len(found.rates) == steps
    assert found.rates == pytest.approx(expected[0], rel=1e-12)
    assert found.objectives == pytest.approx(expected[1], rel=1e-9)
    assert found.suggestion == pytest.approx(expected[0][expected[1].index(min(expected[1]))] / 10)


def test_it_ends_at_the_rate_that_breaks_it_and_says_when_nothing_can_be_tried() -> None:
    x, _ = problem()
    likelihood = {"name": "gaussian", "noise": "known", "std": 1.0}
    settings = {"stepper": {"name": "sgd", "lr": 0.1, "momentum": 0.0}, "batch_size": 10, "steps": 60}
    net = nn.Linear(4, 1).double()
    weights = net.weight.detach().clone()
    found = rate_range(net, (x, x[:, :1]), "map", likelihood, lowest=1e-3, highest=1e30, **settings)
    assert found.broke_at is not None
    assert found.broke_at >= found.rates[-1]
    assert len(found.rates) < 60
    assert torch.equal(net.weight, weights)
    x[:] = torch.inf
    with pytest.raises(bw.DataError, match="NaN or inf in the inputs"):
        rate_range(net, (x, x[:, :1]), "map", likelihood, **settings)


def test_it_runs_where_devices_say() -> None:
    """bf16-mixed moves the objectives a little, so the setting has arrived."""
    data = tuple(part.float() if part.is_floating_point() else part for part in problem())
    found = [
        rate_range(network().float(), data, "map", steps=5, batch_size=10, devices=bw.Devices(precision=precision))
        for precision in ("32", "bf16-mixed")
    ]
    difference = max(abs(a - b) for a, b in zip(found[0].objectives, found[1].objectives, strict=True))
    assert 0 < difference < 0.05


def test_a_callback_may_end_a_run_at_once() -> None:
    class AfterSeven(bw.Callback):
        steps = 0

        def after_step(self, run: Any) -> None:
            self.steps = run.step
            if run.step == 7:
                run.stop("enough", at_once=True)

    watcher = AfterSeven()
    result = bw.fit(network(), problem(), "map", epochs=4, batch_size=10, callbacks=[watcher])
    assert (watcher.steps, result.stopped) == (7, "enough")
    assert len(result.histories[0].epochs) == 1  # the second epoch was left in the middle
