"""Which parameters become Bayesian, and why the others do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeAlias

from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from ..errors import NetworkError, SettingError, nearest
from ..layers import NORMALISATION_LAYERS, wiring_of
from ..tree import Layout, Site
from .lora import is_lora, table_wiring, why_not_lora

Where: TypeAlias = (
    str | Sequence[str] | type[nn.Module] | tuple[type[nn.Module], ...] | Callable[[str, nn.Module, Tensor], bool]
)
"""``"all"``, ``"last_layer"``, ``"lora"``, name patterns, module types, or a function (name, module, parameter) ->
bool."""

LORA = "lora"

TRAINED, FROZEN = "trained", "frozen"
RESTS = (TRAINED, FROZEN)
"""What becomes of the parameters that are not Bayesian."""


@dataclass(frozen=True)
class Selection:
    """The Bayesian sites, for every other parameter the reason why it is deterministic, and what becomes of those."""

    layout: Layout
    deterministic: dict[str, str]
    rest: str = TRAINED


@dataclass(frozen=True)
class _Candidate:
    names: tuple[str, ...]
    owner: nn.Module
    local_name: str
    parameter: nn.Parameter


def select(net: nn.Module, where: Where, rest: str = TRAINED) -> Selection:
    """Choose the Bayesian parameters of a network.

    ``"all"`` and ``"last_layer"`` leave out normalisation layers; ``"lora"`` takes the adapters (``lora.py``);
    patterns, types and functions take exactly what they fit. Frozen parameters (``requires_grad=False``) are never
    chosen.
    """
    require_rest("bayesian", rest)
    candidates = _candidates(net)
    if not candidates:
        raise NetworkError(f"the network ({type(net).__name__}) has no parameters; there is nothing to make Bayesian")
    chosen = _choose(candidates, where)
    sites, deterministic = [], {}
    for candidate in candidates:
        reason = _obstacle(candidate) or ("" if candidate.names[0] in chosen else _not_chosen(candidate, where, rest))
        if reason:
            deterministic.update(dict.fromkeys(candidate.names, reason))
            continue
        shape = tuple(candidate.parameter.shape)
        table = table_wiring(candidate.names[0], shape)
        wiring = table or wiring_of(candidate.owner, candidate.local_name, shape)
        layer = type(candidate.owner).__name__
        sites.append(Site(candidate.names, shape, layer, wiring.fan_in, wiring.fan_out, wiring.output_dim))
    if not sites:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in list(deterministic.items())[:4])
        names = [name for candidate in candidates for name in candidate.names]
        hint = f"; {nearest(where, names)}" if isinstance(where, str) else ""
        raise SettingError(f"where = {where!r} matches no parameter that can be Bayesian ({reasons}){hint}")
    return Selection(Layout(tuple(sites)), deterministic, rest)


def require_rest(owner: str, rest: str) -> None:
    """Refuse another word."""
    if rest not in RESTS:
        raise SettingError(f"{owner}: rest = {rest!r}; {nearest(str(rest), RESTS)}")


def _candidates(net: nn.Module) -> list[_Candidate]:
    """Every parameter once, with all the names it is known by."""
    names: dict[int, list[str]] = {}
    for name, parameter in net.named_parameters(remove_duplicate=False):
        if isinstance(parameter, UninitializedParameter):
            raise NetworkError(f"parameter '{name}' has no shape yet; run one batch through the lazy network first")
        names.setdefault(id(parameter), []).append(name)
    found = []
    for name, parameter in net.named_parameters():
        module_name, _, local_name = name.rpartition(".")
        owner = net.get_submodule(module_name)
        found.append(_Candidate(tuple(names[id(parameter)]), owner, local_name, parameter))
    return found


def _obstacle(candidate: _Candidate) -> str:
    if not candidate.parameter.requires_grad:
        return "frozen (requires_grad=False)"
    if not candidate.parameter.is_floating_point():
        return f"not a real floating-point parameter ({candidate.parameter.dtype})"
    if candidate.parameter.numel() == 0:
        return "empty"
    if isinstance(candidate.owner, nn.Embedding | nn.EmbeddingBag) and candidate.owner.max_norm is not None:
        return "an embedding with max_norm changes its weight in place"
    return ""


def _not_chosen(candidate: _Candidate, where: Where, rest: str) -> str:
    if where == LORA:
        return why_not_lora(candidate.names[0])
    frozen = ", frozen with the rest" if rest == FROZEN else ""
    if where in ("all", "last_layer") and isinstance(candidate.owner, NORMALISATION_LAYERS):
        return f"normalisation layer (deterministic unless chosen by name or type){frozen}"
    return f"not chosen by where{frozen}"


def _choose(candidates: list[_Candidate], where: Where) -> set[str]:
    """The first names of the chosen candidates."""
    if isinstance(where, str) and where in ("all", "last_layer"):
        usual = [c for c in candidates if not isinstance(c.owner, NORMALISATION_LAYERS)]
        if where == "last_layer":
            trainable = [c for c in usual if not _obstacle(c)]
            usual = [c for c in trainable if c.owner is trainable[-1].owner]
        return {c.names[0] for c in usual}
    if isinstance(where, str) and where == LORA:
        chosen = {c.names[0] for c in candidates if is_lora(c.names[0])}
        if not chosen:
            raise SettingError(
                "where = 'lora', but no parameter has 'lora_' in its name: put adapters into the network first "
                "(peft.get_peft_model)"
            )
        return chosen
    if isinstance(where, type) or (isinstance(where, tuple) and all(isinstance(kind, type) for kind in where)):
        return {c.names[0] for c in candidates if isinstance(c.owner, where)}
    if isinstance(where, str | list | tuple | set | frozenset) and all(isinstance(w, str) for w in where):
        patterns = [where] if isinstance(where, str) else list(where)
        _refuse_idle_patterns(patterns, candidates)
        return {c.names[0] for c in candidates if any(_fits(n, p) for n in c.names for p in patterns)}
    if callable(where):
        return {c.names[0] for c in candidates if where(c.names[0], c.owner, c.parameter)}
    raise SettingError(
        f"where = {where!r}; allowed: 'all', 'last_layer', 'lora', name patterns, module types, or a function "
        "(name, module, parameter) -> bool"
    )


def _fits(name: str, pattern: str) -> bool:
    """A pattern may name a parameter, or a module and with it all its parameters."""
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")


def _refuse_idle_patterns(patterns: list[str], candidates: list[_Candidate]) -> None:
    names = [name for candidate in candidates for name in candidate.names]
    for pattern in patterns:
        if not any(_fits(name, pattern) for name in names):
            allowed = ["all", "last_layer", LORA, *names]
            raise SettingError(f"where: '{pattern}' matches no parameter; {nearest(pattern, allowed)}")
