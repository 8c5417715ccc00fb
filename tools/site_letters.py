"""How high the letters of a picture are on a phone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

SHOWN = 358
"""Pixels that a picture has on a screen of 390: the page keeps 16 on either side."""
LEAST = 9.0
POINTS_PER_INCH = 72
PLAIN_POINTS = 10.0
"""What matplotlib takes by itself: a PNG does not say how high its letters were drawn, only how wide it is."""
_FONT = re.compile(r"font(?:-size)?:(?:[^;\"']*?\s)?([\d.]+)px")


def letters_of_svg(text: str) -> float | None:
    """The height in pixels of the smallest letters, shown as wide as a phone can; None without any."""
    width = re.search(r'viewBox="0 0 ([\d.]+) ', text)
    sizes = [float(size) for size in _FONT.findall(text)]
    if width is None or not sizes or "<text" not in text:
        return None
    return min(sizes) * SHOWN / float(width[1])


def letters_of_png(inches: float) -> float:
    """The height in pixels of letters of ``PLAIN_POINTS`` in a figure that is so wide."""
    return PLAIN_POINTS * SHOWN / (POINTS_PER_INCH * inches)


def small_letters(site: Path) -> Iterator[str]:
    """Pictures whose letters would be lower than ``LEAST`` pixels on a phone."""
    from PIL import Image

    for file in sorted(file for folder in site.rglob("pictures") for file in folder.rglob("*.*")):
        found = None
        if file.suffix == ".svg":
            found = letters_of_svg(file.read_text(encoding="utf-8"))
        elif file.suffix == ".png":
            with Image.open(file) as picture:
                dots = float(picture.info.get("dpi", (100.0,))[0])
                found = letters_of_png(picture.width / dots)
        if found is not None and found < LEAST:
            yield f"letters of {found:.1f} pixels on a phone: {file.relative_to(site)}"
