"""Snapshot ensembles: one run, the networks at the ends of its cycles."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell.averaging import CycleEnds
from bayeswell.optimizers.rates import Cyclic
from bayeswell.training.run import Callback, Run

X, Y = torch.randn(60, 4, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3


class Path(Callback):
    """The weights and rates after (of) every step."""

    def __init__(self) -> None:
        self.weights: list[torch.Tensor] = []
        self.rates: list[float] = []

    def after_step(self, run: Run) -> None:
        self.weights.append(run.assembly.model.posterior.mean_vector().detach().clone())
        self.rates.append(float(run.assembly.optimizer.param_groups[0]["lr"]))


@pytest.mark.parametrize(
    ("cycles", "keep", "epochs", "ends"),
    [(3, None, 6, [7, 15, 23]), (3, 2, 6, [15, 23]), (5, None, 3, [2, 5, 8, 11]), (1, 1, 1, [3])],
)
def test_the_members_are_the_networks_at_the_ends(cycles: int, keep: int | None, epochs: int, ends: list[int]) -> None:
    path = Path()
    collector = CycleEnds(cycles, keep)
    net = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))
    result = bw.fit(
        net, (X, Y), "map", epochs=epochs, batch_size=15, collector=collector, rate=Cyclic(cycles),
        callbacks=[path], progress=False,
    )  # fmt: skip
    expected = torch.stack([path.weights[end] for end in ends])
    assert torch.equal(result.model.posterior.weights, expected)
    for end in ends[:-1]:  # the rate starts anew behind each end
        assert path.rates[end] < 0.6 * path.rates[end + 1]
    # Each network predicts with BatchNorm statistics of its own: the mean of the members' predictions.
    result.model.eval()
    with torch.no_grad():
        members = [result.model.call(result.model.posterior.member(i), X).softmax(-1) for i in range(len(ends))]
    torch.testing.assert_close(result.predict(X).probabilities, torch.stack(members).mean(0))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"collector": {"name": "cycle_ends", "cycles": 4}, "rate": {"name": "cyclic", "cycles": 3}},
            ["4", "3", "same"],
        ),
        ({"collector": {"name": "cycle_ends", "cycles": 4, "keep": 5}}, ["keep = 5", "cycles = 4"]),
        ({"collector": {"name": "cycle_ends", "cycles": 0}}, ["cycles = 0"]),
        ({"collector": {"name": "cycle_ends", "cycles": 99}}, ["99", "only 8 steps"]),
        ({"collector": "cycle_ends", "posterior": "mean_field"}, ["cycle_ends", "mean_field", "delta"]),
    ],
)
def test_what_cannot_work_is_refused(settings: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(bw.BayeswellError) as caught:
        bw.fit(nn.Linear(4, 3), (X, Y), "map", epochs=2, batch_size=15, progress=False, **settings)
    assert all(word in str(caught.value) for word in words)
