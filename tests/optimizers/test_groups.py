"""Groups of means and stds: their rates, their weight decay, and taking turns."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.errors import SettingError
from bayeswell.optimizers import (
    MEANS,
    OPTIMIZERS,
    STDS,
    AdaBound,
    Adam,
    Alternating,
    hold_inactive,
    parameter_groups,
    set_rates,
)
from nets import generic, lift
from optimizers.steps import NAMES, gradient_sequence, net, numbers, parameters

POSTERIORS = ["mean_field", {"name": "mean_field", "parameter": "rho"}, "k_tied", "low_rank", "matrix_normal", "full"]


@pytest.mark.parametrize("posterior", POSTERIORS, ids=str)
def test_means_and_stds_are_told_apart(posterior: Any) -> None:
    model, noise = lift(net(), posterior), bw.Gaussian(noise="learned")
    means, noises, stds, *slower = parameter_groups(model, 0.02, std_multiplier=7.0, extra=noise.parameters())
    assert (means["name"], means["lr"]) == (MEANS, 0.02)
    assert (stds["name"], stds["lr"]) == (STDS, 0.14)
    assert (noises["name"], noises["lr"], noises["params"]) == ("noise", 0.14, [noise.log_std])
    names = {id(value): key for key, value in model.named_parameters()}
    found = {group["name"]: [names[id(value)] for value in group["params"]] for group in (means, stds)}
    for group in slower:
        assert group["name"] == STDS
        found[STDS] += [names[id(value)] for value in group["params"]]
    assert set(found[MEANS]) == {"posterior.mean", "net.1.weight", "net.1.bias"}
    assert set(found[MEANS]) | set(found[STDS]) == set(names.values())
    assert len(found[MEANS]) + len(found[STDS]) == len(names)
    # The means are what E[w] depends on, the stds what only the spread does.
    with torch.no_grad():
        before = model.posterior.mean_vector().clone(), model.posterior.std_vector().clone()
        for value in stds["params"]:
            value.add_(0.3)
    assert torch.equal(model.posterior.mean_vector(), before[0])
    assert not torch.equal(model.posterior.std_vector(), before[1])


def test_columns_of_a_low_rank_posterior_move_by_their_norm() -> None:
    """A step of Adam moves a column's norm as far in a wide network as in a narrow one: by its rate."""
    moved = []
    for width in (20, 2_000):
        torch.manual_seed(3)
        model = lift(nn.Linear(width, 5), {"name": "low_rank", "rank": 2})
        loading = model.posterior.loading
        assert 0.5 < float(loading.detach().norm(dim=0).min()) < float(loading.detach().norm(dim=0).max()) < 1.5
        optimizer = OPTIMIZERS["adam"](lr=0.01).build(parameter_groups(model, 0.01, std_multiplier=10.0))
        before = loading.detach().clone()
        for value in model.parameters():
            value.grad = torch.randn_like(value)
        optimizer.step()
        moved += (loading.detach() - before).norm(dim=0).tolist()
    assert moved == pytest.approx([0.1] * 4, rel=1e-3)


def test_a_network_without_stds_has_one_group() -> None:
    for model in (lift(net(), "delta"), net()):
        (group,) = parameter_groups(model, 0.02, extra=[next(model.parameters())])
        assert group["name"] == MEANS
        assert [id(value) for value in group["params"]] == [id(value) for value in model.parameters()]
        with pytest.raises(SettingError, match=r"std_multiplier = 3.0 has no use: the network has no stds"):
            parameter_groups(model, 0.02, std_multiplier=3.0)
    with pytest.raises(SettingError, match="std_multiplier = 0; it must be a finite number above 0"):
        parameter_groups(lift(net()), 0.02, std_multiplier=0)


@pytest.mark.parametrize("name", NAMES)
def test_weight_decay_spares_the_stds(name: str) -> None:
    model = generic(net())
    optimizer = OPTIMIZERS[name](lr=0.01, weight_decay=0.3).build(parameter_groups(model, 0.01))
    log_std = model.posterior.log_std.detach().clone()
    mean = model.posterior.mean.detach().clone()
    for value in model.parameters():
        value.grad = torch.zeros_like(value)
    optimizer.step()
    assert torch.equal(model.posterior.log_std, log_std)
    assert not torch.equal(model.posterior.mean, mean)


def test_group_rates_reach_the_parameters() -> None:
    # Adam's first step is lr times the sign of the gradient.
    model = generic(net())
    before = model.posterior.mean.detach().clone(), model.posterior.log_std.detach().clone()
    optimizer = Adam(lr=0.01).build(parameter_groups(model, 0.01, std_multiplier=10.0))
    for value in model.parameters():
        value.grad = torch.ones_like(value)
    optimizer.step()
    torch.testing.assert_close(before[0] - model.posterior.mean, torch.full_like(before[0], 0.01), rtol=1e-6, atol=0)
    torch.testing.assert_close(before[1] - model.posterior.log_std, torch.full_like(before[1], 0.1), rtol=1e-6, atol=0)


def test_set_rates() -> None:
    optimizer = AdaBound(lr=0.01).build(parameter_groups(lift(net()), 0.01, std_multiplier=10.0))
    for _ in range(2):  # of the rates at the start, not of the present ones
        set_rates(optimizer, 0.5)
        assert [group["lr"] for group in optimizer.param_groups] == [0.005, 0.05]
    set_rates(optimizer, {STDS: 0.25})
    assert [group["lr"] for group in optimizer.param_groups] == [0.01, 0.025]
    with pytest.raises(SettingError, match=r"no parameter group 'std'; did you mean 'stds'\? allowed: means, stds"):
        set_rates(optimizer, {"std": 0.25})


def test_alternating_takes_turns() -> None:
    turns = [Alternating(3).active(epoch) for epoch in range(13)]
    assert turns == [frozenset({MEANS})] * 3 + [frozenset({STDS})] * 3 + [frozenset({MEANS})] * 3 + [
        frozenset({STDS})
    ] * 3 + [frozenset({MEANS})]
    with pytest.raises(SettingError, match="alternating: epochs = 0"):
        Alternating(0)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "yellowfin"])
def test_a_held_group_goes_on_where_it_was(name: str) -> None:
    # Steps 10 to 19 hold group b, weight decay and all: afterwards b is as if they had never been.
    gradients = gradient_sequence(30)
    groups = [("a", slice(0, 1)), ("b", slice(1, 3))]

    def train(steps: Iterator[int] | range, hold: range) -> list[Tensor]:
        params = parameters()
        part = OPTIMIZERS[name](lr=0.01, weight_decay=0.1)
        optimizer = part.build([{"params": params[piece], "name": label} for label, piece in groups])
        for t in steps:
            for parameter, gradient in zip(params, gradients[t], strict=True):
                parameter.grad = gradient.clone()
            hold_inactive(optimizer, {"a"} if t in hold else {"a", "b"})
            before = copy.deepcopy(optimizer.state_dict()["state"]), numbers(params[1:])
            optimizer.step()
            if t in hold:
                assert numbers(params[1:]) == before[1]
                for key in (1, 2):
                    for kept, now in zip(
                        before[0].get(key, {}).values(), optimizer.state_dict()["state"].get(key, {}).values(),
                        strict=True,
                    ):  # fmt: skip
                        assert torch.equal(torch.as_tensor(kept), torch.as_tensor(now))
        return [parameter.detach() for parameter in params]

    held = train(range(30), range(10, 20))
    never = train(iter([*range(10), *range(20, 30)]), range(0))
    assert torch.equal(held[1], never[1])
    assert torch.equal(held[2], never[2])
    assert not torch.equal(held[0], never[0])


def test_holding_a_group_that_is_not_there_is_refused() -> None:
    optimizer = Adam().build([{"params": parameters(), "name": "means"}])
    with pytest.raises(SettingError, match="the optimizer has no parameter group 'stds'; allowed: means"):
        hold_inactive(optimizer, Alternating().active(1))
