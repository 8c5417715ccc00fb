"""The members of a mixture are held against each other, as those of an ensemble are."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell.random import make_generator
from bayeswell.training.chains import outputs_of_members


@pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")
def test_members_of_a_mixture_are_compared_by_their_mean_networks() -> None:
    x = torch.randn(120, 4, generator=make_generator(1))
    y = (x[:, 0] > 0).long()
    torch.manual_seed(0)
    net = nn.Linear(4, 2)
    result = bw.fit(net, (x, y), "bbb", epochs=2, members=3, batch_size=30, progress=False)
    found = result.trust.members
    assert found is not None
    assert found.members == 3
    said = []
    for component, outputs in zip(
        result.model.posterior.components, outputs_of_members(result.model, x[:8]), strict=True
    ):
        weights = result.model.layout.unflatten(component.mean_vector().detach())
        expected = x[:8] @ weights["weight"].T + weights["bias"]
        torch.testing.assert_close(outputs, expected)
        said.append(expected)
    assert not torch.allclose(said[0], said[1], atol=0.05)
    assert {"mean_train_nll", "std_factor"} <= {note.about for note in result.trust.unmeasured}
