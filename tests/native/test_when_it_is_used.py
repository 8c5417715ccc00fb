"""What is taken by the compiled formulas, what is left to torch, and how they are turned off."""

from __future__ import annotations

import os
import subprocess

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

import bayeswell as bw
from bayeswell import native
from bayeswell.posteriors.one_pass import draws_and_kl, point_and_kl
from bayeswell.posteriors.std_forms import FROM_LOG_STD
from bayeswell.random import normals_of_key
from native.formulas import CONSTANT, ROOT, gaussian, needs_library, numbers
from nets import lift
from quick_python import QUICK_PYTHON


class Special(Tensor):
    """A subclass may mean anything by its memory."""


@needs_library
def test_what_is_taken() -> None:
    plain = torch.ones(6)
    assert native.takes(plain)
    assert native.takes(plain, None, nn.Parameter(plain), plain.view(2, 3), torch.tensor(1.0), plain[2:5])
    refused = {
        "double precision": plain.double(),
        "half precision": plain.half(),
        "whole numbers": plain.int(),
        "every other number": plain[::2],
        "a transposed matrix": plain.view(2, 3).T,
        "one number many times": torch.ones(1).expand(6),
        "another device": torch.ones(6, device="meta"),
        "a subclass": plain.as_subclass(Special),
        "sparse": plain.to_sparse(),
        "zeros without memory": torch._efficientzerotensor((6,)),
    }
    if torch.backends.mkldnn.is_available():
        refused["mkldnn's own layout"] = plain.to_mkldnn()
    for what, tensor in refused.items():
        assert not native.takes(tensor), what
        assert not native.takes(plain, tensor), what


@needs_library
def test_nothing_is_taken_inside_transforms() -> None:
    """Neither the transformed vector nor one from outside: a result would be of one row only."""
    outside, answers = torch.ones(3), []

    def function(x: Tensor) -> Tensor:
        answers.extend([native.takes(x), native.takes(outside)])
        return x.square().sum()

    torch.vmap(function)(torch.ones(2, 3))
    torch.func.grad(function)(torch.ones(3))
    torch.func.jvp(function, (torch.ones(3),), (torch.ones(3),))
    torch.func.jacrev(function)(torch.ones(3))
    assert answers
    assert not any(answers)
    assert native.takes(outside)


@needs_library
def test_nothing_is_taken_in_forward_mode() -> None:
    """Compiled code knows no tangents: those of a gradient (forward over reverse) would be dropped without a word."""
    plain = torch.ones(6)
    model = lift(nn.Linear(3, 2), "mean_field")
    inputs, direction, targets = torch.randn(5, 3), torch.randn(5, 3), torch.tensor([0, 1, 1, 0, 1])

    def tangents() -> list[Tensor]:
        with forward_ad.dual_level():
            assert not native.takes(plain)
            dual = forward_ad.make_dual(inputs, direction)
            loss = bw.ELBO("categorical", 7)(model, dual, targets, generator=bw.make_generator(3)).total
            slopes = torch.autograd.grad(loss, list(model.parameters()))
            found = [forward_ad.unpack_dual(slope).tangent for slope in slopes]
        assert all(one is not None for one in found)
        return [one for one in found if one is not None]

    own = tangents()
    with native.disabled():
        by_torch = tangents()
    assert any(one.abs().max() > 0.01 for one in own)
    assert all(torch.allclose(one, other, rtol=1e-4, atol=1e-6) for one, other in zip(own, by_torch, strict=True))


def test_tables_lie_in_the_memory_of_the_cpu() -> None:
    """Whatever device torch makes tensors on by default: the compiled formulas read them."""
    net = nn.Linear(4, 3)
    with torch.device("meta"):
        model = lift(net, {"name": "k_tied", "rank": 2})
        assert model.layout.ends.tolist() == [12, 15]
    assert model.posterior.table.device.type == "cpu"


@pytest.mark.parametrize("of", ["weights", "kl"])
def test_gradients_in_a_batch(of: str) -> None:
    """``is_grads_batched`` hands several gradients over in one tensor without memory of its own."""
    mean, state, noise = numbers(9, 1).requires_grad_(), numbers(9, 4, 0.5, -2.0).requires_grad_(), numbers(9, 2)[None]
    weights, kl = draws_and_kl(mean, state, noise, gaussian("stretches", 9), CONSTANT, FROM_LOG_STD)
    assert weights is not None
    point, point_kl = point_and_kl(mean, gaussian("stretches", 9), CONSTANT)
    for output, inputs in [
        (weights if of == "weights" else kl, [mean, state]),
        (point if of == "weights" else point_kl, [mean]),
    ]:
        upstream = numbers(3 * output.numel(), 3).view(3, *output.shape)
        found = torch.autograd.grad(output, inputs, upstream, is_grads_batched=True, retain_graph=True)
        for row in range(3):
            expected = torch.autograd.grad(output, inputs, upstream[row], retain_graph=True)
            for one, other in zip(found, expected, strict=True):
                torch.testing.assert_close(one[row], other, rtol=1e-5, atol=1e-6)


@needs_library
def test_disabled_is_for_a_block_and_ends_with_it() -> None:
    plain = torch.ones(6)
    with native.disabled():
        assert not native.available()
        assert not native.takes(plain)
        with native.disabled():
            assert not native.available()
        assert not native.available()
    assert native.available()
    with pytest.raises(KeyError), native.disabled():
        raise KeyError
    assert native.takes(plain)


def test_turned_off_by_the_environment() -> None:
    script = (
        "import torch, bayeswell.native as native, bayeswell.random as random\n"
        "print(native.available(), native.takes(torch.ones(3)), float(random.normals_of_key(5, 300)[7]))"
    )
    environment = {**os.environ, "BAYESWELL_NATIVE": "0", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([QUICK_PYTHON, "-c", script], env=environment, capture_output=True, text=True, check=True)
    available, takes, number = done.stdout.split()
    assert (available, takes) == ("False", "False")
    with native.disabled():
        assert float(number) == float(normals_of_key(5, 300)[7])
