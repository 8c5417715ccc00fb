"""The look at the built site finds what is planted: a name left out, another host, a wide element, a lost picture."""

from __future__ import annotations

from pathlib import Path

import pytest

from check_site import CHROMIUM, INNER_ROOMS, PUBLIC_ROOMS, browser_faults, missing_names, outside_hosts, public_names
from site_hooks import turned

ROOT = Path(__file__).parents[2]


def test_every_room_with_public_names_is_told_apart() -> None:
    """A new room is either public, and then in the reference, or not."""
    rooms = {
        path.parent.name
        for path in (ROOT / "src" / "bayeswell").glob("*/__init__.py")
        if "__all__" in path.read_text(encoding="utf-8")
    }
    assert rooms == {*PUBLIC_ROOMS, *INNER_ROOMS}
    assert not set(PUBLIC_ROOMS) & set(INNER_ROOMS)


def test_a_name_without_an_entry_is_found() -> None:
    names = {name for name, _ in public_names()}
    assert missing_names(names) == []
    # `bayeswell.fit` and `bayeswell.training.fit` are one thing: one entry is enough, none is not.
    assert missing_names(names - {"bayeswell.training.fit"}) == []
    assert missing_names(names - {"bayeswell.training.fit", "bayeswell.fit"}) == [
        "no entry in the reference: bayeswell.fit",
        "no entry in the reference: bayeswell.training.fit",
    ]
    # Words that are equal are not one thing.
    assert missing_names(names - {"bayeswell.types.MEAN"}) == ["no entry in the reference: bayeswell.types.MEAN"]


def test_a_private_name_in_the_reference_is_found() -> None:
    names = {name for name, _ in public_names()}
    assert missing_names(names | {"bayeswell.Result._state"}) == [
        "a private name in the reference: bayeswell.Result._state"
    ]
    assert missing_names(names | {"bayeswell.ELBO.__call__"}) == []


def test_every_entry_of_the_pages_is_a_public_name() -> None:
    """What the reference asks for is what users may import; the site itself is compared by ``make docs``."""
    pages = (ROOT / "docs" / "reference").glob("*.md")
    lines = [line for page in pages for line in page.read_text(encoding="utf-8").splitlines()]
    entries = [line.removeprefix("::: ") for line in lines if line.startswith("::: ")]
    assert len(entries) == len(set(entries))
    beside = {"bayeswell", "bayeswell.integrations.lightning.Collect", "bayeswell.integrations.lightning.progress_of"}
    assert set(entries) - {name for name, _ in public_names()} == beside
    assert missing_names(set(entries)) == []


BONES = (
    "<!doctype html><html><head><link rel='canonical' href='https://example.org/'></head><body>"
    "<div class='md-content'><a href='https://example.org/'>a link</a>"
    "<div style='overflow-x: auto'><table><tr><td><div style='width: 900px'>wide</div></td></tr></table></div>"
    "</div>"
    "<input class='md-search__input'><ol><li class='md-search-result__item'><a href='x.html'></a></li></ol>"
    "</body></html>"
)
"""Of a page of the theme, with a search that finds at once."""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    plant(tmp_path, "")
    return tmp_path


def plant(site: Path, what: str, name: str = "index.html") -> None:
    (site / name).write_text(BONES.replace("<div class='md-content'>", f"<div class='md-content'>{what}"))


def test_links_are_not_loaded(site: Path) -> None:
    assert list(outside_hosts(site)) == []


@pytest.mark.parametrize(
    "what",
    [
        "<script src='https://example.org/x.js'></script>",
        "<img src='//example.org/x.png'>",
        "<link rel='stylesheet' href='https://example.org/x.css'>",
    ],
)
def test_another_host_is_found(site: Path, what: str) -> None:
    plant(site, what)
    (fault,) = outside_hosts(site)
    assert "index.html loads" in fault
    assert "example.org/x" in fault


def test_another_host_in_a_style_is_found(site: Path) -> None:
    (site / "x.css").write_text("@font-face { src: url('https://example.org/x.woff2'); }")
    assert list(outside_hosts(site)) == ["x.css loads https://example.org/x.woff2"]


PLANTED = [
    ("", ""),
    ("<p style='width: 500px'>too wide</p>", "p reaches to"),
    ("<img src='lost.png' width=10 height=10>", "no picture at lost.png"),
    ("<script>fetch('http://127.0.0.1:9/x').catch(() => 0)</script>", "loads http://127.0.0.1:9/x"),
    ("<style>.md-search-result__item a { display: none }</style><script>"
     "addEventListener('load', () => document.querySelector('ol').remove())</script>", "finds nothing for 'word'"),
]  # fmt: skip


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What is found on a page with each of them. A browser takes a second to start: all are seen on two tours."""
    assert CHROMIUM is not None
    site = tmp_path_factory.mktemp("site")
    pages = {what: f"page{number}.html" for number, (what, _) in enumerate(PLANTED)}
    for what, page in pages.items():
        plant(site, what, page)
    found: dict[str, list[str]] = {what: [] for what in pages}
    *others, blind = pages
    for tour in (others, [blind]):  # the search is tried from the first page of each
        for fault in browser_faults(site, [pages[what] for what in tour], "word", CHROMIUM):
            of = [what for what in tour if fault.startswith(pages[what])] or tour[:1]
            found[of[0]].append(fault)
        assert sorted(path.name for path in site.iterdir()) == sorted(pages.values()), "nothing is left behind"
    return found


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
@pytest.mark.parametrize(("what", "words"), PLANTED)
def test_a_browser_sees_what_is_wrong(seen: dict[str, list[str]], what: str, words: str) -> None:
    assert bool(seen[what]) == bool(words), seen
    assert all(words in fault or "the page is" in fault for fault in seen[what]), seen


def test_links_of_the_repository_become_links_of_the_site() -> None:
    page = "See [own parts](docs/own_parts.md#a-prior), [changes](CHANGELOG.md) and [elsewhere](https://example.org/x)."
    assert turned(page, "CONTRIBUTING.md", "project/contributing.md") == (
        "See [own parts](../own_parts.md#a-prior), [changes](changelog.md) and [elsewhere](https://example.org/x)."
    )
    assert turned("[why](../benchmarks/README.md)", "docs/speed.md", "speed.md") == "[why](project/benchmarks.md)"
    assert turned("[data](../data.md)", "docs/reference/x.md", "reference/x.md") == "[data](../data.md)"
