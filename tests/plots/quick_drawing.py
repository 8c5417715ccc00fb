"""Drawing without what matplotlib does again and again: a quarter of the time, and the same figures to the letter.

``test_a_svg_is_the_same_every_time`` draws without these shortcuts and compares.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from matplotlib.markers import MarkerStyle
from matplotlib.text import Text

OWN_LAYOUT, OWN_MARKER = Text._get_layout, MarkerStyle._set_marker  # type: ignore[attr-defined]
_LAYOUTS: dict[tuple[Any, ...], Any] = {}


def _layout(text: Text, renderer: Any) -> Any:
    """How large a text is, without its place: every label is measured some ten times before it is drawn."""
    own: Any = text
    if own._wrap:
        return OWN_LAYOUT(text, renderer)
    key = (
        type(text), type(renderer), own.get_figure(root=True).dpi, text.get_text(), hash(own._fontproperties),
        text.get_rotation(), own._rotation_mode, own._verticalalignment, own._horizontalalignment,
        own._linespacing, own._usetex, own._parse_math,
    )  # fmt: skip
    if key not in _LAYOUTS:
        _LAYOUTS[key] = OWN_LAYOUT(text, renderer)
    return _LAYOUTS[key]


def _marker(style: MarkerStyle, marker: Any) -> None:
    """Parts of a marker are replaced, never changed: a copy may share them. Each tick has three."""
    if isinstance(marker, MarkerStyle):
        style.__dict__ = dict(marker.__dict__)
    else:
        OWN_MARKER(style, marker)


@pytest.fixture(autouse=True, scope="module")
def drawn_quickly() -> Iterator[None]:
    """For a conftest.py: all tests of its folder draw so."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Text, "_get_layout", _layout)
        patch.setattr(MarkerStyle, "_set_marker", _marker)
        yield
