"""SWAG from given checkpoints: what the collector makes of the same snapshots, bit for bit."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.errors import DataError, FileError, NetworkError, SettingError

X, Y = torch.randn(64, 5, generator=bw.make_generator(0)), torch.randint(3, (64,), generator=bw.make_generator(1))


def plain() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))


def normalised() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, 3))


def path_of(net: nn.Module, steps: int = 6) -> list[dict[str, Tensor]]:
    """State dicts of a training in plain torch."""
    optimizer, states = torch.optim.SGD(net.parameters(), 0.5), []
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(X.to(next(net.parameters()).dtype)), Y).backward()
        optimizer.step()
        states.append(copy.deepcopy(net.state_dict()))
    return states


class Snapshots(bw.Callback):
    """The network after every step, as a state dict."""

    def __init__(self) -> None:
        self.states: list[dict[str, Tensor]] = []

    def after_step(self, run: bw.Run) -> None:
        model = run.assembly.model
        tensors = {**model.net.state_dict(), **model.layout.unflatten(model.posterior.mean_vector().detach())}
        self.states.append({name: value.clone() for name, value in tensors.items()})


@pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")
@pytest.mark.parametrize(("method", "structure"), [("swag", "low_rank"), ("swag-diag", "diagonal")])
def test_it_is_the_collector_of_a_run(method: str, structure: str) -> None:
    """Every number of the posterior of a whole fit, from the networks that it went through."""
    seen = Snapshots()
    collector = {"start": 0.0, "cycle": 1}
    fitted = bw.fit(
        plain(), (X, Y), method, epochs=2, batch_size=16, collector=collector, callbacks=[seen], progress=False
    )
    found = bw.swag(plain(), seen.states, structure=structure)
    assert len(seen.states) == 8
    state = fitted.model.posterior.state_dict()
    assert found.model.posterior.state_dict().keys() == state.keys()
    for name, value in state.items():
        assert torch.equal(found.model.posterior.state_dict()[name], value), name
    assert torch.equal(found.predict(X, draws=5).probabilities, fitted.predict(X, draws=5).probabilities)


def test_against_the_formula() -> None:
    """The mean; half the variances and half D D' / (k - 1), of the deviations from the running mean."""
    states = path_of(plain().double())
    found = bw.swag(plain().double(), states, rank=4, scale=0.3).model
    flat = torch.stack([found.layout.flatten(state) for state in states])
    torch.testing.assert_close(found.posterior.mean_vector(), flat.mean(0))
    running = torch.stack([flat[: n + 1].mean(0) for n in range(6)])
    deviations = (flat - running)[-4:]
    variance = 0.3 * (flat.var(0, unbiased=False) + deviations.square().sum(0) / 3)
    torch.testing.assert_close(found.posterior.std_vector(), variance.sqrt())


def test_dicts_networks_and_files_are_alike(tmp_path: Path) -> None:
    net = plain()
    states = path_of(net)
    networks, files = [], []
    for number, state in enumerate(states):
        networks.append(plain())
        networks[-1].load_state_dict(state)
        files.append(tmp_path / f"{number}.safetensors")
        safetensors.torch.save_file(state, files[-1])
    base = bw.swag(net, states)
    for others in (networks, files, [str(file) for file in files], iter(states)):
        other = bw.swag(net, others)
        for name, value in base.model.posterior.state_dict().items():
            assert torch.equal(other.model.posterior.state_dict()[name], value)
    base.save(tmp_path / "model")
    assert torch.equal(bw.load(tmp_path / "model").predict(X).probabilities, base.predict(X).probabilities)


def test_statistics_are_those_of_each_draw_if_there_are_data() -> None:
    """Each draw's statistics are those of its own weights over the data, not those that any checkpoint has."""
    net = normalised()
    states = path_of(net)
    found = bw.swag(net, states, (X, Y), batch_size=32)
    q = found.model.posterior
    assert q.members == 30
    for index in (0, 17):
        member = q.member(index)
        scale = {
            name: torch.stack([state[name] for state in states]).double().mean(0) for name in ("1.weight", "1.bias")
        }
        hidden = nn.functional.linear(X, member["0.weight"], member["0.bias"])
        # The mean of the batches' means, whatever their order: here that of all examples.
        torch.testing.assert_close(member["1.running_mean"], hidden.mean(0), rtol=1e-4, atol=1e-5)
        for name, value in scale.items():
            torch.testing.assert_close(found.model.net.state_dict()[name].double(), value, rtol=1e-6, atol=1e-7)


def test_without_data_batch_norm_gets_a_line_and_the_average_of_the_checkpoints() -> None:
    net = normalised()
    states = path_of(net)
    with pytest.warns(bw.BayeswellWarning, match=r"BatchNorm.*give data="):
        found = bw.swag(net, states)
    mean = torch.stack([state["1.running_mean"] for state in states]).double().mean(0)
    torch.testing.assert_close(found.model.net[1].running_mean.double(), mean, rtol=1e-6, atol=1e-8)
    assert found.model.posterior.members == 0


def test_learned_noise_needs_data() -> None:
    net = nn.Linear(5, 1)
    states = [{name: value + 0.01 * n for name, value in net.state_dict().items()} for n in range(3)]
    targets = X[:, 0]
    with pytest.raises(SettingError, match=r"'gaussian' learns its noise.*give data="):
        bw.swag(net, states, likelihood="gaussian")
    found = bw.swag(net, states, (X, targets), "gaussian")
    residual = targets - found.model.eval()(X).detach().flatten()
    assert float(found.likelihood.log_std.detach().exp()) == pytest.approx(
        float(residual.square().mean().sqrt()), rel=1e-4
    )


def test_what_cannot_be_meant_is_refused_in_one_line(tmp_path: Path) -> None:
    net = plain()
    states = path_of(net, 3)
    (tmp_path / "no.safetensors").write_bytes(b"nonsense")
    narrow = nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 3))
    refused: list[tuple[type[Exception], str, Any, dict[str, Any]]] = [
        (SettingError, "1 checkpoints; a spread needs at least two", states[:1], {}),
        (SettingError, "rank = 9 exceeds the 3 checkpoints", states, {"rank": 9}),
        (SettingError, "structure = 'lowrank'; did you mean 'low_rank'", states, {"structure": "lowrank"}),
        (FileError, r"checkpoint 0: .*is a pickle.*weights_only=True", ["a.pt", "b.pt"], {}),
        (FileError, "checkpoint 1: .*cannot be read", [states[0], tmp_path / "none.safetensors"], {}),
        (FileError, "not a readable safetensors", [tmp_path / "no.safetensors", states[0]], {}),
        (DataError, "under 'state_dict'; give the state dict itself", [{"state_dict": states[0]}] * 2, {}),
        (DataError, "checkpoint 0 is of type int", [1, 2], {}),
        (NetworkError, "checkpoint 1 does not fit the network.*size mismatch", [states[0], narrow], {}),
        (NetworkError, "checkpoint 0 does not fit the network.*Missing key", [{}, states[0]], {}),
    ]  # fmt: skip
    for kind, match, given, settings in refused:
        with pytest.raises(kind, match=match) as caught:
            bw.swag(net, given, **settings)
        assert "\n" not in str(caught.value)
