"""The training loop: the only place where anything is changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ..errors import BayeswellError, DataError, DivergenceError
from ..methods import Assembly
from ..types import Inputs, Progress, Terms
from .data import Batches


@dataclass(frozen=True)
class EpochRecord:
    """Means over the batches of one epoch."""

    epoch: int
    total: float
    nll: float
    kl: float
    std_ratio: float


@dataclass
class History:
    """What a run has learned of itself, epoch by epoch."""

    epochs: list[EpochRecord] = field(default_factory=list)


Watcher = Callable[[EpochRecord], None]


def train(
    assembly: Assembly,
    batches: Batches,
    epochs: int,
    *,
    order: torch.Generator | None,
    noise: torch.Generator | None,
    watch: Watcher | None = None,
) -> History:
    """Minimise the assembly's objective. ``order`` shuffles the data, ``noise`` draws weights."""
    model, optimizer = assembly.model, assembly.optimizer
    history, total_steps, step = History(), epochs * batches.count, 0
    model.train()
    for epoch in range(epochs):
        sums = torch.zeros(3, dtype=torch.float64)
        for batch, (inputs, targets) in enumerate(batches.epoch(order)):
            at = Progress(step, total_steps, batch, batches.count, batches.shown)
            assembly.before_step(at)
            optimizer.zero_grad(set_to_none=True)
            terms = _evaluate(assembly, inputs, targets, at, noise)
            terms.total.backward()
            assembly.after_backward(epoch)
            require_finite_gradients(assembly, step)
            optimizer.step()
            if assembly.collector is not None and assembly.may_collect(at):
                assembly.collector.observe(model, at)
            sums += _numbers(terms)
            step += 1
        total, nll, kl = (sums / batches.count).tolist()
        record = EpochRecord(epoch, total, nll, kl, model.std_ratio())
        history.epochs.append(record)
        assembly.after_epoch({"total": record.total, "nll": record.nll, "kl": record.kl})
        if watch is not None:
            watch(record)
    return history


def _evaluate(
    assembly: Assembly, inputs: Inputs, targets: Tensor, at: Progress, noise: torch.Generator | None
) -> Terms:
    try:
        return assembly.objective(assembly.model, inputs, targets, at=at, generator=noise)
    except DataError as error:
        raise _with_state(DataError(f"step {at.step}: {error}"), assembly) from error


def require_finite_gradients(assembly: Assembly, step: int) -> None:
    """Stop before the step if a gradient is not finite, naming the parameter; else clip to the method's norm."""
    named = {**dict(assembly.model.named_parameters()), **dict(assembly.likelihood.named_parameters())}
    gradients = {name: p.grad for name, p in named.items() if p.grad is not None}
    norm = nn.utils.get_total_norm(list(gradients.values()))
    if not bool(norm.isfinite()):
        note = f"step {step}: the gradient of '{_culprit(assembly, gradients)}' is not finite; no step was taken"
        raise _with_state(DivergenceError(f"{note}; lower the learning rate, or set clip_norm"), assembly)
    if assembly.method.clip_norm is not None:
        nn.utils.clip_grads_with_norm_(list(named.values()), assembly.method.clip_norm, norm)


def _with_state(error: BayeswellError, assembly: Assembly) -> BayeswellError:
    """The error with the model as the last good step left it: nothing that was learned is lost."""
    error.model = assembly.model
    return error


def _culprit(assembly: Assembly, gradients: Mapping[str, Tensor]) -> str:
    """The first parameter with a gradient that is not finite; in the flat vector of means, the site."""
    name = next((name for name, gradient in gradients.items() if not bool(gradient.isfinite().all())), "all of them")
    layout = assembly.model.layout
    if name == "posterior.mean":
        bad = int((~gradients[name].isfinite()).nonzero()[0])
        return next((site for site, part in layout.slices.items() if part.start <= bad < part.stop), name)
    return name


def _numbers(terms: Terms) -> Tensor:
    values = torch.stack([terms.total.detach(), terms.nll, terms.kl])
    return values.double().cpu()
