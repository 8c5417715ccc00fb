"""Settings of samplers: what is refused, and when draws are kept."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell.errors import DivergenceError, SettingError
from bayeswell.random import LEAST_COUNTED, make_generator
from bayeswell.registry import settings_of
from bayeswell.samplers import PSGLD, SAMPLERS, SGHMC, SGLD, CyclicalSGLD, Sampler
from bayeswell.types import Progress
from samplers.chains import take


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SGLD(lr=0.0), "sgld: lr = 0.0; it must be a finite number above 0"),
        (lambda: SGLD(lr=math.inf), "sgld: lr = inf"),
        (lambda: SGLD(temperature=-0.1), "sgld: temperature = -0.1; it must be a finite number of at least 0"),
        (lambda: SGLD(gamma=0.5), "sgld: gamma = 0.5; it must lie in (0.5, 1], or be None for a constant rate"),
        (lambda: SGLD(gamma=1.01), "sgld: gamma = 1.01"),
        (lambda: SGLD(gamma=math.nan), "sgld: gamma = nan"),
        (lambda: SGLD(b=0.0), "sgld: b = 0.0"),
        (lambda: SGHMC(lr=-1.0), "sghmc: lr = -1.0"),
        (lambda: SGHMC(momentum=1.0), "sghmc: momentum = 1.0; it must lie in [0, 1)"),
        (lambda: SGHMC(integrator="eulr"), "unknown integrator 'eulr'; did you mean 'euler'? allowed: baoab, euler"),
        (lambda: PSGLD(decay=1.0), "psgld: decay = 1.0; it must lie in [0, 1)"),
        (lambda: PSGLD(damping=0.0), "psgld: damping = 0.0"),
        (lambda: PSGLD(adapt_steps=0), "psgld: adapt_steps = 0"),
        (lambda: CyclicalSGLD(cycles=0), "cyclical_sgld: cycles = 0"),
        (lambda: CyclicalSGLD(exploration=1.0), "cyclical_sgld: exploration = 1.0; it must lie in [0, 1)"),
        (lambda: CyclicalSGLD(exploration=0.6, collection=0.5), "collection = 0.5; it must lie in [0.6, 1)"),
        (lambda: CyclicalSGLD().sampling(Progress(3)), "Progress(total_steps=...)"),
        (lambda: built(SGLD(), dataset_size=0), "sgld: dataset_size = 0; it must be a whole number of at least 1"),
        (lambda: built(SGLD(), dataset_size=2.5), "sgld: dataset_size = 2.5"),
        (lambda: built(SGLD(), generator=None), "sgld: generator = None; it must be a torch.Generator"),
        (lambda: built(SGLD(), lr=-0.1), "sgld: lr = -0.1"),
        (lambda: built(SGLD(), noise=0), "sgld: noise = 0; it must be True or False"),
        (lambda: built(SGLD(), params=[nn.Parameter(torch.zeros(2, device="meta"))]), "parameter 0 of its group is on"),
        (
            lambda: built(SGLD(), name="means", params=[nn.Parameter(torch.zeros(2, device="meta"))]),
            "sgld: parameter 0 of group 'means' is on meta, but the generator draws on cpu",
        ),
        (lambda: built(CyclicalSGLD()), "cyclical_sgld needs the planned number of steps: total_steps=..."),
        (lambda: built(CyclicalSGLD(), total_steps=12), "12 steps in 4 cycles never reach the place collection = 0.75"),
        (lambda: SAMPLERS.resolve("sgdl"), "unknown sampler 'sgdl'; did you mean 'sgld'?"),
        (lambda: SAMPLERS.resolve({"name": "sgld", "tmperature": 1.0}), "did you mean 'temperature'?"),
    ],
)
def test_bad_settings_are_one_line(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(SettingError) as caught:
        make()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def built(
    part: Any,
    dataset_size: Any = 10,
    generator: Any = "fresh",
    total_steps: int | None = None,
    params: list[nn.Parameter] | None = None,
    **group: Any,
) -> Sampler:
    chosen = make_generator(1) if generator == "fresh" else generator
    members = params or [nn.Parameter(torch.zeros(2))]
    made: Sampler = part.build([{"params": members, **group}], dataset_size, chosen, total_steps)
    return made


def test_a_sparse_gradient_is_refused() -> None:
    layer = nn.Embedding(4, 2, sparse=True)
    sampler = SGLD().build(layer.named_parameters(), 5, make_generator(1))
    layer(torch.tensor([1])).sum().backward()
    with pytest.raises(SettingError, match="parameter 'weight' has a sparse gradient"):
        sampler.step()


@pytest.mark.parametrize("name", list(SAMPLERS))
def test_every_registered_sampler(name: str) -> None:
    part = SAMPLERS.resolve(name)
    assert SAMPLERS.resolve(settings_of(part)) == part
    summary, paper = SAMPLERS.summaries()[name]
    assert summary
    assert paper
    weights = nn.Parameter(torch.zeros(3))
    sampler = part.build([("weights", weights)], 100, make_generator(1), total_steps=1000)
    assert isinstance(sampler, torch.optim.Optimizer)
    take(sampler, [weights], [[torch.ones(3)]])
    assert bool((weights.detach() != 0).all())
    assert any(part.sampling(Progress(step, 1000)) for step in range(1000))


@pytest.mark.parametrize(("cycles", "total"), [(4, 100), (3, 100), (7, 61)])
def test_cycles_fill_the_run_and_draws_come_from_their_ends(cycles: int, total: int) -> None:
    part = CyclicalSGLD(lr=0.3, cycles=cycles, exploration=0.4, collection=0.7)
    sampler = part.build([nn.Parameter(torch.zeros(1))], 5, make_generator(1), total)
    rates, keeps, noisy = [], [], []
    for step in range(total):
        sampler.steps = step
        rates += sampler.learning_rates()
        keeps.append(part.sampling(Progress(step, total)))
        noisy.append(sampler.rate.noisy(step))
    starts = [0] + [t for t in range(1, total) if rates[t] > rates[t - 1]]
    assert len(starts) == cycles
    lengths = np.diff([*starts, total])
    assert lengths.max() - lengths.min() <= 1  # no stump at the end
    assert rates[0] == 0.3
    assert all(
        rate <= 0.15 * (math.cos(0.7 * math.pi) + 1) + 1e-12 for rate, keep in zip(rates, keeps, strict=True) if keep
    )
    assert all(noise for noise, keep in zip(noisy, keeps, strict=True) if keep)
    assert sum(noisy) == pytest.approx(0.6 * total, abs=cycles)
    assert sum(keeps) == pytest.approx(0.3 * total, abs=cycles)


@pytest.mark.parametrize("lr", [None, 0.3])
@pytest.mark.parametrize(("total", "cycles"), [(40, 1), (2999, 1), (3000, 2), (6000, 4), (50_000, 4)])
def test_a_cycle_that_is_too_short_is_not_begun(lr: float | None, total: int, cycles: int) -> None:
    """Left to itself it takes as many as have 1,500 steps; rate and collection agree on them."""
    part = CyclicalSGLD(lr=lr, cycles=None)
    assert part.cycles_in(total) == cycles
    keeps = [part.sampling(Progress(step, total)) for step in range(total)]
    assert sum(after > before for before, after in itertools.pairwise(keeps)) == cycles
    sampler: Any = part.build([nn.Parameter(torch.zeros(1))], 5, make_generator(1), total)
    assert (sampler.plan.cycles if lr is None else sampler.rate.cycles) == cycles
    assert CyclicalSGLD(lr=lr, cycles=3).cycles_in(total) == 3


def test_psgld_keeps_draws_once_its_scale_is_fixed() -> None:
    part = PSGLD(adapt_steps=50)
    assert [part.sampling(Progress(step)) for step in (0, 49, 50, 500)] == [False, False, True, True]
    assert PSGLD().sampling(Progress(0))


@pytest.mark.parametrize("size", [5, LEAST_COUNTED])
def test_psgld_refuses_a_gradient_that_comes_after_the_averaging(size: int) -> None:
    """Nothing was averaged for it: its preconditioner would be 0/0. Nothing is changed, compiled or not."""
    early, late = torch.nn.Parameter(torch.ones(5)), torch.nn.Parameter(torch.ones(size))
    sampler = PSGLD(lr=1e-3, adapt_steps=1).build([early, late], 100, bw.make_generator(0))
    early.grad = torch.full((5,), 0.3)
    sampler.step()
    late.grad = torch.full((size,), 0.2)
    before = early.detach().clone(), late.detach().clone()
    with pytest.raises(DivergenceError):
        sampler.step()
    assert torch.equal(early, before[0])
    assert torch.equal(late, before[1])
