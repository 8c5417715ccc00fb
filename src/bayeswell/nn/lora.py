"""Low-rank adapters (LoRA), recognized by the names of their parameters.

    W x  ->  W x + s B A x,      A (r, in), B (out, r), W frozen                                    (Hu et al. 2021)

``peft`` calls them ``lora_A``, ``lora_B``, ``lora_embedding_A`` and ``lora_embedding_B``, followed by the adapter's
name; other libraries write ``lora_a`` or hold them as parameters of the layer itself. No library is imported here.
"""

from __future__ import annotations

from collections.abc import Iterable

from .wiring import Wiring

MAGNITUDE = "lora_magnitude_vector"


def is_lora(name: str) -> bool:
    """Return whether a parameter is one of an adapter's matrices.

    DoRA's magnitudes (Liu et al. 2024) are not: each is the norm of a row of W, which a prior around zero would shrink.
    """
    return any(part == "lora" or (part.startswith("lora_") and part != MAGNITUDE) for part in _parts(name))


def why_not_lora(name: str) -> str:
    """Return why a trained parameter has no posterior under ``where="lora"``."""
    if MAGNITUDE in _parts(name):
        return "trained, not Bayesian: DoRA's magnitude is a norm, which a prior around zero would shrink"
    if "modules_to_save" in _parts(name):
        return "trained, not Bayesian: one of modules_to_save; name it in `where` to give it a posterior"
    return "trained, not Bayesian: not frozen, and no adapter"


def adapter_wiring(name: str, shape: tuple[int, ...]) -> Wiring | None:
    """Return the wiring of an embedding's A (r, tokens), whose input is one-hot; None for others."""
    return Wiring(fan_in=1, fan_out=shape[0]) if "lora_embedding_a" in _parts(name) else None


def beside_magnitudes(adapters: Iterable[str], parameters: Iterable[str]) -> set[str]:
    """Return the adapters that DoRA reads again for the norms of W + s B A: outputs are not linear in them."""
    layers = {name.partition(MAGNITUDE)[0] for name in parameters if MAGNITUDE in name}
    return {name for name in adapters if name.partition("lora_")[0] in layers}


def _parts(name: str) -> list[str]:
    return name.lower().split(".")
