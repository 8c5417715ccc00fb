"""Likelihoods of one's own, and what predictions say: members that are missing, names, mixtures, copies."""

from __future__ import annotations

import copy
import pickle
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor, distributions, nn

import bayeswell as bw
from bayeswell.likelihoods import LIKELIHOODS, Poisson
from bayeswell.predictive import expected_nll, predictive_nll

N = 60

BOUND = ("expected_nll", "minus_elbo", "minus_elbo_tempered")
"""What a posterior with a density is scored by besides: nll is all that these need."""


@pytest.fixture(autouse=True)
def _quiet() -> None:
    warnings.simplefilter("ignore", bw.BayeswellWarning)


def poisson_function(f: Tensor) -> distributions.Distribution:
    return distributions.Poisson(f.exp())


def one_weight() -> nn.Module:
    return nn.Linear(1, 1, bias=False)


def counts() -> tuple[Tensor, Tensor]:
    return torch.ones(N, 1), torch.from_numpy(np.random.default_rng(3).poisson(4.0, N)).float()


class OnlyNLL:
    """All that every method needs."""

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs.exp() - targets.view_as(outputs) * outputs).flatten(1).sum(1)


def test_a_class_with_nll_alone_trains_and_says_what_it_lacks() -> None:
    data = counts()
    settings: dict[str, Any] = {"epochs": 3, "batch_size": N, "progress": False, "validation": data}
    result = bw.fit(one_weight(), data, "bbb", OnlyNLL(), **settings)
    record = result.histories[0].epochs[-1]
    assert set(record.validation) == {"nll", *BOUND}
    assert record.scores == {}
    with pytest.raises(bw.SettingError) as caught:
        result.predict(data[0])
    assert str(caught.value) == (
        "likelihood OnlyNLL lacks `class_probabilities` or `mean_and_variance`, needed to predict"
    )
    with pytest.raises(bw.BayeswellError, match=r"OnlyNLL lacks `curvature_root`.*laplace"):
        bw.fit(
            one_weight(),
            data,
            "laplace",
            OnlyNLL(),
            post_hoc={"name": "laplace", "draws": 3},
            **settings,
        )
    bw.fit(one_weight(), data, "sgld", OnlyNLL(), members=2, **{**settings, "epochs": 40})


def test_validation_of_counts_is_the_nll_of_the_averaged_likelihood() -> None:
    x, y = counts()
    settings: dict[str, Any] = {"epochs": 20, "batch_size": N, "progress": False, "validation": (x, y)}
    result = bw.fit(one_weight(), (x, y), "bbb", "poisson", **settings)
    found = result.histories[0].epochs[-1].validation
    assert set(found) == {"rmse", "nll", *BOUND}
    losses = predictive_nll(result.model, x, y, result.likelihood, draws=10, seed=0)
    assert found["nll"] == pytest.approx(float(losses.mean()), rel=1e-6)


@pytest.mark.parametrize("batch_size", [None, 7])
def test_predictive_nll_is_the_log_of_the_mean(batch_size: int | None) -> None:
    x, y = counts()
    model = bw.bayesian(one_weight(), prior={"name": "normal", "std": 1.7})
    settings: dict[str, Any] = {"draws": 30, "seed": 4}
    kept = bw.predict(model, x, Poisson(), keep_samples=True, **settings).samples  # (D, N, 1): the rates
    p = scipy.stats.poisson.pmf(y.numpy(), kept[..., 0].double().numpy())
    found = predictive_nll(model, x, y, Poisson(), batch_size=batch_size, **settings)
    np.testing.assert_allclose(found, -np.log(p.mean(0)), rtol=1e-5)
    assert float(found.mean()) < expected_nll(model, x, y, "poisson", **settings)


def test_a_distribution_without_moments_trains_and_is_validated() -> None:
    twice = [distributions.transforms.ExpTransform(), distributions.transforms.ExpTransform()]

    def odd(f: Tensor) -> distributions.Distribution:
        return distributions.TransformedDistribution(distributions.Normal(f, 1.0), twice)

    data = (torch.ones(N, 1), torch.linspace(1.5, 6, N))
    result = bw.fit(one_weight(), data, "bbb", odd, epochs=3, progress=False, validation=data)
    assert set(result.histories[0].epochs[-1].validation) == {"nll", *BOUND}
    with pytest.raises(bw.SettingError, match="odd lacks `class_probabilities` or `mean_and_variance`"):
        result.predict(data[0])


class Noisy(nn.Module):
    """A Gaussian whose noise is learned."""

    def __init__(self) -> None:
        super().__init__()
        self.log_std = nn.Parameter(torch.tensor(0.0))

    def forward(self, f: Tensor) -> distributions.Distribution:
        return distributions.Normal(f, self.log_std.exp())


def test_the_noise_of_a_module_is_learned_with_the_weights() -> None:
    y = torch.randn(200, generator=torch.Generator().manual_seed(1)) * 0.3 + 1.1
    given = Noisy()
    result = bw.fit(
        one_weight(), (torch.ones(200, 1), y), "map", given, epochs=200, batch_size=200, progress=False,
        prior={"name": "normal", "std": 100.0}, stepper={"name": "adam", "lr": 0.1},
    )  # fmt: skip
    assert given.log_std.item() == 0  # the object that was given is not changed
    learned: Any = result.likelihood
    assert learned.function.log_std.exp().item() == pytest.approx(float(y.std(correction=0)), rel=0.02)
    found = result.predict(torch.ones(2, 1))
    assert isinstance(found, bw.RealPrediction)
    torch.testing.assert_close(
        found.aleatoric_variance, torch.full((2, 1), float(y.var(correction=0))), rtol=0.05, atol=0
    )


def test_a_function_is_given_again_at_loading(tmp_path: Path) -> None:
    x, y = counts()
    result = bw.fit(one_weight(), (x, y), "bbb", poisson_function, epochs=2, progress=False)
    result.save(tmp_path / "function")
    with pytest.raises(bw.FileError, match="poisson_function"):
        bw.load(tmp_path / "function")
    loaded = bw.load(tmp_path / "function", parts=[poisson_function])
    first, second = (one.predict(x, draws=5, seed=1) for one in (result, loaded))
    assert isinstance(first, bw.RealPrediction)
    assert isinstance(second, bw.RealPrediction)
    assert torch.equal(first.variance, second.variance)
    unnamed = bw.fit(one_weight(), (x, y), "bbb", lambda f: distributions.Poisson(f.exp()), epochs=2, progress=False)
    with pytest.raises(bw.SettingError, match="likelihood <lambda> has no name"):
        unnamed.save(tmp_path / "unnamed")


def test_what_a_module_has_learned_comes_back(tmp_path: Path) -> None:
    result = bw.fit(one_weight(), counts(), "bbb", Noisy(), epochs=5, progress=False)
    learned: Any = result.likelihood
    assert learned.function.log_std.item() != 0
    result.save(tmp_path / "module")
    loaded: Any = bw.load(tmp_path / "module", parts=[Noisy()]).likelihood
    assert loaded.function.log_std.item() == learned.function.log_std.item()


@dataclass(eq=False)
class Zeros(bw.DistributionLikelihood):
    """Counts with too many zeros: derived from torch's distributions, with a name and a setting."""

    share: float = 0.2

    name: ClassVar[str] = "zeros_of_test"
    paper: ClassVar[str] = "Lambert 1992"

    def distribution(self, outputs: Tensor) -> distributions.Distribution:
        rate = torch.stack([torch.full_like(outputs, 1e-6), outputs.exp()], -1)
        mixing = torch.tensor([self.share, 1 - self.share]).to(outputs).expand_as(rate)
        return distributions.MixtureSameFamily(distributions.Categorical(mixing), distributions.Poisson(rate))


def test_a_registered_one_is_saved_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LIKELIHOODS, "_parts", dict(LIKELIHOODS._parts))  # for this test alone
    bw.register("likelihood", Zeros)
    x, y = counts()
    y[:20] = 0
    result = bw.fit(one_weight(), (x, y), "bbb", {"name": "zeros_of_test", "share": 0.4}, epochs=5, progress=False)
    result.save(tmp_path / "model")
    loaded = bw.load(tmp_path / "model")
    assert isinstance(loaded.likelihood, Zeros)
    assert loaded.likelihood.share == 0.4
    first, second = (one.predict(x, draws=5, seed=1) for one in (result, loaded))
    assert isinstance(first, bw.RealPrediction)
    assert isinstance(second, bw.RealPrediction)
    assert torch.equal(first.variance, second.variance)


def _spread_by_a_network(name: str) -> bw.DistributionLikelihood:
    """A Gaussian whose std is made of the outputs by a layer that the likelihood has as ``name``."""

    class Spread(bw.DistributionLikelihood):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(3)
            setattr(self, name, nn.Sequential(nn.Linear(1, 1)))

        def distribution(self, outputs: Tensor) -> distributions.Distribution:
            return distributions.Normal(outputs, getattr(self, name)(outputs).exp())

    return Spread()


def test_a_likelihoods_network_may_be_called_as_the_models() -> None:
    """All gradients are clipped together and looked at: none is left out for another of its name."""
    found = []
    for name in ("spread", "net"):  # the model's own layer is net.0.weight, too
        torch.manual_seed(4)
        net = nn.Sequential(nn.Linear(1, 3), nn.Tanh(), nn.Linear(3, 1))
        x = torch.linspace(-1, 1, 30)[:, None]
        likelihood = _spread_by_a_network(name)
        result = bw.fit(
            net, (x, x.sin()), "bbb", likelihood, where="last_layer", epochs=5, batch_size=10, progress=False, seed=0,
            stepper="sgd", clip_norm=0.01,
        )  # fmt: skip
        found.append(dict(result.model.named_parameters()))
    for key, value in found[0].items():
        torch.testing.assert_close(value, found[1][key], rtol=0, atol=0)


@pytest.mark.parametrize("name", [*LIKELIHOODS, "function"])
def test_results_pickle_and_copy(name: str) -> None:
    torch.manual_seed(9)
    x = torch.randn(20, 3)
    targets = {"categorical": torch.arange(20) % 2, "bernoulli": (torch.arange(20) % 2)[:, None].expand(20, 2)}
    y = targets.get(name, (torch.arange(40) % 5).reshape(20, 2).float())
    likelihood = poisson_function if name == "function" else name
    if name == "next_token":  # sequences of four tokens
        x, y = torch.randn(20, 4, 3), torch.randint(0, 2, (20, 4))
    result = bw.fit(nn.Linear(3, 2), (x, y), "bbb", likelihood, epochs=2, progress=False)
    found = result.predict(x, draws=3, seed=1, keep_samples=True)
    for again in (copy.deepcopy(result), pickle.loads(pickle.dumps(result))):
        twin = again.predict(x, draws=3, seed=1, keep_samples=True)
        assert torch.equal(twin.samples, found.samples)
    for twin in (copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
        assert torch.equal(twin.samples, found.samples)
        assert torch.equal(twin.epistemic, found.epistemic)


def test_samples_that_were_not_kept_are_not_there() -> None:
    found = bw.predict(bw.bayesian(nn.Linear(3, 2)), torch.zeros(2, 3), "categorical", draws=2)
    assert not hasattr(found, "samples")
    assert getattr(found, "samples", None) is None
    with pytest.raises(AttributeError, match="keep_samples=True"):
        found.samples
    with pytest.raises(bw.SettingError, match="keep_samples=True"):
        found.samples


def test_a_mapping_is_a_likelihood_to_predict_with() -> None:
    model = bw.bayesian(nn.Linear(3, 2))
    found = bw.predict(model, torch.zeros(2, 3), {"name": "gaussian", "noise": "known", "std": (0.3, 0.5)}, draws=2)
    assert isinstance(found, bw.RealPrediction)
    torch.testing.assert_close(found.aleatoric_variance, torch.tensor([[0.09, 0.25]] * 2))
