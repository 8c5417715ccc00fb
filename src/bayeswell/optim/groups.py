"""Parameter groups, their learning rates along a run, and two optimizers that step as one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..core.errors import CompositionError, SettingError, check_integer, check_number, nearest
from ..core.protocols import BayesianModel, OptimizerContext, OptimizerPart, Progress, Schedule
from .schedules import Plateau, PlateauState

MEANS, STDS, NOISE, OTHER = "means", "stds", "noise", "other"
"""The posterior's means; its other parameters; those of the likelihood; those of the network without a posterior."""


def parameter_groups(
    model: BayesianModel,
    likelihood: nn.Module | None = None,
    *,
    lr: float,
    std_lr: float | None = None,
    std_multiplier: float = 1.0,
) -> list[dict[str, Any]]:
    """Return the trained parameters as groups "means", "stds", "noise" and "other"; empty groups are left out.

    Variational Laplace (section 5.1) advises stds at ten times the learning rate of the means, the thesis (section
    5.4) at most a tenth. With small steps the stds stay where they start, near zero, and the network is deterministic.
    Weight decay is off for stds and noise: decaying a log std draws the std towards 1. The learned noise of the
    likelihood moves at the rate of the stds, ``std_lr`` or ``std_multiplier * lr``, and without noise by samplers.
    """
    std_lr = lr * std_multiplier if std_lr is None else std_lr
    check_number("parameter_groups", "lr", lr, 0, above=True)
    check_number("parameter_groups", "std_lr", std_lr, 0, above=True)
    members: dict[str, list[Tensor]] = {MEANS: [], STDS: [], NOISE: [], OTHER: []}
    for name, parameter in model.posterior.named_parameters():
        members[MEANS if name.rpartition(".")[2] == "mean" else STDS].append(parameter)
    known = {id(parameter) for parameters in members.values() for parameter in parameters}
    for owner, name in ((likelihood, NOISE), (model.net, OTHER)):
        for parameter in owner.parameters() if isinstance(owner, nn.Module) else ():
            if parameter.requires_grad and id(parameter) not in known:
                known.add(id(parameter))
                members[name].append(parameter)
    groups: list[dict[str, Any]] = []
    for name, parameters in members.items():
        follows_stds = name in (STDS, NOISE)
        rate, decay = (std_lr, {"weight_decay": 0.0}) if follows_stds else (lr, {})
        if parameters:
            noise = name == MEANS
            groups.append({"name": name, "params": parameters, "lr": rate, "base_lr": rate, "noise": noise, **decay})
    return groups


def hold_inactive(optimizer: Optimizer, active: Collection[str]) -> None:
    """Drop the gradients of means and stds that are not ``active``; call it between ``backward`` and ``step``.

    An optimizer skips parameters without a gradient, with their moments and step counts. Setting ``lr`` to 0 would
    let the moments run on.
    """
    for group in optimizer.param_groups:
        name = MEANS if group["name"] == OTHER else group["name"]
        if name in (MEANS, STDS) and name not in active:
            for parameter in group["params"]:
                parameter.grad = None


def gradient_factor(scale: float | str | None, batches: int) -> float:
    """Return the factor on all gradients: "1/batches" is the loss of the thesis, None is 1."""
    if scale is None:
        return 1.0
    if isinstance(scale, str):
        if scale != "1/batches":
            raise SettingError(f"gradient_scale = {scale!r}; give a number or '1/batches'")
        return 1.0 / batches
    return check_number("method", "gradient_scale", scale, 0, above=True)


@dataclass(frozen=True)
class Alternating:
    """Train means for some epochs with the stds held, then stds with the means held, and so on."""

    epochs: int = 1

    name: ClassVar[str] = "alternating"
    paper: ClassVar[str] = "Book 2020, section 5.4"

    def __post_init__(self) -> None:
        check_integer(self.name, "epochs", self.epochs)

    def active(self, epoch: int) -> str:
        """Return the group that moves in this epoch, counted from 0."""
        return MEANS if (epoch // self.epochs) % 2 == 0 else STDS


class LearningRates:
    """The learning rates of all groups along a run.

    ``std_schedule`` (None: ``schedule``) is for stds and noise. Plateaus are by group name; "other" follows "means"
    unless it has its own.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedule: Schedule,
        std_schedule: Schedule | None = None,
        plateaus: Mapping[str, Plateau] | None = None,
        alternating: Alternating | None = None,
    ) -> None:
        self.optimizer, self.schedule, self.std_schedule = optimizer, schedule, std_schedule
        self.plateaus, self.alternating = dict(plateaus or {}), alternating
        self.states = {name: PlateauState() for name in self.plateaus}
        known = [group["name"] for group in optimizer.param_groups]
        for name in self.plateaus.keys() - set(known):
            raise SettingError(f"plateau: no parameter group '{name}'; {nearest(name, known)}")

    def before_step(self, progress: Progress) -> None:
        """Set each group's learning rate to its own one times its schedule times its plateau."""
        common = self.schedule.factor(progress)
        stds = common if self.std_schedule is None else self.std_schedule.factor(progress)
        for group in self.optimizer.param_groups:
            name = group["name"]
            followed = MEANS if name == OTHER and name not in self.states else name
            plateau = self.states[followed].factor if followed in self.states else 1.0
            group["lr"] = group["base_lr"] * ((stds if name in (STDS, NOISE) else common) * plateau)

    def after_epoch(self, metrics: Mapping[str, float], epoch: int) -> None:
        """Update the plateaus; a group that rested in this epoch says nothing about its learning rate."""
        for name, plateau in self.plateaus.items():
            turn = MEANS if name == OTHER else name
            if self.alternating is not None and turn in (MEANS, STDS) and self.alternating.active(epoch) != turn:
                continue
            if plateau.metric not in metrics:
                raise SettingError(f"plateau: no metric '{plateau.metric}'; {nearest(plateau.metric, metrics)}")
            self.states[name] = plateau.update(self.states[name], metrics[plateau.metric])

    def state_dict(self) -> dict[str, Any]:
        return {name: dataclasses.asdict(state) for name, state in self.states.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.states = {name: PlateauState(**values) for name, values in state.items()}


def build_optimizer(
    part: OptimizerPart,
    groups: Sequence[dict[str, Any]],
    context: OptimizerContext,
    std_part: OptimizerPart | None = None,
) -> Optimizer:
    """Return the optimizer of all groups; with ``std_part`` another one moves stds and noise."""
    if std_part is None:
        return part.build(groups, context)
    stds = [group for group in groups if group["name"] in (STDS, NOISE)]
    means = [group for group in groups if group["name"] not in (STDS, NOISE)]
    if not stds:
        raise CompositionError(f"std_optimizer = '{std_part.name}', but the posterior has no stds to train")
    return JointOptimizer([part.build(means, context), std_part.build(stds, context)])


class JointOptimizer(Optimizer):
    """Optimizers of different parameters as one, with their groups in sequence and one ``state``."""

    def __init__(self, parts: Sequence[Optimizer]) -> None:
        for part in parts:
            if extra := sorted(part.state_dict().keys() - {"state", "param_groups"}):
                raise CompositionError(f"{type(part).__name__} cannot be joined with another: its state has {extra}")
        super().__init__([group for part in parts for group in part.param_groups], {})
        self.parts = list(parts)
        for part in parts:
            self.state.update(part.state)
        self._share()

    def _share(self) -> None:
        start = 0
        for part in self.parts:
            stop = start + len(part.param_groups)
            part.param_groups, part.state = self.param_groups[start:stop], self.state
            start = stop

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None if closure is None else torch.enable_grad()(closure)()
        for part in self.parts:
            part.step()
        return loss

    def load_state_dict(self, state_dict: Any) -> None:
        super().load_state_dict(state_dict)
        self._share()
