"""What others ask of a posterior instead of its class: members, extras, stds that can be set, rows by layer."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell.errors import SettingError
from bayeswell.posteriors import Empirical, EmpiricalPosterior
from bayeswell.tree import Layout
from bayeswell.types import BANK, LOG_STD, Posterior
from nets import POSTERIOR_CHOICES, Choice, covariance_of, label

SOURCE = Path(bw.__file__).parent


def _net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Conv1d(5, 3, 1), nn.Flatten())


def _built(choice: Choice) -> tuple[Layout, Posterior]:
    model = bw.bayesian(_net(), posterior="delta")
    part = bw.POSTERIORS.resolve(choice)
    return model.layout, part.build(model.layout, model.prior, model.posterior.mean_vector().detach())


each_posterior = pytest.mark.parametrize("choice", POSTERIOR_CHOICES, ids=label)


@each_posterior
def test_only_banks_have_members(choice: Choice) -> None:
    _, posterior = _built(choice)
    bank = BANK in bw.POSTERIORS.resolve(choice).provides
    assert bank == (choice["name"] == "empirical")
    assert (posterior.members > 0) == bank
    assert posterior.useful_draws(7) == (min(7, posterior.members) if bank else 7)
    assert posterior.extra_names == ()
    if not bank:
        with pytest.raises(SettingError, match="no members"):
            posterior.member(0)


@each_posterior
def test_stds_are_set_or_refused(choice: Choice) -> None:
    """Where each weight has a std of its own it becomes the given one; else nothing is changed."""
    layout, posterior = _built(choice)
    stds = torch.rand(layout.size) + 0.01
    before = [parameter.detach().clone() for parameter in posterior.parameters()]
    if choice["name"] == "mean_field":
        assert posterior.can_set_stds
        posterior.set_stds(stds)
        torch.testing.assert_close(posterior.std_vector(), stds)
        torch.testing.assert_close(posterior.mean_vector(), before[0])
        assert all(parameter.requires_grad for parameter in posterior.parameters())
    else:
        assert not posterior.can_set_stds
        with pytest.raises(SettingError, match="mean_field"):
            posterior.set_stds(stds)
        assert all(map(torch.equal, posterior.parameters(), before))


@each_posterior
def test_covariances_are_set_or_refused(choice: Choice) -> None:
    """Where q holds columns it takes as many or fewer, and its covariance becomes the given one."""
    layout, posterior = _built(choice)
    generator = torch.Generator().manual_seed(3)
    variances = torch.rand(layout.size, generator=generator) + 0.01
    before = [parameter.detach().clone() for parameter in posterior.parameters()]
    held = posterior.settable_columns
    assert (held > 0) == (choice["name"] == "low_rank")
    for columns in range(1, held + 1):
        factor = torch.randn(layout.size, columns, generator=generator)
        posterior.set_covariance(variances, factor)
        torch.testing.assert_close(covariance_of(posterior), variances.diag() + factor @ factor.T)
        torch.testing.assert_close(posterior.mean_vector(), before[0])
    kept = [parameter.detach().clone() for parameter in posterior.parameters()]
    with pytest.raises(SettingError, match="low_rank"):
        posterior.set_covariance(variances, torch.zeros(layout.size, held + 1))
    assert all(map(torch.equal, posterior.parameters(), kept))


@each_posterior
def test_log_std_says_what_is_trained(choice: Choice) -> None:
    _, posterior = _built(choice)
    names = [name for name, _ in posterior.named_parameters()]
    assert (LOG_STD in bw.POSTERIORS.resolve(choice).provides) == (names == ["mean", "log_std"])


@each_posterior
def test_every_row_of_every_parameter_belongs_to_one_layer(choice: Choice) -> None:
    """And moving the rows of a layer moves the marginals of that layer alone."""
    layout, posterior = _built(choice)
    for name, parameter in posterior.named_parameters():
        rows = posterior.rows_by_site(name, parameter)
        assert [start for _, start, _ in rows] == [0, *(stop for _, _, stop in rows[:-1])]
        assert rows[-1][2] == len(parameter)
        for site, start, stop in rows:
            if site not in layout.slices:
                assert site == name
                continue
            before = torch.cat([posterior.mean_vector(), posterior.std_vector()]).detach()
            with torch.no_grad():
                kept = parameter.clone()
                parameter[start:stop] += 0.5
                after = torch.cat([posterior.mean_vector(), posterior.std_vector()])
                parameter.copy_(kept)
            moved = (before - after).view(2, -1).abs().amax(0) > 0
            inside = torch.zeros(layout.size, dtype=torch.bool)
            inside[layout.slices[site]] = True
            assert bool(moved[inside].any())
            assert not bool(moved[~inside].any())


def test_a_bank_may_share_the_memory_it_is_made_of() -> None:
    layout = bw.bayesian(_net(), posterior="delta").layout
    weights, extra = torch.randn(3, layout.size), torch.randn(3, 2)
    shared = EmpiricalPosterior(layout, weights, {"a": extra}, copied=False)
    copied = EmpiricalPosterior(layout, weights, {"a": extra})
    weights.zero_()
    extra.zero_()
    assert not bool(shared.weights.any())
    assert not bool(shared.member(1)["a"].any())
    assert bool(copied.weights.all())
    assert bool(copied.member(1)["a"].all())


def test_a_bank_with_extras_is_not_stacked_and_draws_each_member_once() -> None:
    model = bw.bayesian(_net(), posterior="delta")
    weights = torch.randn(3, model.layout.size)
    bank = model.with_posterior(Empirical(3), EmpiricalPosterior(model.layout, weights))
    assert bank.useful_draws(10) == 3
    assert bank.useful_draws(2) == 2
    drawn = [bank.layout.flatten(tensors) for tensors in bank.draws(3, torch.Generator().manual_seed(0))]
    assert sorted(float(one.sum()) for one in drawn) == sorted(float(one.sum()) for one in weights)


def test_nobody_outside_the_room_asks_for_the_class_of_a_posterior() -> None:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "posteriors" in path.parts or "Posterior" not in text or "isinstance" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
                kinds = [n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)]
                found += [f"{path.name}:{node.lineno} {kind}" for kind in kinds if kind.endswith("Posterior")]
    # Whether an object is a posterior at all is a fair question.
    assert [line for line in found if not line.endswith(" Posterior")] == []
