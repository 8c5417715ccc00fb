"""Ordinary objects as parts: torch's optimizers and schedulers, functions, distributions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch.optim import lr_scheduler

import bayeswell as bw
from bayeswell.methods import resolve
from bayeswell.optimizers import RATES
from bayeswell.types import Progress

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")


def net() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


@pytest.fixture(scope="module")
def data() -> tuple[Tensor, Tensor]:
    x = torch.randn(60, 3, generator=bw.make_generator(2))
    return x, (x[:, 0] > 0.3 * x[:, 1]).long()


def one_step(stepper: Any, **settings: Any) -> tuple[list[Tensor], Any]:
    """The parameters after some steps on given gradients, and the optimizer that took them."""
    torch.manual_seed(4)
    weights = [nn.Parameter(torch.randn(7, dtype=torch.float64)), nn.Parameter(torch.randn(2, dtype=torch.float64))]
    if isinstance(stepper, type):
        optimizer = stepper(weights, **settings)
    else:
        optimizer = stepper.build([{"params": weights[:1]}, {"params": weights[1:], "name": "stds"}])
    for step in range(5):
        for weight in weights:
            weight.grad = weight.detach().sin() * (step + 1)
        optimizer.step()
    return weights, optimizer


@pytest.mark.parametrize("kind", [torch.optim.NAdam, torch.optim.RMSprop, torch.optim.Adadelta, torch.optim.Adamax])
def test_a_torch_optimizer_is_itself(kind: type[torch.optim.Optimizer]) -> None:
    """By class, by partial and by name with settings: the same numbers as torch's own, to the bit."""
    for choice, settings in (
        (kind, {}),
        (functools.partial(kind, lr=0.02, eps=1e-5), {"lr": 0.02, "eps": 1e-5}),
        ({"name": "torch", "optimizer": kind.__name__, "lr": 0.02}, {"lr": 0.02}),
        (bw.TorchOptimizer(kind, settings={"eps": 1e-6}), {"eps": 1e-6}),
    ):
        part = resolve(bw.find_method("map").changed(stepper=choice)).stepper
        wanted, optimizer = one_step(kind, **settings)
        found, _ = one_step(part)
        assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
        assert part.lr == optimizer.defaults["lr"]


def test_a_torch_optimizer_trains_and_says_what_it_is(data: tuple[Tensor, Tensor]) -> None:
    result = bw.fit(
        net(), data, "bbb", epochs=3, stepper=functools.partial(torch.optim.NAdam, lr=0.01), rate="constant"
    )
    assert result.histories[0].epochs[-1].rates == pytest.approx({"means": 0.01, "stds": 0.1})
    assert result.histories[0].epochs[-1].nll < result.histories[0].epochs[0].nll


class Cleaning(torch.optim.SGD):
    """Somebody's own, which does something more where gradients are forgotten."""

    cleaned = 0

    def zero_grad(self, set_to_none: bool = True) -> None:
        super().zero_grad(set_to_none)
        Cleaning.cleaned += 1


def test_an_optimizers_own_zero_grad_is_called(data: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cleaning, "cleaned", 0)
    given: dict[str, Any] = {"epochs": 2, "batch_size": 20, "rate": "constant", "seed": 0}
    found = bw.fit(net(), data, "map", stepper=functools.partial(Cleaning, lr=0.1), **given)
    assert Cleaning.cleaned == 6
    assert Cleaning.cleaned == found.histories[0].epochs[-1].steps if False else Cleaning.cleaned > 1
    plain = bw.fit(net(), data, "map", stepper=functools.partial(torch.optim.SGD, lr=0.1), **given)
    assert torch.equal(found.model.posterior.mean_vector(), plain.model.posterior.mean_vector())


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        (torch.optim.LBFGS, ["LBFGS", "closure"]),
        (torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1), ["SGD", "functools.partial"]),
        (functools.partial(torch.optim.Adam, 3), ["by name"]),
        (functools.partial(torch.optim.Adam, lrr=3), ["no setting 'lrr'", "'lr'"]),
        ({"name": "torch", "optimizer": "NAdm"}, ["did you mean 'NAdam'"]),
        (lambda groups: 3, ["lacks `lr`, `build`"]),
    ],
)
def test_what_is_no_stepper_is_refused(choice: Any, words: list[str], data: tuple[Tensor, Tensor]) -> None:
    with pytest.raises(bw.SettingError) as caught:
        bw.fit(net(), data, "bbb", epochs=1, stepper=choice)
    assert "\n" not in str(caught.value)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize("every", ["epoch", "step"])
@pytest.mark.parametrize(
    "factory",
    [
        functools.partial(lr_scheduler.StepLR, step_size=3, gamma=0.3),
        functools.partial(lr_scheduler.CosineAnnealingWarmRestarts, T_0=4),
        functools.partial(lr_scheduler.OneCycleLR, max_lr=7.0, total_steps=40),
        lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda k: 1 / (1 + k)),
    ],
)
def test_a_torch_scheduler_gives_its_own_rates(factory: Callable[..., Any], every: str) -> None:
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0, momentum=0.9)
    scheduler = factory(optimizer)
    wanted = []
    for _ in range(12):
        wanted.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    rate = bw.TorchScheduler(factory, every)
    batches = 5 if every == "epoch" else 12
    places = [place for place in range(12) for _ in range(5)] if every == "epoch" else list(range(12))
    found = [rate.factor(Progress(step, 60, step % batches, batches)) for step in reversed(range(len(places)))]
    np.testing.assert_allclose(found[::-1], [wanted[place] for place in places], rtol=1e-12)


def test_schedulers_and_functions_set_the_rates_of_a_run(data: tuple[Tensor, Tensor]) -> None:
    halved = functools.partial(lr_scheduler.StepLR, step_size=1, gamma=0.5)
    result = bw.fit(net(), data, "bbb", epochs=3, lr=0.02, rate=halved)
    assert [epoch.rates["means"] for epoch in result.histories[0].epochs] == pytest.approx([0.02, 0.01, 0.005])
    result = bw.fit(net(), data, "bbb", epochs=2, lr=0.02, batch_size=30, rate=lambda at: 1 / (1 + at.step))
    assert [epoch.rates["means"] for epoch in result.histories[0].epochs] == pytest.approx([0.02 / 2, 0.02 / 4])


@pytest.mark.parametrize(
    ("rate", "words"),
    [
        (lr_scheduler.ReduceLROnPlateau, ["plateau="]),
        (lambda at: "fast", ["'fast'", "number"]),
        (lambda at: 1 / at.step, ["ZeroDivisionError"]),
        (functools.partial(lr_scheduler.OneCycleLR, max_lr=2.0, total_steps=2), ["ends after 3"]),
    ],
)
def test_what_is_no_rate_is_refused(rate: Any, words: list[str], data: tuple[Tensor, Tensor]) -> None:
    with pytest.raises(bw.SettingError) as caught:
        bw.fit(net(), data, "bbb", epochs=6, rate=rate)
    assert all(word in str(caught.value) for word in words), caught.value


def test_a_function_as_kl_weight_scales_the_kl() -> None:
    model = bw.bayesian(nn.Linear(3, 2).double(), prior=bw.Normal(0.7))
    x, y = torch.randn(5, 3, dtype=torch.float64), torch.tensor([0, 1, 1, 0, 1])
    objective = bw.ELBO("categorical", 20, kl_weight=lambda at: 0.25 * (at.step + 1), temperature=0.3)
    terms = objective(model, x, y, at=Progress(step=2), generator=bw.make_generator(1))
    assert terms.total.item() == pytest.approx(float(terms.nll) + 0.3 * 0.75 * float(terms.kl) / 20, rel=1e-12)


@pytest.mark.parametrize(
    ("distribution", "truth", "std"),
    [
        (torch.distributions.StudentT(4.5, scale=0.3), stats.t(4.5, scale=0.3), 0.3 * math.sqrt(4.5 / 2.5)),
        (torch.distributions.Gumbel(0.2, 0.7), stats.gumbel_r(0.2, 0.7), 0.7 * math.pi / math.sqrt(6)),
        (torch.distributions.Normal(0.4, 0.6), stats.norm(0.4, 0.6), 0.6),
        (torch.distributions.Cauchy(0.0, 0.5), stats.cauchy(0, 0.5), 1.0 / 1.3489795),
    ],
)
def test_a_distribution_as_prior(distribution: Any, truth: Any, std: float) -> None:
    model = bw.bayesian(nn.Linear(3, 2).double(), "mean_field", distribution)
    weights = torch.randn(4, 8, dtype=torch.float64)
    np.testing.assert_allclose(model.prior.log_prob(weights), truth.logpdf(weights.numpy()).sum(1), rtol=1e-6)
    np.testing.assert_allclose(model.prior.std_vector(), std, rtol=1e-6)
    assert model.prior.analytic == isinstance(distribution, torch.distributions.Normal)
    if model.prior.analytic:
        mean, spread = torch.randn(8, dtype=torch.float64), torch.rand(8, dtype=torch.float64)
        nodes, masses = np.polynomial.hermite_e.hermegauss(30)
        at = mean.numpy()[:, None] + spread.numpy()[:, None] * nodes
        expected = (truth.logpdf(at) @ (masses / masses.sum())).sum()
        assert float(model.prior.expected_log_prob(mean, spread)) == pytest.approx(expected, rel=1e-6)


def test_a_distribution_as_prior_is_trained_saved_and_loaded(tmp_path: Path, data: tuple[Tensor, Tensor]) -> None:
    prior = torch.distributions.StudentT(3.0, scale=0.4)
    for divergence in (None, "path_derivative"):
        result = bw.fit(net(), data, "bbb", epochs=2, prior=prior, divergence=divergence)
        assert "distribution(std=0.693)" in str(result.model.describe())
        where = tmp_path / str(divergence)
        result.save(where)
        back = bw.load(where)
        assert torch.equal(back.predict(data[0], draws=5).probabilities, result.predict(data[0], draws=5).probabilities)
        weights = torch.randn(2, result.model.layout.size)
        assert torch.equal(back.model.prior.log_prob(weights), result.model.prior.log_prob(weights))


@pytest.mark.parametrize(
    ("prior", "words"),
    [
        (torch.distributions.Gamma(2.0, 1.0), ["Gamma", "real number"]),
        (torch.distributions.Normal(torch.zeros(3), 1.0), ["(3,)", "single weight"]),
        ({"name": "distribution", "distribution": "StudenT"}, ["did you mean 'StudentT'"]),
        ({"name": "distribution", "settings": {"dof": 3.0}}, ["StudentT", "dof"]),
        ({"name": "normal", "centre": "netwerk"}, ["did you mean 'network'"]),
    ],
)
def test_what_is_no_prior_is_refused(prior: Any, words: list[str]) -> None:
    with pytest.raises(bw.SettingError) as caught:
        bw.bayesian(net(), "mean_field", prior)
    assert "\n" not in str(caught.value)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize("posterior", ["delta", "mean_field", "k_tied", "low_rank"])
@pytest.mark.parametrize("kind", [bw.Normal, bw.LaplacePrior, bw.ScaleMixture])
def test_a_prior_around_the_network(posterior: str, kind: Any) -> None:
    """Its log density and KL are those of the same prior at zero, with all weights moved back by the network's own."""
    model = bw.bayesian(net().double(), posterior, {"0.*": kind(centre="network"), "*": kind()})
    centre = model.posterior.mean_vector().detach().clone()
    centre[model.layout.slices["2.weight"]] = centre[model.layout.slices["2.bias"]] = 0
    with torch.no_grad():
        model.posterior.mean.add_(0.3)
    at_zero = bw.bayesian(net().double(), posterior, kind())
    weights = torch.randn(3, model.layout.size, dtype=torch.float64)
    torch.testing.assert_close(model.prior.log_prob(weights), at_zero.prior.log_prob(weights - centre))
    if not model.prior.analytic:
        return
    with torch.no_grad():
        at_zero.posterior.load_state_dict(model.posterior.state_dict())
        at_zero.posterior.mean.sub_(centre)
    _, kl = model.posterior.sample_and_kl(None, model.prior)
    _, wanted = at_zero.posterior.sample_and_kl(None, at_zero.prior)
    torch.testing.assert_close(kl, wanted)
    assert "around the given weights" in str(model.describe())


def test_weights_stay_near_a_pretrained_network(tmp_path: Path, data: tuple[Tensor, Tensor]) -> None:
    given = net()
    start = torch.cat([p.detach().flatten() for p in given.parameters()])
    how = {"epochs": 30, "temperature": 1.0, "lr": 0.01}
    near = bw.fit(given, data, "map", prior=bw.Normal(0.01, centre="network"), **how)
    far = bw.fit(given, data, "map", prior=bw.Normal(0.01), **how)
    distance = [float((r.model.posterior.mean_vector() - start).detach().norm()) for r in (near, far)]
    assert distance[0] < 0.2 < distance[1]
    near.save(tmp_path / "near")
    assert torch.equal(bw.load(tmp_path / "near").model.prior.centre, start)


@pytest.mark.parametrize(
    ("settings", "rates"),
    [
        ({"lr": 0.02}, {"means": 0.02, "stds": 0.2}),
        ({"stepper": {"lr": 0.02}}, {"means": 0.02, "stds": 0.2}),
        ({"stepper": "sgd", "lr": 0.02}, {"means": 0.02, "stds": 0.2}),
        ({"stepper": {"name": "sgd", "lr": 0.5}, "lr": 0.02}, {"means": 0.02, "stds": 0.2}),
        ({"stepper": torch.optim.NAdam, "lr": 0.02}, {"means": 0.02, "stds": 0.2}),
    ],
)
def test_the_learning_rate_of_the_methods_own_stepper(
    settings: dict[str, Any], rates: dict[str, float], data: tuple[Tensor, Tensor]
) -> None:
    result = bw.fit(net(), data, "bbb", epochs=1, rate="constant", **settings)
    assert result.histories[0].epochs[0].rates == pytest.approx(rates)


def test_settings_alone_change_the_part_that_is_there() -> None:
    method = bw.find_method("k-tied").changed(posterior={"initial_std": 0.1}, rate={"final": 0.2}, stepper={"lr": 1.0})
    parts = resolve(method)
    assert (parts.posterior.rank, parts.posterior.initial_std) == (2, 0.1)
    assert (parts.stepper.name, parts.stepper.lr, parts.rate.name, parts.rate.final) == ("adam", 1.0, "cosine", 0.2)


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [("epoch", "epochs"), ("batchsize", "batch_size"), ("temprature", "temperature"), ("l_r", "lr")],
)
def test_a_misspelt_keyword_of_fit_gets_the_nearest_name(wrong: str, nearest: str, data: tuple[Tensor, Tensor]) -> None:
    with pytest.raises(bw.SettingError, match=f"no setting '{wrong}'; did you mean '{nearest}'"):
        bw.fit(net(), data, "bbb", **{wrong: 3})


def test_rates_by_object_keep_their_place_in_warm_up() -> None:
    rate = RATES.resolve({"name": "warm_up", "fraction": 0.1, "after": {"name": "cosine"}})
    assert rate.factor(Progress(0, 100)) == pytest.approx(0.1)
