"""How many numbers a posterior has, as papers count them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import bayeswell as bw

# A 5 x 7 weight matrix; in brackets what the family keeps beside its 35 means.
COUNTS: list[tuple[Any, int]] = [
    ("delta", 35),
    ("mean_field", 70),
    ({"name": "k_tied", "rank": 2}, 35 + 2 * (5 + 7)),
    ({"name": "low_rank", "rank": 3}, 35 + 35 + 3 * 35),
    ("matrix_normal", 35 + 5 * 6 // 2 + 7 * 8 // 2),  # 78
    ("full", 35 + 35 * 36 // 2),  # 665
]


@pytest.mark.parametrize(("posterior", "count"), COUNTS, ids=str)
def test_of_a_matrix(posterior: Any, count: int) -> None:
    model = bw.bayesian(nn.Linear(7, 5, bias=False), posterior)
    assert model.variational_parameters == model.describe().variational_parameters == count
    assert f"35 Bayesian weights ({count} variational parameters)" in str(model.describe())


def test_vectors_beside_a_matrix() -> None:
    model = bw.bayesian(nn.Linear(7, 5), "matrix_normal")
    assert model.variational_parameters == 78 + 2 * 5


@pytest.mark.parametrize("posterior", ["matrix_normal", "full"])
def test_every_number_that_counts_moves_a_draw_and_no_other(posterior: str) -> None:
    """A number is free if the distribution depends on it: by the gradient of a draw's squares and of the entropy."""
    torch.manual_seed(0)
    model = bw.bayesian(nn.Linear(3, 4).double(), posterior)
    q = model.posterior
    with torch.no_grad():
        for parameter in q.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    noise = torch.randn(50, q.noise_size, dtype=torch.float64)
    value = (q.sample(noise).square() * torch.rand(50, q.layout.size, dtype=torch.float64)).sum() + q.entropy()
    gradients = torch.autograd.grad(value, list(q.parameters()))
    assert sum(int((gradient != 0).sum()) for gradient in gradients) == model.variational_parameters


@pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")
def test_banks_and_mixtures_count_every_member() -> None:
    data = torch.randn(40, 7), torch.randint(5, (40,))
    given: dict[str, Any] = {"epochs": 1, "members": 3, "progress": False}
    net = nn.Linear(7, 5, bias=False)
    assert bw.fit(net, data, "deep-ensemble", **given).variational_parameters == 3 * 35
    assert bw.fit(net, data, "bbb", **given).variational_parameters == 3 * 70
