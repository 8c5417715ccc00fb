"""What all samplers share: noise from one generator, whole steps or none, and state that goes on bit for bit."""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, overload

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT

from ..eager import Eager
from ..errors import DivergenceError, FileError, SettingError, require_count, require_positive
from ..finite import Answer, all_finite, finite_flag, first_not_finite, looks_at_once
from ..native import magnitude, takes
from ..random import LEAST_COUNTED, draw_key, standard_normal
from ..types import Stepper
from .rates import StepRate

_SAFE_TOTAL = 1e18
_SAFE_FACTOR = 1e15
"""Of numbers whose magnitudes sum up to less than the first, squares and products with factors below the second are far
from the end of float32 at 3e38, also with the noise (below 7) and some more factors like them on top."""


class SamplerPart(Stepper):
    """The settings of a sampler. ``build`` makes an optimizer for the gradients of ``total`` = -log joint / N.

    A group may carry its own ``lr`` and ``temperature``; ``noise=False`` marks deterministic parameters.
    """

    wants: ClassVar[frozenset[str]] = frozenset({"dataset_size", "generator", "total_steps"})
    samples: ClassVar[bool] = True
    temperature: float

    def tempered(self, temperature: float) -> Stepper:
        """A sampler of temperature T draws from exp(-N total / T).

        With T in the objective's prior term too, the likelihood counts 1/T and the prior 1: the same tempered
        posterior that a variational method aims at.
        """
        return dataclasses.replace(self, temperature=self.temperature * temperature)  # type: ignore[type-var]


@dataclass(frozen=True)
class Proposal:
    """What a step would make of one group: new parameters and new state, the old ones untouched.

    ``direct`` are parameters with the keys of their noise (None without noise) whose step is known beforehand to be
    finite: it is not computed beside them but taken in place, by compiled code.
    """

    group: dict[str, Any]
    lr: float
    params: list[Tensor]
    values: list[Tensor]
    state: dict[str, list[Tensor]]
    direct: list[tuple[Tensor, int | None]]


@dataclass(frozen=True)
class Doubt:
    """A step of an accelerator that nobody has looked at yet: its number, and what the CPU held before it."""

    finite: Answer
    step: int
    generator: Tensor
    counters: list[tuple[Tensor, dict[str, Any]]]


class Sampler(Eager, Optimizer):
    """A ``torch.optim.Optimizer`` whose steps are a Markov chain; the gradients are those of -log joint / N.

    A step is computed beside the parameters, looked at, and only then taken: one that would leave a NaN or inf
    in a parameter or in the state raises ``DivergenceError`` and changes nothing, the generator included. Of long
    float32 vectors on a CPU the magnitudes are looked at instead; where these leave no doubt, compiled code takes the
    step in place. On an accelerator the device itself leaves out such a step, and the next one raises (``settle``).
    """

    name: str
    may_look_later: ClassVar[bool] = True
    """Whether a step of an accelerator may be found to have diverged one step later: nothing else depends on it."""

    def __init__(self, params: ParamsT, settings: dict[str, Any], rate: StepRate, generator: torch.Generator) -> None:
        if not isinstance(generator, torch.Generator):
            raise SettingError(f"{self.name}: generator = {generator!r}; it must be a torch.Generator")
        self.rate = rate
        self.generator = generator
        self.steps = 0
        """Steps taken so far."""
        self._doubt: Doubt | None = None
        self.found_inf: Tensor | None = None
        """1 on the device of the parameters if the next step is to be left out, as torch's fused optimizers have it."""
        super().__init__(params, {**settings, "noise": True})

    @abstractmethod
    def propose(
        self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor], lr: float, noise: list[Tensor] | None
    ) -> tuple[list[Tensor], dict[str, list[Tensor]]]:
        """New values and new state (by name) of the parameters; ``noise`` is standard normal and may be used up."""

    @abstractmethod
    def factors(self, group: dict[str, Any], lr: float) -> tuple[float, ...]:
        """What gradients, state and noise may be multiplied with in a step."""

    @abstractmethod
    def move(self, group: dict[str, Any], param: Tensor, lr: float, key: int | None) -> None:
        """The step of ``propose`` in place by compiled code, with the noise of this key."""

    def memories(self, param: Tensor) -> list[Tensor]:
        """The state tensors of a parameter's size that a step reads."""
        return []

    def learning_rates(self) -> list[float]:
        """The rate of the next step in each group."""
        return self.rates_at(self.steps)

    def taken_rates(self) -> list[float]:
        """The rate of the last step in each group, as long as nobody has set another ``lr`` since."""
        return self.rates_at(max(0, self.steps - 1))

    def rates_at(self, step: int) -> list[float]:
        """The rate of a step in each group, with its ``lr`` as it is now."""
        return [group["lr"] * self.rate.factor(step) for group in self.param_groups]

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """One step of the chain, or ``DivergenceError`` and everything as it was."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.settle()
        before = self.generator.get_state()
        proposals = [self._proposal(*pair) for pair in zip(self.param_groups, self.learning_rates(), strict=True)]
        far = [tensor for made in proposals for tensor in _tensors(made) if not looks_at_once(tensor.device)]
        if far and self.may_look_later:
            finite = finite_flag(far)
            if self.found_inf is not None:
                finite = finite & (self.found_inf == 0)
            proposals = self._kept_back(proposals, finite, before)
        elif not all_finite(tensor for made in proposals for tensor in _tensors(made)):
            self.generator.set_state(before)
            raise DivergenceError(self._diagnosis(proposals))
        for made in proposals:
            for param, noise_key in made.direct:
                self.move(made.group, param, made.lr, noise_key)
            if made.direct:
                # Compiled code writes behind autograd's back.
                torch.autograd.graph.increment_version([param for param, _ in made.direct])
            if made.params:
                torch._foreach_copy_(made.params, made.values)
            for key, tensors in made.state.items():
                for param, tensor in zip(made.params, tensors, strict=True):
                    self.state[param][key] = tensor
        self.steps += 1
        return loss

    def settle(self) -> None:
        """Look at the last step of an accelerator: ``DivergenceError`` if it was not taken, and all as before it."""
        doubt, self._doubt = self._doubt, None
        if doubt is not None and not doubt.finite.read():
            self.generator.set_state(doubt.generator)
            self.steps = doubt.step
            for param, before in doubt.counters:
                self.state[param].update(before)
            raise DivergenceError(
                f"{self.name}: step {doubt.step} would make a parameter or its state NaN or inf; nothing was changed; "
                f"lower lr (now {max(self.learning_rates()):g})"
            )

    def _kept_back(self, proposals: list[Proposal], finite: Tensor, generator: Tensor) -> list[Proposal]:
        """What the step comes to if all of it is finite, else what was there; which of the two is seen later."""
        counters: list[tuple[Tensor, dict[str, Any]]] = []
        kept = []
        for made in proposals:
            values = [torch.where(finite, new, old) for new, old in zip(made.values, made.params, strict=True)]
            state: dict[str, list[Tensor]] = {}
            for key, tensors in made.state.items():
                state[key] = []
                for param, new in zip(made.params, tensors, strict=True):
                    old = self.state.get(param, {}).get(key, torch.zeros_like(new))
                    if looks_at_once(new.device):  # how many gradients were averaged, counted on the CPU
                        counters.append((param, {key: old}))
                    state[key].append(new if looks_at_once(new.device) else torch.where(finite, new, old))
            kept.append(dataclasses.replace(made, values=values, state=state))
        self._doubt = Doubt(Answer(finite), self.steps, generator, counters)
        return kept

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As every optimizer's, after a look at the group's settings."""
        super().add_param_group(param_group)
        added = self.param_groups[-1]
        try:
            self._check_group(added)
        except SettingError:
            self.param_groups.pop()
            raise

    def state_dict(self) -> dict[str, Any]:
        """As every optimizer's, with ``step`` (int) and ``generator`` (its state, a uint8 tensor)."""
        self.settle()
        return {**super().state_dict(), "step": self.steps, "generator": self.generator.get_state()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """The inverse: the chain goes on bit for bit."""
        for key in ("step", "generator"):
            if key not in state_dict:
                raise FileError(f"{self.name}: the state to load has no '{key}'; it is not that of a sampler")
        super().load_state_dict(dict(state_dict))
        self.steps, self._doubt = int(state_dict["step"]), None
        self.generator.set_state(state_dict["generator"].cpu())

    def __getstate__(self) -> dict[str, Any]:
        self.settle()
        own = {key: self.__dict__[key] for key in ("rate", "generator", "steps")}
        return {**super().__getstate__(), **own, "_doubt": None, "found_inf": None}

    def _check_group(self, group: dict[str, Any]) -> None:
        require_positive(self.name, "lr", group["lr"])
        require_count(self.name, "dataset_size", group["dataset_size"])
        temperature, noise = group["temperature"], group["noise"]
        if not isinstance(temperature, int | float) or not 0 <= temperature < math.inf:
            raise SettingError(f"{self.name}: temperature = {temperature!r}; it must be a finite number of at least 0")
        if not isinstance(noise, bool):
            raise SettingError(f"{self.name}: noise = {noise!r}; it must be True or False")
        for index, param in enumerate(group["params"]):
            if noise and param.device.type != self.generator.device.type:
                raise SettingError(
                    f"{self.name}: {_label(group, index)} is on {param.device}, but the generator draws on "
                    f"{self.generator.device}; make one with make_generator(seed, '{param.device.type}')"
                )

    def _proposal(self, group: dict[str, Any], lr: float) -> Proposal:
        every = [param for param in group["params"] if param.grad is not None and param.numel() > 0]
        for param in every:
            if param.grad.is_sparse:
                raise SettingError(
                    f"{self.name}: {self._name_of(group, param)} has a sparse gradient, but noise moves every weight; "
                    "make its layer with sparse=False"
                )
        noisy = group["noise"] and group["temperature"] > 0 and self.rate.noisy(self.steps)
        params, noises = list[Tensor](), list[Tensor]()
        direct: list[tuple[Tensor, int | None]] = []
        for param in every:
            # Of these, and no others, standard_normal draws by a key too: both ways see the same noise.
            if param.numel() >= LEAST_COUNTED and self._is_safe(group, param, lr):
                direct.append((param, draw_key(self.generator) if noisy else None))
                continue
            params.append(param)
            if noisy:
                noises.append(standard_normal(param.shape, like=param, generator=self.generator))
        if not params:
            return Proposal(group, lr, [], [], {}, direct)
        grads = [param.grad for param in params if param.grad is not None]
        values, state = self.propose(group, params, grads, lr, noises if noisy else None)
        return Proposal(group, lr, params, values, state, direct)

    def _is_safe(self, group: dict[str, Any], param: Tensor, lr: float) -> bool:
        """Whether compiled code can take the step, and it is sure to be finite."""
        vectors = (param, param.grad, *self.memories(param))
        if not takes(*vectors) or max(self.factors(group, lr)) > _SAFE_FACTOR:
            return False
        return magnitude(*vectors) < _SAFE_TOTAL

    def _own(self, param: Tensor, key: str) -> Tensor:
        """A state tensor to be changed in place; zeros before the first step."""
        state = self.state[param]
        if key not in state:
            state[key] = torch.zeros_like(param)
        tensor: Tensor = state[key]
        return tensor

    def _memory(self, params: list[Tensor], key: str) -> list[Tensor]:
        """A state tensor of each parameter; zeros before the first step."""
        known = [self.state.get(param, {}) for param in params]  # `state[param]` would leave an entry behind
        return [own[key] if key in own else torch.zeros_like(p) for own, p in zip(known, params, strict=True)]

    def _name_of(self, group: dict[str, Any], param: Tensor) -> str:
        return _label(group, next(i for i, other in enumerate(group["params"]) if other is param))

    def _diagnosis(self, proposals: list[Proposal]) -> str:
        """One line on the first number that would not be finite."""
        for made, lr in zip(proposals, self.learning_rates(), strict=True):
            for key, tensors in {"": made.values, **made.state}.items():
                for param, tensor in zip(made.params, tensors, strict=True):
                    index = first_not_finite(tensor)
                    if index is None:
                        continue
                    what = (
                        f"the {key} of {self._name_of(made.group, param)}" if key else self._name_of(made.group, param)
                    )
                    grad = param.grad
                    healthy = grad is None or bool(grad.isfinite().all())
                    cause = f"lower lr (now {lr:g})" if healthy else "its gradient is NaN or inf already"
                    return (
                        f"{self.name}: step {self.steps} would make {what} NaN or inf at index {index}; nothing was "
                        f"changed; {cause}"
                    )
        raise AssertionError("a step was refused though every number is finite")


def langevin_noise_std(group: dict[str, Any], lr: float) -> float:
    """sqrt(2 lr T / N): what a Langevin step of rate lr adds, where nothing is preconditioned."""
    return math.sqrt(2 * lr * group["temperature"] / group["dataset_size"])


def require_settings(owner: str, lr: float | None, temperature: float) -> None:
    """Refuse a learning rate or a temperature that no sampler can work with."""
    if lr is not None:
        require_positive(owner, "lr", lr)
    if not isinstance(temperature, int | float) or not 0 <= temperature < math.inf:
        raise SettingError(f"{owner}: temperature = {temperature!r}; it must be a finite number of at least 0")


def _tensors(made: Proposal) -> list[Tensor]:
    return [*made.values, *(tensor for tensors in made.state.values() for tensor in tensors)]


def _label(group: dict[str, Any], index: int) -> str:
    """A parameter's name where the groups were made from named parameters, else its place."""
    names = group.get("param_names")
    if names:
        return f"parameter '{names[index]}'"
    return f"parameter {index} of group '{group['name']}'" if "name" in group else f"parameter {index} of its group"
