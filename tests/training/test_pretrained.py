"""Laplace and SWAG of networks that were trained elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from bayeswell.likelihoods import Gaussian
from bayeswell.prediction import load
from bayeswell.training import laplace, swag
from helpers import LinearRegression

PROBLEM = LinearRegression.make()


def trained() -> nn.Module:
    net = nn.Linear(4, 1, bias=False).double()
    with torch.no_grad():
        net.weight.copy_(PROBLEM.mean()[None])
    return net


def test_laplace_of_a_linear_network_is_the_posterior() -> None:
    likelihood = Gaussian(noise="known", std=PROBLEM.noise_std)
    result = laplace(
        trained(), (PROBLEM.x, PROBLEM.y), likelihood, structure="full", prior_precision=1.0,
        prior={"name": "normal", "std": PROBLEM.prior_std},
    )  # fmt: skip
    covariance = PROBLEM.covariance()
    assert torch.allclose(result.model.posterior.std(), covariance.diagonal().sqrt(), rtol=1e-6)
    assert result.log_evidence == pytest.approx(PROBLEM.log_evidence(), abs=1e-6)
    assert result.model.prediction == "linearized"


def test_the_evidence_chooses_the_prior_precision() -> None:
    likelihood = Gaussian(noise="known", std=PROBLEM.noise_std)
    net = trained()
    chosen = laplace(net, (PROBLEM.x, PROBLEM.y), likelihood, structure="full")
    assert chosen.log_evidence is not None
    std = float(chosen.model.prior.std()[0])
    for factor in (0.3, 3.0):
        prior = {"name": "normal", "std": std}
        other = laplace(net, (PROBLEM.x, PROBLEM.y), likelihood, structure="full", prior=prior, prior_precision=factor)
        assert other.log_evidence is not None
        assert other.log_evidence < chosen.log_evidence + 0.05
        assert torch.allclose(other.model.prior.std(), torch.full((4,), std * factor**-0.5, dtype=torch.float64))
    assert torch.equal(net.weight, trained().weight)


@pytest.mark.filterwarnings("ignore::bayeswell.core.errors.BayeswellWarning")
def test_by_layer_and_saved(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(60, 3)
    y = (x[:, 0] > 0).long()
    net = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2))
    with torch.no_grad():
        net[2].weight.mul_(4)
    result = laplace(net, (x, y), structure="kronecker", prior_precision="by_layer")
    stds = [float(part.flatten()[0]) for part in result.model.layout.unflatten(result.model.prior.std()).values()]
    assert len(set(stds)) > 1
    result.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert torch.equal(loaded.model.prior.std(), result.model.prior.std())
    assert torch.allclose(loaded.predict(x, seed=1).probabilities, result.predict(x, seed=1).probabilities, atol=1e-6)


def test_learned_noise_is_settled() -> None:
    residual = PROBLEM.y - PROBLEM.x @ PROBLEM.mean()
    result = laplace(trained(), (PROBLEM.x, PROBLEM.y), "gaussian", structure="diagonal", prior_precision=1.0)
    variance = result.likelihood.mean_and_variance(torch.zeros(1, 1, dtype=torch.float64))[1].item()
    assert variance == pytest.approx(float(residual.square().mean()), rel=1e-4)


def snapshots(count: int) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(2)
    return [{"weight": torch.randn(1, 4, generator=generator).double()} for _ in range(count)]


def test_swag_has_the_moments_of_the_checkpoints() -> None:
    states = snapshots(6)
    stacked = torch.cat([state["weight"] for state in states])
    known = Gaussian(noise="known", std=1.0)
    diagonal = swag(trained(), states, likelihood=known, structure="diagonal")
    assert torch.allclose(diagonal.model.posterior.mean, stacked.mean(0))
    assert torch.allclose(diagonal.model.posterior.std(), stacked.std(0, correction=0), rtol=1e-6)
    nets = [trained() for _ in states]
    for net, state in zip(nets, states, strict=True):
        net.load_state_dict(state)
    mixed = swag(trained(), nets, likelihood=known, rank=3)
    assert torch.allclose(mixed.model.posterior.mean, stacked.mean(0))
    assert mixed.log_evidence is None


def test_swag_reestimates_batch_norm() -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 3) * 3 + 1
    y = (x[:, 0] > 0).long()

    def net() -> nn.Module:
        return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))

    nets = [net() for _ in range(4)]
    result = swag(net(), nets, (x, y), batch_size=64)
    posterior = result.model.posterior
    assert posterior.num_networks == 30
    network = posterior.network(3)
    hidden = x @ network["0.weight"].T + network["0.bias"]
    assert torch.allclose(network["1.running_mean"], hidden.mean(0), atol=1e-4)
    assert torch.allclose(network["1.running_var"], hidden.var(0), rtol=1e-3)
    with pytest.warns(UserWarning, match="BatchNorm"):
        swag(net(), nets)


@pytest.mark.filterwarnings("ignore::bayeswell.core.errors.BayeswellWarning")
def test_laplace_of_a_frame_knows_its_columns_and_labels() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(torch.randn(60, 3).numpy(), columns=["a", "b", "c"])
    labels = frame["a"].gt(0).map({True: "yes", False: "no"})
    result = laplace(nn.Linear(3, 2), (frame, labels))
    found = [result.predict(rows, seed=1).probabilities for rows in (frame, frame[["c", "a", "b"]])]
    assert torch.equal(*found)
