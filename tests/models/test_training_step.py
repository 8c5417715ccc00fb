"""Every model of the zoo is lifted and trained by one step of three methods."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.datasets import digits
from bayeswell.models import build_model
from models.zoo import SMALL, batch, few_blocks, labels, small

METHODS = ("bbb", "k-tied", "f-sgvb")


def one_step(net: nn.Module, inputs: Tensor, targets: Tensor, method: str) -> tuple[bw.BayesianModule, Any]:
    """Lift, one step of SGD on the method's objective; also the terms before the step."""
    torch.manual_seed(2)
    chosen = bw.find_method(method)
    model = bw.bayesian(net, chosen.posterior, chosen.prior, chosen.estimator)
    elbo = bw.ELBO("categorical", 100, temperature=0.3)
    objective = elbo if chosen.sharpness_part is None else chosen.sharpness_part.wrap(elbo)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    terms = objective(model, inputs, targets)
    terms.total.backward()
    optimizer.step()
    return model, terms


def check_step(net: nn.Module, inputs: Tensor, targets: Tensor, method: str) -> None:
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    model, terms = one_step(net, inputs, targets, method)
    assert bool(terms.total.isfinite())
    assert float(terms.nll) > 0
    after = model.layout.unflatten(model.posterior.mean_vector().detach())
    norms = dict(model.net.named_parameters())
    assert set(after) | set(norms) == set(before)
    for name, value in {**after, **norms}.items():
        assert bool(value.isfinite().all()), name
        # An embedding moves only where a token occurs; all else everywhere but for units that are off.
        assert not torch.equal(value, before[name]), name
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert bool((parameter.grad != 0).any())


@few_blocks()
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", SMALL)
def test_one_training_step(name: str, method: str) -> None:
    inputs = batch(name)
    # In float64: the scale of a norm before another norm hardly matters, and so hardly moves.
    check_step(small(name).double(), inputs if name == "lstm" else inputs.double(), labels(), method)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("vgg", (3, 32, 32)),
        ("resnet18", (3, 32, 32)),
        ("preresnet164", (3, 32, 32)),
        ("wide_resnet28_10", (3, 32, 32)),
        ("densenet161", (3, 64, 64)),
        ("resnet152", (3, 64, 64)),
    ],
)
def test_one_training_step_at_full_size(name: str, shape: tuple[int, ...], method: str) -> None:
    torch.manual_seed(0)
    check_step(build_model(name, shape, 10), torch.randn(3, *shape), torch.arange(3), method)


@pytest.mark.parametrize("name", ["cnn", "resnet10"])
def test_a_small_network_learns_digits(name: str) -> None:
    """Nine tenths of unseen digits after a few passes of plain training: wiring, not just shapes."""
    data = digits()
    inputs, targets = (torch.as_tensor(x) for x in (data.train_inputs, data.train_targets))
    inputs = inputs.reshape(-1, 1, 8, 8).float()
    torch.manual_seed(0)
    net = build_model(name if name == "cnn" else {"name": name, "width": 8}, (1, 8, 8), 10)
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    for _ in range(2):
        for index in torch.randperm(len(inputs)).split(50):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(inputs[index]), targets[index]).backward()
            optimizer.step()
    test = torch.as_tensor(data.test_inputs).reshape(-1, 1, 8, 8).float()
    guessed = net.eval()(test).argmax(1)
    assert float((guessed == torch.as_tensor(data.test_targets)).float().mean()) > 0.9
