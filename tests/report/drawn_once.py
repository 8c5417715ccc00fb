"""Pictures of a page that are drawn once: the same record under the same name gives the same picture every time.

That it does is tested with the plots (``test_a_svg_is_the_same_every_time``). The pages of these tests are mostly of
one comparison, more or less spoiled, and drawing is most of the time that a page takes.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from html import escape
from typing import Any

from bayeswell.plots.registry import Plot, Plots
from bayeswell.report import figures


@dataclass(frozen=True)
class Undrawn:
    """A figure that is drawn when its text is wanted and not there yet."""

    plot: Plot
    record: Any
    theme: Any


@dataclass(frozen=True)
class Deferred(Plot):
    """A plot whose figures wait."""

    def draw(self, record: Any, theme: Any = "light") -> Any:
        return Undrawn(Plot(**vars(self)), record, theme)


class Drawn:
    """What stands in ``bayeswell.report.figures`` for drawing, with all that it has drawn."""

    def __init__(self) -> None:
        plots = Plots({name: Deferred(**vars(plot)) for name, plot in figures.PLOTS.items()})
        self.parts = {"PLOTS": plots, "_laid_out": lambda figure: figure, "figure_to_svg": self.figure_to_svg}
        self.own = {name: getattr(figures, name) for name in self.parts}
        self._texts: dict[tuple[Any, ...], str] = {}

    def figure_to_svg(self, figure: Undrawn, *, name: str, alt: str) -> str:
        """As the library's; what cannot be drawn raises each time."""
        key = (figure.plot.name, figure.theme, name, alt, pickle.dumps(figure.record))
        if key not in self._texts:
            drawn = self.own["_laid_out"](figure.plot.draw(figure.record, figure.theme))
            self._texts[key] = self.own["figure_to_svg"](drawn, name=name, alt=alt)
        return self._texts[key]

    def sketch(self, figure: Undrawn, *, name: str, alt: str) -> str:
        """An empty drawing, for tests of pages that ask whether there is one and not how it looks."""
        figure.plot.draw(figure.record, figure.theme)
        return f'<svg role="img" id="{name}" aria-label="{escape(alt)}"></svg>'
