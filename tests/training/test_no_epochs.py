"""epochs = 0: the network as it was given, where that means something; elsewhere a line that says why not."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell.errors import SettingError
from bayeswell.experiments import Experiment, run
from truths.linear_regression import LinearRegression

X = torch.randn(120, 4, generator=bw.make_generator(0))
Y = (X[:, :3] + 0.5 * torch.randn(120, 3, generator=bw.make_generator(1))).argmax(1)


def trained() -> nn.Sequential:
    """In plain torch, to a good fit."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Dropout(0.3), nn.Linear(12, 3))
    optimizer = torch.optim.Adam(net.parameters(), 0.03)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(X), Y).backward()
        optimizer.step()
    return net.eval()


def same_weights(model: bw.BayesianModule, net: nn.Module) -> bool:
    found = {**model.net.state_dict(), **model.layout.unflatten(model.posterior.mean_vector())}
    return all(torch.equal(found[name], value) for name, value in net.state_dict().items())


@pytest.mark.parametrize("method", ["map", "laplace", "mc-dropout"])
def test_the_network_is_the_one_given(method: str, tmp_path: Path) -> None:
    net = trained()
    result = bw.fit(net, (X, Y), method, epochs=0, folder=tmp_path / "run", progress=False)
    assert same_weights(result.model, net)
    assert result.histories[0].epochs == []
    found = result.predict(X)
    if method == "map":
        torch.testing.assert_close(found.probabilities, net(X).softmax(1).detach())
    else:
        assert float(found.epistemic.mean()) > 0
    assert result.trust.train_nll is not None
    assert result.trust.baseline_nll is not None
    assert result.trust.train_nll < result.trust.baseline_nll
    result.save(tmp_path / "model")
    assert torch.equal(bw.load(tmp_path / "model").predict(X).probabilities, found.probabilities)


def test_the_last_layer_alone() -> None:
    net = trained()
    result = bw.fit(net, (X, Y), "laplace", epochs=0, where="last_layer", rest="frozen", progress=False)
    assert same_weights(result.model, net)
    assert set(result.model.layout.slices) == {"3.weight", "3.bias"}


def test_a_temperature_of_its_own_comes_from_how_well_the_network_fits() -> None:
    """A tenth of NLL / entropy of the class frequencies, as after training; not the cold one of its beginning."""
    net = trained()
    result = bw.fit(net, (X, Y), "laplace", epochs=0, progress=False)
    frequencies = Y.bincount().double() / len(Y)
    entropy = -float((frequencies * frequencies.log()).sum())
    nll = float(nn.functional.cross_entropy(net(X), Y).detach())
    assert result.temperature == pytest.approx(0.1 * nll / entropy, rel=1e-5)


def test_learned_noise_is_found_in_one_pass() -> None:
    problem = LinearRegression.make(2, count=50, dimension=3)
    net = nn.Linear(3, 1, bias=False).double()
    with torch.no_grad():
        net.weight.copy_(torch.tensor(problem.mean()[None]))
    result = bw.fit(net, problem.tensors(), "laplace", "gaussian", epochs=0, temperature=1.0, progress=False)
    residual = problem.y - problem.X @ problem.mean()
    assert float(result.likelihood.log_std.detach().exp()) == pytest.approx((residual @ residual / 50) ** 0.5, rel=1e-6)


def test_what_fit_has_trained_becomes_a_laplace_approximation() -> None:
    """Its weights stay, and what it has learned of the noise."""
    problem = LinearRegression.make(2, count=50, dimension=3)
    first = bw.fit(
        nn.Linear(3, 1).double(), problem.tensors(), "map", "gaussian", epochs=3, lr=0.1, temperature=1.0,
        progress=False,
    )  # fmt: skip
    second = bw.fit(first, problem.tensors(), "laplace", epochs=0, temperature=1.0, progress=False)
    assert torch.equal(second.model.posterior.mean_vector(), first.model.posterior.mean_vector())
    assert torch.equal(second.likelihood.log_std, first.likelihood.log_std)
    assert second.std_ratio > 0


@pytest.mark.parametrize(
    ("method", "why"),
    [
        ("bbb", "the spread of posterior 'mean_field' is found in training"),
        ("auto", "'mean_field' is found in training"),
        ("swag", r"the path of training \(of given checkpoints: bw.swag\)"),
        ("sghmc", "the draws of sampler 'sghmc' are its steps"),
        ("deep-ensemble", "its 5 members differ by their training"),
    ],
)
def test_elsewhere_a_line_says_why_not(method: str, why: str) -> None:
    with pytest.raises(SettingError, match=why) as caught:
        bw.fit(trained(), (X, Y), method, epochs=0)
    assert str(caught.value).startswith("epochs = 0 takes the network as it is")
    with pytest.raises(SettingError, match=why):
        Experiment(method=method, epochs=0)


def test_other_numbers_and_calibration_without_held_out_data_are_refused() -> None:
    for value in (-1, True, 2.5, "3"):
        with pytest.raises(SettingError, match="epochs"):
            bw.fit(trained(), (X, Y), "map", epochs=value)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="give validation"):
        bw.fit(trained(), (X, Y), "map", epochs=0, calibrate=True)


def test_a_network_that_knows_nothing_of_the_data_is_told_so() -> None:
    net = copy.deepcopy(trained())
    with pytest.warns(bw.VerdictWarning, match="the network given knows nothing of these data: NLL"):
        bw.fit(net, (X, (Y + 1) % 3), "map", epochs=0, progress=False)


@pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")
def test_a_run_of_the_command_line_has_its_result(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"data": "wine", "model": {"name": "mlp", "hidden": [5]}, "epochs": 0, "draws": 3}
    record = run(Experiment(method="laplace", **settings), tmp_path / "run", progress=False)
    assert record["cost"]["steps"] == 0
    # 13 x 5 and 5 x 3 weights with triangles of both sides, 8 biases with a std each.
    assert record["variational_parameters"] == 65 + 15 + 91 + 15 + 15 + 6 + 2 * 8
