"""Axes to draw in, and texts that are shown as they stand."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..extras import needs_extra
from .theme import LABEL_SIZE, TICK_SIZE, TITLE_SIZE, Theme, find_theme

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.text import Text

    AnyFigure = Figure | SubFigure

Size = tuple[float, float]
"""Width and height in inches."""

SINGLE: Size = (6.0, 3.7)
_MOST_INSIDE = 5
_LEGEND_LINE = 0.19
BELOW: Mapping[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0.0, -0.16), "ncols": 2}
"""Where a legend stands under its axes: two columns, of 28 letters each at most."""

_LONGEST = 36
# What XML 1.0 has no way to write, and breaks of line: a file with them cannot be read.
_UNPRINTABLE = re.compile("[^\u0020-\u007e\u00a0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def require_matplotlib() -> None:
    """Refuse in one line where matplotlib is not installed."""
    with needs_extra("lab", "a plot"):
        import matplotlib  # noqa: F401


def new_layout() -> Any:
    """Panels that make room for one another's texts, with a margin."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    return ConstrainedLayoutEngine(w_pad=0.09, h_pad=0.08)


def with_legend(size: Size, entries: int, columns: int = 2) -> Size:
    """A size with room for a legend of so many entries below the axes, if it will stand there."""
    return (size[0], size[1] + _LEGEND_LINE * -(-entries // columns)) if entries > _MOST_INSIDE else size


def size_for(runs: Any) -> Size:
    """One panel with a line for each run."""
    return with_legend(SINGLE, len(runs) if isinstance(runs, Mapping) else 0)


def open_axes(ax: Axes | None, theme: str, size: Size = SINGLE) -> tuple[Axes, Theme]:
    """The axes given, or those of a new figure, in the theme's dress."""
    chosen = find_theme(theme)
    require_matplotlib()
    if ax is None:
        # Imported here: who does not plot does not wait for it.
        from matplotlib import pyplot

        ax = pyplot.figure(figsize=size, layout=new_layout()).add_subplot()
    chosen.dress(ax)
    return ax, chosen


def open_figure(figure: AnyFigure | None, theme: str, size: Size) -> tuple[AnyFigure, Theme]:
    """The figure given, or a new one, with the theme's background."""
    chosen = find_theme(theme)
    require_matplotlib()
    if figure is None:
        from matplotlib import pyplot

        figure = pyplot.figure(figsize=size, layout=new_layout())
    figure.patch.set_facecolor(chosen.background)
    return figure, chosen


def panels(figure: AnyFigure, theme: Theme, rows: int, columns: int, count: int, **options: Any) -> list[Axes]:
    """``count`` panels in a grid, row by row, in the theme's dress."""
    found = list(figure.subplots(rows, columns, squeeze=False, **options).flat)
    for spare in found[count:]:
        spare.remove()
    for axes in found[:count]:
        theme.dress(axes)
    return found[:count]


def literal(text: object, longest: int = _LONGEST) -> str:
    """A text that every file format can hold, shortened in its middle if it is long."""
    clean = _UNPRINTABLE.sub("\ufffd", re.sub(r"\s", " ", str(text)))
    if len(clean) <= longest:
        return clean
    half = (longest - 1) // 2
    return f"{clean[:half]}…{clean[-half:]}"


def write_title(axes: Axes, title: str) -> None:
    """A title at the left."""
    _plain(axes.set_title(title, loc="left", fontsize=TITLE_SIZE, color=axes.title.get_color()))


def write_labels(axes: Axes, x: str, y: str) -> None:
    """What the axes show, with units."""
    _plain(axes.set_xlabel(x, fontsize=LABEL_SIZE))
    _plain(axes.set_ylabel(y, fontsize=LABEL_SIZE))


def write_text(axes: Axes, x: float, y: float, text: str, theme: Theme, **options: Any) -> None:
    """A note inside axes."""
    options = {"fontsize": TICK_SIZE, "color": theme.ink, **options}
    _plain(axes.text(x, y, text, **options))


def write_ticks(axis: Axis, places: Sequence[float], labels: Sequence[object], **options: Any) -> None:
    """Names at places of an axis."""
    axis.set_ticks(list(places), [literal(label) for label in labels], **options)
    # Axes that share this one have labels of their own, hidden or not, with the same texts.
    across = axis is axis.axes.xaxis
    shared = axis.axes.get_shared_x_axes() if across else axis.axes.get_shared_y_axes()
    for axes in shared.get_siblings(axis.axes):
        for tick in (axes.xaxis if across else axes.yaxis).get_major_ticks(len(places)):
            _plain(tick.label1)
            _plain(tick.label2)


def whole_ticks(axis: Axis, most: int = 8) -> None:
    """Ticks at whole numbers: there is no epoch 2.5."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True, nbins=most, min_n_ticks=1))


def write_legend(
    place: Axes | AnyFigure, entries: Sequence[tuple[Any, str]], theme: Theme, *, longest: int = 36, **options: Any
) -> None:
    """Handles with their texts; below the axes where there are many."""
    if not entries:
        return
    if not options:
        options = {"loc": "best"}
        if len(entries) > _MOST_INSIDE:
            options, longest = dict(BELOW), 28
    # Numbers first, texts after: a label that begins with "_" would be left out.
    legend = place.legend(
        [handle for handle, _ in entries], [str(index) for index in range(len(entries))],
        fontsize=TICK_SIZE, labelcolor=theme.ink, facecolor=theme.background, edgecolor="none", framealpha=0.8,
        handlelength=2.2, **options,
    )  # fmt: skip
    for text, (_, label) in zip(legend.get_texts(), entries, strict=True):
        text.set_text(literal(label, longest))
        _plain(text)


def colour_bar(axes: Axes, drawn: Any, theme: Theme, label: str, over: Sequence[Axes] | None = None) -> None:
    """The scale of a heat map."""
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import FuncFormatter

    figure = axes.get_figure(root=False)
    assert figure is not None
    bar = figure.colorbar(drawn, ax=list(over) if over else axes, pad=0.02)
    bar.set_label(label, fontsize=LABEL_SIZE, color=theme.ink)
    _plain(bar.ax.yaxis.label)
    bar.ax.tick_params(which="both", color=theme.muted, labelcolor=theme.ink, labelsize=TICK_SIZE)
    bar.outline.set_visible(False)
    if isinstance(drawn.norm, LogNorm):
        # 0.3 reads better than 3 x 10^-1.
        plain = FuncFormatter(lambda value, _: f"{value:.3g}")
        bar.ax.yaxis.set_major_formatter(plain)
        bar.ax.yaxis.set_minor_formatter(plain)


def say_no_data(axes: Axes, theme: Theme) -> None:
    """Empty axes that say so."""
    write_text(axes, 0.5, 0.5, "no data", theme, ha="center", va="center", transform=axes.transAxes, color=theme.muted)
    axes.set_xticks([])
    axes.set_yticks([])


def marks_if_few(count: int, most: int = 1) -> dict[str, Any]:
    """Dots on a line of few points: one point alone makes no line."""
    return {"marker": "o", "markersize": 3.5} if count <= most else {}


def on_dark_and_light(*artists: Artist) -> None:
    """Give lines an outline, so that they are seen on every colour of a heat map."""
    from matplotlib import patheffects

    for artist in artists:
        artist.set_path_effects([patheffects.withStroke(linewidth=3.2, foreground="#000000")])


def _plain(text: Text) -> None:
    text.set_parse_math(False)
    text.set_text("\n".join(_UNPRINTABLE.sub("\ufffd", line) for line in text.get_text().split("\n")))
