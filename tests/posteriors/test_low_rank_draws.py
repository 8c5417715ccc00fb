"""Many draws of a low-rank posterior at once: the same as one at a time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell import native
from bayeswell.posteriors import draws_in_groups, factorised, low_rank_draws
from bayeswell.random import make_generator
from bayeswell.types import Posterior
from nets import lift, randomise

WEIGHTS = 201 * 180 + 180 + 180 * 3 + 3


def wide(rank: int, width: int = 180) -> bw.BayesianModule:
    """Enough weights for the counted noise, no whole number of blocks or pieces."""
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(201, width), nn.ReLU(), nn.Linear(width, 3))
    model = lift(net, {"name": "low_rank", "rank": rank, "initial_std": 0.2})
    randomise(model.posterior)
    return model


@pytest.mark.skipif(not native.available(), reason="the compiled library is not there, or turned off")
@pytest.mark.parametrize("rank", [1, 20])
@pytest.mark.parametrize("together", [1 << 15, 3 * WEIGHTS, 7 << 20])
def test_draws_are_those_of_sample(rank: int, together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is drawn together: the generator, the noise and the columns are the same, to rounding."""
    monkeypatch.setattr(low_rank_draws, "_TOGETHER", together)
    q = wide(rank).posterior
    generators = [make_generator(7), make_generator(7), make_generator(7)]
    with native.disabled():
        plain = [q.layout.flatten(tensors) for tensors in q.draws(7, generators[0])]
    alone = [q.layout.flatten(tensors) for tensors in Posterior.draws(q, 7, generators[1])]
    many = [q.layout.flatten(tensors) for tensors in q.draws(7, generators[2])]
    assert float((many[0] - many[1]).abs().mean()) > 0.1
    for one, other, third in zip(many, alone, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(one, third, rtol=1e-4, atol=1e-4)
    assert torch.equal(generators[1].get_state(), generators[2].get_state())


@pytest.mark.parametrize(
    "posterior", ["mean_field", {"name": "k_tied", "rank": 2}, {"name": "low_rank", "rank": 3}, "delta"]
)
@pytest.mark.parametrize(
    ("together", "most_of_few", "group"),
    [
        (5 * WEIGHTS, 1 << 26, 5),
        (WEIGHTS, 1 << 26, 1),
        (WEIGHTS - 1, 1 << 26, 4),
        (1, 2 * WEIGHTS, 2),
        (1, WEIGHTS - 1, 1),
    ],
    ids=["small", "as large as a cache", "large", "larger", "huge"],
)
def test_passing_draws_are_the_same_one_at_a_time(
    posterior: Any, together: int, most_of_few: int, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in the memory of those before, in groups of which the last is smaller: many small ones, or a few large ones.

    Large ones that are kept are made one at a time: who keeps one has its memory alone.
    """
    monkeypatch.setattr(low_rank_draws, "_PASSING", together)
    monkeypatch.setattr(low_rank_draws, "_TOGETHER", together)
    monkeypatch.setattr(factorised, "_TOGETHER", together)
    monkeypatch.setattr(draws_in_groups, "_MOST_OF_FEW", most_of_few)
    torch.manual_seed(1)
    model = lift(nn.Sequential(nn.Linear(201, 180), nn.ReLU(), nn.Linear(180, 3)), posterior)
    kept = list(model.draws(8, make_generator(7)))
    count, places = 0, set()
    for tensors, other in zip(model.passing_draws(8, make_generator(7)), kept, strict=True):
        assert all(torch.equal(tensors[name], tensor) for name, tensor in other.items())
        count += 1
        places.add(tensors["0.weight"].data_ptr())
    assert count == 8
    if native.available() and posterior != "delta":
        assert len(places) == group
        if together < WEIGHTS:
            assert len({tensors["0.weight"].untyped_storage().data_ptr() for tensors in kept}) == 8


def test_a_draw_that_is_kept_stays_as_it_is() -> None:
    q = wide(3).posterior
    networks = q.draws(40, make_generator(2))
    first = next(networks)
    before = {name: tensor.clone() for name, tensor in first.items()}
    for _ in networks:
        pass
    assert all(torch.equal(first[name], tensor) for name, tensor in before.items())
