"""R-hat and effective sample size against slow direct formulas, known autocorrelation and chains that do not mix."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor

from bayeswell.errors import DataError
from bayeswell.metrics.chains import chain_report, ess, r_hat
from bayeswell.random import make_generator


def normal(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=make_generator(seed))


def autoregressive(correlation: float, chains: int, draws: int, quantities: int, seed: int = 1) -> Tensor:
    """Stationary AR(1) chains of variance 1."""
    noise = normal(chains, draws, quantities, seed=seed)
    values = [noise[:, 0]]
    for step in range(1, draws):
        values.append(correlation * values[-1] + math.sqrt(1 - correlation**2) * noise[:, step])
    return torch.stack(values, 1)


# ---------------------------------------------------------------------------------------------------------
# Slow formulas, one quantity at a time (Vehtari et al. 2021, sections 2 and 3).


def slow_split(draws: np.ndarray) -> np.ndarray:
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, draws.shape[1] - half :]])


def slow_scores(split: np.ndarray) -> np.ndarray:
    ranks = scipy.stats.rankdata(split, method="average").reshape(split.shape)
    return scipy.stats.norm.ppf((ranks - 3 / 8) / (split.size + 1 / 4))


def slow_r_hat(split: np.ndarray) -> float:
    count = split.shape[1]
    within, between = split.var(1, ddof=1).mean(), count * split.mean(1).var(ddof=1)
    return math.sqrt(((count - 1) / count * within + between / count) / within)


def slow_ess(split: np.ndarray) -> float:
    chains, count = split.shape
    within = split.var(1, ddof=1).mean()
    total = (count - 1) / count * within + split.mean(1).var(ddof=1)

    def rho(lag: int) -> float:
        centred = split - split.mean(1, keepdims=True)
        covariance = (centred[:, : count - lag] * centred[:, lag:]).sum(1).mean() / (count - 1)
        return 1 - (within - covariance) / total

    smallest, tau = math.inf, -1.0
    for t in range(count // 2):
        pair = rho(2 * t) + rho(2 * t + 1)
        if pair <= 0:
            break
        smallest = min(smallest, pair)
        tau += 2 * smallest
    return chains * count / max(tau, 1 / math.log10(chains * count))


@pytest.mark.parametrize(("chains", "draws"), [(1, 4), (1, 31), (3, 30), (4, 101)])
def test_against_slow_formulas(chains: int, draws: int) -> None:
    values = autoregressive(0.6, chains, draws, 6, seed=2).reshape(chains, draws, 2, 3)
    values[..., 1, 0] = (2 * values[..., 1, 0]).round()  # ties
    values[..., 1, 1] = values[..., 1, 1] ** 3 + 50  # heavy tails, far from zero
    found = [r_hat(values), r_hat(values, rank_normalised=False), ess(values), ess(values, rank_normalised=False)]
    for row in range(2):
        for column in range(3):
            split = slow_split(values[..., row, column].numpy())
            folded = np.abs(split - np.median(split))
            wanted = [
                max(slow_r_hat(slow_scores(split)), slow_r_hat(slow_scores(folded))),
                slow_r_hat(split),
                slow_ess(slow_scores(split)),
                slow_ess(split),
            ]
            got = [float(answer[row, column]) for answer in found]
            assert got == pytest.approx(wanted, rel=1e-9), (row, column)


def test_quantities_are_worked_on_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    values = autoregressive(0.5, 2, 40, 11)
    whole = r_hat(values), ess(values)
    monkeypatch.setattr("bayeswell.metrics.chains._AT_ONCE", 200)
    torch.testing.assert_close((r_hat(values), ess(values)), whole, rtol=1e-12, atol=0)


# ---------------------------------------------------------------------------------------------------------
# Known answers.


@pytest.mark.parametrize("correlation", [0.9, 0.3, -0.4])
@pytest.mark.parametrize("rank_normalised", [True, False])
def test_ess_of_autoregressive_chains(correlation: float, rank_normalised: bool) -> None:
    """S (1 - r) / (1 + r): the mean over 200 quantities, within six standard errors and 3 % for its own bias.

    The second truth needs no autocorrelation: the variance of the mean of all draws is 1 / ESS.
    """
    chains, draws, quantities = 4, 1000, 200
    values = autoregressive(correlation, chains, draws, quantities, seed=3)
    exact = chains * draws * (1 - correlation) / (1 + correlation)
    found = ess(values, rank_normalised=rank_normalised)
    error = float(found.std()) / math.sqrt(quantities)
    assert abs(float(found.mean()) - exact) < 6 * error + 0.03 * exact
    variance = float(values.mean((0, 1)).square().mean())
    assert abs(variance * float(found.mean()) - 1) < 6 * math.sqrt(2 / quantities)


def test_ess_of_independent_draws() -> None:
    values = normal(4, 1000, 50, seed=4)
    assert float(ess(values).mean()) == pytest.approx(4000, rel=0.05)


def test_r_hat_of_chains_that_mix() -> None:
    """Independent draws of any law, monotone transforms included: nothing to flag among 100 quantities."""
    values = normal(4, 1000, 100, seed=5)
    hats, sizes = r_hat(values), ess(values)
    assert float(hats.min()) > 1 - 1e-3
    assert float(hats.max()) < 1.01
    torch.testing.assert_close(ess(values.exp()), sizes, rtol=1e-12, atol=0)  # ranks are the same
    report = chain_report(values.reshape(4, 1000, 10, 10))
    assert report.converged
    assert not report.warnings
    assert report.r_hat == pytest.approx(float(hats.max()))
    assert report.ess == pytest.approx(float(sizes.min()))
    assert (report.chains, report.draws, report.quantities, report.constant) == (4, 1000, 100, 0)


def test_r_hat_of_shifted_chains_is_the_known_ratio() -> None:
    """Chain means +d and -d: B/n = 4 d^2 / 3 over four half chains, so R-hat^2 -> 1 + 4 d^2 / 3."""
    shift = 0.7
    values = normal(2, 20_000, seed=6) + shift * torch.tensor([[1.0], [-1.0]])
    assert float(r_hat(values, rank_normalised=False)) == pytest.approx(math.sqrt(1 + 4 * shift**2 / 3), rel=0.02)


SCALES = torch.tensor([1.0, 1.0, 1.0, 2.0], dtype=torch.float64)[:, None]
OFFSETS = torch.tensor([0.0, 0.0, 0.0, 1.0], dtype=torch.float64)[:, None]
NOT_MIXING = {
    "one chain elsewhere": normal(4, 1000, seed=7) + OFFSETS,
    "one chain wider": normal(4, 1000, seed=7) * SCALES,
    "all drift alike": normal(4, 1000, seed=7) + torch.linspace(-1, 1, 1000, dtype=torch.float64),
    "stuck in two modes": 0.1 * normal(4, 1000, seed=7) + torch.tensor([[-1.0], [1.0], [-1.0], [1.0]]),
    "too slow": autoregressive(0.999, 4, 1000, 1, seed=7)[..., 0],
    "heavy tails and one chain elsewhere": normal(4, 1000, seed=7) / normal(4, 1000, seed=8).abs() + 2 * OFFSETS,
    "each stands still somewhere else": torch.arange(4.0)[:, None].expand(4, 1000),
}


@pytest.mark.parametrize("name", NOT_MIXING)
def test_chains_that_do_not_mix_are_flagged(name: str) -> None:
    draws = NOT_MIXING[name]
    assert float(r_hat(draws)) > 1.01
    hidden = torch.cat([normal(4, 1000, 20, seed=9), draws[..., None]], -1)  # one bad quantity among twenty good
    report = chain_report(hidden)
    assert not report.converged
    assert "the chains have not mixed: R-hat" in report.warnings[0]


def test_what_only_ranks_and_folding_can_see() -> None:
    """The plain R-hat finds nothing in chains of different width: this is why it is not the default."""
    assert float(r_hat(NOT_MIXING["one chain wider"], rank_normalised=False)) < 1.01


def test_few_effective_draws_are_flagged() -> None:
    report = chain_report(autoregressive(0.9, 2, 60, 40, seed=10))
    assert not report.converged
    assert any(
        "too few effective draws: ESS" in line and "< 30 for 120 draws of 2 chains" in line for line in report.warnings
    )


# ---------------------------------------------------------------------------------------------------------
# Edges.


def test_constant_quantities() -> None:
    draws = normal(4, 500, 3, seed=11)
    draws[..., 1] = 0.1
    assert r_hat(draws).isnan().tolist() == [False, True, False]
    assert ess(draws).isnan().tolist() == [False, True, False]
    assert r_hat(draws, rank_normalised=False).isnan().tolist() == [False, True, False]
    report = chain_report(draws)
    assert report.constant == 1
    assert report.converged
    still = chain_report(torch.full((4, 500, 2), 0.1))
    assert not still.converged
    assert math.isnan(still.r_hat)
    assert still.warnings == ("the draws are all equal: the chains never moved",)


def test_chains_that_each_stand_still() -> None:
    apart = torch.tensor([0.1, 0.2, 0.3])[:, None].expand(3, 100)
    assert float(r_hat(apart)) == math.inf
    assert float(r_hat(apart, rank_normalised=False)) == math.inf
    assert float(ess(apart)) < 6


def test_types_and_gradients_are_left_behind() -> None:
    draws = normal(4, 200, 5, seed=12)
    single = draws.float().requires_grad_()
    # Rounding to float32 may change the order of two draws.
    torch.testing.assert_close(r_hat(single), r_hat(draws), rtol=1e-3, atol=0)
    assert not ess(single).requires_grad
    assert r_hat((10 * draws).long()).shape == (5,)


@pytest.mark.parametrize(
    ("draws", "words"),
    [
        (torch.zeros(5), r"shape \(5,\); they must be \(chains, draws, \.\.\.\) with at least 4 draws"),
        (torch.zeros(4, 3, 2), r"shape \(4, 3, 2\)"),
        (torch.zeros(4, 10, 0), r"shape \(4, 10, 0\)"),
        (torch.where(torch.arange(20).reshape(2, 10) == 13, math.nan, 1.0), r"NaN or inf .* = \(1, 3\)"),
    ],
)
def test_bad_draws_are_one_line(draws: Tensor, words: str) -> None:
    for function in (r_hat, ess, chain_report):
        with pytest.raises(DataError, match=words) as caught:
            function(draws)
        assert "\n" not in str(caught.value)
