"""One small comparison with its page, and what an HTML parser finds in a page."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from bayeswell.cli import main
from bayeswell.persistence import read_document, write_document
from plots.quick_drawing import drawn_quickly  # noqa: F401 -- a fixture for all tests below
from report.drawn_once import Drawn

VOID = frozenset({"meta", "link", "input", "br", "img", "hr", "path", "use"})
SMALL = ["--model", "mlp", "--model-set", "hidden=[12]", "--epochs", "3", "--batch-size", "300", "--draws", "6"]


class Parsed(HTMLParser):
    """Tags with their attributes in order, the text of scripts, and all other text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.scripts: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif not self.open or self.open[-1] != "style":
            self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of every element of one kind."""
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def words(self) -> str:
        """All text, with single spaces."""
        return " ".join(" ".join(self.text).split())


@pytest.fixture(scope="session")
def parse() -> Callable[[str], Parsed]:
    return Parsed


def few_pictures(patch: pytest.MonkeyPatch, most: int) -> None:
    """Those of the first row before all others; and k-hat, whose value no test of the page asks for, of fewer draws."""
    patch.setattr("bayeswell.report.figures._ALL_OF", 1)
    patch.setattr("bayeswell.report.page.MOST", most)
    patch.setattr("bayeswell.experiments.inspection.posterior.PASSES", 60)


@pytest.fixture(scope="session", autouse=True)
def drawn_once() -> Iterator[Drawn]:
    """No picture is drawn twice in this folder, unless a test asks for ``drawn_anew``."""
    drawn = Drawn()
    with pytest.MonkeyPatch.context() as patch:
        for name, part in drawn.parts.items():
            patch.setattr(f"bayeswell.report.figures.{name}", part)
        yield drawn


@pytest.fixture
def drawn_anew(drawn_once: Drawn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every picture is drawn, as the library draws it."""
    for name, part in drawn_once.own.items():
        monkeypatch.setattr(f"bayeswell.report.figures.{name}", part)


@pytest.fixture
def sketched(drawn_once: Drawn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made, and what cannot be drawn raises; they are neither laid out nor written."""
    monkeypatch.setattr("bayeswell.report.figures.figure_to_svg", drawn_once.sketch)


@pytest.fixture(scope="session")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three methods on digits, noise from outside; its page was written by ``compare``."""
    folder = tmp_path_factory.mktemp("report") / "compared"
    arguments = ["compare", "--methods", "map,bbb,deep-ensemble", *SMALL, "--data", "digits", "--ood", "noise"]
    with pytest.MonkeyPatch.context() as patch:
        few_pictures(patch, 9)
        assert main([*arguments, "--quiet", "--threads", "1", "--out", str(folder)]) == 0
    return folder


@pytest.fixture(scope="session")
def curves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three methods on a curve with a gap in its inputs; its page was written by ``compare``."""
    folder = tmp_path_factory.mktemp("report") / "curves"
    arguments = ["compare", "--methods", "map,bbb,deep-ensemble", *SMALL, "--data", "gap"]
    with pytest.MonkeyPatch.context() as patch:
        few_pictures(patch, 6)
        assert main([*arguments, "--quiet", "--threads", "1", "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def run(compared: Path, tmp_path: Path) -> Path:
    """A copy of one run with few pictures, to be spoiled."""
    place = tmp_path / "run"
    shutil.copytree(compared / "bbb-seed0", place)
    record = read_document(place / "inspection.json")
    for name in ("spectra", "std_heat_maps", "loss_plane", "loss_line", "ood_scores", "sharpness", "entropy"):
        del record["records"][name]
    record["records"]["examples"]["examples"] = record["records"]["examples"]["examples"][:2]
    write_document(place / "inspection.json", record)
    (place / "newest.json").unlink()  # it says that there were more lines
    (place / "metrics.jsonl").write_text((place / "metrics.jsonl").read_text().splitlines(keepends=True)[0])
    return place
