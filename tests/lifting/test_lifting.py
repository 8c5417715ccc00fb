"""Any network becomes Bayesian without a change to it or its code."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import bayeswell as bw
from lifting.lifted import LABELS, each_estimator, train, with_tensors
from nets import (
    NETS,
    call,
    doubled,
    generic,
    lift,
    make,
)

each_net = pytest.mark.parametrize("name", NETS)


def snapshot(net: nn.Module) -> dict[str, Any]:
    """All that lifting could disturb: values, gradients, the objects themselves, modes and attributes."""
    recurrent = [module for module in net.modules() if isinstance(module, nn.RNNBase)]
    return {
        "values": {name: value.clone() for name, value in net.state_dict().items()},
        "gradients": {name: None if p.grad is None else p.grad.clone() for name, p in net.named_parameters()},
        "objects": [id(p) for p in net.parameters()] + [id(m) for m in net.modules()] + [id(b) for b in net.buffers()],
        "modes": [module.training for module in net.modules()],
        "attributes": [sorted(vars(module)) for module in net.modules()],
        "trainable": [p.requires_grad for p in net.parameters()],
        "flat": [[id(w) for w in module._flat_weights] for module in recurrent],
    }


@each_estimator
@each_net
def test_the_given_network_is_not_changed(name: str, estimator: str) -> None:
    net, inputs = make(name)
    F.cross_entropy(call(net, inputs), LABELS).backward()
    before = snapshot(net)
    model = lift(net, estimator=estimator)
    train(model, inputs)
    model.eval()
    call(model, inputs)
    after = snapshot(net)
    assert before.pop("attributes") == after.pop("attributes")
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    own = {id(parameter) for parameter in net.parameters()}
    assert not any(id(parameter) in own for parameter in model.parameters())
    storages = {parameter.data_ptr() for parameter in net.parameters()}
    assert not any(parameter.data_ptr() in storages for parameter in model.parameters())


MODES = {"training": (True, True), "evaluation": (False, True), "evaluation without gradient": (False, False)}


@pytest.mark.parametrize("mode", MODES)
@each_net
def test_a_drawn_network_is_the_network_with_the_drawn_weights(name: str, mode: str) -> None:
    """In evaluation without gradient torch's transformer layer takes its fused path."""
    net, inputs = make(name)
    net, inputs = net.double(), doubled(inputs)
    model = generic(net)
    training, gradient = MODES[mode]
    net.train(training)
    model.train(training)
    with torch.set_grad_enabled(gradient):
        drawn = model.draw(bw.make_generator(91))
        truth = with_tensors(net, drawn)
        first, second = model.call(drawn, inputs), call(truth, inputs)
        torch.testing.assert_close(first, second, rtol=1e-10, atol=1e-10)
        kept = dict(model.net.named_buffers())
        for buffer, value in truth.named_buffers():
            torch.testing.assert_close(kept[buffer], value)
        other = model.call(model.draw(bw.make_generator(92)), inputs)
        assert float((other - first).detach().abs().max()) > 1e-3, "weights that do not matter prove nothing"


@pytest.mark.parametrize("mode", MODES)
@each_net
def test_a_point_posterior_is_the_network_itself(name: str, mode: str) -> None:
    net, inputs = make(name)
    model = lift(net, "delta")
    training, gradient = MODES[mode]
    net.train(training)
    model.train(training)
    with torch.set_grad_enabled(gradient):
        torch.testing.assert_close(call(model, inputs), call(net, inputs), rtol=1e-6, atol=1e-6)


@each_estimator
@each_net
def test_tiny_stds_give_the_networks_own_outputs(name: str, estimator: str) -> None:
    net, inputs = make(name)
    net, inputs = net.double(), doubled(inputs)
    model = lift(net, {"name": "mean_field", "initial_std": 1e-10}, estimator=estimator)
    net.train()
    torch.testing.assert_close(call(model, inputs), call(net, inputs), rtol=1e-7, atol=1e-7)
    net.eval()
    model.eval()
    torch.testing.assert_close(call(model, inputs), call(net, inputs), rtol=1e-7, atol=1e-7)


@each_estimator
@each_net
def test_it_is_an_ordinary_module_after_calls(name: str, estimator: str) -> None:
    """Trained, copied, converted and called again; nothing of a pass stays behind in it."""
    net, inputs = make(name)
    model = lift(net, estimator=estimator)
    keys, described = list(model.state_dict()), str(model.describe())
    train(model, inputs)
    assert list(model.state_dict()) == keys
    assert str(model.describe()) == described
    twin = copy.deepcopy(model).double()
    assert all(value.dtype == torch.float64 for value in twin.state_dict().values() if value.is_floating_point())
    model.eval()
    twin.eval()
    torch.testing.assert_close(call(twin, doubled(inputs)).float(), call(model, inputs), rtol=1e-4, atol=1e-5)
    twin.float().train()
    call(twin, inputs)
    train(twin, inputs, steps=1)


@each_net
def test_describe_lists_every_parameter_once(name: str) -> None:
    net, inputs = make(name)
    first = next(net.parameters())
    for where in ("all", "last_layer", lambda _name, _module, parameter: parameter is not first):
        model = lift(net, where=where)
        call(model, inputs)
        rows = model.describe().rows
        assert sorted(row.name for row in rows) == sorted(name for name, _ in net.named_parameters())
        shapes = {name: tuple(parameter.shape) for name, parameter in net.named_parameters()}
        assert all(row.shape == shapes[row.name] for row in rows)
        total = sum(parameter.numel() for parameter in net.parameters())
        assert model.describe().bayesian_weights == model.layout.size
        assert model.describe().deterministic_weights == total - model.layout.size
        own = sum(p.numel() for p in model.net.parameters())
        assert own == total - model.layout.size, "Bayesian parameters live in the posterior alone"
        for row in rows:
            bayesian = row.name in model.layout.slices
            assert (row.posterior == "deterministic") != bayesian
            assert bayesian or row.note, f"no reason given for {row.name}"
            assert row.name in str(model.describe())
