"""Parameter groups, their learning rates, turns, and two optimizers as one."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from bayeswell.core.errors import CompositionError, SettingError
from bayeswell.core.protocols import Progress
from bayeswell.core.random import make_generator
from bayeswell.nn import BayesianModule, bayesian
from bayeswell.optim import (
    SGD,
    Adam,
    Alternating,
    Constant,
    Cosine,
    LearningRates,
    Plateau,
    build_optimizer,
    gradient_factor,
    parameter_groups,
)
from bayeswell.optim.groups import hold_inactive
from optim.steps import context


def model_of(posterior: str = "mean_field") -> BayesianModule:
    net = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3))
    return bayesian(net, posterior, where=["0.*", "3.*"], generator=make_generator(1))


def give_gradients(module: nn.Module) -> None:
    for parameter in module.parameters():
        parameter.grad = torch.randn_like(parameter)


@pytest.mark.parametrize("posterior", ["mean_field", "k_tied", "low_rank", "delta"])
def test_every_parameter_is_in_one_group(posterior: str) -> None:
    model, likelihood = model_of(posterior), nn.Linear(1, 1)
    groups = parameter_groups(model, likelihood, lr=0.1, std_multiplier=0.3)
    found = {group["name"]: group["params"] for group in groups}
    assert [id(p) for p in found["means"]] == [id(model.posterior.mean)]
    assert ("stds" in found) == (posterior != "delta")
    assert {id(p) for p in found["noise"]} == {id(p) for p in likelihood.parameters()}
    assert len(found["other"]) == 2
    everything = {id(p) for owner in (model, likelihood) for p in owner.parameters() if p.requires_grad}
    listed = [id(p) for params in found.values() for p in params]
    assert sorted(listed) == sorted(everything)
    assert [group["name"] for group in groups if group["noise"]] == ["means"]


def test_stds_and_noise_have_their_own_learning_rate_and_no_decay() -> None:
    groups = parameter_groups(model_of(), nn.Linear(1, 1), lr=0.1, std_multiplier=0.3)
    assert {g["name"]: g["lr"] for g in groups} == pytest.approx(
        {"means": 0.1, "stds": 0.03, "noise": 0.03, "other": 0.1}
    )
    assert {g["name"] for g in groups if g.get("weight_decay") == 0.0} == {"stds", "noise"}
    other = parameter_groups(model_of(), lr=0.1, std_lr=0.7)
    assert {g["name"]: g["lr"] for g in other} == pytest.approx({"means": 0.1, "stds": 0.7, "other": 0.1})


def test_held_groups_keep_their_moments() -> None:
    model = model_of()
    optimizer = Adam(lr=0.1).build(parameter_groups(model, lr=0.1), context())
    give_gradients(model)
    optimizer.step()
    stds = model.posterior.log_std
    before, state = stds.detach().clone(), {k: v.clone() for k, v in optimizer.state[stds].items()}
    mean = model.posterior.mean.detach().clone()
    give_gradients(model)
    hold_inactive(optimizer, {"means"})
    optimizer.step()
    assert torch.equal(stds, before)
    assert all(torch.equal(value, state[key]) for key, value in optimizer.state[stds].items())
    assert not torch.equal(model.posterior.mean, mean)
    give_gradients(model)
    hold_inactive(optimizer, {"stds"})
    assert model.posterior.mean.grad is None
    assert all(p.grad is None for p in model.net.parameters())
    assert stds.grad is not None


def test_turns_alternate() -> None:
    assert [Alternating(2).active(epoch) for epoch in range(6)] == ["means"] * 2 + ["stds"] * 2 + ["means"] * 2


def test_gradient_factor() -> None:
    assert gradient_factor(None, 500) == 1
    assert gradient_factor("1/batches", 500) == 1 / 500
    assert gradient_factor(0.25, 500) == 0.25
    with pytest.raises(SettingError, match="1/batches"):
        gradient_factor("1/batch", 500)


def test_two_optimizers_step_as_one_and_resume() -> None:
    def made(seed: int) -> tuple[BayesianModule, torch.optim.Optimizer]:
        torch.manual_seed(seed)
        model = model_of()
        groups = parameter_groups(model, lr=0.1, std_lr=0.02)
        return model, build_optimizer(SGD(lr=0.1), groups, context(), Adam(lr=0.02))

    (model, joint), (alone, _) = made(0), made(0)
    stds = torch.optim.Adam([alone.posterior.log_std], lr=0.02)
    others = [p for p in alone.parameters() if p is not alone.posterior.log_std]
    means = torch.optim.SGD(others, lr=0.1, momentum=0.9)
    for _ in range(3):
        give_gradients(model)
        for parameter, other in zip(alone.parameters(), model.parameters(), strict=True):
            parameter.grad = other.grad
        joint.step()
        stds.step()
        means.step()
    for parameter, other in zip(alone.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(parameter, other)
    resumed, second = made(0)
    resumed.load_state_dict(model.state_dict())
    second.load_state_dict(copy.deepcopy(joint.state_dict()))
    give_gradients(model)
    for parameter, other in zip(resumed.parameters(), model.parameters(), strict=True):
        parameter.grad = other.grad
    joint.step()
    second.step()
    for parameter, other in zip(resumed.parameters(), model.parameters(), strict=True):
        assert torch.equal(parameter, other)


def test_a_std_optimizer_without_stds_is_refused() -> None:
    with pytest.raises(CompositionError, match="no stds"):
        build_optimizer(SGD(), parameter_groups(model_of("delta"), lr=0.1), context(), Adam())


# Learning rates of a run.


def rates_of(**settings: object) -> LearningRates:
    optimizer = SGD().build(parameter_groups(model_of(), nn.Linear(1, 1), lr=0.1, std_lr=0.02), context())
    return LearningRates(optimizer, **{"schedule": Constant(), **settings})  # type: ignore[arg-type]


def current(rates: LearningRates) -> dict[str, float]:
    return {group["name"]: group["lr"] for group in rates.optimizer.param_groups}


def test_schedules_of_means_and_stds() -> None:
    rates = rates_of(std_schedule=Cosine())
    rates.before_step(Progress(50, 100, 0, 10))
    assert current(rates) == pytest.approx({"means": 0.1, "stds": 0.01, "noise": 0.01, "other": 0.1})


def test_plateaus_listen_to_their_own_metric_and_other_parameters_follow_the_means() -> None:
    plateaus = {"means": Plateau("nll", 0.5, patience=0), "stds": Plateau("kl", 0.5, patience=0)}
    rates = rates_of(plateaus=plateaus)
    rates.after_epoch({"nll": 1.0, "kl": 9.0}, 0)
    rates.after_epoch({"nll": 1.0, "kl": 8.0}, 1)
    rates.before_step(Progress(0, 100))
    assert current(rates) == pytest.approx({"means": 0.05, "stds": 0.02, "noise": 0.02, "other": 0.05})
    again = rates_of(plateaus=plateaus)
    again.load_state_dict(rates.state_dict())
    again.before_step(Progress(0, 100))
    assert current(again) == current(rates)


def test_a_plateau_on_validation_and_epochs_at_rest() -> None:
    plateaus = {"means": Plateau("validation.nll", factor=0.5, patience=0)}
    rates = rates_of(plateaus=plateaus, alternating=Alternating(1))
    for epoch in range(4):  # means move in epochs 0 and 2
        rates.after_epoch({"validation.nll": 1.0}, epoch)
    rates.before_step(Progress(0, 100))
    np.testing.assert_allclose(current(rates)["means"], 0.05)
    with pytest.raises(SettingError, match=r"validation\.nll"):
        rates.after_epoch({"nll": 1.0}, 4)
    with pytest.raises(SettingError, match="no parameter group 'std'"):
        rates_of(plateaus={"std": Plateau("nll")})
