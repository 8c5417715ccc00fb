"""How many members a budget pays for, and `fit` without a method."""

from __future__ import annotations

from typing import Any

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
        (60_000, 10, 3, 6, 1.8),
        (60_000, 5, 3, 3, 1.8),
        (1_000_000, 2, 2, 2, 2.0),
        (500_000, 10, 2, 5, 1.0),
        (6_000_000, 1, 1, 1, 1.0),
        (1_250_000, 4, 1, 4, 1.0),
        (1_000_000, 5, 1, 5, 1.0),
    ],
)
def test_without_a_budget_the_length_of_a_run_decides(
    examples: int, epochs: int, members: int, own: int, cost: float
) -> None:
    plan = within_budget(find_method("auto"), examples, epochs)
    # Points where data are many; a single network keeps its posterior, or there would be no uncertainty at all.
    assert plan.method.posterior == ("mean_field" if examples * epochs < 250_000 or members == 1 else "delta")
    assert (plan.method.members, plan.epochs) == (members, own)
    assert plan.method.cost / 3 * own / epochs == pytest.approx(cost)
    assert f"{cost:.3g}x the cost" in plan.note
    assert f"{examples * epochs:,} examples seen" in plan.note


def test_of_real_numbers_members_have_full_length_in_a_medium_run() -> None:
    """Halves were 0.6 nats worse than one network on naval, where the noise std goes on falling."""
    plan = within_budget(find_method("auto"), 60_000, 10, classes=False)
    assert (plan.method.posterior, plan.method.members, plan.epochs) == ("delta", 2, 10)
    plan = within_budget(find_method("auto"), 600_000, 10, classes=False)
    assert (plan.method.members, plan.epochs) == (2, 5)


@pytest.mark.parametrize(
    "asked",
    [{"posterior": "k_tied"}, {"temperature": 1.0}, {"estimator": "flipout"}, {"collector": None},
     {"divergence": "monte_carlo"}],
)  # fmt: skip
def test_who_asks_for_a_posterior_gets_it_in_a_long_run_too(asked: dict[str, Any]) -> None:
    plan = within_budget(find_method("auto").changed(**asked), 60_000, 10)
    assert plan.method.posterior == asked.get("posterior", "mean_field")
    assert plan.method.collector == asked.get("collector", "hwa")
    assert plan.method.members == 3


@pytest.mark.parametrize("given", ["posterior", "std_lr", "alternate", "temperature", "std_multiplier"])
def test_a_setting_that_is_given_counts_even_at_its_usual_value(given: str) -> None:
    plan = within_budget(find_method("auto"), 60_000, 10, given={given, "lr"})
    assert plan.method == find_method("auto").changed(members=3)


def test_a_rate_that_is_given_stays_and_other_methods_are_what_they_are() -> None:
    asked = find_method("auto").changed(rate="constant")
    assert within_budget(asked, 60_000, 10, given={"rate"}).method == asked.changed(
        posterior="delta", collector=None, members=3
    )
    bbb = find_method("bbb").changed(budget="auto")
    assert within_budget(bbb, 60_000, 10).method == bbb.changed(members=3)


def test_fit_of_many_posteriors_and_of_trained_models() -> None:
    """From what was trained before no several networks begin, whoever decided their number."""
    x = torch.randn(126_000, 3, generator=bw.make_generator(1))
    many = (x, (x[:, 0] > 0).long())
    found = bw.fit(net(), many, epochs=2, batch_size=42_000, posterior="mean_field", progress=False)
    assert found.method.posterior == "mean_field"
    one = bw.fit(net(), data(), "bbb", epochs=2, progress=False)
    with pytest.raises(bw.CompositionError, match=r"'auto' has members = 2: its networks .* cannot go on together"):
        bw.fit(one, many, "auto", epochs=2, batch_size=42_000)


def test_fit_of_many_real_numbers_takes_two_networks(capsys: pytest.CaptureFixture[str]) -> None:
    x = torch.randn(126_000, 1, generator=bw.make_generator(1))
    found = bw.fit(nn.Linear(1, 1), (x, x), likelihood="gaussian", epochs=2, batch_size=21_000)
    assert (found.method.name, found.method.posterior, len(found.histories)) == ("auto", "delta", 2)
    assert "auto: 2 networks, 2x the cost of ordinary training (a medium run" in capsys.readouterr().err


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
