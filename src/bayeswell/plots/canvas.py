"""Axes to draw in, and texts that are shown as they stand."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..extras import needs_extra
from .reading import Numbers, finite
from .theme import LABEL_SIZE, TICK_SIZE, TITLE_SIZE, Theme, find_theme

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
    from matplotlib.figure import SubFigure
    from matplotlib.text import Text

    AnyFigure = Figure | SubFigure
else:  # who only imports the plots does not wait for matplotlib
    Artist = Axes = Figure = Text = AnyFigure = Any

Size = tuple[float, float]
"""Width and height in inches."""
Entries = Sequence[tuple[Any, str]]
"""Handles of a legend with their texts."""

OUTSIDE_PYPLOT: Any = object()
"""In the place of axes or a figure: a new figure that needs no display and is gone when nobody holds it."""
WIDTH = 4.6
"""Inches of every figure. Shown 340 pixels wide, as on a phone, the smallest text is 9 pixels high; panels of one
figure stand below one another, and a wide page sets figures beside one another."""
SINGLE: Size = (WIDTH, 3.0)
_MOST_INSIDE = 3
_LEGEND_LINE = 0.19
_LETTER, _HANDLE, _BESIDE = 5.4, 36.0, 56.0
"""Points: a letter of a legend, its handle with the room around it, and what stands at the left of axes."""

_LONGEST = 36
# What XML 1.0 has no way to write, and breaks of line: a file with them cannot be read.
_UNPRINTABLE = re.compile("[^\u0020-\u007e\u00a0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def require_matplotlib() -> None:
    """Refuse in one line where matplotlib is not installed."""
    with needs_extra("lab", "a plot"):
        import matplotlib  # noqa: F401


def _new_figure(given: Any, size: Size) -> Figure:
    """A figure whose panels make room for one another's texts, with a margin."""
    # Imported here: who does not plot does not wait for it.
    from matplotlib import pyplot
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    make = Figure if given is OUTSIDE_PYPLOT else pyplot.figure
    return make(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.09, h_pad=0.08))


def columns_for(labels: Sequence[str], width: float = WIDTH * 72) -> int:
    """How many texts of a legend fit beside one another in so many points."""
    longest = max((min(len(label), _LONGEST) for label in labels), default=0)
    return int(min(4, max(1, width // (_LETTER * longest + _HANDLE)), max(1, len(labels))))


def with_legend(size: Size, labels: Sequence[str], *, always: bool = False) -> Size:
    """A size with room for a legend of these texts below the axes, if it will stand there."""
    if len(labels) <= _MOST_INSIDE and not always:
        return size
    return size[0], size[1] + _LEGEND_LINE * -(-len(labels) // columns_for(labels))


def size_for(runs: Any, more: str = "") -> Size:
    """One panel with a line for each run; ``more`` stands for what its text says besides the name."""
    return with_legend(SINGLE, [f"{label}{more}" for label in runs] if isinstance(runs, Mapping) else [])


class Panel(NamedTuple):
    """Axes in a theme's dress, and what is written in and around them: every text is shown as it stands."""

    axes: Axes
    theme: Theme

    def title(self, title: str) -> None:
        """A title at the left."""
        axes = self.axes
        _plain(axes.set_title(title, loc="left", fontsize=TITLE_SIZE, color=axes.title.get_color()))

    def labels(self, x: str, y: str) -> None:
        """What the axes show, with units."""
        _plain(self.axes.set_xlabel(x, fontsize=LABEL_SIZE))
        _plain(self.axes.set_ylabel(y, fontsize=LABEL_SIZE))

    def text(self, x: float, y: float, text: str, **options: Any) -> None:
        """A note inside the axes."""
        _plain(self.axes.text(x, y, text, **{"fontsize": TICK_SIZE, "color": self.theme.ink, **options}))

    def has_data(self, *values: Numbers) -> bool:
        """Whether there is any number; empty axes say so."""
        if any(len(finite(part)) for part in values):
            return True
        place = {"ha": "center", "va": "center", "transform": self.axes.transAxes}
        self.text(0.5, 0.5, "no data", **place, color=self.theme.muted)
        self.axes.set_xticks([])
        self.axes.set_yticks([])
        return False

    def ticks(self, across: bool, places: Sequence[float], labels: Sequence[object], **options: Any) -> None:
        """Names at places of the x axis (``across``) or the y axis."""
        axis = self.axes.xaxis if across else self.axes.yaxis
        axis.set_ticks(list(places), [literal(label) for label in labels], **options)
        # Axes that share this one have labels of their own, hidden or not, with the same texts.
        shared = self.axes.get_shared_x_axes() if across else self.axes.get_shared_y_axes()
        for axes in shared.get_siblings(self.axes):
            for tick in (axes.xaxis if across else axes.yaxis).get_major_ticks(len(places)):
                _plain(tick.label1)
                _plain(tick.label2)

    def name_rows(self, labels: Sequence[object]) -> None:
        """A name beside each row, the first at the top."""
        self.ticks(False, range(len(labels)), labels)
        self.axes.set_ylim(len(labels) - 0.4, -0.6)

    def logarithmic(self, *, across: bool = False) -> None:
        """A logarithmic axis (y, or x if ``across``), to be called when all is drawn."""
        (self.axes.set_xscale if across else self.axes.set_yscale)("log")
        low, high = sorted(self.axes.get_xlim() if across else self.axes.get_ylim())
        _plain_decades(self.axes.xaxis if across else self.axes.yaxis, low, high)

    def whole_ticks(self, most: int = 8, *, both: bool = False) -> None:
        """Ticks of x (or both axes) at whole numbers: there is no epoch 2.5."""
        from matplotlib.ticker import MaxNLocator

        for axis in (self.axes.xaxis, self.axes.yaxis)[: 2 if both else 1]:
            axis.set_major_locator(MaxNLocator(integer=True, nbins=most, min_n_ticks=1))

    def legend(self, entries: Entries, *, longest: int = _LONGEST, **options: Any) -> None:
        """Handles with their texts; below the axes where there are many."""
        if not options and len(entries) > _MOST_INSIDE:
            self.legend_below(entries)
        else:
            write_legend(self.axes, entries, self.theme, longest=longest, **(options or {"loc": "best"}))

    def legend_below(self, entries: Entries) -> None:
        """Handles with their texts under the axes, in as many columns as fit."""
        labels = [label for _, label in entries]
        look: dict[str, Any] = {"columnspacing": 1.2}
        figure = _alone_in(self.axes)
        if figure is not None:
            look |= {"loc": "outside lower center", "ncols": columns_for(labels)}
            write_legend(figure, entries, self.theme, **look)
            return
        look |= {
            "loc": "upper left",
            "bbox_to_anchor": (0.0, -0.19),
            "ncols": columns_for(labels, 72 * WIDTH - _BESIDE),
        }
        write_legend(self.axes, entries, self.theme, **look)

    def colour_bar(self, drawn: Any, label: str, over: Sequence[Axes] | None = None) -> None:
        """The scale of a heat map."""
        from matplotlib.colors import LogNorm

        figure = self.axes.get_figure(root=False)
        assert figure is not None
        bar = figure.colorbar(drawn, ax=list(over) if over else self.axes, pad=0.02)
        bar.set_label(label, fontsize=LABEL_SIZE, color=self.theme.ink)
        _plain(bar.ax.yaxis.label)
        bar.ax.tick_params(which="both", color=self.theme.muted, labelcolor=self.theme.ink, labelsize=TICK_SIZE)
        bar.outline.set_visible(False)
        if isinstance(drawn.norm, LogNorm):
            _plain_decades(bar.ax.yaxis, drawn.norm.vmin or 1.0, drawn.norm.vmax or 1.0)


def open_panel(ax: Axes | None, theme: str, title: str = "", x: str = "", y: str = "", size: Size = SINGLE) -> Panel:
    """The axes given, or those of a new figure, in the theme's dress."""
    chosen = find_theme(theme)
    require_matplotlib()
    if ax is None or ax is OUTSIDE_PYPLOT:
        ax = _new_figure(ax, size).add_subplot()
    chosen.dress(ax)
    panel = Panel(ax, chosen)
    panel.title(title)
    panel.labels(x, y)
    return panel


class Sheet(NamedTuple):
    """A figure of several panels, with the theme's background and one legend for all of them."""

    figure: AnyFigure
    theme: Theme

    def panels(self, rows: int, columns: int, count: int, **options: Any) -> list[Panel]:
        """``count`` panels in a grid, row by row."""
        found = list(self.figure.subplots(rows, columns, squeeze=False, **options).flat)
        for spare in found[count:]:
            spare.remove()
        for axes in found[:count]:
            self.theme.dress(axes)
        return [Panel(axes, self.theme) for axes in found[:count]]

    def legend(self, entries: Mapping[str, Any], **options: Any) -> None:
        """Texts with their handles, below all panels."""
        pairs = [(handle, label) for label, handle in entries.items()]
        options = {
            "loc": "outside lower center",
            "ncols": columns_for(list(entries)),
            "columnspacing": 1.2,
            **options,
        }
        write_legend(self.figure, pairs, self.theme, **options)


def open_sheet(figure: AnyFigure | None, theme: str, size: Size) -> Sheet:
    """The figure given, or a new one."""
    chosen = find_theme(theme)
    require_matplotlib()
    if figure is None or figure is OUTSIDE_PYPLOT:
        figure = _new_figure(figure, size)
    figure.patch.set_facecolor(chosen.background)
    return Sheet(figure, chosen)


def printable(text: str) -> str:
    """A line of text that every file format can hold."""
    return _UNPRINTABLE.sub("\ufffd", text)


def literal(text: object, longest: int = _LONGEST) -> str:
    """Any text as one such line, shortened in its middle if it is long."""
    clean = printable(re.sub(r"\s", " ", str(text)))
    if len(clean) <= longest:
        return clean
    half = (longest - 1) // 2
    return f"{clean[:half]}…{clean[-half:]}"


def write_legend(
    place: Axes | AnyFigure, entries: Entries, theme: Theme, *, longest: int = _LONGEST, **options: Any
) -> None:
    """Handles with their texts."""
    if not entries:
        return
    # Numbers first, texts after: a label that begins with "_" would be left out.
    legend = place.legend(
        [handle for handle, _ in entries], [str(index) for index in range(len(entries))],
        fontsize=TICK_SIZE, labelcolor=theme.ink, facecolor=theme.background, edgecolor="none", framealpha=0.8,
        handlelength=2.2, **options,
    )  # fmt: skip
    for text, (_, label) in zip(legend.get_texts(), entries, strict=True):
        text.set_text(literal(label, longest))
        _plain(text)


def handle(**look: Any) -> Any:
    """A line of this look for a legend alone."""
    from matplotlib.lines import Line2D

    return Line2D([], [], **look)


def marks_if_few(count: int, most: int = 1) -> dict[str, Any]:
    """Dots on a line of few points: one point alone makes no line."""
    return {"marker": "o", "markersize": 3.5} if count <= most else {}


def is_steep(values: Numbers, ratio: float = 10.0) -> bool:
    """Whether numbers, all above 0, go so many times from the lowest to the highest: a logarithmic axis shows them."""
    known = finite(values)
    return bool(len(known)) and bool(known.min() > 0 and known.max() > ratio * known.min())


def on_dark_and_light(*artists: Artist) -> None:
    """Give lines an outline, so that they are seen on every colour of a heat map."""
    from matplotlib import patheffects

    for artist in artists:
        artist.set_path_effects([patheffects.withStroke(linewidth=3.2, foreground="#000000")])


def _alone_in(axes: Axes) -> Figure | None:
    """The figure of these axes, if they are its only panel and it makes room for what stands outside of it."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = axes.get_figure(root=True)
    if figure is None or not isinstance(figure.get_layout_engine(), ConstrainedLayoutEngine):
        return None
    return figure if [one for one in figure.axes if one.get_label() != "<colorbar>"] == [axes] else None


def _plain_decades(axis: Any, low: float, high: float) -> None:
    """Ticks of a logarithmic axis as 0.001 and not as powers, whose exponents are too small to read."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    decades = math.log10(high / low) if 0 < low < high else 1.0
    steps = (1.0, 2.0, 5.0) if decades < 1.8 else (1.0, 3.0) if decades < 3 else (1.0,)
    axis.set_major_locator(LogLocator(subs=steps, numticks=7))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _plain(text: Text) -> None:
    text.set_parse_math(False)
    text.set_text("\n".join(map(printable, text.get_text().split("\n"))))
