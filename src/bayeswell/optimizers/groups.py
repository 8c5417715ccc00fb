"""Means and stds as parameter groups: rates of their own, and training them in turn."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.optim import Optimizer

from ..errors import SettingError, nearest, require_count, require_positive
from ..types import Posterior

MEANS = "means"
"""The group of parameters that are no stds, the means first of all."""
STDS = "stds"
"""The group of parameters that decide the stds of a posterior."""
NOISE = "noise"
"""The group of what a likelihood learns of the noise."""


def parameter_groups(
    model: nn.Module, lr: float, std_multiplier: float = 1.0, extra: Iterable[Tensor] = ()
) -> list[dict[str, Any]]:
    """The parameters of a lifted network as groups for an optimizer: "means" at ``lr``, "stds" at a multiple of it.

    "means" holds ``posterior.mean`` and the network's deterministic parameters that are trained; "stds" every other
    parameter of the posterior: log stds, rho, tied factors, covariance factors (in a second group of that name what the
    posterior's ``rates`` moves at a multiple of the others' rate); "noise" holds ``extra`` (a likelihood's
    learned noise, a log std too) at the rate of the stds. A group without parameters is left out.

    Variational Laplace (section 5.1) advises a ``std_multiplier`` of 10, the thesis (section 5.4) of at most 0.1.
    Both follow from one fact: with small steps the stds stay where they start, near zero, and the network is a
    deterministic one; that is often the more accurate and never the Bayesian one. See ``reachable_log_std``.

    Weight decay is off for "stds" whatever the optimizer's: decaying a log std draws the std towards 1.
    """
    require_positive("parameter_groups", "lr", lr)
    require_positive("parameter_groups", "std_multiplier", std_multiplier)
    posterior = getattr(model, "posterior", None)
    shapes = _shape_parameters(posterior) if isinstance(posterior, Posterior) else []
    taken = {id(parameter) for parameter in shapes}
    means: list[Tensor] = []
    for parameter in model.parameters():
        if id(parameter) not in taken and parameter.requires_grad:
            taken.add(id(parameter))
            means.append(parameter)
    noise = [parameter for parameter in extra if id(parameter) not in taken]
    groups: list[dict[str, Any]] = [{"name": MEANS, "params": means, "lr": lr, "base_lr": lr}]
    std_lr = lr * std_multiplier
    if noise:
        groups.append({"name": NOISE, "params": noise, "lr": std_lr, "base_lr": std_lr, "weight_decay": 0.0})
    for factor, own in _by_rate(posterior, shapes).items():
        rate = std_lr * factor
        groups.append({"name": STDS, "params": own, "lr": rate, "base_lr": rate, "weight_decay": 0.0})
    if shapes:
        return groups
    if std_multiplier != 1 and not noise:
        raise SettingError(f"std_multiplier = {std_multiplier!r} has no use: the network has no stds to train")
    return groups


def _shape_parameters(posterior: Posterior) -> list[Tensor]:
    """Every parameter of q but its mean."""
    return [value for name, value in posterior.named_parameters() if name.rpartition(".")[2] != "mean"]


def _by_rate(posterior: Any, shapes: list[Tensor]) -> dict[float, list[Tensor]]:
    """The parameters of q but its mean by the multiple of the stds' rate at which they move, the stds' own first."""
    found: dict[float, list[Tensor]] = {1.0: []}
    names = {id(value): name for name, value in posterior.named_parameters()} if shapes else {}
    for parameter in shapes:
        found.setdefault(posterior.rates.get(names[id(parameter)], 1.0), []).append(parameter)
    return {factor: own for factor, own in found.items() if own}


def names_of(groups: Iterable[Mapping[str, Any]]) -> list[str]:
    """A name for each group in records: its own; "stds_2" for a second of the name "stds", which has another rate."""
    names: list[str] = []
    met: dict[str, int] = {}
    for group in groups:
        own = str(group["name"])
        met[own] = met.get(own, 0) + 1
        names.append(own if met[own] == 1 else f"{own}_{met[own]}")
    return names


def set_rates(optimizer: Optimizer, factors: float | Mapping[str, float]) -> None:
    """Set every group's lr to what it began with (``base_lr``) times a factor: one for all, or by group name."""
    if isinstance(factors, Mapping):
        _require_names(optimizer, factors)
    for group in optimizer.param_groups:
        base = group.setdefault("base_lr", group["lr"])
        factor = factors.get(group.get("name", ""), 1.0) if isinstance(factors, Mapping) else factors
        group["lr"] = base * factor


@dataclass(frozen=True)
class Alternating:
    """Means for some epochs with the stds held, then stds for as many with the means held, and so on.

    Book's thesis, section 5.4. ``active`` says whose turn it is; ``hold_inactive`` carries it out. A likelihood's
    learned noise is neither, and moves in all epochs.
    """

    epochs: int = 1

    name: ClassVar[str] = "alternating"
    paper: ClassVar[str] = "Book 2020, section 5.4"

    def __post_init__(self) -> None:
        require_count(self.name, "epochs", self.epochs)

    def active(self, epoch: int) -> frozenset[str]:
        """Which of the two groups moves in this epoch, counted from 0."""
        return frozenset({MEANS if (epoch // self.epochs) % 2 == 0 else STDS})

    def resting(self, epoch: int) -> frozenset[str]:
        """The other one."""
        return frozenset({MEANS, STDS}) - self.active(epoch)


def hold_inactive(optimizer: Optimizer, active: Collection[str]) -> None:
    """Drop the gradients of all groups but these and "noise"; call it between ``backward`` and ``step``.

    An optimizer leaves a parameter without gradient alone, with its moments and step count: so a group that is held
    goes on later exactly where it was. (Setting its lr to 0 would let the moments run on; ``requires_grad`` would
    have to be put back, and might switch on what the user had frozen.) Clip gradients after this.
    """
    _require_names(optimizer, active)
    for group in optimizer.param_groups:
        if group.get("name") not in {*active, NOISE}:
            for parameter in group["params"]:
                parameter.grad = None


def _require_names(optimizer: Optimizer, names: Iterable[str]) -> None:
    known = [str(group["name"]) for group in optimizer.param_groups if "name" in group]
    for name in names:
        if name not in known:
            raise SettingError(f"the optimizer has no parameter group '{name}'; {nearest(name, known)}")
