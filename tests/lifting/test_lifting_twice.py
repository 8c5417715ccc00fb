"""A network that is Bayesian already is not lifted again: the posterior's own parameters would get a posterior."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.errors import NetworkError


def test_a_lifted_network_is_refused_with_the_remedy() -> None:
    model = bw.bayesian(nn.Linear(3, 2))
    with pytest.raises(NetworkError, match=r"already.*fit\(result, \.\.\.\).*network that was lifted"):
        bw.bayesian(model)


def test_a_network_around_a_lifted_one_is_refused_by_name() -> None:
    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(3, 3), bw.bayesian(nn.Linear(3, 2)))

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.inner(x)
            return y

    with pytest.raises(NetworkError, match=r"'inner\.1'.*already"):
        bw.bayesian(Around())


def test_the_network_inside_a_lifted_one_has_no_weights_to_lift() -> None:
    model = bw.bayesian(nn.Linear(3, 2))
    with pytest.raises(NetworkError, match="no parameters"):
        bw.bayesian(model.net)


def test_lifting_leaves_the_given_network_free_to_be_lifted_again() -> None:
    net = nn.Linear(3, 2)
    first, second = bw.bayesian(net).eval(), bw.bayesian(net, posterior="delta").eval()
    x = torch.randn(4, 3)
    assert torch.equal(first(x), second(x))
