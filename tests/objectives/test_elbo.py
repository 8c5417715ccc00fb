"""The ELBO: its value against closed forms, its scale over an epoch, temperature and prior weight, its errors."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bayeswell.core.errors import BayeswellWarning, CompositionError, DataError, DivergenceError, SettingError
from bayeswell.core.protocols import BatchContext, Progress, Terms
from bayeswell.core.random import make_generator
from bayeswell.estimators import LocalReparameterization, WeightSampling
from bayeswell.likelihoods import Gaussian
from bayeswell.nn import BayesianModule, bayesian
from bayeswell.objectives import ELBO, Geometric, MonteCarlo, scaled_prior
from bayeswell.priors import Normal, ScaleMixture
from helpers import LinearRegression, assert_mean_close

DATA = 23
PROBLEM = LinearRegression.make()


def classification() -> tuple[BayesianModule, Tensor, Tensor]:
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    x = torch.randn(DATA, 3, generator=make_generator(2), dtype=torch.float64)
    return bayesian(net, "mean_field", Normal(0.7)), x, torch.randint(0, 2, (DATA,), generator=make_generator(3))


def terms(elbo: ELBO, model: BayesianModule, x: Tensor, y: Tensor, progress: Progress | None = None) -> Terms:
    """Each call sees the same draws."""
    return elbo(model, x, y, progress=progress, generator=make_generator(4))


def gradient(model: BayesianModule, total: Tensor) -> Tensor:
    found = torch.autograd.grad(total, list(model.parameters()), materialize_grads=True)
    return torch.cat([piece.reshape(-1) for piece in found])


def regression_model(posterior: str = "mean_field") -> BayesianModule:
    return bayesian(nn.Linear(4, 1, bias=False).double(), posterior, Normal(PROBLEM.prior_std))


def set_normal(model: BayesianModule, mean: Tensor, std: Tensor) -> None:
    with torch.no_grad():
        model.posterior.mean.copy_(mean)
        model.posterior.log_std.copy_(std.log())


class SigmaPoints(WeightSampling):
    """Draws +-sqrt(P) e_i, whose first three moments are those of N(0, I): exact for quadratic losses."""

    def noise(self, model: Any, batch: BatchContext) -> Tensor:
        points = math.sqrt(model.layout.size) * torch.eye(model.layout.size, dtype=torch.float64)
        return torch.cat([points, -points])


# Values.


@pytest.mark.parametrize("temperature", [1.0, 0.4])
def test_value_is_the_elbo_of_linear_regression(temperature: float) -> None:
    model, count = regression_model(), len(PROBLEM.y)
    mean, std = torch.tensor([0.5, -0.9, 0.2, 1.4]), torch.tensor([0.3, 0.9, 0.14, 0.05])
    set_normal(model, mean.double(), std.double())
    elbo = ELBO(Gaussian("known", PROBLEM.noise_std), count, estimator=SigmaPoints(), temperature=temperature)
    found = elbo(model, PROBLEM.x, PROBLEM.y)
    truth = PROBLEM.elbo(model.posterior.mean.detach(), std.double().square().diag(), temperature)
    assert -count * found.total.item() == pytest.approx(truth, rel=1e-9)
    assert found.total.item() == pytest.approx(found.nll.item() + temperature * found.kl.item() / count, rel=1e-12)


def test_optimum_of_linear_regression_and_its_bound() -> None:
    """Means of the exact posterior, stds 1/sqrt(Lambda_ii), and a bound below the log evidence by the known gap."""
    model, count = regression_model(), len(PROBLEM.y)
    elbo = ELBO(Gaussian("known", PROBLEM.noise_std), count, estimator=SigmaPoints())
    optimizer = torch.optim.LBFGS(model.posterior.parameters(), max_iter=300, line_search_fn="strong_wolfe")

    def closure() -> float:
        optimizer.zero_grad()
        total = elbo(model, PROBLEM.x, PROBLEM.y).total
        total.backward()
        return total.item()

    for _ in range(5):
        optimizer.step(closure)
    precision = PROBLEM.precision()
    torch.testing.assert_close(model.posterior.mean.detach(), PROBLEM.mean(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model.posterior.std().detach(), precision.diagonal() ** -0.5, rtol=1e-4, atol=0)
    gap = 0.5 * (precision.diagonal().log().sum() - torch.logdet(precision)).item()
    assert -count * closure() == pytest.approx(PROBLEM.log_evidence() - gap, abs=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_bound_never_exceeds_the_log_evidence(seed: int) -> None:
    """At temperature 1, whatever prior weight was set before: the model's prior has not changed."""
    model, count = regression_model(), len(PROBLEM.y)
    elbo = ELBO(Gaussian("known", PROBLEM.noise_std), count, estimator=SigmaPoints(), temperature=0.1, prior_weight=1.0)
    elbo(model, PROBLEM.x, PROBLEM.y)
    elbo.temperature, elbo.prior_weight = 1.0, None
    spread = 0.3 * torch.randn(2, 4, generator=make_generator(seed), dtype=torch.float64)
    set_normal(model, PROBLEM.mean() + spread[0], PROBLEM.covariance().diagonal().sqrt() * spread[1].exp())
    assert -count * elbo(model, PROBLEM.x, PROBLEM.y).total.item() < PROBLEM.log_evidence()


def test_path_gradient_vanishes_at_the_exact_posterior() -> None:
    """A full posterior at the exact one: every draw has gradient zero, not only their mean."""
    model, count = regression_model("full"), len(PROBLEM.y)
    factor = torch.linalg.cholesky(PROBLEM.covariance())
    with torch.no_grad():
        model.posterior.mean.copy_(PROBLEM.mean())
        model.posterior.log_diagonal.copy_(factor.diagonal().log())
        model.posterior.lower.copy_(factor / factor.diagonal()[:, None])
    likelihood = Gaussian("known", PROBLEM.noise_std)
    sizes = {}
    for name in ("path_derivative", "analytic"):
        total = ELBO(likelihood, count, divergence=name)(model, PROBLEM.x, PROBLEM.y, generator=make_generator(0)).total
        sizes[name] = gradient(model, total).abs().max().item()
    assert sizes["path_derivative"] < 1e-11
    assert sizes["analytic"] > 1e-3


def test_total_matches_a_plain_computation() -> None:
    """Two draws, unequal stds, a weighted batch, in a few lines of torch."""
    model, x, y = classification()
    set_normal(model, model.posterior.mean + 0.1, torch.linspace(0.2, 1.4, 26, dtype=torch.float64))
    sample_weight = torch.linspace(0.5, 2, DATA, dtype=torch.float64)
    elbo = ELBO("categorical", DATA, estimator={"name": "weight_sampling", "draws": 2}, temperature=0.6)
    found = elbo(model, x, y, generator=make_generator(4), sample_weight=sample_weight)
    mean, std = model.posterior.mean.detach(), model.posterior.std().detach()
    noise = torch.randn(2, 26, generator=make_generator(4), dtype=torch.float64)
    nll = 0.0
    for w in mean + std * noise:
        hidden = torch.tanh(x @ w[:12].view(4, 3).T + w[12:16])
        log_p = (hidden @ w[16:24].view(2, 4).T + w[24:]).log_softmax(-1)
        nll += -(sample_weight * log_p[torch.arange(DATA), y]).mean() / 2
    kl = (0.7 / std).log() + (std**2 + mean**2) / (2 * 0.49) - 0.5
    assert found.nll.item() == pytest.approx(float(nll), rel=1e-12)
    assert found.total.item() == pytest.approx(float(nll + 0.6 * kl.sum() / DATA), rel=1e-12)


# Scale over an epoch.


@pytest.mark.parametrize("weight", ["uniform", Geometric(0.5), Geometric(2.0)], ids=str)
@pytest.mark.parametrize("size", [1, 4, 7, 22, DATA, 40])
def test_average_over_an_epoch_is_the_objective_of_all_data(weight: Any, size: int) -> None:
    """Value and gradient, also with a ragged last batch: 1e-10 relative."""
    model, x, y = classification()
    whole = terms(ELBO("categorical", DATA, temperature=0.6), model, x, y)
    elbo = ELBO("categorical", DATA, temperature=0.6, kl_weight=weight)
    batches = list(zip(x.split(size), y.split(size), strict=True))
    totals = [
        terms(elbo, model, bx, by, Progress(batch=i, batches=len(batches))).total for i, (bx, by) in enumerate(batches)
    ]
    average = torch.stack(totals).mean()
    assert average.item() == pytest.approx(whole.total.item(), rel=1e-12)
    truth = gradient(model, whole.total)
    assert (gradient(model, average) - truth).norm() < 1e-10 * truth.norm()


def test_pieces_of_a_batch_sum_to_the_batch() -> None:
    model, x, y = classification()
    elbo = ELBO("categorical", DATA)
    whole = terms(elbo, model, x, y)
    total = 0.0
    for part in (slice(0, 5), slice(5, DATA)):
        batch = BatchContext(
            x[part], y[part], elbo.likelihood, generator=make_generator(4), nll_share=len(y[part]) / DATA, kl_share=0.5
        )
        total += elbo.step(model, batch).total.item()
    assert total == pytest.approx(whole.total.item(), rel=1e-12)


# Temperature and prior weight.


def test_temperature_scales_the_kl_alone() -> None:
    model, x, y = classification()
    cold, warm, zero = (terms(ELBO("categorical", DATA, temperature=t), model, x, y) for t in (0.3, 1.5, 0.0))
    assert (warm.total - cold.total).item() == pytest.approx(1.2 * cold.kl.item() / DATA, rel=1e-10)
    assert zero.total.item() == zero.nll.item()


def test_prior_weight_counts_log_prior_alone() -> None:
    """d total / d prior_weight = -E_q[log p] / N up to a constant; the entropy is weighted by T."""
    model, x, y = classification()
    totals = {}
    for weight in (0.5, 2.0):
        totals[weight] = terms(ELBO("categorical", DATA, temperature=0.3, prior_weight=weight), model, x, y).total
    mean, std = model.posterior.mean, model.posterior.std()
    squares = (mean.square() + std.square()).sum() / (2 * 0.7**2)
    # p' has its own normalization: T log s' moves by -T/2 log prior_weight for each weight.
    constant = -0.3 * 26 * 0.5 * math.log(2.0 / 0.5)
    truth = ((2.0 - 0.5) * squares + constant) / DATA
    assert (totals[2.0] - totals[0.5]).item() == pytest.approx(truth.item(), rel=1e-9)


def test_delta_with_prior_weight_is_map_at_any_temperature() -> None:
    _, x, y = classification()
    net = nn.Linear(3, 2).double()
    model = bayesian(net, "delta", Normal(0.7))
    found = []
    for temperature in (1.0, 0.01):
        total = terms(ELBO("categorical", DATA, temperature=temperature, prior_weight=1.0), model, x, y).total
        found.append(gradient(model, total))
    torch.testing.assert_close(found[0], found[1], rtol=1e-10, atol=1e-12)


def test_prior_of_the_model_never_changes() -> None:
    model, x, y = classification()
    before, state = model.prior, {name: value.clone() for name, value in model.prior.state_dict().items()}
    elbo = ELBO("categorical", DATA, temperature=0.1, prior_weight=1.0)
    first = elbo.prior_for(model)
    terms(elbo, model, x, y)
    assert model.prior is before
    assert all(torch.equal(value, state[name]) for name, value in model.prior.state_dict().items())
    assert elbo.prior_for(model) is first, "the scaled prior is made once for a factor"
    torch.testing.assert_close(first.std(), model.prior.std() * math.sqrt(0.1))
    elbo.temperature = 0.5
    torch.testing.assert_close(elbo.prior_for(model).std(), model.prior.std() * math.sqrt(0.5))
    assert scaled_prior(model.prior, 0.5, None) is model.prior


def test_prior_weight_that_cannot_be_used_is_refused() -> None:
    model, x, y = classification()
    with pytest.raises(SettingError, match="temperature above 0"):
        ELBO("categorical", DATA, temperature=0, prior_weight=1.0)(model, x, y)
    elbo = ELBO("categorical", DATA, temperature=0.1, prior_weight=1.0)
    terms(elbo, model, x, y)
    elbo.temperature = 0.0
    with pytest.raises(SettingError, match="temperature above 0"):
        terms(elbo, model, x, y)
    mixture = bayesian(nn.Linear(3, 2).double(), "mean_field", ScaleMixture())
    elbo = ELBO("categorical", DATA, temperature=0.1, prior_weight=1.0, divergence="monte_carlo")
    with pytest.raises(CompositionError, match="Gaussian prior"):
        terms(elbo, mixture, x, y)
    elbo.prior_weight = None
    assert elbo.prior_for(mixture) is mixture.prior


def test_optimizer_that_handles_the_kl_sees_the_gradient_of_the_nll() -> None:
    model, x, y = classification()
    usual = terms(ELBO("categorical", DATA), model, x, y)
    handled = terms(ELBO("categorical", DATA, handles_kl=True), model, x, y)
    nll_alone = terms(ELBO("categorical", DATA, temperature=0), model, x, y)
    assert handled.total.item() == usual.total.item()
    torch.testing.assert_close(gradient(model, handled.total), gradient(model, nll_alone.total), rtol=0, atol=0)


# Choice of the divergence; parts that do not fit.


def test_prior_without_closed_form_takes_monte_carlo_and_warns_once() -> None:
    _, x, y = classification()
    model = bayesian(nn.Linear(3, 2).double(), "mean_field", ScaleMixture())
    elbo = ELBO("categorical", DATA)
    with pytest.warns(BayeswellWarning, match="monte_carlo"):
        terms(elbo, model, x, y)
    again = terms(elbo, model, x, y)
    explicit = terms(ELBO("categorical", DATA, divergence="monte_carlo"), model, x, y)
    assert again.total.item() == explicit.total.item()


def test_parts_changed_between_steps_are_used_and_checked() -> None:
    model, x, y = classification()
    elbo = ELBO("categorical", DATA)
    terms(elbo, model, x, y)
    elbo.divergence = MonteCarlo()
    truth = terms(ELBO("categorical", DATA, divergence="monte_carlo"), model, x, y)
    assert terms(elbo, model, x, y).total.item() == truth.total.item()
    elbo.estimator = LocalReparameterization()
    with pytest.raises(CompositionError, match="drawn"):
        terms(elbo, model, x, y)


@pytest.mark.parametrize(
    ("posterior", "settings", "message"),
    [
        ("low_rank", {"estimator": "flipout"}, "independent Gaussian"),
        ("delta", {"divergence": "monte_carlo"}, "density"),
        ("mean_field", {"estimator": "local_reparameterization", "divergence": "path_derivative"}, "drawn"),
        (
            "mean_field",
            {
                "estimator": {"name": "weight_sampling", "draws": 2, "antithetic": True},
                "divergence": {"name": "score_function", "baseline": "leave_one_out"},
            },
            "independent draws",
        ),
    ],
)
def test_parts_that_do_not_fit_are_refused(posterior: str, settings: dict[str, Any], message: str) -> None:
    _, x, y = classification()
    model = bayesian(nn.Linear(3, 2).double(), posterior)
    with pytest.raises(CompositionError, match=message):
        ELBO("categorical", DATA, **settings)(model, x, y)


def test_closed_form_is_refused_for_a_prior_without_one() -> None:
    _, x, y = classification()
    model = bayesian(nn.Linear(3, 2).double(), "mean_field", ScaleMixture())
    with pytest.raises(CompositionError, match="no closed form"):
        ELBO("categorical", DATA, divergence="analytic")(model, x, y)


# Errors.


@pytest.mark.parametrize(
    ("name", "value"),
    [("dataset_size", 0), ("dataset_size", 2.5), ("temperature", -0.1), ("temperature", math.nan), ("prior_weight", 0)],
)
def test_impossible_settings_are_refused(name: str, value: Any) -> None:
    with pytest.raises(SettingError, match=name):
        ELBO("categorical", **{"dataset_size": 10, name: value})


def test_targets_that_are_no_batch_are_refused() -> None:
    model, x, y = classification()
    for wrong in (y[:0], y[0], y.tolist()):
        with pytest.raises(DataError, match="targets must be a tensor"):
            ELBO("categorical", DATA)(model, x, wrong)  # type: ignore[arg-type]


def test_targets_are_checked_until_a_call_succeeds() -> None:
    model, x, y = classification()
    elbo = ELBO("categorical", DATA)
    for _ in range(2):
        with pytest.raises(DataError):
            elbo(model, x, y + 5)
    elbo(model, x, y)


def test_nan_is_found_in_inputs_targets_and_outputs() -> None:
    model, x, y = classification()
    bad = x.clone()
    bad[4, 1] = math.nan
    with pytest.raises(DataError, match=r"the inputs first at index \(4, 1\)"):
        ELBO("categorical", DATA)(model, bad, y)
    broken = bayesian(nn.Sequential(nn.Linear(3, 2), _Logarithm()).double())
    with pytest.raises(DataError, match="outputs of the network"):
        ELBO("categorical", DATA)(broken, x, y)
    regression, targets = regression_model(), PROBLEM.y.clone()
    targets[7] = math.inf
    elbo = ELBO(Gaussian("known", 0.7), DATA)
    batch = BatchContext(PROBLEM.x, targets, elbo.likelihood)
    with pytest.raises(DataError, match=r"the targets first at index \(7,\)"):
        elbo.step(regression, batch)


class _Logarithm(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.log(-x.square())


def test_divergence_later_in_training_is_named() -> None:
    model, x, y = classification()
    set_normal(model, torch.full((26,), 1e200, dtype=torch.float64), torch.ones(26, dtype=torch.float64))
    with pytest.raises(DivergenceError, match="training has diverged"):
        ELBO("categorical", DATA)(model, x, y, progress=Progress(step=7))
    with pytest.raises(DivergenceError, match="first step"):
        ELBO("categorical", DATA)(model, x, y)


def test_later_steps_without_progress_are_not_called_the_first() -> None:
    model, x, y = classification()
    elbo = ELBO("categorical", DATA)
    elbo(model, x, y)
    set_normal(model, torch.full((26,), 1e200, dtype=torch.float64), torch.ones(26, dtype=torch.float64))
    with pytest.raises(DivergenceError, match="training has diverged"):
        elbo(model, x, y)
    with pytest.raises(DivergenceError, match="first step"):
        elbo(model, x, y, progress=Progress(total_steps=10))


def test_error_of_a_custom_likelihood_passes_through() -> None:
    model, x, y = classification()

    class Broken(Gaussian):
        def check(self, targets: Tensor, outputs: Tensor) -> None:
            pass

        def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
            return outputs @ torch.zeros(5, 5, dtype=outputs.dtype)

    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        ELBO(Broken(), DATA)(model, x, y)


def test_noise_of_a_learned_likelihood_is_trained() -> None:
    model, likelihood = regression_model(), Gaussian("learned", 0.5)
    ELBO(likelihood, len(PROBLEM.y))(model, PROBLEM.x, PROBLEM.y).total.backward()
    assert likelihood.log_std.grad.abs() > 0


def test_functional_gradient_equals_backward() -> None:
    model, x, y = classification()
    elbo = ELBO("categorical", DATA)
    names = [name for name, _ in model.posterior.named_parameters()]
    noise = torch.randn(1, 26, generator=make_generator(4), dtype=torch.float64)

    def total(*values: Tensor) -> Tensor:
        state = dict(zip(names, values, strict=True))
        weights = state["mean"] + state["log_std"].exp() * noise
        return elbo.terms(model, weights, weights.new_zeros(()), BatchContext(x, y, elbo.likelihood)).total

    values = tuple(parameter.detach() for parameter in model.posterior.parameters())
    found = torch.func.grad(total, argnums=(0, 1))(*values)
    leaves = tuple(value.clone().requires_grad_() for value in values)
    torch.testing.assert_close(found, torch.autograd.grad(total(*leaves), leaves))


def test_bound_compiles_without_graph_breaks() -> None:
    model, x, y = classification()
    elbo = ELBO("categorical", DATA)
    elbo(model, x, y)
    batch = elbo.batch(x, y)
    noise = torch.randn(1, 26, dtype=torch.float64)

    def total(noise: Tensor) -> Tensor:
        weights, kl = elbo.divergence_for(model)(model.posterior, elbo.prior_for(model), noise)
        return elbo.terms(model, weights, kl, batch).total

    truth, found = total(noise), torch.compile(total, fullgraph=True, backend="aot_eager")(noise)
    torch.testing.assert_close(found, truth)
    torch.testing.assert_close(gradient(model, found), gradient(model, truth))


def test_nll_of_many_draws_has_the_mean_of_single_draws() -> None:
    model, x, y = classification()
    generator = make_generator(8)
    singles = [ELBO("categorical", DATA)(model, x, y, generator=generator).nll for _ in range(400)]
    many = ELBO("categorical", DATA, estimator=WeightSampling(draws=2000))(model, x, y, generator=generator).nll
    assert_mean_close(torch.stack(singles) - many, 0.0)
