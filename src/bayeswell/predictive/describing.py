"""A trained model in a few short lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor, nn

from ..lifting import Saved
from ..registry import kind_of

_MOST_SHOWN = 4


def described(saved: Saved) -> list[str]:
    """Posterior and parameters; likelihood with what it has learned; how it predicts; what calibration changed."""
    model = saved.model
    fixed = sum(parameter.numel() for parameter in model.net.parameters())
    others = f" and {fixed:,} deterministic parameters" if fixed else ""
    ratio = f"; mean std / prior std {model.std_ratio():.3g}"
    lines = [
        f"posterior: {model.posterior_part.name} over {model.layout.size:,} weights{others}{ratio}",
        f"likelihood: {likelihood_in_words(saved.likelihood)}; prediction: {model.prediction}",
    ]
    return lines if saved.calibration is None else [*lines, f"calibration: {saved.calibration}"]


def likelihood_in_words(likelihood: Any) -> str:
    """Its name, settings that are not the usual ones, and numbers that it has learned."""
    name = getattr(likelihood, "name", None) or kind_of(likelihood)
    said = []
    if is_dataclass(likelihood):
        said = [
            f"{one.name}={getattr(likelihood, one.name)!r}"
            for one in fields(likelihood)
            if getattr(likelihood, one.name) != one.default
        ]
    learned = []
    if isinstance(likelihood, nn.Module):
        for key, parameter in likelihood.named_parameters():
            logged = key.startswith("log_")
            values = parameter.detach().exp() if logged else parameter.detach()
            learned.append(f"{key.removeprefix('log_')} {_numbers(values)}")
    words = f"{name}({', '.join(said)})" if said else str(name)
    return f"{words}, learned {', '.join(learned)}" if learned else words


def _numbers(values: Tensor) -> str:
    flat: Sequence[float] = values.reshape(-1)[:_MOST_SHOWN].tolist()
    more = ", ..." if values.numel() > _MOST_SHOWN else ""
    shown = ", ".join(f"{value:.3g}" for value in flat) + more
    return shown if values.numel() == 1 else f"({shown})"
