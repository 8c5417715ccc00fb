"""The range test knows optimizers whose rates mean something else."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell.training import rate_range

X, Y = torch.randn(60, 4, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3


def test_an_optimizer_that_tunes_its_rate_is_refused() -> None:
    with pytest.raises(bw.SettingError, match=r"optimizer 'yellowfin' tunes its rate itself.*none to find"):
        rate_range(nn.Linear(4, 3), (X, Y), "map", stepper="yellowfin")


@pytest.mark.parametrize(("method", "settings", "highest"), [("map", {}, 1.0), ("ivon", {"lr": 0.5}, 50.0)])
def test_the_range_reaches_beyond_the_methods_own_rate(method: str, settings: dict[str, float], highest: float) -> None:
    found = rate_range(nn.Linear(4, 3), (X, Y), method, steps=5, **settings)
    assert found.rates[0] == pytest.approx(1e-5)
    # The rates grow by one factor from step to step, on the way to the highest.
    assert found.rates[1] == pytest.approx(1e-5 * (highest / 1e-5) ** 0.25)
