"""Figures as text: SVG to stand in a page, PNG as a data address; the same figure gives the same bytes."""

from __future__ import annotations

import base64
import io
import re
import warnings
from html import escape
from typing import Any

from ..errors import SettingError
from .canvas import Figure, printable, require_matplotlib
from .theme import AUTO_COLOURS

_DPI = 144
_RASTER_DPI = 110
"""Of what is drawn as pixels within an SVG: many dots, cells of a heat map."""

_SETTINGS: Any = {
    "svg.hashsalt": "bayeswell",
    "svg.fonttype": "none",  # texts stay texts: small, sharp, and found by a search
    "svg.image_inline": True,
    # Verdana is as wide as DejaVu Sans, so that nothing overlaps where the latter is missing.
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"],
}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_TAG = re.compile(r"<[^<>]*>")
_ID = re.compile(r' id="([^"]*)"')
_USE = re.compile(r'(url\(#|href="#)([^")]*)')
_PLACES = re.compile(r'( (?:d|x|y)=")([^"]*)')
_LONG_NUMBER = re.compile(r"\d+\.\d{3,}")
_COLOUR = re.compile(r"((?:fill|stroke): )(#[0-9a-f]{6})(?![0-9a-f])")
_NO_TURN = re.compile(r' transform="rotate\(-0 [^"]*"')
_FONT = "font-family: 'DejaVu Sans', 'Verdana', sans-serif"


def figure_to_svg(figure: Figure, *, name: str = "figure", alt: str | None = None) -> str:
    """An ``<svg>`` element that needs nothing else: no header, script, style sheet, link, date or random id.

    ``name`` goes before its ids, so that several stand in one page. ``alt`` is what a screen reader says. Colours of
    the theme ``auto`` become variables of the page (``style_variables``), so that one drawing is light and dark.
    """
    require_matplotlib()
    if not _NAME.fullmatch(name):
        raise SettingError(f"figure_to_svg: name = {name!r}; it must be letters, digits and -, a letter first")
    buffer = io.StringIO()
    _save(figure, buffer, format="svg", dpi=_RASTER_DPI, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, count=1, flags=re.DOTALL)
    # A style sheet inside a page would reach the whole page; on the root it reaches this figure alone.
    text = re.sub(r"<defs>\s*<style[^>]*>[^<]*</style>\s*</defs>\s*", "", text, count=1)
    used = {found[1] for tag in _TAG.findall(text) for found in _USE.findall(tag)}
    # Only tags are touched: matplotlib writes < and > inside texts as entities, so a tag is what stands between them.
    text = _TAG.sub(lambda tag: _slim(_with_own_ids(tag.group(), used, name)), text)
    # Breaks and indents between tags only: those inside a text are part of it.
    text = re.sub(r">\s+<", ">\n<", text)
    label = "" if alt is None else f' role="img" aria-label="{escape(printable(alt))}"'
    style = f"stroke-linejoin: round; stroke-linecap: butt; {_FONT}"
    return text.replace("<svg", f'<svg{label} style="{style}"', 1).strip()


def figure_to_png_data_uri(figure: Figure, *, dpi: float = _DPI) -> str:
    """``data:image/png;base64,...``"""
    require_matplotlib()
    buffer = io.BytesIO()
    _save(figure, buffer, format="png", dpi=dpi, metadata={"Software": None})
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def _save(figure: Figure, target: Any, **options: Any) -> None:
    from matplotlib import rc_context

    with rc_context(_SETTINGS), warnings.catch_warnings():
        # A letter that the font has not got is drawn as a box; in SVG the reader's own fonts may have it.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
        # Too little room for the texts: what is drawn may overlap, but it is drawn.
        warnings.filterwarnings("ignore", message=r"constrained_layout not applied")
        figure.savefig(target, **options)


def _with_own_ids(tag: str, used: set[str], name: str) -> str:
    """Ids that something refers to get the name in front, all others go."""
    tag = _ID.sub(lambda found: f' id="{name}-{found.group(1)}"' if found.group(1) in used else "", tag)
    return _USE.sub(lambda found: f"{found.group(1)}{name}-{found.group(2)}", tag)


def _slim(tag: str) -> str:
    """Hundredths of a point are enough, and the font is said once."""
    tag = _NO_TURN.sub("", tag).replace(f"{_FONT}; ", "")
    tag = re.sub(r' fill="(#[0-9a-f]{6})"', r' style="fill: \1"', tag)  # a variable is none of an attribute
    tag = _COLOUR.sub(lambda found: found.group(1) + AUTO_COLOURS.get(found.group(2), found.group(2)), tag)
    return _PLACES.sub(lambda found: found.group(1) + _LONG_NUMBER.sub(_rounded, " ".join(found.group(2).split())), tag)


def _rounded(number: re.Match[str]) -> str:
    return f"{float(number.group()):.2f}".rstrip("0").rstrip(".")
