"""The optimizers of torch as parts: the usual ones by name, and any other class."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..core.errors import SettingError, check_number, nearest
from ..core.protocols import OptimizerContext, OptimizerPart

Groups = Sequence[dict[str, Any]]
_FUSED = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)


def planned_lr(total_steps: int) -> float:
    """Return a learning rate of Adam for a run of so many steps: 0.4 / sqrt(steps), at most 0.01.

    Along a decaying schedule a weight can move by about lr * steps / 2, so short runs need large steps. This is 0.01
    up to 1,600 steps, 0.005 at 6,400 and 0.001 at 160,000.
    """
    return min(0.01, 0.4 / math.sqrt(max(1, total_steps)))


def check_positive(part: Any, *settings: str) -> None:
    """Refuse settings that are neither None nor above 0."""
    for setting in settings:
        if getattr(part, setting) is not None:
            check_number(part.name, setting, getattr(part, setting), 0, above=True)


def check_below_one(part: Any, *settings: str) -> None:
    """Refuse settings that are not in [0, 1)."""
    for setting in settings:
        value = check_number(part.name, setting, getattr(part, setting), 0)
        if value >= 1:
            raise SettingError(f"{part.name}: `{setting}` must be below 1, got {value!r}")


class GradientOptimizer(Optimizer):
    """Hand each group, its parameters that have a gradient, and their gradients with the L2 penalty to ``update``."""

    def update(self, found: list[tuple[dict[str, Any], list[Tensor], list[Tensor]]]) -> None:
        raise NotImplementedError

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None if closure is None else torch.enable_grad()(closure)()
        found = []
        for group in self.param_groups:
            params = [parameter for parameter in group["params"] if parameter.grad is not None]
            grads = [parameter.grad for parameter in params]
            if params and group["weight_decay"] != 0:
                grads = list(torch._foreach_add(grads, params, alpha=group["weight_decay"]))
            if params:
                found.append((group, params, grads))
        if found:
            self.update(found)
        return loss


@dataclass(frozen=True)
class TorchOptimizer(OptimizerPart):
    """An optimizer class by itself or its name: ``TorchOptimizer("NAdam", settings={"momentum_decay": 4e-3})``.

    ``lr`` None is the default of the class. Where a part is expected, the class or a ``functools.partial`` of it does
    as well. A class that needs a closure (LBFGS) cannot be used.
    """

    optimizer: str | type[Optimizer] = "NAdam"
    lr: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    name: ClassVar[str] = "torch"
    paper: ClassVar[str] = "torch.optim"

    def __post_init__(self) -> None:
        kind = self.kind
        parameters = inspect.signature(kind).parameters
        closure = inspect.signature(kind.step).parameters.get("closure")
        if "lr" not in parameters or (closure is not None and closure.default is inspect.Parameter.empty):
            raise SettingError(f"torch: {kind.__name__} cannot be used; it has no `lr` or needs a closure")
        lr = self.settings.get("lr", parameters["lr"].default) if self.lr is None else self.lr
        object.__setattr__(self, "lr", check_number("torch", "lr", float(lr), 0, above=True))
        object.__setattr__(self, "settings", {key: value for key, value in self.settings.items() if key != "lr"})
        for key in self.settings:
            if key not in parameters:
                raise SettingError(f"torch: {kind.__name__} has no setting '{key}'; {nearest(key, parameters)}")

    @property
    def kind(self) -> type[Optimizer]:
        if not isinstance(self.optimizer, str):
            return self.optimizer
        found = getattr(torch.optim, self.optimizer, None)
        if not (isinstance(found, type) and issubclass(found, Optimizer)):
            names = [n for n, k in vars(torch.optim).items() if isinstance(k, type) and issubclass(k, Optimizer)]
            raise SettingError(f"torch: optimizer = '{self.optimizer}'; {nearest(self.optimizer, names)}")
        return found

    def build(self, groups: Groups, context: OptimizerContext) -> Optimizer:
        settings: dict[str, Any] = {"lr": self.lr, **self.settings}
        owned = [{**group, "params": list(group["params"])} for group in groups]
        parameters = [parameter for group in owned for parameter in group["params"]]
        # Fused CPU kernels ignore strides: a gradient laid out unlike its parameter would be misread.
        if self.kind in _FUSED and all(p.dim() <= 1 and p.is_floating_point() for p in parameters):
            settings.setdefault("fused", True)
        try:
            return self.kind(owned, **settings)
        except (TypeError, ValueError) as error:
            raise SettingError(f"torch: {self.kind.__name__} cannot be made: {error}") from error


def optimizer_part(choice: Any) -> OptimizerPart | None:
    """Return a part made of a torch optimizer class or a ``functools.partial`` of one."""
    if isinstance(choice, Optimizer):
        name = type(choice).__name__
        raise SettingError(f"optimizer = {name}(...) has parameters already; give the class or functools.partial")
    settings: dict[str, Any] = {}
    if isinstance(choice, functools.partial):
        choice, settings = choice.func, choice.keywords
    if not (isinstance(choice, type) and issubclass(choice, Optimizer)):
        return None
    known = getattr(torch.optim, choice.__name__, None) is choice
    return TorchOptimizer(choice.__name__ if known else choice, settings=settings)


@dataclass(frozen=True)
class SGD(OptimizerPart):
    """Stochastic gradient descent with momentum: m <- momentum m + g; w <- w - lr m.

    torch keeps lr outside the buffer, the thesis (3.1.2) inside, which is the same for a constant lr. The steady step
    is lr / (1 - momentum) times the gradient.
    """

    lr: float = 0.01
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0

    name: ClassVar[str] = "sgd"
    paper: ClassVar[str] = "Robbins & Monro 1951; Polyak 1964"

    def __post_init__(self) -> None:
        check_positive(self, "lr")
        check_below_one(self, "momentum")

    def build(self, groups: Groups, context: OptimizerContext) -> Optimizer:
        return TorchOptimizer("SGD", settings=vars(self)).build(groups, context)


@dataclass(frozen=True)
class Adam(OptimizerPart):
    """Learning rates scaled by the root of the second moment: w <- w - lr m^ / (sqrt(v^) + eps).

    m^ and v^ are the debiased moving averages of g and g^2. No weight moves by much more than lr in a step.
    ``lr`` None fits the length of the run (``planned_lr``). ``weight_decay`` is an L2 penalty: a network with a prior
    needs none.
    """

    lr: float | None = None
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0

    name: ClassVar[str] = "adam"
    paper: ClassVar[str] = "Kingma & Ba 2015"
    step_bound: ClassVar[float | None] = 1.0
    _torch: ClassVar[tuple[str, dict[str, Any]]] = ("Adam", {})

    def __post_init__(self) -> None:
        check_positive(self, "lr")
        object.__setattr__(self, "betas", tuple(self.betas))

    def planned(self, total_steps: int) -> Adam:
        return self if self.lr is not None else dataclasses.replace(self, lr=planned_lr(total_steps))

    def build(self, groups: Groups, context: OptimizerContext) -> Optimizer:
        kind, settings = self._torch
        planned = self.planned(context.total_steps)
        return TorchOptimizer(kind, settings={**vars(planned), **settings}).build(groups, context)


@dataclass(frozen=True)
class AMSGrad(Adam):
    """Adam with the largest second moment so far in place of the present one.

    torch takes the maximum of v and debiases after it; Reddi et al. do not debias.
    """

    name: ClassVar[str] = "amsgrad"
    paper: ClassVar[str] = "Reddi et al. 2018"
    _torch: ClassVar[tuple[str, dict[str, Any]]] = ("Adam", {"amsgrad": True})


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay: w <- (1 - lr weight_decay) w before the step.

    The decay is torch's default; a network with a prior needs none.
    """

    weight_decay: float = 0.01

    name: ClassVar[str] = "adamw"
    paper: ClassVar[str] = "Loshchilov & Hutter 2019"
    _torch: ClassVar[tuple[str, dict[str, Any]]] = ("AdamW", {})


@dataclass(frozen=True)
class RAdam(Adam):
    """Adam without its second moment until the variance of its learning rate is known to be finite.

    rho_t = rho_inf - 2 t b2^t / (1 - b2^t), rho_inf = 2 / (1 - b2) - 1. torch rectifies where rho_t > 5: with
    b2 = 0.999 from step 6 on (the paper's threshold of 4 would be step 5). Until then it steps by lr m^, which scales
    with the gradient: keep lr |g| small. Later releases of the authors make no such steps.
    """

    name: ClassVar[str] = "radam"
    paper: ClassVar[str] = "Liu et al. 2020"
    _torch: ClassVar[tuple[str, dict[str, Any]]] = ("RAdam", {})
