"""The seeds of drawn dropout belong to a draw; a buffer of one's own with the same name belongs to the network."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.lifting import with_drawn_dropout
from bayeswell.lifting.dropout import draw_masks, seeds_of_masks
from bayeswell.training.members import contribution
from bayeswell.training.records import History


class Shifted(nn.Module):
    """Adds a number that it keeps under a name that drawn dropout uses too."""

    seed: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seed", torch.tensor(2.5))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.seed


def test_a_buffer_called_seed_goes_with_the_member() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.3), Shifted(), nn.Linear(4, 2))
    model = bw.bayesian(with_drawn_dropout(net), posterior="delta")
    assert seeds_of_masks(model.net) == ["1.seed"]
    assert list(draw_masks(model.net, torch.Generator())) == ["1.seed"]
    member = contribution(model, bw.Categorical(), History(), 2, torch.Generator())
    assert set(member.extras) == {"2.seed"}
    assert member.extras["2.seed"].tolist() == [2.5]
