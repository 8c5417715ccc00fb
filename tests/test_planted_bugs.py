"""A test of the tests: classic faults are planted one at a time, and the named checks must turn red.

Each plant replaces one function of the package. A check that stays green under a fault that it is named for
has lost its teeth.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

import bayeswell as bw
import test_schedules as schedules
from bayeswell.divergences import MonteCarlo, monte_carlo
from bayeswell.estimators import flipout, local_reparameterization, weight_sampling
from bayeswell.likelihoods import categorical, gaussian
from bayeswell.posteriors.factorised import FactorisedPosterior
from bayeswell.posteriors.full import FullPosterior
from bayeswell.priors.flat import FlatPrior
from bayeswell.priors.normal import GaussianDensity
from bayeswell.types import Posterior
from divergences import test_divergences as divergences
from estimators import test_variational_laplace as laplace
from objectives import test_objective as objectives
from posteriors import test_linear_regression as linear
from posteriors import test_logistic_regression as logistic

Check = Callable[[], None]
Patch = pytest.MonkeyPatch


def exact_training() -> None:
    """The check with a fifth of its L-BFGS iterations: right gradients need 30, wrong ones would use up all 300."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear, "train_exactly", partial(linear.train_exactly, iterations=60))
        linear.check_exact_training_reaches_the_mean_field_optimum()


CHECKS: dict[str, Check] = {
    "exact training, mean-field": exact_training,
    "reported ELBO, weight_sampling": partial(linear.check_reported_elbo_at_any_gaussian, "weight_sampling"),
    "reported ELBO, local_reparameterization": partial(
        linear.check_reported_elbo_at_any_gaussian, "local_reparameterization"
    ),
    "reported ELBO, flipout": partial(linear.check_reported_elbo_at_any_gaussian, "flipout"),
    "log evidence in every draw": linear.check_full_elbo_is_the_log_evidence_in_every_draw,
    "reported ELBO, logistic": logistic.check_reported_elbo_by_quadrature,
    "total by hand": objectives.check_total_by_hand,
    "epoch gradient, ragged": partial(objectives.check_epoch_gradient, bw.Uniform(), 7),
    "epoch gradient, geometric": partial(objectives.check_epoch_gradient, bw.Geometric(0.5), 5),
    "share of the KL": objectives.check_kl_share,
    "no data, mean_field": partial(objectives.check_no_data_returns_the_prior, "mean_field"),
    "no data, full": partial(objectives.check_no_data_returns_the_prior, "full"),
    "analytic KL, mean_field": partial(divergences.check_analytic_value, "mean_field"),
    "analytic KL, full": partial(divergences.check_analytic_value, "full"),
    "sampled KL, mean_field": partial(divergences.check_sampled_value, "mean_field"),
    "sampled KL, full": partial(divergences.check_sampled_value, "full"),
    "expected gradient, total": partial(divergences.check_expected_gradient, "monte_carlo"),
    "expected gradient, path": partial(divergences.check_expected_gradient, "path_derivative"),
    "expected gradient, score": partial(divergences.check_expected_gradient, "score_function"),
    "path at the exact posterior": divergences.check_path_gradient_vanishes_at_the_exact_posterior,
    "KL weights": partial(schedules.check_shares_sum_to_one, bw.Geometric(0.5), 8),
    "variational Laplace is the ELBO": laplace.check_equals_the_elbo,
    "variational Laplace, own noise": laplace.check_equals_the_elbo_with_its_own_noise,
    "Fisher in expectation": partial(laplace.check_penalty_is_the_fisher, "fisher_reparameterised"),
    "sampled Fisher": partial(laplace.check_sampled_square_is_unbiased, "fisher_labels"),
}


@dataclass(frozen=True)
class Plant:
    """A fault, how to plant it, and the checks that must see it."""

    fault: str
    apply: Callable[[Patch], None]
    seen_by: tuple[str, ...]


def scaled_kl(owner: Any, factor: Callable[[Posterior], float]) -> Callable[[Patch], None]:
    """Multiply the KL that the owner's `sample_and_kl` returns."""

    def apply(patch: Patch) -> None:
        true = owner.sample_and_kl

        def planted(self: Posterior, noise: Tensor | None, prior: Any) -> tuple[Tensor | None, Tensor]:
            weights, kl = true(self, noise, prior)
            return weights, factor(self) * kl

        patch.setattr(owner, "sample_and_kl", planted)

    return apply


def other_kl(kl: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Callable[[Patch], None]:
    """Replace the KL of factorised posteriors by a function of means, stds and prior stds, summed over weights."""

    def apply(patch: Patch) -> None:
        def planted(self: FactorisedPosterior, noise: Tensor | None, prior: Any) -> tuple[Tensor | None, Tensor]:
            weights = None if noise is None else self.sample(noise)
            return weights, kl(self.mean_vector(), self.std_vector(), prior.std_vector()).sum()

        patch.setattr(FactorisedPosterior, "sample_and_kl", planted)

    return apply


def swapped(mean: Tensor, std: Tensor, prior_std: Tensor) -> Tensor:
    return (std / prior_std).log() + (prior_std.square() + mean.square()) / (2 * std.square()) - 0.5


def std_for_variance(mean: Tensor, std: Tensor, prior_std: Tensor) -> Tensor:
    return (prior_std / std).log() + (std + mean.square()) / (2 * prior_std.square()) - 0.5


def right(mean: Tensor, std: Tensor, prior_std: Tensor) -> Tensor:
    return (prior_std / std).log() + (std.square() + mean.square()) / (2 * prior_std.square()) - 0.5


def weak_noise(module: Any) -> Callable[[Patch], None]:
    """Noise x 0.9 in one module."""

    def apply(patch: Patch) -> None:
        true = module.standard_normal
        patch.setattr(module, "standard_normal", lambda *args, **named: 0.9 * true(*args, **named))

    return apply


def weak_draw(patch: Patch) -> None:
    true = FactorisedPosterior.sample_and_kl

    def planted(self: FactorisedPosterior, noise: Tensor | None, prior: Any) -> tuple[Tensor | None, Tensor]:
        return true(self, None if noise is None else 0.9 * noise, prior)

    patch.setattr(FactorisedPosterior, "sample_and_kl", planted)


def prior_std_for_variance(patch: Patch) -> None:
    true = FlatPrior._derive

    def planted(self: FlatPrior) -> None:
        true(self)
        if self.inverse_variance_by_site is not None:
            self.inverse_variance_by_site = self.inverse_variance_by_site.sqrt()

    patch.setattr(FlatPrior, "_derive", planted)


def expectation_without_square(patch: Patch) -> None:
    def planted(mean: Tensor, std: Tensor, prior_std: Tensor) -> Tensor:
        return -(mean.square() + std) / (2 * prior_std.square()) - prior_std.log() - 0.5 * math.log(2 * math.pi)

    patch.setattr(GaussianDensity, "expected_log_prob", staticmethod(planted))


def density_without_square(patch: Patch) -> None:
    def planted(self: FactorisedPosterior, weights: Tensor) -> Tensor:
        std, log_std_sum = self.stds()
        squares = ((weights - self.mean).square() / std).sum(-1)
        return -0.5 * squares - log_std_sum - 0.5 * self.layout.size * math.log(2 * math.pi)

    patch.setattr(FactorisedPosterior, "forward", planted)


def likelihood_without_square(patch: Patch) -> None:
    def planted(self: bw.Gaussian, outputs: Tensor, targets: Tensor) -> Tensor:
        residual = targets.reshape(outputs.shape) - outputs
        values = 0.5 * residual.square() / self.std + math.log(self.std) + 0.5 * math.log(2 * math.pi)
        return values.flatten(1).sum(1)

    patch.setattr(gaussian.Gaussian, "nll", planted)


def penalty_without_square(patch: Patch) -> None:
    """The estimators that ask for a std square the root of it: sqrt(std)^2 = std where the variance belongs."""
    patch.setattr(FactorisedPosterior, "std_vector", lambda self: self.stds()[0].sqrt())
    patch.setattr(FactorisedPosterior, "variance_vector", lambda self: self.stds()[0])
    patch.setattr(FactorisedPosterior, "scaled_square_sum", lambda self, v: (self.stds()[0] * v.square()).sum())


def full_entropy_halved(patch: Patch) -> None:
    """log det of the covariance where that of its Cholesky factor belongs, or the other way round."""

    def planted(self: FullPosterior) -> Tensor:
        return 0.5 * self.log_diagonal.sum() + 0.5 * self.layout.size * math.log(2 * math.pi * math.e)

    patch.setattr(FullPosterior, "entropy", planted)


def sampled_kl_doubled(patch: Patch) -> None:
    true = MonteCarlo.__call__

    def planted(self: MonteCarlo, posterior: Any, prior: Any, noise: Any) -> tuple[Tensor | None, Tensor]:
        weights, kl = true(self, posterior, prior, noise)
        return weights, 2 * kl

    patch.setattr(MonteCarlo, "__call__", planted)


def factor(value: Callable[[bw.ELBO, Any], float]) -> Callable[[Patch], None]:
    """Another scale of the KL in the objective."""
    return lambda patch: patch.setattr(bw.ELBO, "_factor", lambda elbo, at, temperature: value(elbo, at))


def path_keeps_the_score(patch: Patch) -> None:
    patch.setattr(monte_carlo, "log_prob_at_constant_parameters", lambda posterior, weights: posterior(weights))


def path_forgets_the_density(patch: Patch) -> None:
    def planted(posterior: Posterior, weights: Tensor) -> Tensor:
        return posterior(weights.detach())

    patch.setattr(monte_carlo, "log_prob_at_constant_parameters", planted)


def labels_without_chance(patch: Patch) -> None:
    """The most likely label instead of a sampled one."""

    def planted(self: bw.Categorical, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        return outputs.argmax(1)

    patch.setattr(categorical.Categorical, "sample_targets", planted)


def root_without_root(patch: Patch) -> None:
    """p for sqrt(p) in the reparameterised Fisher."""

    def planted(self: bw.Categorical, outputs: Tensor, generator: torch.Generator | None) -> Tensor:
        p = outputs.softmax(1)
        u = p * categorical.random_signs(p.shape, like=p, generator=generator)
        return u - p * u.sum(1, keepdim=True)

    patch.setattr(categorical.Categorical, "curvature_root", planted)


PLANTS = [
    Plant(
        "KL x 2, factorised",
        scaled_kl(FactorisedPosterior, lambda q: 2.0),
        ("analytic KL, mean_field", "total by hand", "exact training, mean-field",
         "reported ELBO, weight_sampling", "reported ELBO, logistic", "variational Laplace is the ELBO"),
    ),
    Plant("KL x 2, correlated", scaled_kl(Posterior, lambda q: 2.0), ("analytic KL, full",)),
    Plant("KL x 2, sampled", sampled_kl_doubled, ("log evidence in every draw", "expected gradient, total")),
    Plant(
        "KL x 2, objective",
        factor(lambda elbo, at: 2 * elbo.temperature / elbo.dataset_size),
        ("total by hand", "exact training, mean-field", "variational Laplace is the ELBO"),
    ),
    Plant(
        "KL averaged over weights, factorised",
        scaled_kl(FactorisedPosterior, lambda q: 1 / q.layout.size),
        ("analytic KL, mean_field", "total by hand", "share of the KL", "exact training, mean-field",
         "reported ELBO, weight_sampling"),
    ),
    Plant(
        "KL averaged over weights, correlated",
        scaled_kl(Posterior, lambda q: 1 / q.layout.size),
        ("analytic KL, full",),
    ),
    Plant(
        "KL divided by N twice",
        factor(lambda elbo, at: elbo.temperature / elbo.dataset_size**2),
        ("total by hand", "share of the KL", "exact training, mean-field"),
    ),
    Plant(
        "KL not divided by N",
        factor(lambda elbo, at: elbo.temperature),
        ("total by hand", "share of the KL", "exact training, mean-field"),
    ),
    Plant(
        "KL direction swapped",
        other_kl(swapped),
        ("analytic KL, mean_field", "total by hand", "exact training, mean-field", "reported ELBO, logistic",
         "variational Laplace is the ELBO"),
    ),
    Plant("noise x 0.9, weight_sampling", weak_noise(weight_sampling), ("reported ELBO, weight_sampling",)),
    Plant("noise x 0.9, flipout", weak_noise(flipout), ("reported ELBO, flipout",)),
    Plant(
        "noise x 0.9, local_reparameterization",
        weak_noise(local_reparameterization),
        ("reported ELBO, local_reparameterization",),
    ),
    Plant(
        "noise x 0.9, in the draw",
        weak_draw,
        ("total by hand", "analytic KL, mean_field", "exact training, mean-field",
         "reported ELBO, weight_sampling"),
    ),
    Plant("noise x 0.9, sampled targets", weak_noise(gaussian), ("variational Laplace, own noise",)),
    Plant(
        "std for variance, in the KL",
        other_kl(std_for_variance),
        ("analytic KL, mean_field", "total by hand", "exact training, mean-field", "no data, mean_field"),
    ),
    Plant(
        "std for variance, in the prior",
        prior_std_for_variance,
        ("analytic KL, mean_field", "total by hand", "exact training, mean-field", "no data, mean_field"),
    ),
    Plant(
        "std for variance, in the expected prior density",
        expectation_without_square,
        ("analytic KL, full", "no data, full"),
    ),
    Plant(
        "std for variance, in log q",
        density_without_square,
        ("sampled KL, mean_field", "expected gradient, path", "expected gradient, score"),
    ),
    Plant(
        "std for variance, in the likelihood",
        likelihood_without_square,
        ("exact training, mean-field", "reported ELBO, weight_sampling", "log evidence in every draw",
         "path at the exact posterior"),
    ),
    Plant(
        "std for variance, in what estimators are told",
        penalty_without_square,
        ("variational Laplace is the ELBO", "reported ELBO, local_reparameterization"),
    ),
    Plant("entropy of half the log determinant", full_entropy_halved, ("analytic KL, full", "no data, full")),
    Plant(
        "ragged batch counted as a whole one",
        lambda patch: patch.setattr(bw.ELBO, "_share", lambda elbo, targets, at: 1.0),
        ("epoch gradient, ragged", "epoch gradient, geometric"),
    ),
    Plant(
        "KL weights that sum to 1 / M",
        lambda patch: patch.setattr(bw.Geometric, "__call__", lambda self, at: self.ratio ** (at.batch + 1)),
        ("KL weights", "epoch gradient, geometric"),
    ),
    Plant("path derivative with the score", path_keeps_the_score, ("path at the exact posterior",)),
    Plant(
        "path derivative without the path",
        path_forgets_the_density,
        ("path at the exact posterior", "expected gradient, path"),
    ),
    Plant("most likely label for a sampled one", labels_without_chance, ("sampled Fisher",)),
    Plant("p for sqrt(p) in the curvature root", root_without_root, ("Fisher in expectation",)),
]  # fmt: skip


@pytest.mark.parametrize("name", CHECKS)
def test_without_a_plant_every_check_is_green(name: str) -> None:
    CHECKS[name]()


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.fault)
def test_a_planted_bug_turns_its_checks_red(plant: Plant, monkeypatch: Patch) -> None:
    plant.apply(monkeypatch)
    blind = []
    for name in plant.seen_by:
        try:
            CHECKS[name]()
        except AssertionError:
            continue
        blind.append(name)
    assert not blind, f"these checks do not see '{plant.fault}': {blind}"


def test_the_planting_itself_is_no_fault(monkeypatch: Patch) -> None:
    """The replacements with the right formula in them leave the checks green: it is the fault that is seen."""
    other_kl(right)(monkeypatch)
    scaled_kl(Posterior, lambda q: 1.0)(monkeypatch)
    for name in ("analytic KL, mean_field", "total by hand", "analytic KL, full", "no data, mean_field"):
        CHECKS[name]()
