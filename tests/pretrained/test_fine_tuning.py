"""Fine-tuning around given weights, and which parameters take part: for every posterior and for members."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell.experiments import Experiment
from bayeswell.gradients import Sharpness
from truths.linear_regression import LinearRegression

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")
X, Y = torch.randn(60, 4, generator=bw.make_generator(0)), torch.randint(3, (60,), generator=bw.make_generator(1))
AROUND = {"name": "normal", "std": 0.05, "centre": "network"}
POSTERIORS = ["delta", "mean_field", "k_tied", "low_rank", "matrix_normal", "full"]


def given() -> nn.Sequential:
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(3.0)  # far from zero, so that its place can be seen
    return net


def flat(net: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in net.parameters()])


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_every_posterior_starts_at_the_given_weights_and_stays_near_them(posterior: str, tmp_path: Path) -> None:
    net = given()
    settings: dict[str, Any] = {"posterior": posterior, "prior": AROUND, "means": "network"}
    result = bw.fit(net, (X, Y), "bbb", epochs=3, temperature=1.0, progress=False, **settings)
    assert torch.equal(result.model.prior.centre, flat(net))
    away = (result.model.posterior.mean_vector().detach() - flat(net)).abs()
    assert 0 < float(away.max()) < 0.3  # six prior stds; the weights themselves are up to 1.5
    assert "normal(std=0.05, around the given weights)" in str(result.model.describe())
    result.save(tmp_path / "model")
    loaded = bw.load(tmp_path / "model")
    assert torch.equal(loaded.model.prior.centre, flat(net))
    assert torch.equal(loaded.predict(X).probabilities, result.predict(X).probabilities)


@pytest.mark.parametrize("method", ["bbb", "deep-ensemble", "sghmc"])
def test_members_all_start_there_with_means_network(method: str) -> None:
    """Not with the usual start, which draws all but the first anew; the prior is around the given weights in both."""
    net = given()
    settings: dict[str, Any] = {"members": 3, "prior": AROUND, "epochs": 1, "lr": 1e-5, "progress": False}
    near = bw.fit(net, (X, Y), method, means="network", temperature=1.0, **settings)
    for draw in near.model.draws(6, bw.make_generator(0)):
        assert float((near.model.layout.flatten(draw) - flat(net)).abs().max()) < 0.4
    spread = bw.fit(net, (X, Y), method, temperature=1.0, **settings)
    far = [
        float((spread.model.layout.flatten(d) - flat(net)).abs().max())
        for d in spread.model.draws(6, bw.make_generator(0))
    ]
    assert max(far) > 0.8
    assert torch.equal(spread.model.prior.centre, flat(net))


def test_the_posterior_is_that_of_the_residual_regression() -> None:
    """Linear regression with prior N(c, s^2): weights less c are the regression of y - X c on X with N(0, s^2)."""
    problem = LinearRegression.make(6, count=40, dimension=3, prior_std=0.4)
    net = nn.Linear(3, 1, bias=False).double()
    centre = net.weight.detach().numpy()[0]
    shifted = LinearRegression(problem.X, problem.y - problem.X @ centre, problem.noise_std, problem.prior_std)
    prior = {"name": "normal", "std": 0.4, "centre": "network"}
    result = bw.fit(
        net, problem.tensors(), "map", bw.Gaussian("known", problem.noise_std), prior=prior, temperature=1.0,
        epochs=120, batch_size=40, lr=0.1, rate="cosine", progress=False,
    )  # fmt: skip
    torch.testing.assert_close(
        result.model.posterior.mean_vector().detach(), torch.tensor(centre + shifted.mean()), rtol=0, atol=2e-3
    )
    found = bw.laplace(
        copy.deepcopy(net), problem.tensors(), bw.Gaussian("known", problem.noise_std), structure="full", prior=prior,
        prior_precision="prior",
    )  # fmt: skip
    # Laplace at the centre, not at the optimum: what is lost is the quadratic between the two.
    assert found.log_evidence is not None
    lost, mean = shifted.log_evidence - found.log_evidence, shifted.mean()
    assert lost == pytest.approx(0.5 * mean @ shifted.precision() @ mean, rel=1e-9)


def test_a_file_or_command_can_say_it() -> None:
    table = {"name": "bbb", "prior": AROUND, "means": "network", "rest": "frozen"}
    method = Experiment(method=table).method_part
    assert (method.prior, method.means, method.rest) == (AROUND, "network", "frozen")


# Normalisation layers take part where `where` names them.


def normalised() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3)).double()


def test_where_star_gives_sharpness_all_parameters() -> None:
    """SAM's gradient: at w + rho g / |g| over every parameter, BatchNorm's scale and offset among them."""
    x, rho = X.double(), 0.3
    net = normalised()
    loss = nn.functional.cross_entropy(net(x), Y)
    first = torch.autograd.grad(loss, list(net.parameters()))
    norm = torch.cat([g.flatten() for g in first]).norm()
    moved = copy.deepcopy(net)
    with torch.no_grad():
        for parameter, gradient in zip(moved.parameters(), first, strict=True):
            parameter.add_(rho * gradient / norm)
    sam = torch.autograd.grad(nn.functional.cross_entropy(moved(x), Y), list(moved.parameters()))
    sam_flat = torch.cat([g.flatten() for g in sam])
    for where, agrees in (("*", True), ("all", False)):
        model = bw.bayesian(normalised(), "delta", where=where)
        Sharpness(rho=rho).wrap(bw.ELBO("categorical", len(Y), temperature=0.0))(model, x, Y).total.backward()
        own = {
            **{n: p.grad for n, p in model.net.named_parameters()},
            **model.layout.unflatten(model.posterior.mean.grad),
        }
        ours = torch.cat([own[name].flatten() for name, _ in normalised().named_parameters()])
        assert torch.allclose(ours, sam_flat, rtol=1e-6, atol=1e-9) == agrees


def test_where_star_gives_swag_all_parameters() -> None:
    states = []
    for number in range(5):
        torch.manual_seed(number)
        states.append(
            {k: v + 0.1 * torch.randn(v.shape) if v.dim() else v for k, v in normalised().state_dict().items()}
        )
    found = bw.swag(normalised(), states, where="*").model
    scales = torch.stack([state["1.weight"] for state in states])
    std = found.layout.unflatten(found.posterior.std_vector())["1.weight"]
    diagonal_only = (0.5 * scales.var(0, unbiased=False)).sqrt()
    assert bool((std > diagonal_only).all())
    assert not found.deterministic
    assert "1.weight" not in bw.swag(normalised(), states).model.layout.slices
