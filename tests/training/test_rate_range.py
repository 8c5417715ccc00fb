"""The learning-rate range test."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bayeswell.core.errors import SettingError
from bayeswell.training import rate_range
from small_runs import X, Y, network

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.core.errors.BayeswellWarning")


def test_rates_grow_geometrically_and_break() -> None:
    net = nn.Linear(3, 2)
    found = rate_range(net, (X, Y), "map", optimizer="sgd", lowest=1e-3, highest=1e5, steps=80, batch_size=46)
    ratios = torch.tensor(found.rates[1:]) / torch.tensor(found.rates[:-1])
    assert torch.allclose(ratios, torch.full_like(ratios, (1e8) ** (1 / 79)), rtol=1e-4)
    assert found.rates[0] == pytest.approx(1e-3)
    assert found.broke_at is not None
    assert found.broke_at > 1
    assert 0.01 < found.suggestion < found.broke_at


def test_small_rates_change_nothing() -> None:
    net = nn.Linear(3, 2)
    before = net.weight.clone()
    found = rate_range(net, (X, Y), "map", optimizer="sgd", lowest=1e-9, highest=1e-8, steps=10, batch_size=46)
    assert max(found.losses) - min(found.losses) < 1e-5
    assert found.broke_at is None
    assert torch.equal(net.weight, before)


@pytest.mark.parametrize("method", ["bbb", "sghmc", "ivon", "hwa"])
def test_methods(method: str) -> None:
    found = rate_range(network(), (X, Y), method, steps=20)
    assert len(found.rates) == len(found.losses) <= 20


def test_yellowfin_is_refused() -> None:
    with pytest.raises(SettingError, match="yellowfin"):
        rate_range(network(), (X, Y), optimizer="yellowfin")
