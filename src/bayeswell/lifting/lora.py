"""Adapters of low rank (LoRA), found by the names that their parameters have.

    W x  ->  W x + s B A x,      A (r, in), B (out, r), W frozen                                    (Hu et al. 2021)

``peft`` calls them ``lora_A``, ``lora_B``, ``lora_embedding_A`` and ``lora_embedding_B``, followed by the adapter's
name; other libraries write ``lora_a`` or hold them as parameters of the layer itself. No library is imported here.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..layers import Wiring

_NAME, _PREFIX = "lora", "lora_"
_MAGNITUDE = "lora_magnitude_vector"
_TABLE = "lora_embedding_a"
_SAVED = "modules_to_save"


def is_lora(name: str) -> bool:
    """Whether a parameter is one of an adapter's matrices.

    Not DoRA's magnitudes (Liu et al. 2024): each is the norm of a row of W, which a prior around zero would pull away.
    """
    return any(part == _NAME or (part.startswith(_PREFIX) and part != _MAGNITUDE) for part in _parts(name))


def why_not_lora(name: str) -> str:
    """Why a parameter that is trained has no posterior under ``where="lora"``."""
    parts = _parts(name)
    if _MAGNITUDE in parts:
        return "trained, not Bayesian: DoRA's magnitude is a norm, which a prior around zero would pull away"
    if _SAVED in parts:
        return "trained, not Bayesian: one of modules_to_save; name it in where to give it a posterior"
    return "trained, not Bayesian: not frozen, and no adapter"


def table_wiring(name: str, shape: tuple[int, ...]) -> Wiring | None:
    """The wiring of an embedding's A (r, tokens), whose input is one-hot as that of the embedding; None for others."""
    return Wiring(fan_in=1, fan_out=shape[0]) if _TABLE in _parts(name) else None


def beside_magnitudes(adapters: Iterable[str], parameters: Iterable[str]) -> set[str]:
    """Those of the adapters that DoRA reads a second time, for the norms of W + s B A: not linear in their weights."""
    layers = {name.partition(_MAGNITUDE)[0] for name in parameters if _MAGNITUDE in name}
    return {name for name in adapters if name.partition(_PREFIX)[0] in layers}


def _parts(name: str) -> list[str]:
    return name.lower().split(".")
