"""Whole training steps have the same gradients with the compiled formulas and without."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell import native
from bayeswell.random import make_generator
from native.formulas import needs_library, numbers
from nets import lift

ONE_PASS = {"draw_and_kl", "slopes"}

POSTERIORS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "mean_field": ({"name": "mean_field"}, ONE_PASS),
    "softplus": ({"name": "mean_field", "parameter": "rho"}, set()),
    "k_tied": ({"name": "k_tied", "rank": 2}, {"tied_draw_and_kl", "tied_slopes"}),
}

LOW_RANK = {"low_rank_draw_and_kl", "low_rank_slopes"}

POINT: tuple[dict[str, Any], set[str]] = ({"name": "delta"}, {"half_squares", "half_squares_slope"})

ESTIMATORS: dict[str, tuple[dict[str, Any], set[str], bool]] = {
    # ... what of the noise is compiled, and whether there is one draw at most
    "one draw": ({"name": "weight_sampling"}, {"normals"}, True),
    "two draws": ({"name": "weight_sampling", "draws": 2}, {"normals"}, False),
    "local": ({"name": "local_reparameterization"}, set(), True),
    "flipout": ({"name": "flipout"}, {"normals"}, True),
}

each_choice_of_prior = pytest.mark.parametrize(
    "prior", ["kaiming", {"name": "normal", "std": 1.7}], ids=["by site", "scalar"]
)


@needs_library
@pytest.mark.parametrize("posterior", POSTERIORS)
@each_choice_of_prior
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_training_step_has_the_same_gradients(posterior: str, prior: Any, estimator: str, calls: list[str]) -> None:
    (chosen, formulas), (how, of_noise, one) = POSTERIORS[posterior], ESTIMATORS[estimator]
    model = lift(small_network(), {**chosen, "initial_std": 0.03}, prior=prior, estimator=how)
    used = check_training_step(model, calls)
    assert used >= of_noise | (formulas if one else set())


@needs_library
@each_choice_of_prior
@pytest.mark.parametrize("draws", [1, 3])
def test_a_training_step_of_a_point_has_the_same_gradients(prior: Any, draws: int, calls: list[str]) -> None:
    how = {"name": "weight_sampling", "draws": draws}
    model = lift(small_network(), POINT[0], prior=prior, estimator=how)
    assert check_training_step(model, calls) == POINT[1]
    # By hand: kl = sum [m^2 / (2 p^2) + log p + log(2 pi) / 2] = -log p(w).
    mean, std = model.posterior.mean_vector().detach().double(), model.prior.std_vector().double()
    expected = -torch.distributions.Normal(torch.zeros_like(std), std).log_prob(mean).sum()
    noise = torch.zeros(draws, 0)
    weights, kl = model.posterior.sample_and_kl(noise, model.prior)
    assert weights is not None
    assert torch.equal(weights, model.posterior.mean_vector().expand(draws, -1))
    assert kl.item() == pytest.approx(float(expected), rel=1e-6)
    upstream = numbers(draws * len(mean), 3, 0.3).view(draws, -1)
    (found,) = torch.autograd.grad((weights, kl), model.posterior.mean, (upstream, torch.tensor(0.7)))
    torch.testing.assert_close(
        found.double(), upstream.double().sum(0) + 0.7 * mean / std.square(), rtol=1e-5, atol=1e-5
    )


@needs_library
@each_choice_of_prior
@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("draws", [1, 2])
def test_a_training_step_of_low_rank_has_the_same_gradients(
    prior: Any, rank: int, draws: int, calls: list[str]
) -> None:
    how = {"name": "weight_sampling", "draws": draws}
    model = lift(small_network(), {"name": "low_rank", "rank": rank, "initial_std": 0.03}, prior=prior, estimator=how)
    used = check_training_step(model, calls)
    assert used >= LOW_RANK if draws == 1 else not used & LOW_RANK


def small_network() -> nn.Module:
    """Layers of several kinds, large enough for noise of the compiled generator."""
    torch.manual_seed(41)
    return nn.Sequential(nn.Conv1d(2, 3, 5), nn.Tanh(), nn.Flatten(), nn.Linear(243, 140), nn.Tanh(), nn.Linear(140, 5))


def check_training_step(model: bw.BayesianModule, calls: list[str]) -> set[str]:
    """The same with the compiled formulas and without; the names of those that were called come back."""
    inputs = numbers(20 * 170, 43).view(20, 2, 85)
    targets = torch.arange(20) % 5
    objective = bw.ELBO("categorical", dataset_size=1000)

    def step() -> dict[str, Tensor]:
        model.zero_grad()
        terms = objective(model, inputs, targets, generator=make_generator(47))
        terms.total.backward()
        found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        return {**found, "total": terms.total.detach(), "kl": terms.kl}

    calls.clear()
    found, used = step(), set(calls)
    calls.clear()
    with native.disabled():
        eager = step()
    assert calls == []
    assert set(found) == set(eager)
    assert len(found) == 2 + len(list(model.parameters()))
    for name, grad in eager.items():
        scale = float(grad.abs().max())
        assert scale > 0
        torch.testing.assert_close(
            found[name], grad, rtol=1e-5, atol=1e-5 * scale, msg=lambda text, n=name: f"{n}: {text}"
        )
    return used
