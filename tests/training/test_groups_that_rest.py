"""Training in turn: learned noise moves in all epochs, and a plateau looks only at epochs in which its group moved."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell.training.run import Callback, Run

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")  # short runs

X = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
Y = X[:, :1] * 2 + 0.3 * torch.randn(64, 1, generator=torch.Generator().manual_seed(1))


class Path(Callback):
    """Where means, stds and noise stand after each epoch."""

    def __init__(self) -> None:
        self.seen: list[dict[str, torch.Tensor]] = []

    def _note(self, run: Run) -> None:
        groups = run.assembly.optimizer.param_groups
        self.seen.append({g["name"]: torch.cat([p.detach().flatten().clone() for p in g["params"]]) for g in groups})

    def start(self, run: Run) -> None:
        self._note(run)

    def after_epoch(self, run: Run, record: Any) -> None:
        self._note(run)


def test_learned_noise_moves_in_all_epochs() -> None:
    path = Path()
    bw.fit(
        nn.Linear(3, 1), (X, Y), "bbb", "gaussian", epochs=4, alternate=1, rate="constant", callbacks=[path],
        progress=False,
    )  # fmt: skip
    moved = [
        {name for name in now if not torch.equal(before[name], now[name])}
        for before, now in zip(path.seen, path.seen[1:], strict=False)
    ]
    assert moved == [{"means", "noise"}, {"stds", "noise"}, {"means", "noise"}, {"stds", "noise"}]


def test_a_plateau_does_not_count_epochs_in_which_its_group_rests() -> None:
    """A threshold that nothing beats: the rate falls at every epoch that counts but the first."""
    plateau = {"metric": "nll", "patience": 0, "factor": 0.5, "threshold": 1e9}
    result = bw.fit(
        nn.Linear(3, 1), (X, Y), "bbb", "gaussian", epochs=8, alternate=2, rate="constant", lr=0.01,
        plateau={"means": plateau, "stds": plateau}, progress=False,
    )  # fmt: skip
    # Means move in epochs 0, 1, 4, 5 and stds in 2, 3, 6, 7; the rate of an epoch has seen those before it.
    rates = [record.rates for record in result.histories[0].epochs]
    assert [round(rate["means"] / 0.01, 6) for rate in rates] == [1, 1, 0.5, 0.5, 0.5, 0.25, 0.125, 0.125]
    assert [round(rate["stds"] / 0.1, 6) for rate in rates] == [1, 1, 1, 1, 0.5, 0.5, 0.5, 0.25]


def test_the_rate_of_a_loading_is_recorded_beside_that_of_the_stds() -> None:
    """A low-rank posterior has two groups of stds, the columns' at a rate of their own; a run that goes on too."""
    given: dict[str, Any] = {
        "data": (X, Y),
        "likelihood": "gaussian",
        "rate": "constant",
        "lr": 0.01,
        "progress": False,
    }
    torch.manual_seed(0)
    first = bw.fit(nn.Linear(3, 1), method="low-rank", epochs=1, **given)
    factor = first.model.posterior.rates["loading"]
    assert factor != 1
    for result in (first, bw.fit(first, method="low-rank", epochs=1, **given)):
        rates = result.histories[0].epochs[-1].rates
        assert rates["means"] == 0.01
        assert rates["stds_2"] == pytest.approx(rates["stds"] * factor)
        assert rates["stds"] == rates["noise"]
