from __future__ import annotations

import pytest
import torch

from bayeswell.tables import scale_warning

UNIT = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("inputs", "targets", "words"),
    [
        (UNIT * torch.tensor([1.0, 50.0, 1.0]), None, ["inputs column 'b'", "std 4", "standardize=True"]),
        (UNIT + torch.tensor([0.0, 0.0, 2000.0]), None, ["inputs column 'c'", "mean 2e+03"]),
        (UNIT, UNIT[:, 0] * 100, ["targets with mean"]),
        (UNIT * 1e-3, UNIT * 1e-4, ["inputs column", "targets column"]),
        (torch.rand(20, 3, 4, 4) * 255, None, ["inputs column", "std 7"]),
    ],
)
def test_columns_far_from_unit_scale_are_named(inputs, targets, words):
    message = scale_warning(inputs, targets, ["a", "b", "c"])
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    ("inputs", "targets"),
    [
        (UNIT, UNIT),
        (torch.rand(20, 1, 8, 8), torch.arange(20)),
        (torch.randint(0, 1000, (20, 5)), torch.arange(20) * 100),
        ({"x": UNIT * 1e6}, None),
        (torch.zeros(5, 2), None),
        (torch.full((5, 2), float("nan")), None),
    ],
)
def test_other_data_are_fine(inputs, targets):
    assert scale_warning(inputs, targets) is None
