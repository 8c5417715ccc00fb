"""How many members a budget pays for, and `fit` without a method."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.methods import find_method, within_budget

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")


def data(count: int = 60) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, 3, generator=bw.make_generator(1))
    return x, (x[:, 0] > 0).long()


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))


@pytest.mark.parametrize(
    ("examples", "epochs", "members", "own", "cost"),
    [
        (60, 4, 5, 4, 5.0),
        (12_499, 20, 5, 20, 5.0),
        (60_000, 10, 4, 5, 2.0),
        (60_000, 5, 3, 3, 1.8),
        (1_000_000, 2, 2, 2, 2.0),
        (500_000, 10, 2, 5, 1.0),
        (6_000_000, 1, 1, 1, 1.0),
    ],
)
def test_without_a_budget_the_length_of_a_run_decides(
    examples: int, epochs: int, members: int, own: int, cost: float
) -> None:
    plan = within_budget(find_method("auto"), examples, epochs)
    assert (plan.method.members, plan.epochs) == (members, own)
    assert plan.method.cost / 3 * own / epochs == pytest.approx(cost)
    assert f"{cost:.3g}x the cost" in plan.note
    assert f"{examples * epochs:,} examples seen" in plan.note


@pytest.mark.parametrize(
    ("method", "budget", "members"), [("map", 2.9, 2), ("flipout", 5, 2), ("f-bbb", 2, 1), ("auto", 3, 3)]
)
def test_a_budget_is_honoured(method: str, budget: float, members: int) -> None:
    """flipout's step costs twice an ordinary one, and so does one with sharpness."""
    plan = within_budget(find_method(method).changed(budget=budget), 10**9, 7)
    assert (plan.method.members, plan.epochs) == (members, 7)
    assert plan.method.cost / 3 <= budget


def test_a_budget_that_pays_for_none_is_refused() -> None:
    with pytest.raises(bw.SettingError, match="budget = 1 times ordinary training, but one member costs 2"):
        bw.fit(net(), data(), "flipout", budget=1)
    with pytest.raises(bw.SettingError, match="budget = 'much'; give how many times"):
        bw.fit(net(), data(), budget="much")


def test_fit_without_a_method_says_what_it_took(capsys: pytest.CaptureFixture[str]) -> None:
    result = bw.fit(net(), data(), epochs=4)
    assert (result.method.name, result.method.members) == ("auto", 5)
    assert capsys.readouterr().err == (
        "auto: 5 members, 5x the cost of ordinary training (a short run: 240 examples seen; budget=... sets another)\n"
    )
    assert len(result.histories) == 5
    assert bw.fit(net(), data(), epochs=2, members=2, progress=False).method.members == 2
    assert capsys.readouterr().err == ""
