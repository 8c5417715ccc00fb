"""Settings drawn near a few values: the thesis' distribution, the same in studies and in sweeps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bayeswell.errors import SettingError
from bayeswell.random_settings import drawn_between, drawn_near
from bayeswell.sweeps import Near, parse_space, run_sweep
from bayeswell.sweeps.space import check_space

DRAWS = 4000
ALPHA = 1e-6
"""How often a right distribution would fail a test, over seeds; the seeds here are fixed."""


def mixture_cdf(x: Any, values: tuple[float, ...], below: float) -> Any:
    """P(value <= x): the mean over v of N(v, v/2) cut to (0, below)."""
    cuts = [stats.truncnorm(-2, (below - v) / (v / 2), loc=v, scale=v / 2) for v in values]
    return np.mean([cut.cdf(x) for cut in cuts], axis=0)


@pytest.mark.parametrize(("values", "below"), [((0.3,), math.inf), ((0.02, 0.3), math.inf), ((0.4, 0.9), 1.0)])
def test_the_distribution_is_the_mixture_of_cut_normals(values: tuple[float, ...], below: float) -> None:
    """At 4,000 draws the Kolmogorov-Smirnov distance is above 0.043 once in a million; a std of 0.4 v is 0.054 off."""
    drawn = np.array([drawn_near(values, seed, below) for seed in range(DRAWS)])
    assert stats.kstest(drawn, lambda x: mixture_cdf(x, values, below)).pvalue > ALPHA
    assert drawn.min() > 0
    assert drawn.max() < below
    # Its mean, by the moments of the cut normals: within z(1e-6) = 4.9 standard errors.
    cuts = [stats.truncnorm(-2, (below - v) / (v / 2), loc=v, scale=v / 2) for v in values]
    mean = np.mean([cut.mean() for cut in cuts])
    variance = np.mean([cut.var() + cut.mean() ** 2 for cut in cuts]) - mean**2
    assert abs(drawn.mean() - mean) < 4.9 * math.sqrt(variance / DRAWS)


def test_rounding_does_not_lead_out_of_bounds() -> None:
    """Seed 117 draws 0.99998, which has four digits as 1."""
    first = np.random.Generator(np.random.PCG64(117))
    first.integers(1)
    draws = iter(lambda: float(first.normal(1.0, 0.5)), None)
    assert next(draw for draw in draws if 0 < draw < 1) == pytest.approx(0.99998, abs=2e-6)
    assert drawn_near([1.0], 117, below=1.0) < 1


def test_zero_stays_zero_and_draws_depend_on_the_seed_alone() -> None:
    assert drawn_near([0], 3) == 0
    assert drawn_near([0.1, 0.2], 7) == drawn_near([0.1, 0.2], 7) != drawn_near([0.1, 0.2], 8)
    assert drawn_between(0.1, 0.2, 7) == drawn_between(0.1, 0.2, 7) != drawn_between(0.1, 0.2, 8)


def first(settings: Mapping[str, Any], folder: Path) -> float:
    return float(settings["lr"])


def test_a_sweep_draws_it_by_seed_and_number_alone_and_records_it(tmp_path: Path) -> None:
    space = {"lr": "near:0.02,0.3", "momentum": "near:0,0.9:below=1", "k": "1:5"}
    one = run_sweep(first, space, tmp_path / "a", trials=30, sampler="random", seed=4)
    two = run_sweep(first, space, tmp_path / "b", trials=5, sampler="random", seed=4)
    other = run_sweep(first, space, tmp_path / "c", trials=5, sampler="random", seed=5)
    assert [trial.settings for trial in two.trials] == [trial.settings for trial in one.trials[:5]]
    assert all(x.settings["lr"] != y.settings["lr"] for x, y in zip(two.trials, other.trials, strict=True))
    assert [trial.value for trial in one.trials] == [trial.settings["lr"] for trial in one.trials]
    rates = [trial.settings["lr"] for trial in one.trials]
    assert stats.kstest(rates, lambda x: mixture_cdf(x, (0.02, 0.3), math.inf)).pvalue > ALPHA
    momenta = [trial.settings["momentum"] for trial in one.trials]
    assert all(0 <= momentum < 1 for momentum in momenta)
    assert 0 in momenta  # with a chance of 1e-9 not, over seeds
    assert max(momenta) > 0


def test_how_it_is_written() -> None:
    space = parse_space(["stepper.lr = near:1e-3,0.01", "stepper.momentum=near:0.5,0.9:below=1"])
    assert space == {"stepper.lr": Near((0.001, 0.01)), "stepper.momentum": Near((0.5, 0.9), 1.0)}
    assert check_space(space) == space


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("near:", "write numbers"),
        ("near:a", "write numbers"),
        ("near:1:2", "write numbers"),
        ("near:-1", "numbers of at least 0"),
        ("near:nan", "numbers of at least 0"),
        ("near:0.5:below=x", "write numbers"),
        ("near:0.5,0.9:below=0.6", "no value may lie above it"),
        ("near:0:below=0", "it must be a number above 0"),
    ],
)
def test_what_cannot_be_drawn_is_refused(text: str, said: str) -> None:
    with pytest.raises(SettingError, match="space: lr = ") as caught:
        parse_space([f"lr={text}"])
    assert said in str(caught.value)


def test_tpe_is_told_that_it_cannot(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="drawn at random, which tpe does not do; take --sampler random"):
        run_sweep(first, {"lr": "near:0.1"}, tmp_path / "s", trials=2)
