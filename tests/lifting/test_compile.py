"""Compiled networks compute the same."""

from __future__ import annotations

import shutil

import pytest
import torch
from torch.nn import functional as F

from lifting.lifted import LABELS, each_estimator
from nets import (
    lift,
    make,
    randomise,
)


@pytest.mark.slow
@pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="torch.compile needs a compiler")
@pytest.mark.filterwarnings("ignore")  # of torch's own compiler
@each_estimator
def test_compiled_networks_compute_the_same(estimator: str) -> None:
    net, inputs = make("mlp")
    model = lift(net, estimator=estimator)
    randomise(model)
    compiled = torch.compile(model)
    model.eval()
    torch.testing.assert_close(compiled(inputs), model(inputs), rtol=1e-4, atol=1e-5)
    model.train()
    outputs = compiled(inputs)
    F.cross_entropy(outputs, LABELS).backward()
    assert model.posterior.mean.grad is not None
    assert bool(model.posterior.mean.grad.isfinite().all())
    if estimator != "variational_laplace":
        assert not torch.equal(compiled(inputs), outputs), "noise is drawn anew in every call"
