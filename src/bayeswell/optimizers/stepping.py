"""What the optimizers written here share: the closure, which gradients they take, and how a step goes over memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, overload

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..eager import Eager
from ..errors import NetworkError
from ..native import Addresses, taken, takes

Group = dict[str, Any]

_BLOCK = 1 << 17
"""Elements of a block for each thread: five float32 tensors of it are 2.6 MB, about a core's second-level cache."""


class DenseOptimizer(Eager, Optimizer):
    """An optimizer of dense real gradients; parameters without a gradient are left alone, state and all.

    Nothing is changed if any gradient is refused.
    """

    label: ClassVar[str]

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """One step; ``closure``, if given, evaluates the loss and its gradients again and its loss is returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        found = [(group, [p for p in group["params"] if p.grad is not None]) for group in self.param_groups]
        for _, params in found:
            for parameter in params:
                _refuse_unless_dense(self.label, parameter)
        self.update([(group, params) for group, params in found if params])
        return loss

    def update(self, found: list[tuple[Group, list[Tensor]]]) -> None:
        """Move the parameters that have gradients, group by group."""
        raise NotImplementedError


def gradients(params: list[Tensor]) -> list[Tensor]:
    """Those of parameters that have one."""
    return [parameter.grad for parameter in params if parameter.grad is not None]


def decayed(group: Group, params: list[Tensor], grads: list[Tensor]) -> list[Tensor]:
    """Gradients with the L2 penalty: g + weight_decay w, the gradient of loss + weight_decay |w|^2 / 2."""
    if group["weight_decay"] == 0:
        return grads
    return list(torch._foreach_add(grads, params, alpha=group["weight_decay"]))


Columns = list[list[Tensor]]
"""Parameters, their gradients, and one list for each kind of state, in one order."""


def shared_out(columns: Columns) -> tuple[Addresses | None, Columns]:
    """Those of the parameters that the compiled formulas take (None: of none), and the lists of all others.

    A gradient that lies in memory in another order than its parameter is copied for the compiled ones.
    """
    others: Columns = [[] for _ in columns]
    found = taken(columns)
    if found is not None:
        return found, others
    compiled: Columns = [[] for _ in columns]
    for parameter, grad, *states in zip(*columns, strict=True):
        ordered = (parameter, grad.contiguous(), *states)
        fits = takes(*ordered)
        for column, tensor in zip(
            compiled if fits else others, ordered if fits else (parameter, grad, *states), strict=True
        ):
            column.append(tensor)
    return taken(compiled) if compiled[0] else None, others


def mark_changed(tensors: list[Tensor]) -> None:
    """Tell autograd, which does not see what compiled code writes."""
    torch.autograd.graph.increment_version(tensors)


def cache_blocks(*lists: list[Tensor]) -> Iterator[tuple[list[Tensor], ...]]:
    """Matching lists of tensors, cut so that on a CPU one block's operations find it in the cache.

    A step is some eight operations on each tensor. Done on the whole of a long vector each of them fetches it
    from memory again; done block by block only the first does (about 1.5 times faster at a million weights).
    Accelerators get the lists as they are.
    """
    first, limit = lists[0], _BLOCK * torch.get_num_threads()
    if first[0].device.type != "cpu" or sum(tensor.numel() for tensor in first) <= limit:
        yield lists
        return
    small: list[tuple[Tensor, ...]] = []
    waiting = 0
    for tensors in zip(*lists, strict=True):
        size = tensors[0].numel()
        if size > limit and all(tensor.is_contiguous() for tensor in tensors):
            for pieces in zip(*(tensor.view(-1).split(limit) for tensor in tensors), strict=True):
                yield tuple([piece] for piece in pieces)
            continue
        if small and waiting + size > limit:
            yield tuple(list(column) for column in zip(*small, strict=True))
            small, waiting = [], 0
        small.append(tensors)
        waiting += size
    if small:
        yield tuple(list(column) for column in zip(*small, strict=True))


def _refuse_unless_dense(label: str, parameter: Tensor) -> None:
    grad = parameter.grad
    if grad is None:
        return
    if grad.layout != torch.strided:
        kind = "a sparse gradient; only dense ones are taken (nn.Embedding: sparse=False)"
    elif grad.is_complex():
        kind = f"a complex gradient ({grad.dtype}); only real ones are taken"
    else:
        return
    raise NetworkError(f"{label}: the parameter of shape {tuple(parameter.shape)} has {kind}")
