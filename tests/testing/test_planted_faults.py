"""Each check refuses a part with a fault of its kind."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from bayeswell.averaging import SWA
from bayeswell.core.protocols import Estimator, OptimizerContext, OptimizerPart, Progress
from bayeswell.estimators import WeightSampling
from bayeswell.laplace import Laplace
from bayeswell.likelihoods import Gaussian
from bayeswell.objectives import Analytic, MonteCarlo
from bayeswell.posteriors import MeanField, MeanFieldPosterior, scale_std
from bayeswell.priors import GaussianPrior, Normal
from bayeswell.testing import PartError, check_part


def refuses(kind: str, part: Any, check: str, **hints: Any) -> None:
    with pytest.raises(PartError, match=f"check '{check}'"):
        check_part(kind, part, **hints)


# Priors: faults of the built prior -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class FaultyPrior:
    fault: str
    name: ClassVar[str] = ""

    def build(self, layout: Any, like: Tensor) -> Any:
        prior = Normal(0.7).build(layout, like)
        prior.__class__ = {
            "unnormalized": Unnormalized, "std": WrongStd, "expectation": WithoutSpread, "gradient": LostGradient,
            "coupled": Coupled, "scaled": NotScaled,
        }[self.fault]  # fmt: skip
        return prior


class Unnormalized(GaussianPrior):
    def log_prob(self, weights: Tensor) -> Tensor:
        return super().log_prob(weights) + 0.1


class WrongStd(GaussianPrior):
    def std(self) -> Tensor:
        return 1.1 * super().std()


class WithoutSpread(GaussianPrior):
    def expected_log_prob(self, mean: Tensor, std: Tensor) -> Tensor:
        return super().expected_log_prob(mean, 0 * std)


class LostGradient(GaussianPrior):
    def log_prob(self, weights: Tensor) -> Tensor:
        return super().log_prob(weights.detach()) + 0 * weights.sum(1)


class Coupled(GaussianPrior):
    def log_prob(self, weights: Tensor) -> Tensor:
        return super().log_prob(weights) - 0.1 * (weights[:, :1] * weights[:, 1:]).sum(1)


class NotScaled(GaussianPrior):
    def scaled(self, factor: float) -> Any:
        return self


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ("unnormalized", "density_is_normalized"),
        ("std", "center_and_std_are_its_moments"),
        ("expectation", "expected_log_prob_is_the_integral"),
        ("gradient", "log_prob_has_its_gradient"),
        ("coupled", "gaussian_terms_are_its_density"),
        ("scaled", "scaled_prior_is_a_density"),
    ],
)
def test_priors(fault: str, check: str) -> None:
    refuses("prior", FaultyPrior(fault), f"({check})")


# Likelihoods ---------------------------------------------------------------------------------------------------------


class Faulty(Gaussian):
    """A Gaussian likelihood with one fault."""

    name = "planted"

    def __init__(self, fault: str) -> None:
        super().__init__("known", 0.8)
        self.fault = fault

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        losses = super().nll(outputs.detach() if self.fault == "gradient" else outputs, targets)
        losses = losses + 0 * outputs.sum() if self.fault == "gradient" else losses
        if self.fault == "normalization":
            return losses - 0.5 * math.log(2 * math.pi)
        return {"mean": losses.mean().expand(len(losses)), "scalar": losses.mean()}.get(self.fault, losses)

    def sample(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        drawn = super().sample(outputs, None if self.fault == "global" else generator)
        scaled = outputs.detach() + 1.1 * (drawn - outputs.detach())
        return scaled if self.fault == "sample" else drawn + outputs if self.fault == "attached" else drawn

    def curvature_root(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return super().curvature_root(outputs, generator) * (1.1 if self.fault == "curvature" else 1)

    def mean_and_variance(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        mean, variance = super().mean_and_variance(outputs)
        return mean, variance * (1.3 if self.fault == "variance" else 1)

    def cdf(self, outputs: Tensor, values: Tensor) -> Tensor:
        return super().cdf(outputs, values + (0.1 if self.fault == "cdf" else 0))

    def tempered(self, factor: float) -> Gaussian:
        return Gaussian("known", 0.8, noise_factor=factor * (2 if self.fault == "tempered" else 1))

    def __deepcopy__(self, memo: Any) -> Faulty:
        return Faulty(self.fault)


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ("scalar", "nll_is_one_number_per_example"),
        ("mean", "nll_is_one_number_per_example"),
        ("gradient", "nll_has_its_gradient"),
        ("normalization", "nll_is_normalized"),
        ("sample", "(cdf|curvature|moments|score).*"),
        ("global", "generator_decides"),
        ("attached", "(cdf|curvature|generator|score).*"),
        ("curvature", "curvature_root_is_the_fisher_information"),
        ("variance", "moments_are_those_of_drawn_targets"),
        ("cdf", "cdf_is_that_of_drawn_targets"),
        ("tempered", "tempered_one_is_itself"),
    ],
)
def test_likelihoods(fault: str, check: str) -> None:
    refuses("likelihood", Faulty(fault), check)


# Estimators ----------------------------------------------------------------------------------------------------------


class WeakNoise(WeightSampling):
    name = "planted"

    def noise(self, model: Any, batch: Any) -> Any:
        return 0.8 * super().noise(model, batch)


class GlobalNoise(WeightSampling):
    name = "planted"

    def noise(self, model: Any, batch: Any) -> Any:
        return torch.randn(1, model.posterior.noise_size, dtype=torch.float64)


class LostStds(WeightSampling):
    name = "planted"

    def nll(self, model: Any, weights: Tensor, batch: Any) -> Any:
        value, outputs = super().nll(
            model, weights.detach() + model.posterior.mean - model.posterior.mean.detach(), batch
        )
        return value, outputs


class WithoutWeights(WeightSampling):
    name = "planted"

    def nll(self, model: Any, weights: Tensor, batch: Any) -> Any:
        outputs = model.call(model.layout.unflatten(weights[0]), batch.inputs)
        return batch.likelihood.nll(outputs, batch.targets).mean(), outputs


class LeavesEvaluation(WeightSampling):
    name = "planted"

    def nll(self, model: Any, weights: Tensor, batch: Any) -> Any:
        model.eval()
        return super().nll(model, weights, batch)


class Summed(WeightSampling):
    name = "planted"

    def nll(self, model: Any, weights: Tensor, batch: Any) -> Any:
        value, outputs = super().nll(model, weights, batch)
        return 2 * value, outputs


@pytest.mark.parametrize(
    ("part", "check"),
    [
        (WeakNoise(), "mean_is_the_expected_nll"),
        (GlobalNoise(), "generator_decides"),
        (LostStds(), "mean_is_the_expected_nll"),
        (WithoutWeights(), "example_weights_count"),
        (LeavesEvaluation(), "leaves_the_model_as_it_was"),
        (Summed(), "(mean_is_the_expected_nll|example_weights_count)"),
    ],
)
def test_estimators(part: Estimator, check: str) -> None:
    refuses("estimator", part, check)


# Divergences ---------------------------------------------------------------------------------------------------------


class Doubled(MonteCarlo):
    name = "planted"

    def __call__(self, posterior: Any, prior: Any, noise: Any) -> Any:
        weights, kl = super().__call__(posterior, prior, noise)
        return weights, 2 * kl


class Detached(MonteCarlo):
    name = "planted"

    def __call__(self, posterior: Any, prior: Any, noise: Any) -> Any:
        weights, kl = super().__call__(posterior, prior, noise)
        return weights, kl.detach() + 0 * posterior.mean.sum()


class OtherDraws(Analytic):
    name = "planted"

    def __call__(self, posterior: Any, prior: Any, noise: Any) -> Any:
        weights, kl = super().__call__(posterior, prior, noise)
        return None if weights is None else weights + 0.1, kl


class AlwaysDraws(Analytic):
    name = "planted"

    def __call__(self, posterior: Any, prior: Any, noise: Any) -> Any:
        noise = torch.zeros(1, posterior.noise_size, dtype=torch.float64) if noise is None else noise
        return super().__call__(posterior, prior, noise)


@pytest.mark.parametrize(
    ("part", "check"),
    [
        (Doubled(), "mean_is_the_kl"),
        (Detached(), "mean_is_the_kl"),
        (OtherDraws(), "returns_the_draws_of_the_noise"),
        (AlwaysDraws(), "works_without_draws"),
    ],
)
def test_divergences(part: Any, check: str) -> None:
    refuses("divergence", part, check)


# Posteriors ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FaultyFamily(MeanField):
    fault: str = ""

    name: ClassVar[str] = "planted"

    def build(self, *args: Any) -> Any:
        posterior = super().build(*args)
        posterior.__class__ = POSTERIOR_FAULTS[self.fault][0]
        if self.fault == "start":
            with torch.no_grad():
                posterior.mean.zero_()
        return posterior


class WeakDraws(MeanFieldPosterior):
    def rsample(self, noise: Tensor) -> Tensor:
        return super().rsample(0.9 * noise)


class WrongEntropy(MeanFieldPosterior):
    def entropy(self) -> Tensor:
        return super().entropy() + 0.5


class WrongKL(MeanFieldPosterior):
    def rsample_and_kl(self, noise: Any, prior: Any) -> Any:
        weights, kl = super().rsample_and_kl(noise, prior)
        return weights, kl + 0.5


class WrongDensity(MeanFieldPosterior):
    def log_prob(self, weights: Tensor) -> Tensor:
        return 0.9 * super().log_prob(weights)


class WithoutNormalizer(MeanFieldPosterior):
    def log_prob(self, weights: Tensor) -> Tensor:
        return super().log_prob(weights) + 1


class WrongCovariance(MeanFieldPosterior):
    def covariance(self) -> Any:
        found = super().covariance()
        return type(found)(2 * found.variances)


class LostGradients(MeanFieldPosterior):
    def rsample(self, noise: Tensor) -> Tensor:
        return self.mean + self.std().detach() * noise


class GlobalDraws(MeanFieldPosterior):
    def draws(self, count: int, generator: Any) -> Iterator[dict[str, Tensor]]:
        return super().draws(count, None)


class Forgetful(MeanFieldPosterior):
    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        state = super().state_dict(*args, **kwargs)
        return {name: torch.zeros_like(value) for name, value in state.items()}


POSTERIOR_FAULTS: dict[str, tuple[type, str]] = {
    "start": (MeanFieldPosterior, "starts_at_the_mean"),
    "weak": (WeakDraws, "(draws_have_its_moments|covariance.*|density_is_that.*|draws_are_networks)"),
    "entropy": (WrongEntropy, "entropy_is_that_of_the_density"),
    "kl": (WrongKL, "kl_is_that_of_the_draws"),
    "density": (WrongDensity, "density_is.*"),
    "normalizer": (WithoutNormalizer, "entropy_is_that_of_the_density"),
    "covariance": (WrongCovariance, "covariance_is_that_of_the_draws"),
    "gradients": (LostGradients, "gradients_reach_every_parameter"),
    "global": (GlobalDraws, "draws_are_networks"),
    "state": (Forgetful, "draws_are_networks"),
}


@pytest.mark.parametrize("fault", list(POSTERIOR_FAULTS))
def test_posteriors(fault: str) -> None:
    refuses("posterior", FaultyFamily(fault=fault), POSTERIOR_FAULTS[fault][1])


# Optimizers and samplers ---------------------------------------------------------------------------------------------


class Uphill(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None if parameter.grad is None else -parameter.grad
        return super().step(closure)


class OwnRate(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            group["lr"] = 0.01
        return super().step(closure)


class Unsaved(torch.optim.Adam):
    def state_dict(self) -> Any:
        return {**super().state_dict(), "state": {}}


@pytest.mark.parametrize(
    ("kind", "check"),
    [
        (Uphill, "first_step_goes_downhill"),
        (OwnRate, "learning_rates_of_groups_count"),
        (Unsaved, "resumes_exactly"),
    ],
)
def test_optimizers(kind: Any, check: str) -> None:
    class Part(OptimizerPart):
        lr = 0.01

        def build(self, groups: Any, context: OptimizerContext) -> Any:
            return kind(groups, lr=self.lr)

    refuses("optimizer", Part(), check)


class Langevin(torch.optim.SGD):
    """w -= lr N gradient / 2 N + sqrt(lr / N) noise, with one fault."""

    def __init__(self, groups: Any, lr: float, context: OptimizerContext, fault: str) -> None:
        super().__init__(groups, lr=lr)
        self.context, self.fault = context, fault

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                generator = None if self.fault == "global" else self.context.generator
                noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
                scale = math.sqrt(2 * group["lr"] / self.context.dataset_size)
                scale *= {"hot": 1.3, "silent": 0.0}.get(self.fault, 1.0)
                noisy = group.get("noise", True) or self.fault == "everywhere"
                parameter.add_(-group["lr"] * parameter.grad + (scale * noise if noisy else 0.0))
                if self.fault == "shifted":
                    parameter.add_(1e-3)


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ("hot", "draws_have_the_moments_of_the_target"),
        ("shifted", "draws_have_the_moments_of_the_target"),
        ("silent", "(generator_decides|draws.*)"),
        ("global", "(generator_decides|resumes_exactly)"),
        ("everywhere", "adds_no_noise_to_other_parameters"),
        ("never", "draws_have_the_moments_of_the_target"),
        ("", None),
    ],
)
def test_samplers(fault: str, check: str | None) -> None:
    class Part(OptimizerPart):
        lr, samples = 0.01, True

        def build(self, groups: Any, context: OptimizerContext) -> Any:
            return Langevin(groups, self.lr, context, fault)

        def may_sample(self, progress: Progress) -> bool:
            return fault != "never"

    if check is None:
        check_part("sampler", Part())
    else:
        refuses("sampler", Part(), check)


# Averagers, post-hoc parts, schedules --------------------------------------------------------------------------------


@dataclass(frozen=True)
class FaultyAveraging(SWA):
    fault: str = ""

    name: ClassVar[str] = "planted"

    def build(self, *args: Any) -> Any:
        averager = super().build(*args)
        finalize, state_dict = averager.finalize, averager.state_dict

        def moved(model: Any) -> Any:
            posterior = finalize(model)
            with torch.no_grad():
                posterior.mean.add_({"moved": 0.01, "away": 10.0}.get(fault, 0.0))
            return posterior

        fault = self.fault
        if fault in ("moved", "away"):
            averager.finalize = moved
        if fault == "forgets":
            averager.state_dict = lambda: {**state_dict(), "snapshots": 0}
        if fault == "network":
            averager.finalize = lambda model: model.net
        return averager


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ("moved", "constant_path_gives_that_constant"),
        ("away", "constant_path_gives_that_constant"),
        ("forgets", "resumes_exactly"),
        ("network", "(constant_path.*|result_draws_and_is_rebuilt)"),
    ],
)
def test_averagers(fault: str, check: str) -> None:
    refuses("averaging", FaultyAveraging(start=0.0, fault=fault), check)


@dataclass(frozen=True)
class FaultyLaplace(Laplace):
    fault: str = ""

    name: ClassVar[str] = "planted"

    def fit(self, model: Any, *args: Any, **settings: Any) -> Any:
        posterior = super().fit(model, *args, **settings)
        if self.fault == "touches":
            model.net.train(not model.net.training)
        with torch.no_grad():
            if self.fault == "moves":
                posterior.mean.add_(0.1)
            if self.fault == "wide":
                scale_std(posterior, 3.0)
        return posterior


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ("touches", "leaves_the_model_as_it_was"),
        ("moves", "moments_are_those_of_the_posterior"),
        ("wide", "moments_are_those_of_the_posterior"),
    ],
)
def test_post_hoc(fault: str, check: str) -> None:
    refuses("post_hoc", FaultyLaplace(fault=fault, structure="diagonal"), check)
    if fault == "moves":
        check_part("post_hoc", FaultyLaplace(fault=fault, structure="diagonal"), exact=False)


class Counting:
    name = "counting"

    def __init__(self) -> None:
        self.calls = 0

    def factor(self, progress: Progress) -> float:
        self.calls += 1
        return 1.0 / self.calls


def test_schedules() -> None:
    refuses("schedule", Counting(), "depends_on_progress_alone")
    refuses("schedule", lambda progress: -1.0, "finite_and_not_negative")
    refuses("kl_weight", lambda progress: 0.0, "finite_and_not_negative")


# Every kind ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Impostor(Analytic):
    """Has the name of another part."""

    name: ClassVar[str] = "monte_carlo"


def test_settings_make_the_part_again() -> None:
    refuses("divergence", Impostor(), "settings_round_trip")
    report = check_part("divergence", Analytic())
    assert "settings_round_trip" in report.passed
