from __future__ import annotations

import pytest

from bayeswell.core.errors import SettingError
from bayeswell.methods import METHODS, find_method, within_budget

AUTO = METHODS["auto"]


@pytest.mark.parametrize(
    ("examples", "epochs", "members", "length", "cost"),
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
def test_auto_depends_on_the_examples_seen(examples, epochs, members, length, cost):
    plan = within_budget(AUTO, examples, epochs)
    posterior = "mean_field" if examples * epochs < 250_000 or members == 1 else "delta"
    assert (plan.method.posterior.name, plan.method.members, plan.epochs) == (posterior, members, length)
    assert plan.method.cost / 3 * length / epochs == pytest.approx(cost)
    assert f"{cost:.3g} x ordinary training" in plan.note


def test_members_for_real_targets_have_full_length_in_a_medium_run():
    assert within_budget(AUTO, 60_000, 10, classes=False)[1:2] == (10,)
    assert within_budget(AUTO, 60_000, 10, classes=False).method.members == 2
    assert within_budget(AUTO, 600_000, 10, classes=False).epochs == 5


@pytest.mark.parametrize(
    "settings", [{"posterior": "k_tied"}, {"temperature": 1.0}, {"estimator": "flipout"}, {"averaging": None}]
)
def test_settings_of_a_posterior_keep_it_in_a_long_run(settings):
    asked = AUTO.changed(**settings)
    plan = within_budget(asked, 60_000, 10)
    assert plan.method == asked.changed(members=3)


def test_a_setting_that_is_given_counts_at_its_default_value():
    assert within_budget(AUTO, 60_000, 10, changed={"std_lr", "lr"}).method == AUTO.changed(members=3)
    assert within_budget(AUTO, 60_000, 10, changed={"lr"}).method.posterior.name == "delta"


@pytest.mark.parametrize(
    ("method", "budget", "members"), [("map", 2.9, 2), ("flipout", 5, 2), ("f-bbb", 2, 1), ("auto", 3, 3)]
)
def test_a_number_is_the_cost_in_ordinary_trainings(method, budget, members):
    plan = within_budget(find_method(method).changed(budget=budget), 10**9, 7)
    assert (plan.method.members, plan.epochs) == (members, 7)
    assert plan.method.cost / 3 <= budget


def test_a_budget_for_no_member_is_refused():
    with pytest.raises(SettingError, match="one member costs 2"):
        within_budget(METHODS["flipout"].changed(budget=1), 100, 1)


def test_methods_without_a_budget_stay():
    assert within_budget(METHODS["deep-ensemble"], 10**9, 3) == (METHODS["deep-ensemble"], 3, "")
