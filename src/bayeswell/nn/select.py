"""Selection of the Bayesian parameters of a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeAlias

from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from ..core.errors import NetworkError, SettingError, nearest
from ..core.layout import Layout, Site
from .wiring import MAGNITUDE, NORMALIZATION_LAYERS, Wiring, is_lora, parts_of, wiring_of

Where: TypeAlias = (
    str | Sequence[str] | type[nn.Module] | tuple[type[nn.Module], ...] | Callable[[str, nn.Module, Tensor], bool]
)
"""``"all"``, ``"last_layer"``, ``"lora"``, name patterns, module types, or a function (name, module, parameter) ->
bool."""

TRAINED, FROZEN = "trained", "frozen"
"""Choices of ``other_params``."""


@dataclass(frozen=True)
class Selection:
    """The Bayesian sites; for every other parameter the reason why it is deterministic; trained or frozen."""

    layout: Layout
    deterministic: dict[str, str]
    other_params: str = TRAINED


@dataclass(frozen=True)
class Candidate:
    """One parameter with all its names."""

    names: tuple[str, ...]
    owner: nn.Module
    parameter: nn.Parameter

    @property
    def name(self) -> str:
        return self.names[0]

    def matches(self, pattern: str) -> bool:
        """Return whether a pattern names the parameter, or a module that contains it."""
        return any(fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*") for name in self.names)

    def site(self) -> Site:
        shape, local_name = tuple(self.parameter.shape), self.name.rpartition(".")[2]
        wiring = wiring_of(self.owner, local_name, shape)
        if "lora_embedding_a" in parts_of(self.name):
            wiring = Wiring(fan_in=1, fan_out=shape[0])  # A (r, tokens): the input is one-hot
        return Site(self.names, shape, type(self.owner).__name__, *wiring)


def select(net: nn.Module, where: Where, other_params: str = TRAINED) -> Selection:
    """Choose the Bayesian parameters of a network.

    ``"all"`` and ``"last_layer"`` leave out normalization layers; ``"lora"`` takes the adapters; patterns, types and
    functions take exactly what they match. Frozen parameters (``requires_grad=False``) are never chosen.
    """
    candidates = _candidates(net)
    if not candidates:
        raise NetworkError(f"the network ({type(net).__name__}) has no parameters to make Bayesian")
    chosen = _choose(candidates, where)
    sites, deterministic = [], {}
    for candidate in candidates:
        reason = _obstacle(candidate)
        if not reason and candidate.name not in chosen:
            reason = _not_chosen(candidate, where, other_params)
        if reason:
            deterministic.update(dict.fromkeys(candidate.names, reason))
        else:
            sites.append(candidate.site())
    if not sites:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in list(deterministic.items())[:4])
        raise SettingError(f"where = {where!r} matches no parameter that can be Bayesian ({reasons})")
    return Selection(Layout(tuple(sites)), deterministic, other_params)


def _candidates(net: nn.Module) -> list[Candidate]:
    names: dict[int, list[str]] = {}
    for name, parameter in net.named_parameters(remove_duplicate=False):
        if isinstance(parameter, UninitializedParameter):
            raise NetworkError(f"parameter '{name}' has no shape yet; run one batch through the lazy network first")
        names.setdefault(id(parameter), []).append(name)
    return [
        Candidate(tuple(names[id(parameter)]), net.get_submodule(name.rpartition(".")[0]), parameter)
        for name, parameter in net.named_parameters()
    ]


def _obstacle(candidate: Candidate) -> str:
    if not candidate.parameter.requires_grad:
        return "frozen (requires_grad=False)"
    if not candidate.parameter.is_floating_point():
        return f"not a real floating-point parameter ({candidate.parameter.dtype})"
    if candidate.parameter.numel() == 0:
        return "empty"
    if isinstance(candidate.owner, nn.Embedding | nn.EmbeddingBag) and candidate.owner.max_norm is not None:
        return "an embedding with max_norm changes its weight in place"
    return ""


def _not_chosen(candidate: Candidate, where: Where, other_params: str) -> str:
    if where == "lora":
        own = parts_of(candidate.name)
        if MAGNITUDE in own:
            return "trained, not Bayesian: DoRA's magnitude is a norm, which a prior around zero would shrink"
        saved = "one of modules_to_save; name it in `where` to give it a posterior"
        return f"trained, not Bayesian: {saved if 'modules_to_save' in own else 'not frozen, and no adapter'}"
    frozen = ", frozen" if other_params == FROZEN else ""
    if where in ("all", "last_layer") and isinstance(candidate.owner, NORMALIZATION_LAYERS):
        return f"normalization layer (deterministic unless chosen by name or type){frozen}"
    return f"not chosen by `where`{frozen}"


def _choose(candidates: list[Candidate], where: Where) -> set[str]:
    if isinstance(where, str) and where in ("all", "last_layer"):
        usual = [c for c in candidates if not isinstance(c.owner, NORMALIZATION_LAYERS)]
        if where == "last_layer":
            possible = [c for c in usual if not _obstacle(c)]
            usual = [c for c in possible if c.owner is possible[-1].owner]
        return {c.name for c in usual}
    if isinstance(where, str) and where == "lora":
        adapters = {c.name for c in candidates if is_lora(c.name)}
        if not adapters:
            raise SettingError("where = 'lora', but the network has no adapters; add them first (peft.get_peft_model)")
        return adapters
    if isinstance(where, type) or (isinstance(where, tuple) and all(isinstance(kind, type) for kind in where)):
        return {c.name for c in candidates if isinstance(c.owner, where)}
    if isinstance(where, str | list | tuple | set | frozenset) and all(isinstance(w, str) for w in where):
        return _by_pattern(candidates, [where] if isinstance(where, str) else [str(w) for w in where])
    if callable(where):
        return {c.name for c in candidates if where(c.name, c.owner, c.parameter)}
    raise SettingError(
        f"where = {where!r}; allowed: 'all', 'last_layer', 'lora', name patterns, module types, or a function "
        "(name, module, parameter) -> bool"
    )


def _by_pattern(candidates: list[Candidate], patterns: list[str]) -> set[str]:
    for pattern in patterns:
        if not any(c.matches(pattern) for c in candidates):
            names = [name for c in candidates for name in c.names]
            raise SettingError(
                f"where: '{pattern}' matches no parameter; {nearest(pattern, ['all', 'last_layer', 'lora', *names])}"
            )
    return {c.name for c in candidates if any(c.matches(pattern) for pattern in patterns)}
