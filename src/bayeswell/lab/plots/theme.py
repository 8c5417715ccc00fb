"""Look of all plots: a light and a dark theme, axes without pyplot, and figures as SVG.

Lines take the palette of Okabe & Ito (2008), which readers of every color vision can distinguish; heat maps take
cividis (Nuñez et al. 2018).
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...core.errors import MissingExtra, check_choice

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 4.8, 3.2
"""Inches of a single panel; at 340 pixels, as on a phone, its smallest text is 9 pixels high."""
TITLE, LABEL, TICK = 11.0, 10.0, 9.0
LONGEST = 34
HEAT = "cividis"
SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"

_STYLES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)))
# XML cannot hold these characters.
_UNPRINTABLE = re.compile("[^\u0020-\u007e\u00a0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Theme:
    """Colors of background, text, grid and data; ``palette`` in order of use."""

    background: str
    ink: str
    muted: str
    grid: str
    palette: tuple[str, ...]

    def color(self, index: int) -> str:
        return self.palette[index % len(self.palette)]

    def line(self, index: int) -> dict[str, Any]:
        """Color and style of a line; the style changes when all colors are used."""
        style = _STYLES[index // len(self.palette) % len(_STYLES)]
        return {"color": self.color(index), "linestyle": style, "linewidth": 1.7}

    def variables(self) -> str:
        """Return the colors as CSS variables, for figures of ``to_svg``."""
        return " ".join(f"{name}: {color};" for name, color in zip(_NAMES, _colors(self), strict=True))


THEMES = {
    "light": Theme(
        background="#fffffe",
        ink="#1f2328",
        muted="#5f6368",
        grid="#e3e6e8",
        palette=("#0072b2", "#d55e00", "#009e73", "#b8578f", "#000001", "#e69f00", "#56b4e9"),
    ),
    "dark": Theme(
        background="#16191d",
        ink="#e8eaed",
        muted="#a0a6ad",
        grid="#30353b",
        palette=("#56b4e9", "#ff8c42", "#2ec4a0", "#e08fc0", "#f0f0f0", "#e69f00", "#f0e442"),
    ),
}
_NAMES = ("--paper", "--ink", "--muted", "--grid", *(f"--line-{index}" for index in range(7)))


@dataclass(frozen=True)
class Panel:
    """Axes in a theme; ``owns_figure`` if the figure was made for them."""

    axes: Axes
    theme: Theme
    owns_figure: bool = False

    @property
    def figure(self) -> Figure:
        found = self.axes.get_figure(root=True)
        assert found is not None
        return found

    def reference(self, *, x: float | None = None, y: float | None = None) -> None:
        """Draw a thin line at a value that means something, such as 0 or 1."""
        look: dict[str, Any] = {"color": self.theme.muted, "linewidth": 1, "linestyle": (0, (4, 3)), "zorder": 1}
        if x is not None:
            self.axes.axvline(x, **look)
        if y is not None:
            self.axes.axhline(y, **look)

    def rows(self, names: Sequence[str], size: float = TICK) -> None:
        """Write a name at the left of each row, the first at the top."""
        self.axes.set_yticks(range(len(names)), [shorten(name) for name in names], fontsize=size)
        self.axes.set_ylim(len(names) - 0.4, -0.6)

    def log_scale(self, *, x: bool = False, y: bool = False) -> None:
        """Use logarithmic axes, with plain numbers as labels."""
        for wanted, name in ((x, "x"), (y, "y")):
            if wanted:
                self.axes.set(**{f"{name}scale": "log"})
                low, high = sorted(getattr(self.axes, f"get_{name}lim")())
                _plain_decades(getattr(self.axes, f"{name}axis"), low, high)

    def legend(self, entries: Sequence[tuple[Any, str]]) -> None:
        """Write handles and labels inside the axes, or below the figure where there are more than three."""
        labels = [shorten(label) for _, label in entries]
        look: dict[str, Any] = {"fontsize": TICK, "labelcolor": self.theme.ink, "facecolor": self.theme.background}
        look |= {"edgecolor": "none", "framealpha": 0.8, "handlelength": 2.2}
        handles = [handle for handle, _ in entries]
        if len(entries) <= 3 or not self.owns_figure:
            self.axes.legend(handles, labels, loc="best", **look)
            return
        columns = max(
            1, min(4, len(labels), int(72 * self.figure.get_figwidth() // (5.4 * max(map(len, labels)) + 36)))
        )
        self.figure.legend(handles, labels, loc="outside lower center", ncols=columns, columnspacing=1.2, **look)

    def finished(self) -> Figure:
        """Return the figure; every text in it is shown as it is, never read as a formula."""
        from matplotlib.text import Text

        for text in self.figure.findobj(Text):
            text.set_parse_math(False)
            text.set_text(_UNPRINTABLE.sub("\ufffd", text.get_text().replace("\n", " ")))
        return self.figure


def open_panel(
    ax: Axes | None, theme: str, title: str, x: str = "", y: str = "", size: tuple[float, float] = (WIDTH, HEIGHT)
) -> Panel:
    """Return the given axes, or those of a new figure, in the colors of a theme."""
    axes = new_figure(size).add_subplot() if ax is None else ax
    return dress(axes, theme, title, x, y, owns_figure=ax is None)


def open_row(ax: Sequence[Axes] | Axes | None, theme: str, titles: Sequence[str], x: str, y: str) -> list[Panel]:
    """Return one panel for each title beside each other, with a common y axis."""
    if ax is None:
        count = len(titles)
        width = WIDTH if count == 1 else 0.75 * WIDTH * count
        found = list(new_figure((width, HEIGHT)).subplots(1, count, sharey=True, squeeze=False).flat)
    else:
        found = list(ax) if isinstance(ax, Sequence) else [ax]
    return [
        dress(axes, theme, title, x, "" if index else y, owns_figure=ax is None)
        for index, (axes, title) in enumerate(zip(found, titles, strict=True))
    ]


def new_figure(size: tuple[float, float]) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra('plots need matplotlib; install it with: pip install "bayeswell[lab]"') from error
    return Figure(figsize=size, layout="constrained")


def dress(axes: Axes, theme: str, title: str, x: str, y: str, *, owns_figure: bool) -> Panel:
    """Give axes and their figure the colors of a theme, a title and labels."""
    chosen = THEMES[check_choice("plot", "theme", theme, THEMES)]
    panel = Panel(axes, chosen, owns_figure)
    panel.figure.patch.set_facecolor(chosen.background)
    axes.set_facecolor(chosen.background)
    for side, spine in axes.spines.items():
        spine.set_color(chosen.muted)
        spine.set_visible(side in ("left", "bottom"))
    axes.tick_params(which="both", color=chosen.muted, labelcolor=chosen.ink, labelsize=TICK)
    axes.grid(visible=True, color=chosen.grid, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_title(shorten(title, 60), loc="left", fontsize=TITLE, color=chosen.ink)
    axes.set_xlabel(x, fontsize=LABEL, color=chosen.ink)
    axes.set_ylabel(y, fontsize=LABEL, color=chosen.ink)
    return panel


def shorten(text: object, longest: int = LONGEST) -> str:
    """Return a text of one line, with an ellipsis in its middle if it is long."""
    line = " ".join(str(text).split())
    half = (longest - 1) // 2
    return line if len(line) <= longest else f"{line[:half]}…{line[-half:]}"


def to_svg(figure: Figure, key: str, label: str) -> str:
    """Return a light figure as an SVG element whose colors are the CSS variables of ``Theme.variables``.

    Args:
        figure: made with ``theme="light"``.
        key: distinguishes the element ids of several figures on one page.
        label: read by screen readers.
    """
    import matplotlib

    stream = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": key}):
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None, "Title": label})
    svg = stream.getvalue()
    svg = svg[svg.index("<svg") :]
    for pattern in (r"<metadata>.*?</metadata>", r"<style.*?</style>", r'(?<=<g) id="[^"]*"', r"\n *"):
        svg = re.sub(pattern, "\n" if pattern.startswith("\\n") else "", svg, flags=re.DOTALL)
    for name, color in zip(_NAMES, _colors(THEMES["light"]), strict=True):
        svg = svg.replace(color, f"var({name})")
    box = re.search(r'viewBox="[^"]*"', svg)
    assert box is not None
    head = f'<svg role="img" stroke-linejoin="round" xmlns:xlink="{XLINK}" xmlns="{SVG}" {box.group()}'
    return f"{head}{svg[svg.index('>') :]}"


def _colors(theme: Theme) -> tuple[str, ...]:
    return (theme.background, theme.ink, theme.muted, theme.grid, *theme.palette)


def _plain_decades(axis: Any, low: float, high: float) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    decades = math.log10(high / low) if 0 < low < high else 1.0
    steps = (1.0, 2.0, 5.0) if decades < 1.8 else (1.0, 3.0) if decades < 3 else (1.0,)
    axis.set_major_locator(LogLocator(subs=steps, numticks=7))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
