"""Evaluation mode and plain attention for the length of a block."""

from __future__ import annotations

import threading

import torch
from torch import nn
from torch.func import jvp

from bayeswell.nn import bayesian, evaluation_mode, plain_attention
from networks import Transformer


def test_evaluation_mode_restores_each_module() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    net[1].eval()
    model = bayesian(net)
    modes = [module.training for module in model.modules()]
    with evaluation_mode(model):
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model.modules()] == modes


def test_plain_attention_has_all_derivatives_and_ends_with_the_last_block() -> None:
    net, x = Transformer().eval(), torch.randn(5, 6, 8)
    flash = torch.backends.cuda.flash_sdp_enabled()
    with plain_attention():
        expected, tangent = jvp(net, (x,), (torch.ones_like(x),))
        inside = threading.Event()

        def other() -> None:
            with plain_attention():
                inside.set()

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert not torch.backends.cuda.flash_sdp_enabled()
    assert inside.is_set()
    assert torch.backends.cuda.flash_sdp_enabled() == flash
    assert torch.backends.mha.get_fastpath_enabled()
    torch.testing.assert_close(net(x), expected)
    step = 1e-3
    torch.testing.assert_close((net(x + step) - net(x - step)) / (2 * step), tangent, rtol=0.02, atol=2e-3)
