"""Weights stand in their slots for the length of a call, and hooks and forwards of an instance are respected."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import bayeswell as bw
from lifting.lifted import each_estimator
from nets import (
    Attention,
    lift,
    make,
)


def contents(net: nn.Module) -> dict[str, Tensor | None]:
    """What stands in the network's slots for parameters."""
    return {
        f"{name}.{local}": tensor
        for name, module in net.named_modules()
        for local, tensor in module._parameters.items()
    }


SLOTTED: dict[str, Any] = {
    "plain": lambda: nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)),
    "shared by two layers": lambda: shared(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))),
    "one layer twice": lambda: nn.Sequential(layer := nn.Linear(4, 4), nn.Tanh(), layer),
    "parametrised": lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), nn.Linear(4, 4)),
}


def shared(net: nn.Sequential) -> nn.Sequential:
    """With one weight for its first and its last layer."""
    net[2].weight = net[0].weight
    return net


@pytest.mark.parametrize("kind", SLOTTED)
def test_slots_are_filled_for_the_length_of_a_call(kind: str) -> None:
    """By the given tensors themselves; empty again after a call, a failure and tensors that are missing."""
    net = SLOTTED[kind]()
    model = lift(net)
    x = torch.randn(5, 4)
    weights = {name: torch.randn(p.shape) for name, p in net.named_parameters(remove_duplicate=False)}
    # A shared parameter has one value under all of its names.
    weights = {name: weights[site.name] for site in model.layout.sites for name in site.names}
    expected = torch.func.functional_call(net, {site.name: weights[site.name] for site in model.layout.sites}, (x,))
    during: list[dict[str, Tensor | None]] = []
    hook = model.net[1].register_forward_hook(lambda *_: during.append(contents(model.net)))
    torch.testing.assert_close(model.call(weights, x), expected)
    hook.remove()
    assert all(any(tensor is given for given in weights.values()) for tensor in during[0].values())
    assert during[0]
    assert set(contents(model.net).values()) == {None}

    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        model.call(weights, torch.randn(5, 7))
    assert set(contents(model.net).values()) == {None}
    missing = {name: tensor for name, tensor in weights.items() if name != model.layout.sites[-1].name}
    with pytest.raises(KeyError):
        model.call(missing, x)
    assert set(contents(model.net).values()) == {None}
    torch.testing.assert_close(model.call(weights, x), expected)


@pytest.mark.parametrize("fails", [False, True])
def test_a_call_within_a_call_leaves_the_outer_one_its_weights(fails: bool) -> None:
    """A hook evaluates the same network at other weights, and may fail at it."""
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    model = lift(net)
    outer, inner = ({name: torch.randn(p.shape) for name, p in net.named_parameters()} for _ in range(2))
    x, found = torch.randn(5, 4), []

    def evaluate(*_: Any) -> None:
        if found:
            return
        found.append(torch.zeros(0))
        try:
            found.append(model.call(inner, x[:, :3] if fails else x))
        except RuntimeError:
            assert fails

    hook = model.net[1].register_forward_hook(evaluate)
    torch.testing.assert_close(model.call(outer, x), torch.func.functional_call(net, outer, (x,)))
    hook.remove()
    assert len(found) == 1 + (not fails)
    if not fails:
        torch.testing.assert_close(found[1], torch.func.functional_call(net, inner, (x,)))
    assert set(contents(model.net).values()) == {None}


@each_estimator
def test_hooks_run_as_in_any_network(estimator: str) -> None:
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    seen: list[Tensor] = []
    net[2].register_forward_pre_hook(lambda _module, args: (2 * args[0],))
    net[2].register_forward_hook(lambda _module, _args, output: seen.append(output.detach()))
    model = lift(net, {"name": "mean_field", "initial_std": 1e-10}, estimator=estimator)
    x = torch.randn(5, 4)
    outputs = model(x)
    assert len(seen) == 1
    assert torch.equal(seen[0], outputs)
    torch.testing.assert_close(outputs, net(x), rtol=1e-5, atol=1e-5)


@each_estimator
def test_a_forward_of_the_instance_is_respected_and_kept(estimator: str) -> None:
    """Offloading and tracing tools put their own forward on a layer object."""
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3))
    net[0].forward = lambda x: 3 * x
    model = lift(net, {"name": "mean_field", "initial_std": 1e-10}, estimator=estimator)
    x = torch.randn(5, 4)
    for _ in range(2):
        torch.testing.assert_close(model(x), net(x), rtol=1e-5, atol=1e-5)


class Doubled(nn.Linear):
    """A linear layer that computes something else."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.square(), self.bias)


@each_estimator
def test_subclasses_with_their_own_forward_are_not_taken_for_linear(estimator: str) -> None:
    net = nn.Sequential(Doubled(4, 4), nn.Linear(4, 3))
    model = lift(net, {"name": "mean_field", "initial_std": 1e-10}, estimator=estimator)
    x = torch.randn(5, 4)
    torch.testing.assert_close(model(x), net(x), rtol=1e-5, atol=1e-5)
    rows = {row.name: row.estimator for row in model.describe().rows}
    if estimator in ("flipout", "local_reparameterization"):
        assert rows["0.weight"] == "weight_sampling (Doubled is not linear in it through its own forward)"
        assert rows["1.weight"] == estimator


def test_describe_names_what_each_site_really_gets() -> None:
    net, _ = make("convolutions")
    rows = {row.name: row for row in lift(net, estimator="local_reparameterization").describe().rows}
    assert rows["0.weight"].estimator == "local_reparameterization (approximate: positions independent)"
    assert rows["5.weight"].estimator == "local_reparameterization"
    rows = {row.name: row for row in lift(net, estimator="flipout").describe().rows}
    assert rows["0.weight"].estimator == "flipout"
    assert rows["0.bias"].estimator == "weight_sampling (bias, shared by the batch)"
    lstm, _ = make("lstm")
    rows = {row.name: row for row in lift(lstm, estimator="flipout").describe().rows}
    assert rows["cells.weight_ih_l0"].estimator.startswith("weight_sampling (LSTM")
    assert rows["embedding.weight"].estimator.startswith("weight_sampling (Embedding")
    attention = lift(Attention(), estimator="flipout").describe().rows
    assert all(row.estimator.startswith("weight_sampling") for row in attention if "attention" in row.name)
    laplace = lift(net, estimator={"name": "variational_laplace", "curvature": "fisher_reparameterised"})
    assert {row.estimator for row in laplace.describe().rows} == {"variational_laplace (fisher_reparameterised)"}


def test_cautions_name_the_layers_without_curvature() -> None:
    net = nn.Sequential(nn.Conv1d(2, 2, 2), nn.ReLU(), nn.MaxPool1d(2), nn.Flatten(), nn.Linear(4, 3))
    with pytest.warns(bw.BayeswellWarning, match=r"'1' \(ReLU\), '2' \(MaxPool1d\)"):
        bw.bayesian(net, estimator="variational_laplace")
    with pytest.warns(bw.BayeswellWarning, match="hessian"):
        bw.bayesian(nn.Linear(3, 2), estimator={"name": "variational_laplace", "curvature": "hessian"})
    bw.bayesian(nn.Sequential(nn.Linear(3, 2), nn.Softplus()), estimator="variational_laplace")
