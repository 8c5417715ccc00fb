"""Single examples: what was seen, and how the draws' predictions spread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import DataError
from .canvas import WIDTH, AnyFigure, Axes, Panel, literal, open_sheet
from .reading import Fields, Numbers, as_list, as_numbers, finite, listed, number_text
from .theme import LABEL_SIZE, ThemeName

_OWNER = "plot_examples"
_MOST_EXAMPLES, _MOST_CLASSES, _MOST_DRAWS = 12, 10, 100


@dataclass(frozen=True)
class _Example:
    kind: str
    image: Numbers | None
    probabilities: Numbers
    samples: Numbers
    label: int | None
    entropy: float | None


def plot_examples(record: Any, *, figure: AnyFigure | None = None, theme: ThemeName = "light") -> tuple[Axes, ...]:
    """Images beside the probabilities of their classes: bars are means, dots are draws; the true class is marked.

    Of more than ten classes the ten most probable. Two axes an example (image, bars).
    """
    names, examples = _read(record)
    count = max(1, len(examples))
    sheet = open_sheet(figure, theme, (WIDTH, 0.5 + (1.75 if _slanted(names) else 1.3) * count))
    if not examples:
        (panel,) = sheet.panels(1, 1, 1)
        panel.has_data()
        return (panel.axes,)
    found = sheet.panels(count, 2, 2 * count, width_ratios=(1, 3.2))
    entries: dict[str, Any] = {}
    for example, left, right in zip(examples, found[::2], found[1::2], strict=True):
        _draw_image(left, example)
        entries |= _draw_bars(right, example, names)
        truth = "" if example.label is None else f", is {literal(names[example.label], 11)}"
        right.title(literal(example.kind, 20) + truth)
    sheet.legend(entries)
    return tuple(panel.axes for panel in found)


def describe_examples(record: Any) -> str:
    """The most probable class of each example."""
    names, examples = _read(record)
    clauses = []
    for example in examples:
        believed = "no probabilities"
        if len(finite(example.probabilities)):
            top = int(np.nanargmax(example.probabilities))
            believed = f"{names[top]} with {number_text(example.probabilities[top])}"
        truth = "" if example.label is None else f", true class {names[example.label]}"
        entropy = "" if example.entropy is None else f", entropy {number_text(example.entropy)}"
        clauses.append(f"{example.kind}: {believed}{truth}{entropy}")
    return f"Examples and their predicted classes; {listed(clauses, 12)}." if clauses else "Examples without data."


def _read(record: Any) -> tuple[list[str], list[_Example]]:
    read = Fields(_OWNER, record, ("examples",))
    examples = [_example(row) for row in read.parts("examples")[:_MOST_EXAMPLES]]
    most = max((len(example.probabilities) for example in examples), default=0)
    names = [str(name) for name in as_list(_OWNER, "'classes'", read.get("classes"))] if read.has("classes") else []
    if names and len(names) < most:
        raise DataError(f"{_OWNER}: {len(names)} classes for {most} probabilities; each needs a name")
    return names or [str(index) for index in range(most)], examples


def _example(row: Any) -> _Example:
    fields = Fields(_OWNER, row, ("kind", "probabilities"), of="an example")
    probabilities = fields.numbers("probabilities")
    samples = fields.matrix("samples") if fields.has("samples") else np.empty((0, len(probabilities)))
    if samples.size and samples.shape[1] != len(probabilities):
        raise DataError(
            f"{_OWNER}: 'samples' has shape {samples.shape}; each draw must have {len(probabilities)} numbers"
        )
    label = fields.number("label")
    if label is not None and not (label == int(label) and 0 <= label < max(1, len(probabilities))):
        raise DataError(
            f"{_OWNER}: 'label' = {label:g}; it must be the number of a class, 0 to {len(probabilities) - 1}"
        )
    image = _image(fields.get("image")) if fields.has("image") else None
    number = None if label is None else int(label)
    return _Example(fields.text("kind", ""), image, probabilities, samples, number, fields.number("entropy"))


def _image(value: Any) -> Numbers:
    """(H, W), or (H, W, 3) in [0, 1]."""
    value = value.detach().cpu().numpy() if hasattr(value, "detach") else value
    try:
        dimensions = np.ndim(value)
    except ValueError:
        dimensions = 0
    if dimensions not in (2, 3):
        raise DataError(f"{_OWNER}: an 'image' must be H x W, C x H x W or H x W x C numbers with C of 1 or 3")
    found = as_numbers(_OWNER, "image", value, dimensions)
    if dimensions == 3:
        if found.shape[0] in (1, 3):
            found = np.moveaxis(found, 0, 2)
        if found.shape[2] not in (1, 3):
            raise DataError(f"{_OWNER}: an 'image' has shape {found.shape}; it must have 1 or 3 channels")
        found = found[:, :, 0] if found.shape[2] == 1 else found
    if found.ndim == 3 and len(finite(found)) and (np.nanmin(found) < 0 or np.nanmax(found) > 1):
        raise DataError(f"{_OWNER}: a colour 'image' has numbers outside [0, 1]; scale it first")
    return found


def _slanted(names: list[str]) -> bool:
    """Whether names of classes are too long to stand beside one another."""
    return max(map(len, names), default=0) > 3


def _draw_image(panel: Panel, example: _Example) -> None:
    axes = panel.axes
    axes.grid(visible=False)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)
    if example.entropy is not None:
        panel.labels(f"H = {number_text(example.entropy)}", "")
    if example.image is None or not example.image.size:
        panel.text(0.5, 0.5, "no image", ha="center", va="center", transform=axes.transAxes)
        return
    axes.imshow(
        np.nan_to_num(example.image) if example.image.ndim == 3 else example.image, cmap="gray", interpolation="none"
    )


def _draw_bars(panel: Panel, example: _Example, names: list[str]) -> dict[str, Any]:
    axes, theme = panel
    count = len(example.probabilities)
    if not panel.has_data(example.probabilities):
        return {}
    shown = np.arange(count)
    if count > _MOST_CLASSES:
        shown = np.argsort(-np.nan_to_num(example.probabilities), kind="stable")[:_MOST_CLASSES]
    places = np.arange(len(shown))
    entries: dict[str, Any] = {}
    bars = axes.bar(places, example.probabilities[shown], color=theme.colour(0), alpha=0.75, width=0.75)
    entries["mean probability"] = bars
    draws = example.samples[:_MOST_DRAWS][:, shown]
    if draws.size:
        # Side by side within their bar, in the order they were drawn.
        sideways = np.linspace(-0.3, 0.3, len(draws)) if len(draws) > 1 else np.zeros(1)
        entries["draws"] = axes.plot(
            (places[None, :] + sideways[:, None]).ravel(), draws.ravel(), color=theme.colour(1), marker="o",
            markersize=2.2, markeredgewidth=0, linestyle="none", alpha=0.7, rasterized=True,
        )[0]  # fmt: skip
    if example.label is not None and example.label in shown:
        place = float(np.flatnonzero(shown == example.label)[0])
        entries["true class"] = axes.plot(
            [place], [1.04], color=theme.colour(2), marker="v", markersize=6, linestyle="none", clip_on=False
        )[0]
    long = _slanted(names)
    panel.ticks(True, list(places), [literal(names[index], 9) for index in shown], rotation=45 if long else 0)
    if long:
        for text in axes.get_xticklabels():
            text.set(ha="right", rotation_mode="anchor")
    axes.set_ylim(0, 1.1)
    axes.set_yticks([0, 0.5, 1])
    axes.set_xlim(-0.6, len(shown) - 0.4)
    axes.grid(visible=False, axis="x")
    panel.labels("", "probability")
    axes.yaxis.label.set_fontsize(LABEL_SIZE - 1)
    return entries
