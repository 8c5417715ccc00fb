"""A compiled network that is lifted: one graph without a break, and the same numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo import utils as dynamo

import bayeswell as bw


@pytest.fixture(autouse=True)
def fresh_compiler() -> Any:
    """No graphs of others, and none left."""
    torch._dynamo.reset()
    dynamo.counters.clear()
    yield
    torch._dynamo.reset()


def network() -> nn.Module:
    torch.manual_seed(2)
    layer = nn.TransformerEncoderLayer(16, 2, 24, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.Embedding(9, 16), layer, nn.Flatten(), nn.Linear(5 * 16, 3))


@pytest.mark.filterwarnings("ignore")  # of torch's own compiler
@pytest.mark.parametrize("posterior", ["mean_field", "k_tied"])
def test_a_compiled_network_is_lifted_as_one_graph(posterior: str) -> None:
    found = []
    for compiled in (False, True):
        net: Any = network()
        if compiled:
            # Not inductor, which would compile C++ for a minute: breaks and recompilations are the same.
            net = torch.compile(net, fullgraph=True, backend="aot_eager")
        torch.manual_seed(4)
        model = bw.bayesian(net, posterior)
        inputs, targets = torch.randint(0, 9, (6, 5), generator=bw.make_generator(1)), torch.arange(6) % 3
        objective = bw.ELBO("categorical", 50, temperature=0.6)
        for step in range(3):
            total = objective(model, inputs, targets, generator=bw.make_generator(step)).total
            total.backward()
        prediction = bw.predict(model, inputs, bw.Categorical(), draws=4, seed=3)
        found.append([total.detach(), *(p.grad for p in model.posterior.parameters()), prediction.probabilities])
    for eager, other in zip(*found, strict=True):
        torch.testing.assert_close(other, eager, rtol=1e-4, atol=1e-6)
    assert dynamo.counters["graph_break"] == {}
    # Training, and predictions in evaluation mode; other draws make no other graph.
    assert dynamo.counters["stats"]["unique_graphs"] == 2
