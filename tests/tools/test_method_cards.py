"""Every method has a card; what cards say of the code is so, and what is made on them is up to date."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import write_cards
from bayeswell.methods import METHODS, find_method
from citations import WORKS, cited
from method_cards import (
    CARDS,
    SHARP,
    card_names,
    default_of,
    facts,
    method_of,
    names_of,
    page_of,
    settings_named,
)

PICTURES = Path(__file__).parents[2] / "docs" / "pictures" / "cards"
MOST_BYTES = 60_000
PARTS = ["## When it is good", "## When it is not", "## Settings worth knowing", "## Example", "## Measured"]


def test_every_method_has_one_card_and_no_card_is_left_over() -> None:
    named = [name for card in card_names() if card != SHARP for name in names_of(card)]
    assert sorted(named) == sorted(METHODS)
    assert {path.stem for path in CARDS.glob("*.md")} == {"index", *card_names()}


def test_another_name_of_a_method_shares_its_card() -> None:
    assert names_of("bbb") == ["bbb", "sgvb"]
    assert names_of("map") == ["map"]


@pytest.mark.parametrize("card", card_names())
def test_a_card_has_all_its_parts_in_order(card: str) -> None:
    text = page_of(card).read_text(encoding="utf-8")
    places = [text.index(f"\n{part}\n") for part in PARTS]
    assert places == sorted(places)
    assert write_cards.names_on(text) == ["picture", "facts", "measured"]
    idea = text.split("\n\n")[1]
    assert len(re.findall(r"[.:](?:\s|$)", idea)) >= 2, "the idea takes two sentences"
    assert re.search(r"^    \S", text, re.MULTILINE), "no equation"


@pytest.mark.parametrize("card", card_names())
def test_a_card_has_its_picture_light_and_dark(card: str) -> None:
    for theme in ("light", "dark"):
        path = PICTURES / f"{card}-{theme}.svg"
        assert path.stat().st_size < MOST_BYTES
        assert ET.parse(path).getroot().get("width") == "330"
        assert f"../pictures/cards/{path.name}#only-{theme}" in page_of(card).read_text(encoding="utf-8")


def test_no_picture_is_left_over() -> None:
    assert {path.stem.rsplit("-", 1)[0] for path in PICTURES.iterdir()} == set(card_names())


@pytest.mark.parametrize("card", card_names())
def test_every_setting_on_a_card_exists(card: str) -> None:
    text = page_of(card).read_text(encoding="utf-8")
    section = text.split("## Settings worth knowing")[1].split("\n## ")[0]
    bullets = [line for line in section.splitlines() if line.startswith("- ")]
    named = settings_named(section)
    assert len(named) >= len(bullets) > 0, "a bullet that begins with no setting"
    for name in named:
        default_of(method_of(card), name)


@pytest.mark.parametrize("setting", ["posterior.rnk", "post_hoc.structure", "stdmultiplier", "colector.start"])
def test_a_setting_that_does_not_exist_is_found(setting: str) -> None:
    with pytest.raises((AttributeError, TypeError)):
        default_of(find_method("k-tied"), setting)


@pytest.mark.parametrize("card", card_names())
def test_the_example_is_of_the_cards_method(card: str) -> None:
    text = page_of(card).read_text(encoding="utf-8")
    block = text.split("```python\n")[1].split("```")[0]
    calls = [node for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Call)]
    fits = [call for call in calls if ast.unparse(call.func) == "bw.fit"]
    assert [ast.literal_eval(call.args[2]) for call in fits] == [method_of(card).name]


def test_facts_are_those_of_the_code() -> None:
    table = facts("k-tied", "- `posterior.rank`, `temperature`: ...\n")
    assert "posterior `k_tied(rank=2)`" in table
    assert "3 forward passes, 1x ordinary training" in table
    assert '`posterior.rank` 2, `temperature` "auto"' in table
    assert "9 forward passes, 3x ordinary training" in facts("vl", "")
    assert "15 forward passes, 5x ordinary training" in facts("deep-ensemble", "")
    assert "`bbb`, `sgvb`" in facts("bbb", "")


def test_every_paper_that_a_method_cites_has_a_title_and_no_other() -> None:
    used = {one for card in card_names() for one in cited(method_of(card).paper)}
    used |= {one for method in METHODS.values() for one in cited(method.paper)}
    assert used == set(WORKS)


def test_the_gallery_and_the_choice_show_all_there_is() -> None:
    gallery = write_cards.GALLERY.read_text(encoding="utf-8")
    for card in card_names():
        assert gallery.count(f"]({card}.md)") == 2
    names = write_cards.names_on(write_cards.CHOICE.read_text(encoding="utf-8"))
    assert sorted(names) == sorted(write_cards.TABLES)


def test_what_is_made_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert write_cards.main(["--check"]) == 0, capsys.readouterr().out


def test_an_old_part_is_found_and_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "vl.md"
    page.write_text("a\n<!-- made: facts -->\nold\n<!-- made: to here -->\nb\n", encoding="utf-8")
    monkeypatch.setattr(write_cards, "pages", lambda: [page])
    monkeypatch.setattr(write_cards, "DOCS", tmp_path / "docs")
    assert write_cards.main(["--check"]) == 1
    assert "old" in page.read_text(encoding="utf-8")
    write_cards.main([])
    text = page.read_text(encoding="utf-8")
    assert text.startswith("a\n<!-- made: facts -->\n\n| name | `vl` |\n|---|---|\n")
    assert text.endswith("<!-- made: to here -->\nb\n")
    assert write_cards.main(["--check"]) == 0
