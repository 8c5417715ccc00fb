"""Nothing that a file says becomes markup or code, wherever in a run it stands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bayeswell.persistence import LineLog, read_document, write_document
from bayeswell.report import read_runs, render_page
from bayeswell.report.reading import Reading
from bayeswell.training import RunFolder

PAYLOADS = (
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "</title></style><img src=x onerror=alert(3)>",
    '" onload="alert(4)" x="',
    "' onmouseover='alert(5)",
    "<!--<script>",
    "]]><svg onload=alert(6)>",
    "{{ 7 * 191 }}{% raw %}",
    "javascript:alert(7)",
    "$\\mathrm{x}$ &lt;b&gt; \u2028 \u202e",
)
ELEMENT_NAMES = """
    html head meta title link style body a header h1 nav main section h2 h3 div table caption thead tbody tr th td
    button span small p b label input article cite dl dt dd details summary figure figcaption svg g path defs use text
    tspan rect clippath image pattern select noscript pre ul li code footer script"""
ELEMENTS = frozenset(ELEMENT_NAMES.split())


def poisoned(value: Any, payload: str) -> Any:
    """Every text of a record, keys of free tables too, with the payload behind it."""
    if isinstance(value, str):
        return value + payload
    if isinstance(value, dict):
        return {key: poisoned(part, payload) for key, part in value.items()}
    return [poisoned(part, payload) for part in value] if isinstance(value, list) else value


def fake_run(folder: Path, source: Path, payload: str) -> Path:
    """A run with the payload in its name, labels, classes, columns, layers, messages and settings."""
    name = payload.replace("/", "\u2215").replace("\0", "")[:60]
    place = folder / (name if name not in (".", "..") else "dots")
    place.mkdir(parents=True)
    config = poisoned(read_document(source / "config.json"), payload)
    config["versions"] = {f"torch{payload}": payload}
    config["method"][f"odd{payload}"] = payload
    config["problem"]["experiment"]["method"] = {"name": payload, f"key{payload}": payload}
    result = poisoned(RunFolder(source).result(), payload)
    result["stopped"] = payload
    result["chains"] = {"r_hat": 1.5, "ess": 3, "chains": payload, "warnings": [payload]}
    inspection = read_document(source / "inspection.json")
    records = inspection["records"]
    inspection["class_names"] = [f"{payload} {name}" for name in inspection["class_names"]]
    inspection["columns"] = [payload] * 3
    inspection["left_out"] = {payload: payload}
    for part in ("ood_scores", "trust", "spectra", "layers", "std_heat_maps"):
        records[part] = poisoned(records[part], payload)
    records["std_heat_maps"]["stds"] = records["std_heat_maps"]["stds"][:4]
    records["std_heat_maps"]["approximations"] = {}
    for example in records["examples"]["examples"]:
        example["kind"] += payload
        example.pop("image", None)
        example["features"] = [payload]
    for file, record in (("config.json", config), ("records.json", {payload: payload})):
        write_document(place / file, record)
    RunFolder(place).write_result(result)
    write_document(place / "inspection.json", inspection)
    LineLog(place / "metrics.jsonl").append({"epoch": 0, "nll": 1.0, f"lr.{payload}": 0.1, "kl": payload})
    return place


def require_dead(page: str, clean: Any, parse: Any) -> Any:
    """No element, attribute or script came from data."""
    found = parse(page)
    assert not found.open
    assert {tag for tag, _ in found.tags} <= ELEMENTS
    assert found.scripts[1:] == clean.scripts[1:], "the page's own script alone, to the letter"
    assert [attributes.get("type") for attributes in found.all("script")] == ["application/json", None]
    assert "<" not in found.scripts[0]
    names = {name for _, attributes in found.tags for name in attributes}
    allowed = {name for _, attributes in clean.tags for name in attributes}
    assert names <= allowed, "no attribute came from data"
    assert not [name for name in names if name.startswith("on")]
    for tag, attributes in found.tags:
        for name in ("href", "src", "xlink:href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), tag
    return found


def read(place: Path) -> Any:
    own = read_document(place / "inspection.json")
    return read_runs([place], lambda _: own)


@pytest.fixture(scope="module")
def clean(compared: Path, parse: Any) -> Any:
    return parse((compared / "report.html").read_text())


@pytest.mark.parametrize("payload", PAYLOADS)
def test_nothing_comes_alive(
    payload: str, compared: Path, clean: Any, tmp_path: Path, parse: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr("bayeswell.report.figures.TOGETHER", ())
    monkeypatch.setattr("bayeswell.report.figures.ALONE", ("nonsense",))
    reading = read(fake_run(tmp_path / "runs", compared / "bbb-seed0", payload))
    reading.missing.append(payload)
    found = require_dead(render_page(reading, [payload], title=payload), clean, parse)
    # It is shown, not dropped: as text of the page, and in the data of the examples.
    assert found.words.count(" ".join(payload.split())) > 5
    assert json.loads(found.scripts[0])["runs"][0]["classes"][0] == f"{payload} 0"


@pytest.mark.parametrize("payloads", [PAYLOADS[:3], PAYLOADS[3:7], PAYLOADS[7:]])
def test_nothing_comes_alive_in_pictures(
    payloads: tuple[str, ...], compared: Path, clean: Any, tmp_path: Path, parse: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr("bayeswell.report.figures.TOGETHER", ("training_curves", "sharpness"))
    monkeypatch.setattr("bayeswell.report.figures.ALONE", ("ood_scores", "layers", "std_heat_maps", "examples"))
    monkeypatch.setattr("bayeswell.report.figures._ALL_OF", 1)
    monkeypatch.setattr("bayeswell.report.page.MOST", 7)
    together = Reading()
    for payload in payloads:
        together.runs += read(fake_run(tmp_path / "runs", compared / "bbb-seed0", payload)).runs
    found = require_dead(render_page(together), clean, parse)
    assert len(found.all("svg")) > 5
    # Also what matplotlib wrote: the texts of the drawings hold the payload as it is.
    assert any(payloads[0][:8] in str(attributes.get("aria-label")) for attributes in found.all("svg"))


def test_a_planted_hole_is_seen(compared: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """The test above would fail for a page that does not escape."""
    from markupsafe import Markup

    monkeypatch.setattr("bayeswell.report.figures.TOGETHER", ())
    monkeypatch.setattr("bayeswell.report.figures.ALONE", ())
    reading = read(fake_run(tmp_path / "runs", compared / "bbb-seed0", PAYLOADS[2]))
    page = render_page(reading, title=Markup(PAYLOADS[2]))
    assert "img" in {name for name, _ in _loose(page)}


def _loose(page: str) -> list[tuple[str, Any]]:
    from html.parser import HTMLParser

    class Tags(HTMLParser):
        found: list[tuple[str, Any]]

        def handle_starttag(self, tag: str, attrs: Any) -> None:
            self.found.append((tag, attrs))

    parser = Tags()
    parser.found = []
    parser.feed(page)
    return parser.found
