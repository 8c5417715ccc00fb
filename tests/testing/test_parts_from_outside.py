"""A part of each axis written outside the package, with the least that it needs: checked, trained, saved, loaded."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Poisson, StudentT

import bayeswell as bw
from bayeswell.testing import check_part
from bayeswell.types import ExpectedNLL, Posterior, Progress

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.errors.BayeswellWarning")


def data(counts: bool = False) -> tuple[Tensor, Tensor]:
    x = torch.randn(64, 3)
    mean = x @ torch.tensor([[0.8], [-0.5], [0.3]])
    return x, torch.poisson(mean.exp()) if counts else mean + 0.2 * torch.randn(64, 1)


def trained(method: str = "bbb", likelihood: Any = "gaussian", counts: bool = False, **parts: Any) -> bw.Result:
    """Three epochs with the part; what is predicted is finite, and the fit has become better."""
    x, y = data(counts)
    result = bw.fit(nn.Linear(3, 1), (x, y), method, likelihood, epochs=3, batch_size=16, lr=0.03, **parts)
    losses = [epoch.nll for epoch in result.histories[0].epochs]
    assert all(map(math.isfinite, losses))
    assert losses[-1] < losses[0]
    return result


def saved_and_loaded(result: bw.Result, folder: Path, **parts: Any) -> None:
    """What comes back from disk predicts as it did."""
    x, _ = data()
    folder.mkdir(exist_ok=True)
    result.save(folder / "model")
    again = bw.load(folder / "model", **parts)
    assert torch.equal(again.predict(x, draws=5).mean, result.predict(x, draws=5).mean)


# The parts


class CountsNLL:
    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs.exp() - targets.reshape(outputs.shape) * outputs + torch.lgamma(targets + 1)).flatten(1).sum(1)


@dataclass(eq=False)
class Laplace(nn.Module):
    """Laplace noise of one learned scale."""

    scale: float = 0.5
    name: ClassVar[str] = "outside_laplace"

    def __post_init__(self) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(self.scale).log())

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        distance = (targets.reshape(outputs.shape) - outputs).abs()
        return (distance / self.log_scale.exp() + math.log(2) + self.log_scale).flatten(1).sum(1)

    def mean_and_variance(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        return outputs, (2 * (2 * self.log_scale).exp()).expand_as(outputs)


class OneDraw:
    def expected_nll(self, model: Any, weights: Tensor | None, step: Any) -> ExpectedNLL:
        like = model.posterior.mean_vector()
        noise = torch.randn(1, model.posterior.noise_size, generator=step.generator, dtype=like.dtype)
        outputs = model.call(model.layout.unflatten(model.posterior.sample(noise)[0]), step.inputs)
        return ExpectedNLL(step.nll(outputs), outputs)


@dataclass(frozen=True)
class NamedDraw(OneDraw):
    """One draw for the batch."""

    name: ClassVar[str] = "outside_draw"


class Logistic:
    class density:
        analytic = False

        @staticmethod
        def log_prob(weights: Tensor, scale: Tensor) -> Tensor:
            return -weights / scale - 2 * nn.functional.softplus(-weights / scale) - scale.log()

        @staticmethod
        def std(scale: Tensor) -> Tensor:
            return scale * math.pi / math.sqrt(3)

    def parameters(self, site: Any) -> tuple[float, ...]:
        return (0.3,)


@dataclass(frozen=True)
class NamedLogistic(Logistic):
    """A logistic density for every weight."""

    name: ClassVar[str] = "outside_logistic"


class Halfway:
    needs = frozenset({"entropy", "weight_sample"})

    def __call__(self, posterior: Any, prior: Any, noise: Any) -> Any:
        weights = posterior.sample(noise)
        return weights, -posterior.entropy() - prior.log_prob(weights).mean()


class OneStd(Posterior):
    def __init__(self, layout: Any, means: Tensor, std: float) -> None:
        super().__init__()
        self.layout, self.noise_size = layout, layout.size
        self.mean = nn.Parameter(means.detach().clone())
        self.log_std = nn.Parameter(means.new_tensor(std).log())

    def mean_vector(self) -> Tensor:
        return self.mean

    def std_vector(self) -> Tensor:
        return self.log_std.exp().expand(self.layout.size)

    def sample(self, noise: Tensor) -> Tensor:
        return self.mean + self.log_std.exp() * noise

    def entropy(self) -> Tensor:
        return self.layout.size * (self.log_std + 0.5 * math.log(2 * math.pi * math.e))

    def explain(self, site: Any) -> str:
        return "one std"


@dataclass(frozen=True)
class Isotropic:
    """One std for all weights."""

    initial_std: float = 0.05
    name: ClassVar[str] = "outside_isotropic"
    provides: ClassVar[frozenset[str]] = frozenset({"factorised", "weight_sample", "entropy"})

    def build(self, layout: Any, prior: Any, means: Tensor) -> Posterior:
        return OneStd(layout, means, self.initial_std)


class Heavy:
    lr = 0.03

    def build(self, groups: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(groups, lr=self.lr, momentum=0.5)


@dataclass(frozen=True)
class NamedHeavy:
    """SGD with momentum."""

    lr: float = 0.03
    name: ClassVar[str] = "outside_heavy"

    def build(self, groups: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(groups, lr=self.lr, momentum=0.5)


class Exponential:
    """An exponential average of the weights, divided by the weight of its start."""

    def __init__(self, decay: float = 0.8) -> None:
        self.decay = decay

    def build(self, model: Any, total_steps: int, batches: int) -> Any:
        return ExponentialState(model, self.decay)


class ExponentialState:
    def __init__(self, model: Any, decay: float) -> None:
        self.layout, self.decay, self.weight = model.layout, decay, 0.0
        self.total = torch.zeros_like(model.posterior.mean_vector().detach())

    def observe(self, model: Any, at: Progress) -> None:
        self.total = self.decay * self.total + (1 - self.decay) * model.posterior.mean_vector().detach()
        self.weight = self.decay * self.weight + 1 - self.decay

    def result(self) -> Any:
        return bw.Delta(), bw.Delta().build(self.layout, None, self.total / self.weight)  # type: ignore[arg-type]

    def deterministic(self) -> dict[str, Tensor]:
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total, "weight": self.weight}

    def load_state_dict(self, state: Any) -> None:
        self.total, self.weight = state["total"], state["weight"]


class FixedWidth:
    def finish(self, model: Any, likelihood: Any, batches: Any, dataset_size: int, generator: Any = None) -> Any:
        part = bw.MeanField(initial_std=0.1)
        return part, part.build(model.layout, model.prior, model.posterior.mean_vector().detach())


# The tests


def test_likelihoods() -> None:
    report = check_part(CountsNLL())
    assert "nll_is_normalised" in report.passed
    assert report.left_out["curvature_root_is_one"] == "the likelihood has no `curvature_root`"
    trained("map", CountsNLL(), counts=True)


def test_a_likelihood_of_classes_by_its_nll_alone() -> None:
    class Labels:
        def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
            return nn.functional.cross_entropy(outputs, targets, reduction="none")

    assert "nll_is_normalised" in check_part(Labels()).passed
    x, _ = data()
    result = bw.fit(nn.Linear(3, 4), (x, x.argmax(1)), "bbb", Labels(), epochs=2)
    assert result.histories[0].epochs[-1].nll < result.histories[0].epochs[0].nll


def test_a_function_that_returns_a_distribution() -> None:
    report = check_part(lambda f: Poisson(f.exp()), "likelihood")
    assert {"samples_as_the_nll_says", "predictions_agree_with_the_nll"} <= set(report.passed)
    trained("bbb", lambda f: Poisson(f.exp()), counts=True)


def test_a_registered_likelihood_is_saved(tmp_path: Path) -> None:
    check_part(Laplace(0.3))
    bw.register("likelihood", Laplace)
    assert check_part("outside_laplace", "likelihood").part == "'outside_laplace'"
    saved_and_loaded(trained("bbb", {"name": "outside_laplace", "scale": 0.4}), tmp_path)


@pytest.mark.parametrize(
    ("axis", "part"),
    [
        ("estimator", OneDraw()),
        ("prior", Logistic()),
        ("prior", StudentT(5.0, scale=0.3)),
        ("divergence", Halfway()),
        ("posterior", Isotropic()),
        ("stepper", Heavy()),
        ("stepper", functools.partial(torch.optim.NAdam, lr=5e-3)),
        ("stepper", torch.optim.Adagrad),
        ("rate", functools.partial(torch.optim.lr_scheduler.StepLR, step_size=1)),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_part_is_known_by_its_members_checked_and_trained(axis: str, part: Any) -> None:
    assert check_part(part).axis == axis
    x, y = data()
    settings = {} if axis == "stepper" else {"lr": 0.03}
    result = bw.fit(nn.Linear(3, 1), (x, y), "bbb", "gaussian", epochs=3, batch_size=16, **settings, **{axis: part})
    losses = [epoch.nll for epoch in result.histories[0].epochs]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("axis", ["rate", "kl_weight"])
def test_functions_of_progress(axis: str) -> None:
    def halves(at: Progress) -> float:
        return 0.5 ** (at.step / 10)

    check_part(halves, axis)
    trained(**{axis: halves})


def test_a_collector_and_a_post_hoc_part() -> None:
    assert check_part(Exponential()).axis == "collector"
    trained("map", collector=Exponential())
    report = check_part(FixedWidth(), exact=False)
    assert report.axis == "post_hoc"
    assert "the_mean_stays" in report.left_out
    assert trained("map", post_hoc=FixedWidth()).model.posterior.std_vector().allclose(torch.tensor(0.1))


@pytest.mark.parametrize(
    ("axis", "kind"), [("estimator", NamedDraw), ("prior", NamedLogistic), ("posterior", Isotropic)]
)
def test_a_registered_part_is_trained_by_name_saved_and_loaded(axis: str, kind: Any, tmp_path: Path) -> None:
    result = trained(**{axis: kind()})
    saved_and_loaded(result, tmp_path / "given", parts=[kind])
    with pytest.raises(bw.FileError, match=f"unknown {axis} '{kind.name}'"):
        bw.load(tmp_path / "given" / "model")
    bw.register(axis, kind)
    check_part(kind.name)
    saved_and_loaded(trained(**{axis: kind.name}), tmp_path / "named")


def test_a_registered_stepper_is_trained_by_name() -> None:
    bw.register("stepper", NamedHeavy)
    check_part("outside_heavy")
    trained("map", stepper="outside_heavy")


def test_a_name_is_taken_back() -> None:
    bw.register("prior", NamedLogistic)
    stranger: Any = type("Stranger", (), {"name": "normal"})
    bw.PRIORS.unregister(stranger)  # the name is another class's: nothing happens
    bw.PRIORS.unregister(NamedLogistic)
    assert not bw.PRIORS.knows("outside_logistic")
    assert bw.PRIORS.knows("normal")
