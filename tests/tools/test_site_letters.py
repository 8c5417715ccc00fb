"""Letters of pictures on a phone: known heights, and a planted small one is found."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from site_letters import LEAST, letters_of_png, letters_of_svg, small_letters

ROOT = Path(__file__).parents[2]


def svg(size: float, width: float) -> str:
    return f'<svg viewBox="0 0 {width} 100"><text style="font: {size}px sans-serif">a</text></svg>'


def test_letters_shrink_with_their_picture() -> None:
    assert letters_of_svg(svg(11, 358)) == pytest.approx(11)
    assert letters_of_svg(svg(11, 716)) == pytest.approx(5.5)
    assert letters_of_svg('<svg viewBox="0 0 100 100"><path d="M 0 0"/></svg>') is None
    assert letters_of_png(358 / 72) == pytest.approx(10)


def test_small_letters_are_found_and_ours_are_not_small(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "small.svg").write_text(svg(8, 358))
    (tmp_path / "pictures" / "fair.svg").write_text(svg(9.5, 358))
    for name, width in (("wide", 8.0), ("narrow", 4.6)):
        figure = plt.figure(figsize=(width, 2))
        figure.savefig(tmp_path / "pictures" / f"{name}.png", dpi=90)
        plt.close(figure)
    assert [fault.split(": ")[1] for fault in small_letters(tmp_path)] == ["pictures/small.svg", "pictures/wide.png"]
    assert list(small_letters(ROOT / "docs")) == []
    assert LEAST == 9
