"""Noise in the place of test images: by the run's seed, or the same for all runs where it has a seed of its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from bayeswell.datasets import load_data, load_inputs, noise_like
from bayeswell.errors import SettingError
from bayeswell.experiments import Experiment, load_problem

OWN = {"name": "noise", "seed": 3}


def outside(small: Experiment, **settings: Any) -> Tensor:
    """In raw units: what a picture of them would show."""
    problem = load_problem(small.changed({"validation": 0.3, **settings}))
    assert problem.ood_inputs is not None
    return problem.data.scaling.raw_inputs(problem.ood_inputs)


@pytest.mark.parametrize("choice", [OWN, {"name": "corrupted", "seed": 3}], ids=["noise", "corrupted"])
def test_a_seed_of_its_own_gives_every_run_the_same_images(choice: dict[str, Any], small: Experiment) -> None:
    first = outside(small, ood=choice, seed=0, method="map")
    for changes in ({"seed": 5}, {"method": "bbb", "seed": 1}, {"validation": None}, {"standardise": False}):
        assert torch.allclose(outside(small, ood=choice, **changes), first, atol=1e-5)
    assert not torch.allclose(outside(small, ood={**choice, "seed": 4}), first, atol=1e-2)


def test_without_one_they_follow_the_seed_of_the_run_and_are_what_they_were(small: Experiment) -> None:
    first = outside(small, ood="noise", seed=0)
    assert torch.equal(outside(small, ood="noise", seed=0, method="bbb"), first)
    assert not torch.allclose(outside(small, ood="noise", seed=1), first, atol=1e-2)
    data = load_data("digits")
    assert torch.equal(load_inputs("noise", data, seed=3), noise_like(data.test[0], seed=3))


def test_they_have_the_mean_and_std_of_the_test_images() -> None:
    data = load_data("digits")
    noise = load_inputs(OWN, data)
    count = noise.numel()
    std = float(data.test[0].std())
    assert abs(float(noise.mean() - data.test[0].mean())) < 5 * std / count**0.5
    assert abs(float(noise.std()) - std) < 5 * std / (2 * count) ** 0.5


@pytest.mark.parametrize("seed", [-1, 1.5, True, "a"])
def test_what_is_no_seed_is_refused(seed: Any) -> None:
    with pytest.raises(SettingError, match="noise: seed = "):
        Experiment(ood={"name": "noise", "seed": seed})
