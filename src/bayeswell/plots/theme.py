"""How pictures look: one light and one dark theme, with colours that people of every colour vision tell apart.

Lines and bars take the palette of Okabe & Ito (2008), "Color universal design", without what has too little contrast
with the background; heat maps take cividis (Nuñez et al. 2018), which also grows evenly in brightness.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ..errors import SettingError, nearest

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ThemeName = Literal["light", "dark", "auto"]

TITLE_SIZE, LABEL_SIZE, TICK_SIZE = 11.0, 10.0, 9.0
"""Points. Nothing is smaller than ticks."""

_BLUE, _SKY, _VERMILLION, _GREEN = "#0072B2", "#56B4E9", "#D55E00", "#009E73"
_PURPLE, _ORANGE, _YELLOW = "#CC79A7", "#E69F00", "#F0E442"
_STYLES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)))


@dataclass(frozen=True)
class Theme:
    """Colours of background, text, grid and data; ``palette`` in order of use."""

    name: str
    background: str
    ink: str
    muted: str
    grid: str
    palette: tuple[str, ...]
    heat: str = "cividis"

    def colour(self, index: int) -> str:
        """The colour of the index-th thing; after the last it begins again."""
        return self.palette[index % len(self.palette)]

    def line(self, index: int) -> dict[str, Any]:
        """Colour and style of the index-th line: styles change when the colours are used up."""
        style = _STYLES[(index // len(self.palette)) % len(_STYLES)]
        return {"color": self.colour(index), "linestyle": style, "linewidth": 1.7}

    def dress(self, axes: Axes) -> None:
        """Give axes, and the figure they stand in, the theme's colours and sizes."""
        figure = axes.get_figure(root=False)
        if figure is not None:
            figure.patch.set_facecolor(self.background)
            root = axes.get_figure(root=True)
            if root is not None:
                root.patch.set_facecolor(self.background)
        axes.set_facecolor(self.background)
        for side, spine in axes.spines.items():
            spine.set_color(self.muted)
            spine.set_visible(side in ("left", "bottom"))
        axes.tick_params(which="both", color=self.muted, labelcolor=self.ink, labelsize=TICK_SIZE)
        axes.grid(visible=True, color=self.grid, linewidth=0.6)
        axes.set_axisbelow(True)
        for text in (axes.xaxis.label, axes.yaxis.label, axes.title):
            text.set_color(self.ink)


_LIGHT = Theme(
    "light", background="#FFFFFF", ink="#1F2328", muted="#5F6368", grid="#E3E6E8",
    palette=(_BLUE, _VERMILLION, _GREEN, _PURPLE, "#000000", _ORANGE, _SKY),
)  # fmt: skip
_DARK = Theme(
    "dark", background="#16191D", ink="#E8EAED", muted="#A0A6AD", grid="#30353B",
    palette=(_SKY, _VERMILLION, _GREEN, _PURPLE, "#F0F0F0", _ORANGE, _YELLOW),
)  # fmt: skip
# The light theme, but no two of its colours are equal, nor equal to black or white: ``figure_to_svg`` knows each by
# itself, and leaves what a picture draws in plain black or white as it is.
_AUTO = Theme(
    "auto", background="#FFFFFE", ink="#1F2329", muted="#5F6369", grid="#E3E6E9",
    palette=("#0072B3", "#D55E01", "#009E74", "#CC79A8", "#000001", "#E69F01", "#56B4EA"),
)  # fmt: skip
THEMES: dict[str, Theme] = {theme.name: theme for theme in (_LIGHT, _DARK, _AUTO)}
"""Light, dark, and what takes the colours of the page that a figure is on, by name."""


def _colours(theme: Theme) -> dict[str, str]:
    """Every colour of a theme by the name of its variable."""
    named = {f"--plot-{name}": getattr(theme, name) for name in ("background", "ink", "muted", "grid")}
    return named | {f"--plot-{index}": colour for index, colour in enumerate(theme.palette)}


AUTO_COLOURS: dict[str, str] = {
    colour.lower(): f"var({name}, {_colours(_LIGHT)[name].lower()})" for name, colour in _colours(_AUTO).items()
}
"""What each colour of the theme ``auto`` is in an SVG: a variable of the page, or else the light theme's colour."""


def style_variables(theme: str) -> str:
    """The variables of figures of the theme ``auto``, with the colours of another, for a style sheet."""
    return " ".join(f"{name}: {colour.lower()};" for name, colour in _colours(find_theme(theme)).items())


def find_theme(name: str) -> Theme:
    """The theme of a name."""
    if name not in THEMES:
        raise SettingError(f"theme = {name!r}; {nearest(str(name), THEMES)}")
    return THEMES[name]
