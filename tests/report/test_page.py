"""A page has every section, every figure can be read without eyes, and the same folders give the same bytes."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from bayeswell.cli import main
from bayeswell.persistence import read_document, write_document
from bayeswell.report import read_runs, render_page, write_report
from bayeswell.training import RunFolder

SECTIONS = ("summary", "runs", "methods", "figures", "examples", "environment", "reproduce")


@pytest.fixture(scope="module")
def page(compared: Path) -> str:
    return (compared / "report.html").read_text(encoding="utf-8")


def test_compare_writes_a_page_with_every_section(page: str, parse: Any) -> None:
    found = parse(page)
    assert not found.open, "every element is closed"
    ids = [attributes.get("id") for _, attributes in found.tags if attributes.get("id")]
    assert len(set(ids)) == len(ids), "ids are unique"
    for name in SECTIONS:
        assert name in ids
        assert f"{name}-title" in ids
    targets = {attributes["href"][1:] for attributes in found.all("a")}
    assert targets <= set(ids)
    assert {"summary", "figures", "examples"} <= targets


def test_it_needs_nothing_from_outside(page: str, parse: Any) -> None:
    found = parse(page)
    for tag, attributes in found.tags:
        for name in ("src", "href", "xlink:href", "action", "data", "srcset"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:")), f"<{tag} {name}={value!r}>"
    assert "url(http" not in page
    assert "@import" not in page
    policy = next(each for each in found.all("meta") if each.get("http-equiv") == "Content-Security-Policy")["content"]
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]


def test_every_figure_has_a_title_and_a_text(page: str, parse: Any) -> None:
    found = parse(page)
    drawings = found.all("svg")
    assert len(drawings) == len(found.all("figure")) == len(found.all("figcaption"))
    for drawing in drawings:
        assert drawing["role"] == "img"
        assert len(drawing["aria-label"] or "") > 20
    keys = " ".join(str(attributes["id"]) for attributes in found.all("figure"))
    together = ("comparison", "training-curves", "calibration", "risk-coverage", "sharpness", "loss-line", "step-times")
    alone = ("reliability", "entropy", "ood-scores", "layers", "spectra", "std-heat-maps", "loss-plane", "examples")
    for name in (*together, *alone):
        assert f"-{name}" in keys, name


def test_the_table_has_both_errors_and_marks_the_best(page: str, compared: Path, parse: Any) -> None:
    found = parse(page)
    assert "± seeds is the standard error over seeds" in found.words
    assert "± examples is the standard error over test examples" in found.words
    assert re.search(r"±[\d.e-]+ examples", found.words)
    record = read_document(compared / "comparison.json")
    best = max(row["scores"]["accuracy"]["mean"] for row in record["rows"])
    marked = re.findall(r'<td data-value="([^"]+)" class="best">', page)
    assert any(float(value) == pytest.approx(best, rel=1e-4) for value in marked)
    for heading in (each for each in found.all("th") if "aria-sort" in each):
        assert heading["aria-sort"] == "none"
    sortable = page[page.index('<table class="sortable') :]
    assert sortable.count('aria-sort="none"') == len(
        re.findall(r'aria-sort="none"[^>]*><button type="button">', sortable)
    )


def test_methods_environment_and_commands_are_told(page: str, parse: Any) -> None:
    words = parse(page).words
    for said in (
        "Blundell et al. 2015",
        "Lakshminarayanan et al. 2017",
        "forward passes (ordinary training: 3)",
        "k-hat",
    ):
        assert said in words
    assert "posterior mean_field" in words
    assert "torch 2." in words
    assert "bayeswell train --method bbb --data digits --model mlp --model-set 'hidden=[12]'" in words
    assert "bayeswell report" in words


def test_examples_show_every_kind(page: str, parse: Any) -> None:
    data = json.loads(parse(page).scripts[0])
    assert [run["label"] for run in data["runs"]] == ["map", "bbb", "deep-ensemble"]
    bbb = data["runs"][1]
    assert {"most certain", "most uncertain", "wrong", "outside"} == {example["kind"] for example in bbb["examples"]}
    for example in bbb["examples"]:
        assert data["images"][example["image"]]["shape"] == [1, 8, 8]
        means = [sum(draw[k] for draw in example["samples"]) / len(example["samples"]) for k in range(10)]
        # The draws that are kept are those that were averaged: 6 of 6, each rounded to a thousandth.
        assert means == pytest.approx([1000 * p for p in example["probabilities"]], abs=0.51)
    assert all(example["label"] is None for example in bbb["examples"] if example["kind"] == "outside")


@pytest.mark.usefixtures("drawn_anew")
def test_the_same_folders_give_the_same_bytes(run: Path, tmp_path: Path) -> None:
    assert main(["report", str(run), "--out", str(tmp_path / "a.html"), "--quiet"]) == 0
    again = write_report([run], tmp_path / "b.html").read_bytes()
    assert (tmp_path / "a.html").read_bytes() == again


def test_two_seeds_are_one_row(run: Path, tmp_path: Path, parse: Any) -> None:
    shutil.copytree(run, tmp_path / "other")
    copy = RunFolder(tmp_path / "other")
    config, result = copy.config(), copy.result()
    config["problem"]["experiment"]["seed"] = 1
    write_document(tmp_path / "other" / "config.json", {**config, "seed": 1})
    copy.write_result({**result, "seed": 1})
    page = render_page(read_runs([run, tmp_path / "other"]))
    words = parse(page).words
    assert "mean of up to 2 seeds" in words
    assert re.search(r"±0 seeds ±[\d.e-]+ examples", words)
    assert "seeds 0, 1" in words


def test_one_run_and_a_folder_of_runs(run: Path, compared: Path, tmp_path: Path, parse: Any) -> None:
    reading = read_runs([run])
    words = parse(render_page(reading, title="Only one")).words
    assert words.startswith("Only one")
    assert "★" not in words
    parent = tmp_path / "many"
    parent.mkdir()
    for name in ("map-seed0", "bbb-seed0"):
        (parent / name).symlink_to(compared / name)
    both = read_runs([parent, compared / "map-seed0"])
    assert [run.name for run in both.runs] == ["bbb-seed0", "map-seed0"], "each run once"


def test_the_command(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    out = tmp_path / "deep" / "page.html"
    assert main(["report", str(run), "--out", str(out), "--open", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"report": str(out), "bytes": out.stat().st_size, "missing": []}
    assert opened == [out.resolve().as_uri()]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["report", "nowhere"], "there is no such folder"),
        (["report", "."], "holds neither a run"),
        (["report"], "--help"),
    ],
)
def test_bad_input(arguments: list[str], said: str, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    told = capsys.readouterr()
    assert said in told.err
    assert told.err.count("\n") == 1
    assert told.out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written(run: Path, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "file").write_text("")
    assert main(["report", str(run), "--out", str(tmp_path / "file" / "page.html")]) == 2
    assert "cannot write" in capsys.readouterr().err
