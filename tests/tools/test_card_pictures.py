"""The pictures of the cards: what is drawn is what the method predicts, and small files show the same."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "pictures" / "cards.py"


@pytest.fixture(scope="module")
def cards() -> Any:
    pytest.importorskip("matplotlib")
    spec = importlib.util.spec_from_file_location("card_pictures", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_a_point_has_the_known_noise_and_nothing_else(cards: Any, tmp_path: Path) -> None:
    reference = cards.read_reference("regression")
    found = cards.posterior(reference, "map", epochs=2)
    np.testing.assert_array_equal(found.epistemic, 0.0)
    np.testing.assert_allclose(found.total, 0.15, rtol=1e-6)
    np.testing.assert_allclose(found.functions, found.mean[None], rtol=1e-6)
    paths = [tmp_path / "one.svg", tmp_path / "two.svg"]
    for path in paths:
        cards.draw(reference, "map", [("above", found), ("below", found)], cards.find_theme("dark"), path)
        texts = {text.text for text in ET.parse(path).iter() if text.tag.endswith("text")}
        assert {"map", "above", "below", "NUTS ± 2 std", "± 2 std, epistemic"} <= texts
    assert len(paths[0].read_bytes()) == len(paths[1].read_bytes())


def test_small_keeps_curves_and_styles(cards: Any) -> None:
    marks = (
        '<use href="#m" x="1.26" y="2.0" style="fill: red"/>\n<use href="#m" x="3.14159" y="4" style="fill: red"/>\n'
    )
    svg = (
        '<svg width="302.4pt" height="374.4pt"><metadata>a date</metadata>'
        '<path d="M 1.26 2.04\nL 3.0 4.0\nL 5 6 z"/><path d="M 1 2 Q 3 4 5 6 L 7 8"/>'
        f'<g id="line">\n{marks}</g></svg>'
    )
    made = cards.small(svg)
    assert 'd="M 1.2 2.0 3.0 4.0 5 6 z"' in made
    assert 'd="M 1 2 Q 3 4 5 6 L 7 8"' in made
    assert '<g id="line" style="fill: red">' in made
    assert made.count("fill: red") == 1
    assert "metadata" not in made
    assert '<svg width="330">' in made
