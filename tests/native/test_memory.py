"""Long vectors lie in large pages and in the memory of earlier ones, never in that of one in use; others do not."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from types import BuiltinFunctionType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

import bayeswell as bw
from bayeswell import native
from bayeswell.native import memory
from bayeswell.objectives import elbo
from bayeswell.posteriors import one_pass
from bayeswell.posteriors.std_forms import FROM_LOG_STD

LEAST = memory._LEAST_BYTES
LONG = 2**19
"""float32 numbers of 2 MB, which count as long here: what is longer is only slower to fill."""
X = torch.empty(0)

kept_here = sys.platform == "linux" and native.available()
on_linux = pytest.mark.skipif(not kept_here, reason="memory is torch's own: not Linux, or no compiled formulas")


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(memory, "_LEAST_BYTES", 4 * LONG)
    gc.collect()
    memory.release()
    yield
    memory.release()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """What the system is asked for, as it comes: of how many bytes, and what."""
    found: list[tuple[int, str]] = []
    own = memory._advise

    def noted(piece: Any, advice: str) -> None:
        found.append((len(piece), advice))
        own(piece, advice)

    monkeypatch.setattr(memory, "_advise", noted)
    return found


@on_linux
def test_only_long_vectors_of_the_cpu_ask_for_large_pages(
    asked: list[tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 32 MB on."""
    monkeypatch.setattr(memory, "_LEAST_BYTES", LEAST)
    long = 2**23
    memory.empty((long - 1,), X)
    memory.empty((long,), torch.empty(0, device="meta"))
    memory.empty((long,), torch.empty(0, dtype=torch.float16))
    assert not asked
    found = memory.empty((4, long // 4), X)
    assert asked == [(4 * long, "MADV_HUGEPAGE")]
    assert found.shape == (4, long // 4)
    assert found.is_contiguous()
    assert found.untyped_storage().nbytes() == 4 * long
    assert found.fill_(2.5).sum() == 2.5 * long


@on_linux
def test_memory_is_had_again_when_nothing_refers_to_it() -> None:
    first = memory.empty((LONG,), X).fill_(1.0)
    place, part = first.data_ptr(), first[5:8]
    del first
    beside = memory.empty((LONG,), X).fill_(2.0)  # a view of the first is still there
    assert beside.data_ptr() != place
    assert part.tolist() == [1.0, 1.0, 1.0]
    del part
    assert memory.empty_like(beside).data_ptr() == place


@on_linux
def test_what_a_graph_refers_to_is_in_use() -> None:
    """Also where only the backward pass has it."""
    drawn = memory.empty((LONG,), X).fill_(3.0)
    scale = torch.ones((), requires_grad=True)
    value = (drawn * scale).sum()
    del drawn
    memory.empty((LONG,), X).fill_(5.0)
    value.backward()
    assert scale.grad == 3.0 * LONG


@on_linux
def test_little_is_kept_and_not_for_long(asked: list[tuple[int, str]]) -> None:
    several = [memory.empty((LONG,), X) for _ in range(memory._MOST_KEPT + 2)]
    several.clear()
    other = memory.empty((LONG + 1,), X)
    assert [len(one.piece) for one in memory._kept] == [4 * LONG] * memory._MOST_KEPT
    assert asked.count((4 * LONG, "MADV_FREE")) == memory._MOST_KEPT + 2  # the system may have it meanwhile
    for _ in range(memory._PATIENCE + 1):
        del other
        other = memory.empty((LONG + 1,), X)
    assert not memory._kept  # nobody has asked for one of the first size
    del other
    memory.empty((LONG,), X)
    assert len(memory._kept) == 1
    memory.release()
    assert not memory._kept


@on_linux
def test_an_interrupt_is_not_lost_where_a_tensor_ends() -> None:
    """Tensors end inside of ``backward``, and Python drops what is raised in a callback there: none of it is Python."""
    _held = memory.empty((LONG,), X)
    assert memory._in_use
    assert all(isinstance(reference.__callback__, BuiltinFunctionType) for reference, _ in memory._in_use.values())


@on_linux
def test_turned_off_it_is_torchs_own(asked: list[tuple[int, str]]) -> None:
    with native.disabled():
        memory.empty((LONG,), X)
        whole = torch.randn(LONG, requires_grad=True) * 1.0
        memory.split(whole, (LONG - 2, 2))[1].sum().backward()
    memory.empty((LONG,), X.as_subclass(Odd))
    assert not asked


class Odd(Tensor):
    """Some library's own."""


@on_linux
def test_it_may_be_changed_in_place_where_a_function_returns_it() -> None:
    state = torch.zeros(LONG, requires_grad=True)
    variances = one_pass.variances(state, FROM_LOG_STD)
    assert variances.add_(1)[-1] == 2.0


@on_linux
def test_where_there_is_no_memory_torch_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(size: int) -> Any:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(memory, "_piece", none)
    assert memory.empty((LONG,), X).shape == (LONG,)
    with pytest.raises(RuntimeError, match="memory"):
        memory.empty((1 << 60,), X)


@on_linux
@pytest.mark.parametrize("name", ["bbb", "k-tied"])
def test_steps_of_a_long_posterior_write_into_the_memory_of_the_first(
    name: str, asked: list[tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The drawn weights, their gradient, and where each weight has its own the gradient of its log std."""
    monkeypatch.setattr(elbo, "LEAST_STREAMED", LONG)  # no noise in memory, as of what is really long
    method = bw.find_method(name)
    net = nn.Sequential(nn.Linear(2, LONG // 16, bias=False), nn.Linear(LONG // 16, 14, bias=False))
    model = bw.bayesian(net, method.posterior, method.prior, method.estimator)
    objective = bw.ELBO("categorical", 10)
    places = []
    for _ in range(3):
        model.zero_grad()
        objective(model, torch.randn(1, 2), torch.tensor([3])).total.backward()
        places += [p.grad.data_ptr() for p in model.parameters() if p.grad is not None and p.grad.numel() == LONG]
    vectors = {"bbb": 2, "k-tied": 1}[name]
    assert asked.count((4 * LONG, "MADV_HUGEPAGE")) == vectors
    assert len(places) == 3 * vectors
    assert len(set(places)) == vectors


def test_pieces_of_a_long_vector_are_torchs_own_to_every_order() -> None:
    """Values and gradients, gradients of gradients, batches of gradients and tangents: all exact."""
    sizes, x = (LONG - 7, 3, 4), torch.randn(LONG)

    def gradients(split: Any) -> tuple[Tensor, ...]:
        """Of the sum of squares of the second piece times the third's first numbers."""
        vector = x.clone().requires_grad_()
        whole = vector * 1.5
        _, second, third = split(whole, sizes)
        value = (second**2 * third[:3]).sum()
        (first,) = torch.autograd.grad(value, vector, create_graph=True)
        (again,) = torch.autograd.grad((first[-7:] ** 3).sum(), vector, retain_graph=True)
        return value.detach(), first.detach()[-7:], again[-7:]

    ours, torchs = gradients(memory.split), gradients(torch.split)
    assert all(torch.equal(a, b) for a, b in zip(ours, torchs, strict=True))

    vector = x.clone().requires_grad_()
    pieces = memory.split(vector * 1.0, sizes)
    assert not kept_here or "_Split" in type(pieces[0].grad_fn).__name__  # or nothing has been tried
    ends = torch.cat(pieces[1:])
    (batch,) = torch.autograd.grad(ends, vector, torch.eye(7), is_grads_batched=True)
    assert torch.equal(batch[:, -7:], torch.eye(7))
    assert not batch[:, :-7].any()
    with forward_ad.dual_level():
        tangent = torch.randn(LONG)
        leaf = x.clone().requires_grad_()
        dual = forward_ad.make_dual(leaf, tangent)
        third = memory.split(dual * 1.0, sizes)[2]
        (slope,) = torch.autograd.grad((third**2).sum(), dual)
        moved, of_slope = (forward_ad.unpack_dual(one).tangent for one in (third, slope))
    assert moved is not None
    assert of_slope is not None
    assert torch.equal(moved, tangent[-4:])
    assert torch.equal(of_slope[-4:], 2 * tangent[-4:])


def test_pieces_of_what_torch_transforms_are_torchs_own() -> None:
    x = torch.randn(LONG)
    found = torch.func.grad(lambda vector: memory.split(vector, (LONG - 2, 2))[1].square().sum())(x)
    assert torch.equal(found[-2:], 2 * x[-2:])
