"""Broken, partial and foreign folders: the page says what is missing and shows the rest."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bayeswell.cli import main
from bayeswell.persistence import LineLog, read_document, write_document
from bayeswell.report import read_runs, render_page
from bayeswell.report.figures import pictures_of
from bayeswell.report.summary import tables_of


def cut(name: str) -> Callable[[Path], None]:
    def spoil(run: Path) -> None:
        data = (run / name).read_bytes()
        (run / name).write_bytes(data[: len(data) // 2])

    return spoil


def gone(name: str) -> Callable[[Path], None]:
    return lambda run: shutil.rmtree(run / name) if (run / name).is_dir() else (run / name).unlink()


def put(name: str, text: str) -> Callable[[Path], None]:
    return lambda run: (run / name).write_text(text) and None


def foreign(run: Path) -> None:
    record = read_document(run / "config.json")
    write_document(run / "config.json", {**record, "problem": {}})


def odd_image(run: Path) -> None:
    record = read_document(run / "inspection.json")
    record["records"]["examples"]["examples"][0]["image"]["shape"] = [1, 10**9, 10**9]
    write_document(run / "inspection.json", record)


def odd_records(run: Path) -> None:
    record = read_document(run / "inspection.json")
    record["records"] |= {"spectra": 3, "layers": {"layers": "x"}, "reliability": {"low": [1]}, "entropy": [1, 2]}
    record["records"] |= {
        "examples": {"kind": "classes", "examples": [{"kind": 1}, 7]},
        "trust": "no",
        "truncation": [1],
    }
    record["metrics"] |= {"accuracy": "high", "nll": None}
    write_document(run / "inspection.json", record)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (gone("result.json"), "result.json is not there (the run is not finished)"),
        (cut("result.json"), "result.json"),
        (gone("config.json"), "config.json is not there"),
        (cut("config.json"), "config.json"),
        (put("config.json", "[]"), "config.json"),
        (gone("metrics.jsonl"), "metrics.jsonl is not there"),
        (put("metrics.jsonl", "nonsense\n"), "metrics.jsonl"),
        (put("records.json", '{"spectra": 5, "snr": {"x": 1}}'), "no picture 'spectra'"),
        (foreign, "begun by `fit` in a program"),
        (odd_image, "no picture 'examples'"),
        (odd_records, "no picture 'reliability'"),
    ],
)
def test_the_rest_is_shown(run: Path, spoil: Any, said: str, parse: Any) -> None:
    spoil(run)
    found = parse(render_page(read_runs([run])))
    assert not found.open
    assert said in found.words
    assert "What is missing" in found.words


@pytest.mark.usefixtures("sketched")
def test_a_model_that_cannot_be_loaded(run: Path, tmp_path: Path, capsys: Any, parse: Any) -> None:
    whole = tmp_path / "whole"
    shutil.copytree(run, whole)
    gone("inspection.json")(run)
    cut("model/tensors.safetensors")(run)
    out = tmp_path / "page.html"
    assert main(["report", str(run), str(whole), "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert sum(line.startswith("warning: ") and "could not be measured" in line for line in said.err.splitlines()) == 1
    words = parse(out.read_text()).words
    assert "its model could not be measured" in words
    assert "k-hat" in words


def test_an_inspection_of_another_model_is_not_believed(run: Path, compared: Path) -> None:
    shutil.rmtree(run / "model")
    shutil.copytree(compared / "map-seed0" / "model", run / "model")
    (found,) = read_runs([run]).runs
    assert found.inspection == {}
    assert found.missing == ["its model has not been measured"]


@pytest.mark.usefixtures("sketched")
def test_a_comparison_that_names_what_is_not_there(run: Path, compared: Path, tmp_path: Path, parse: Any) -> None:
    record = read_document(compared / "comparison.json")
    record["rows"][0]["runs"] = ["../../etc", "lost-seed0", 5]
    record["rows"][0]["failed"] = [{"run": "wild-seed0", "error": "it ran away"}, "odd"]
    folder = tmp_path / "copy"
    shutil.copytree(run, folder / "bbb-seed0")
    write_document(folder / "comparison.json", record)
    reading = read_runs([folder])
    assert [run.name for run in reading.runs] == ["bbb-seed0"]
    words = parse(render_page(reading)).words
    assert "the run failed: it ran away" in words
    assert "lost-seed0: the run that comparison.json names is not there" in words
    assert "etc: the run that" in words


@pytest.mark.usefixtures("sketched")
@pytest.mark.filterwarnings("ignore:.*result.json' has no seal:bayeswell.BayeswellWarning")  # it lay beside it
@pytest.mark.parametrize("name", ["config.json", "result.json", "metrics.jsonl", "inspection.json"])
def test_a_folder_with_one_file_of_a_run_is_told_of(run: Path, tmp_path: Path, name: str, parse: Any) -> None:
    place = tmp_path / "all" / "remains"
    place.mkdir(parents=True)
    shutil.copy(run / name, place / name)
    (tmp_path / "all" / "notes").mkdir()
    for path in (place, tmp_path / "all"):
        reading = read_runs([path])
        assert [found.name for found in reading.runs] == ["remains"]
        assert reading.missing == []
        words = parse(render_page(reading)).words
        for other in {"config.json", "result.json", "metrics.jsonl"} - {name}:
            assert f"{other} is not there" in words


@pytest.mark.usefixtures("sketched")
def test_one_bad_record_leaves_the_picture_to_the_others(compared: Path, tmp_path: Path) -> None:
    """Drawn together, named by who is in them: a picture without the bad run, and a line that says so."""
    for label in ("map", "bbb", "deep-ensemble"):
        shutil.copytree(compared / f"{label}-seed0", tmp_path / "c" / label)
    bad = tmp_path / "c" / "bbb"
    record = read_document(bad / "inspection.json")
    record["records"] |= {"risk_coverage": {"coverage": [0.5], "risk": "high"}, "loss_line": 7}
    write_document(bad / "inspection.json", record)
    (bad / "newest.json").unlink()
    LineLog(bad / "metrics.jsonl").append({"nll": 1.5})
    (table,) = tables_of(read_runs([tmp_path / "c"]).runs)
    found = pictures_of(table, "t0", most=0)
    for name in ("risk_coverage", "loss_line", "training_curves"):
        (picture,) = [one for one in found.together if one.key == "t0-" + name.replace("_", "-")]
        assert all(label in picture.alt for label in ("map", "deep-ensemble")), picture.alt
        assert "bbb" not in picture.alt
        (note,) = [note for note in found.notes if f"'{name}'" in note]
        assert note.startswith("bbb: not in the picture")
    (whole,) = [one for one in found.together if one.key == "t0-calibration"]
    assert "bbb" in whole.alt


def test_a_damaged_comparison_still_has_its_runs(compared: Path, tmp_path: Path) -> None:
    shutil.copytree(compared / "bbb-seed0", tmp_path / "c" / "bbb-seed0")
    (tmp_path / "c" / "comparison.json").write_text('{"rows": 3')
    reading = read_runs([tmp_path / "c"])
    assert [run.name for run in reading.runs] == ["bbb-seed0"]
    assert "comparison.json" in reading.missing[0]
