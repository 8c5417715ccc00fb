"""One std for a layer: its stds, its count, its optimum, and what the estimators make of it."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

import bayeswell as bw
from bayeswell.errors import SettingError
from bayeswell.posteriors import SharedStd

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")  # short runs

PRIOR = bw.Normal(0.7)


def lifted(by: str = "layer", initial_std: float | None = None) -> bw.BayesianModule:
    torch.manual_seed(2)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    return bw.bayesian(net, SharedStd(by=by, initial_std=initial_std), PRIOR)


@pytest.mark.parametrize(("by", "stds"), [("layer", 2), ("tensor", 4), ("all", 1)])
def test_as_many_stds_as_there_are_owners(by: str, stds: int) -> None:
    model = lifted(by)
    assert model.posterior.shared_log_std.shape == (stds,)
    assert model.variational_parameters == model.layout.size + stds
    with torch.no_grad():
        model.posterior.shared_log_std.copy_(torch.arange(stds) * 0.3 - 2)
    found = model.posterior.std_vector().detach()
    owners = {"layer": [0, 0, 1, 1], "tensor": [0, 1, 2, 3], "all": [0, 0, 0, 0]}[by]
    for site, owner in zip(model.layout.sites, owners, strict=True):
        torch.testing.assert_close(
            found[model.layout.slices[site.name]], torch.full((site.size,), math.exp(0.3 * owner - 2))
        )


def test_stds_start_as_those_of_mean_field() -> None:
    torch.testing.assert_close(lifted().posterior.std_vector().detach(), torch.full((26,), 0.7 * math.exp(-3)))
    torch.testing.assert_close(lifted(initial_std=0.2).posterior.std_vector().detach(), torch.full((26,), 0.2))


def test_draws_density_and_kl_are_those_of_mean_field_with_these_stds() -> None:
    model = lifted()
    with torch.no_grad():
        model.posterior.shared_log_std.copy_(torch.tensor([-1.3, -0.4]))
    torch.manual_seed(2)
    free = bw.bayesian(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), "mean_field", PRIOR)
    free.posterior.set_stds(model.posterior.std_vector().detach())
    noise = torch.randn(5, 26, generator=torch.Generator().manual_seed(0))
    for posterior in (model.posterior, free.posterior):
        posterior.zero_grad()
    weights, kl = model.posterior.sample_and_kl(noise, model.prior)
    expected, other_kl = free.posterior.sample_and_kl(noise, free.prior)
    assert weights is not None
    assert expected is not None
    torch.testing.assert_close(weights, expected)
    torch.testing.assert_close(kl, other_kl)
    torch.testing.assert_close(model.posterior(weights), free.posterior(weights))
    torch.testing.assert_close(model.posterior.entropy(), free.posterior.entropy())
    # The slope of a shared log std is the sum of those that share it.
    (weights.square().sum() + kl).backward()
    (expected.square().sum() + other_kl).backward()
    slopes = free.posterior.log_std.grad
    assert slopes is not None
    torch.testing.assert_close(
        model.posterior.shared_log_std.grad, torch.stack([slopes[:16].sum(), slopes[16:].sum()]), rtol=1e-4, atol=1e-4
    )
    torch.testing.assert_close(model.posterior.mean.grad, free.posterior.mean.grad)


def test_the_best_shared_std_of_a_linear_model() -> None:
    """For a Gaussian posterior of precision L the optimum is std^2 = P / trace(L), with the exact means.

    40 outputs are as many regressions, each with its own draws of the curvature: their one std has less scatter.
    """
    copies = 40
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(40, 3, generator=generator) * torch.tensor([0.3, 1.0, 2.0])
    y = x @ torch.tensor([[1.0], [-0.5], [0.3]]) + 0.4 * torch.randn(40, 1, generator=generator)
    result = bw.fit(
        nn.Linear(3, copies, bias=False), (x, y.expand(-1, copies)), "bbb", bw.Gaussian(noise="known", std=0.4),
        posterior=SharedStd(), prior=bw.Normal(0.8), estimator={"name": "variational_laplace", "curvature": "hessian"},
        temperature=1, epochs=150, batch_size=40, lr=0.1, std_multiplier=1, rate="cosine", progress=False,
    )  # fmt: skip
    precision = x.T @ x / 0.4**2 + torch.eye(3) / 0.8**2
    mean = torch.linalg.solve(precision, x.T @ y / 0.4**2).flatten()
    posterior = result.model.posterior
    means = posterior.mean.detach().view(copies, 3)
    torch.testing.assert_close(means, mean.expand_as(means), rtol=2e-3, atol=2e-3)
    assert float(posterior.shared_log_std.detach().exp()) == pytest.approx(
        math.sqrt(3 / float(precision.trace())), rel=0.01
    )


@pytest.mark.parametrize("estimator", ["weight_sampling", "local_reparameterization", "flipout"])
def test_every_estimator_trains_it(estimator: str) -> None:
    x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    result = bw.fit(
        nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), (x, (x[:, 0] > 0).long()), "bbb",
        posterior={"name": "shared_std", "by": "layer"}, estimator=estimator, epochs=3, batch_size=20, progress=False,
    )  # fmt: skip
    assert result.model.posterior.shared_log_std.shape == (2,)
    assert "shared_std" in str(result.model.describe())


def test_a_wrong_owner_is_refused() -> None:
    with pytest.raises(SettingError, match="by = 'layers'; did you mean 'layer'"):
        SharedStd(by="layers")


@pytest.mark.parametrize("by", ["layer", "all"])
def test_stds_that_several_parameters_share_stand_under_their_own_name(by: str) -> None:
    posterior = bw.bayesian(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), {"name": "shared_std", "by": by}).posterior
    rows = posterior.rows_by_site("shared_log_std", posterior.shared_log_std)
    assert {name for name, _, _ in rows} == {"shared_log_std"}
    assert rows[-1][2] == len(posterior.shared_log_std) == {"layer": 2, "all": 1}[by]


@pytest.mark.parametrize("by", ["layer", "tensor", "all"])
def test_which_std_is_whose_is_kept_and_not_made_again(by: str) -> None:
    posterior = lifted(by).posterior
    assert list(posterior.state_dict()) == ["mean", "shared_log_std"]  # files stay what they were
    made: list[str] = []

    class Watch(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            made.append(func.__name__)
            return func(*args, **(kwargs or {}))

    with Watch():
        state = posterior.std_state()
    assert "tensor" not in made
    assert state.shape == (26,)
    moved = copy.deepcopy(posterior).to("meta")
    assert moved.std_state().device.type == "meta"  # the buffer goes where the parameters go
    assert posterior.double().std_state().dtype == torch.float64
