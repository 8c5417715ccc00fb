"""Every combination of parts works, or is refused with a way out."""

from __future__ import annotations

import re
import warnings
from functools import cache
from itertools import product
from typing import Any

import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell.random import seed_global_generator
from nets import (
    make,
)

AXES = {
    "posterior": list(bw.POSTERIORS),
    "estimator": list(bw.ESTIMATORS),
    "prior": list(bw.PRIORS),
    "divergence": list(bw.DIVERGENCES),
}

Parts = dict[str, Any]


def step(parts: Parts) -> str:
    """Train one step with these parts: the refusal, or '' if every parameter got a finite gradient and moved."""
    return _step(**parts)


@cache
def _lifted(posterior: str, estimator: str, prior: str) -> bw.BayesianModule | str:
    """The model, which every divergence leaves as it was, or the refusal."""
    seed_global_generator(61)
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.LayerNorm(3), nn.Linear(3, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bw.BayeswellWarning)
        try:
            return bw.bayesian(net, posterior, prior, estimator)
        except bw.CompositionError as refusal:
            return str(refusal)


@cache  # the remedies of many refusals lead to the same few combinations
def _step(posterior: str, estimator: str, prior: str, divergence: str | None) -> str:
    model = _lifted(posterior, estimator, prior)
    if isinstance(model, str):
        return model
    seed_global_generator(61)
    x, y = torch.randn(4, 3), torch.tensor([0, 2, 1, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bw.BayeswellWarning)
        try:
            terms = bw.ELBO("categorical", 23, divergence=divergence)(model, x, y)
        except bw.CompositionError as refusal:
            return str(refusal)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    model.zero_grad()
    terms.total.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.isfinite().all()), name
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    moved = [not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True)]
    with torch.no_grad():
        for parameter, old in zip(model.parameters(), before, strict=True):
            parameter.copy_(old)
    dead = [name for (name, _), changed in zip(model.named_parameters(), moved, strict=True) if not changed]
    assert not dead, f"no step for {dead}"
    return ""


def remedies(parts: Parts, refusal: str) -> list[Parts]:
    """The combinations that a refusal offers: "use estimator 'a' or 'b', or posterior 'c'"."""
    _, _, remedy = refusal.partition("use ")
    offered: dict[str, list[Any]] = {axis: [parts[axis]] for axis in parts}
    axis = ""
    for kind, name in re.findall(r"(?:(posterior|estimator|prior|divergence) )?'(\w+)'", remedy):
        axis = kind or axis
        assert name in AXES.get(axis, []), f"'{name}' is no {axis or 'part'}: {refusal}"
        offered[axis].append(name)
    return [dict(zip(parts, choice, strict=True)) for choice in product(*offered.values())][1:]


def has_way_out(parts: Parts, rounds: int = 3) -> bool:
    """Whether following the remedies ends in parts that train; a second fault may come to light on the way."""
    refusal = step(parts)
    if not refusal:
        return True
    return rounds > 0 and any(has_way_out(way, rounds - 1) for way in remedies(parts, refusal) if way != parts)


@pytest.mark.parametrize("posterior", AXES["posterior"])
@pytest.mark.parametrize("estimator", AXES["estimator"])
def test_every_combination_trains_or_is_refused_with_a_remedy_that_works(posterior: str, estimator: str) -> None:
    for prior, divergence in product(AXES["prior"], [None, *AXES["divergence"]]):
        parts = {"posterior": posterior, "estimator": estimator, "prior": prior, "divergence": divergence}
        refusal = step(parts)
        if not refusal:
            continue
        assert "\n" not in refusal
        fault, _, remedy = refusal.partition("use ")
        # Where no divergence is chosen, the objective takes one of two.
        chosen = [posterior, estimator, prior, *([divergence] if divergence else ["analytic", "monte_carlo"])]
        assert sum(f"'{name}'" in fault for name in chosen) >= 2, f"{parts}: {refusal}"
        if fault.startswith("estimator"):
            assert f"'{estimator}'" not in remedy, f"what does not work is offered as the remedy: {refusal}"
        assert has_way_out(parts), f"{parts}: no way out in: {refusal}"


@pytest.mark.parametrize("prior", AXES["prior"])
@pytest.mark.parametrize("posterior", AXES["posterior"])
def test_some_divergence_is_found_where_none_is_chosen(posterior: str, prior: str) -> None:
    """With weight sampling every prior works: log p(w) is known at each draw, and exact for a single point."""
    refusal = step({"posterior": posterior, "estimator": "weight_sampling", "prior": prior, "divergence": None})
    assert not refusal or refusal.startswith("estimator"), refusal


def test_the_known_illegal_pairs_are_refused() -> None:
    """The list that this test would miss if every part declared that it can do everything."""
    for estimator in ("flipout", "local_reparameterization", "variational_laplace"):
        for posterior in ("low_rank", "matrix_normal", "full", "delta"):
            refusal = step({"posterior": posterior, "estimator": estimator, "prior": "normal", "divergence": None})
            assert f"'{estimator}'" in refusal
            assert f"'{posterior}'" in refusal
    for divergence in ("monte_carlo", "path_derivative", "score_function"):
        for estimator in ("local_reparameterization", "variational_laplace"):
            refusal = step(
                {"posterior": "mean_field", "estimator": estimator, "prior": "normal", "divergence": divergence}
            )
            assert f"'{divergence}'" in refusal
            assert f"'{estimator}'" in refusal


def test_a_refused_combination_leaves_the_network_as_it_was() -> None:
    net, _ = make("normalised")
    before = {name: value.clone() for name, value in net.state_dict().items()}
    state = torch.get_rng_state()
    with pytest.raises(bw.CompositionError):
        bw.bayesian(net, "full", estimator="flipout")
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())
