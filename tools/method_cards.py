"""What the cards of methods say that the code knows: their names, parts, costs, settings and papers."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

from bayeswell.methods import METHODS, Method, find_method, resolve
from bayeswell.methods.budget import ORDINARY
from citations import links
from write_method_page import parts_of

CARDS = Path(__file__).resolve().parents[1] / "docs" / "cards"
SHARP = "sharpness-aware"
"""The card of all ``f-`` forms; its numbers and its picture are those of one of them."""
SHARP_EXAMPLE = "f-bbb"
_SETTING = re.compile(r"^- ((?:`[\w.]+`(?:, )?)+):", re.MULTILINE)
_PARTS = ("posterior", "prior", "estimator", "divergence", "kl_weight", "stepper", "rate", "collector", "post_hoc")


def other_names() -> dict[str, str]:
    """Names that are the same choice of parts as an earlier one, and that one."""
    found: dict[str, str] = {}
    for number, name in enumerate(METHODS):
        for before in list(METHODS)[:number]:
            if before not in found and _nameless(METHODS[before]) == _nameless(METHODS[name]):
                found[name] = before
                break
    return found


def _nameless(method: Method) -> Method:
    return dataclasses.replace(method, name="", summary="", paper="")


def card_names() -> list[str]:
    """One for each method, and one for the sharpness-aware forms; another name of a method shares its card."""
    return [*(name for name in METHODS if name not in other_names()), SHARP]


def method_of(card: str) -> Method:
    """The method that a card is about."""
    return find_method(SHARP_EXAMPLE if card == SHARP else card)


def names_of(card: str) -> list[str]:
    """Every name of the method of a card."""
    return [card, *(other for other, name in other_names().items() if name == card)]


def page_of(card: str) -> Path:
    """Where a card lies."""
    return CARDS / f"{card}.md"


def settings_named(text: str) -> list[str]:
    """The settings that a card's list explains, in order."""
    return [name for line in _SETTING.findall(text) for name in re.findall(r"`([\w.]+)`", line)]


def default_of(method: Method, setting: str) -> Any:
    """The value that a setting has in a method: a field of the method, or ``axis.field`` of its part."""
    axis, _, field = setting.partition(".")
    if field and axis == "sharpness":
        return getattr(method.sharpness_part, field)
    if field:
        if axis not in _PARTS:
            raise AttributeError(f"'{setting}': a method has no part '{axis}'")
        part = getattr(resolve(method), axis)
        if field not in {one.name for one in dataclasses.fields(part)}:
            raise AttributeError(f"'{setting}': {axis} '{part.name}' has no setting '{field}'")
        return getattr(part, field)
    return resolve(method).stepper.lr if axis == "lr" else getattr(method, axis)


def facts(card: str, text: str) -> str:
    """The table at the head of a card."""
    method = method_of(card)
    rows = [("name", ", ".join(f"`{name}`" for name in _shown_names(card)))]
    rows += [("parts", parts_of(method))]
    rows += [("a training step", f"{method.cost:g} forward passes, {method.cost / ORDINARY:g}x ordinary training")]
    rows += [("a prediction", _PREDICTIONS[method.prediction])]
    rows += [("paper", links(method.paper))]
    defaults = [f"`{name}` {_value(default_of(method, name))}" for name in settings_named(text)]
    rows += [("defaults", ", ".join(defaults))] if defaults else []
    if method.budget is not None:
        rows[2] = (rows[2][0], rows[2][1] + " for each member ([how many](../defaults.md))")
    if card == SHARP:
        rows[2] = (rows[2][0], f"twice that of the method it is put before; `{SHARP_EXAMPLE}`: {rows[2][1]}")
        rows[1] = ("parts", f"those of the method, and `sharpness`; `{SHARP_EXAMPLE}`: {rows[1][1]}")
    lines = [f"| {head} | {cell} |" for head, cell in rows]
    return "\n".join([lines[0], "|---|---|", *lines[1:]])


_PREDICTIONS = {
    "sampled": "one pass for each draw",
    "linearised": "linearised: one pass, and a Jacobian-vector product for each draw",
    "mean": "one pass",
}


def _shown_names(card: str) -> list[str]:
    return ["f-NAME", "f-NAME-geometry"] if card == SHARP else names_of(card)


def _value(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if dataclasses.is_dataclass(value):
        return f'"{getattr(value, "name", value)}"'
    return f"{value:g}" if isinstance(value, float) else str(value)


def picture(card: str, folder: str) -> str:
    """The picture, light and dark, as pages show it."""
    about = f"posterior of {method_of(card).name} on a curve with a gap"
    return "\n".join(f"![{about}]({folder}/{card}-{theme}.svg#only-{theme})" for theme in ("light", "dark"))
