"""Is a step finite? Looked at before it is taken, or, on an accelerator, one step later.

A program runs ahead of an accelerator and waits for it only where it reads a number. There the device itself leaves out
an update whose loss or gradient is not finite (``found_inf``, as mixed precision does it), so that parameters and
moments stay those of the last good step; what happened is read while the next step is under way, and told then. (Data
are looked at where they are read, before they are moved to the device.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..errors import BayeswellError, DivergenceError
from ..finite import Answer, looks_at_once
from ..methods import Assembly
from ..native import magnitude, takes
from ..objectives import ELBO
from ..samplers.stepping import Sampler
from ..types import Terms


class FiniteSteps(Protocol):
    """When the numbers of a step are looked at."""

    def met(self, terms: Terms) -> None:
        """After the gradient of a piece."""

    def before_update(self, named: Mapping[str, nn.Parameter], step: int, *, skips: bool) -> None:
        """Raise where the update is not to be taken, naming the parameter; else clip to the method's norm.

        With ``skips`` the update itself leaves out gradients that overflowed (the loss scaling of 16-mixed).
        """

    def settle(self) -> None:
        """Raise what is known of the last step: whoever saves or measures the model asks first."""


class AtOnce:
    """Before the update; of the loss the objective looks itself."""

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly

    def met(self, terms: Terms) -> None:
        """Nothing to keep."""

    def before_update(self, named: Mapping[str, nn.Parameter], step: int, *, skips: bool) -> None:
        """Stop if a gradient is not finite."""
        assembly = self._assembly
        gradients = {name: p.grad for name, p in named.items() if p.grad is not None}
        clip_norm = assembly.method.clip_norm
        if clip_norm is None and takes(*gradients.values()) and _magnitude(gradients.values()) < _SQUARES_FIT:
            return  # one pass in place of several, and nobody needs the norm itself
        norm = nn.utils.get_total_norm(list(gradients.values()))
        if not bool(norm.isfinite()):
            if skips:
                return
            culprit = _culprit(assembly, gradients)
            if culprit is None:
                norm, culprit = _scaled_norm(assembly, gradients, clipped=clip_norm is not None)
            if culprit is not None:
                note = f"step {step}: the gradient of '{culprit}' is not finite; no step was taken"
                clipping = "" if assembly.samples or clip_norm is not None else ", or set clip_norm"
                ran_away = "training has diverged: " if step else ""  # at the first step nothing has moved yet
                raise with_model(DivergenceError(f"{note}; {ran_away}lower the learning rate{clipping}"), assembly)
        if clip_norm is not None:
            nn.utils.clip_grads_with_norm_(list(named.values()), clip_norm, norm)

    def settle(self) -> None:
        """Nothing is left open."""


_SQUARES_FIT = 1e19
"""Where the magnitudes of all gradients add up to less, the sum of their squares is a number of float32 as well."""


def _magnitude(gradients: Iterable[Tensor]) -> float:
    """sum |g|: not finite, or large, if one number is; vectors of one length are read in one pass."""
    alike: dict[int, list[Tensor]] = {}
    for gradient in gradients:
        alike.setdefault(gradient.numel(), []).append(gradient)
    return sum(
        magnitude(*few) for same in alike.values() for few in (same[at : at + 3] for at in range(0, len(same), 3))
    )


def _scaled_norm(assembly: Assembly, gradients: Mapping[str, Tensor], *, clipped: bool) -> tuple[Tensor, str | None]:
    """The norm of finite gradients whose squares overflow: s |g / s| in float64, s the largest number.

    Clipped, they are a step like any other. Without clipping optimizers square them: where that overflows a second
    moment would be infinite, and the parameters would stand still for ever; its parameter is named. Samplers look at
    their steps themselves.
    """
    largest = {name: float(gradient.detach().abs().max()) for name, gradient in gradients.items() if gradient.numel()}
    scale = max(largest.values())
    norm = torch.stack([(g.detach().abs() / scale).double().norm() for g in gradients.values()]).norm() * scale
    if clipped or assembly.samples:
        return norm, None
    return norm, next((name for name, top in largest.items() if top**2 > torch.finfo(gradients[name].dtype).max), None)


def _culprit(assembly: Assembly, gradients: Mapping[str, Tensor]) -> str | None:
    """The first parameter with a gradient that is not finite; in the flat vector of means, the site."""
    name = next((name for name, gradient in gradients.items() if not bool(gradient.isfinite().all())), None)
    layout = assembly.model.layout
    if name == "posterior.mean":
        bad = int((~gradients[name].isfinite()).nonzero()[0])
        return next((site for site, part in layout.slices.items() if part.start <= bad < part.stop), name)
    return name


@dataclass(frozen=True)
class _Open:
    """A step that nobody has looked at yet."""

    step: int
    finite: Answer
    losses: list[tuple[Tensor, Tensor, Tensor]]
    norms: Tensor
    names: list[str]


class OneStepLater:
    """For optimizers that leave out a step by ``found_inf``: torch's fused ones, and samplers of a given rate.

    The first step is looked at by the objective as ever: what is wrong with a network from the start is told at once.
    """

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly
        self._checked = [part for part in assembly.objective.modules() if isinstance(part, ELBO) and part.check]
        self._losses: list[tuple[Tensor, Tensor, Tensor]] = []
        self._open: _Open | None = None

    def met(self, terms: Terms) -> None:
        """Keep the numbers of the loss; from the second step on the objective reads none."""
        for part in self._checked:
            part.check = False
        self._losses.append((terms.total.detach(), terms.nll, terms.kl))

    def before_update(self, named: Mapping[str, nn.Parameter], step: int, *, skips: bool) -> None:
        """Look at the step before, clip, and let the device leave out this one if it is not finite."""
        self.settle()
        gradients = {name: p.grad for name, p in named.items() if p.grad is not None}
        norms = torch.stack(torch._foreach_norm(list(gradients.values())))
        norm = torch.linalg.vector_norm(norms)
        finite = torch.stack([norm, *(total for total, _, _ in self._losses)]).isfinite().all()
        clip_norm = self._assembly.method.clip_norm
        if clip_norm is not None:
            nn.utils.clip_grads_with_norm_(list(named.values()), clip_norm, norm)
        optimizer: Any = self._assembly.optimizer
        optimizer.found_inf = (~finite).float()
        self._open = _Open(step, Answer(finite), self._losses, norms, list(gradients))
        self._losses = []

    def settle(self) -> None:
        """Raise if the last step was left out; the model is as the one before it left it."""
        last, self._open = self._open, None
        if last is not None and not last.finite.read():
            raise with_model(DivergenceError(f"step {last.step}: {_told(last)}"), self._assembly)


def _told(last: _Open) -> str:
    ran_away = "training has diverged: " if last.step else ""
    for total, nll, kl in last.losses:
        if not bool(total.isfinite()):
            numbers = f"nll {float(nll):g}, kl {float(kl):g}"
            return f"{ran_away}the loss is not finite ({numbers}) and no step was taken; lower the learning rate"
    bad = (~last.norms.isfinite()).nonzero()
    culprit = f"the gradient of '{last.names[int(bad[0])]}'" if len(bad) else "the norm of the gradients"
    return f"{culprit} is not finite; no step was taken; {ran_away}lower the learning rate"


def with_model(error: BayeswellError, assembly: Assembly) -> BayeswellError:
    """The error with the model as the last good step left it: nothing that was learned is lost."""
    error.model = assembly.model
    return error


def finite_steps_of(assembly: Assembly, device: torch.device, *, ranks: int, scales_loss: bool) -> FiniteSteps:
    """One step later on an accelerator, where the optimizer can leave out a step and nothing else has to be decided."""
    optimizer = assembly.optimizer
    can_leave_out = getattr(optimizer, "_step_supports_amp_scaling", False) or isinstance(optimizer, Sampler)
    if looks_at_once(device) or not can_leave_out or assembly.fitting is not None or ranks > 1 or scales_loss:
        return AtOnce(assembly)
    return OneStepLater(assembly)
