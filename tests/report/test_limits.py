"""A comparison of twenty runs: a page under 10 MB in under 20 seconds."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from bayeswell.cli import main
from bayeswell.persistence import read_document, write_document
from bayeswell.report import write_report


@pytest.mark.slow
@pytest.mark.usefixtures("drawn_anew")
def test_twenty_runs(compared: Path, tmp_path: Path, parse: Any) -> None:
    """Ten methods of two seeds, each with everything that a run of digits has. Time is that of this process's work."""
    rows = []
    for method in range(10):
        names = [f"m{method}-seed{seed}" for seed in range(2)]
        rows.append({"method": f"m{method}", "runs": names, "failed": []})
        for name in names:
            place = tmp_path / "twenty" / name
            shutil.copytree(compared / "bbb-seed0", place)
            config = read_document(place / "config.json")
            write_document(place / "config.json", {**config, "seed": int(name[-1])})
    write_document(tmp_path / "twenty" / "comparison.json", {"rows": rows})
    began = time.process_time()
    page = write_report([tmp_path / "twenty"])
    seconds = time.process_time() - began
    assert seconds < 20
    assert page.stat().st_size < 10e6
    found = parse(page.read_text(encoding="utf-8"))
    assert "10 methods on digits" in found.words
    assert "pictures of single rows are left out" in found.words
    assert found.words.count("m9-seed1") > 0


@pytest.mark.usefixtures("sketched")
def test_eight_methods(tmp_path: Path, parse: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """From nothing to the page by one command, with every section and a card, a row and pictures of each method."""
    # One picture of each row: all of them are drawn in other tests.
    monkeypatch.setattr("bayeswell.report.figures._ALL_OF", 0)
    monkeypatch.setattr("bayeswell.report.page.MOST", 8)
    monkeypatch.setattr("bayeswell.experiments.inspection.posterior.PASSES", 60)  # as in conftest.py
    methods = ["map", "bbb", "k-tied", "hwa", "swag", "sgld", "laplace", "deep-ensemble"]
    small = ["--model", "mlp", "--model-set", "hidden=[12]", "--epochs", "8", "--draws", "6"]
    out = tmp_path / "eight"
    arguments = ["compare", "--methods", ",".join(methods), "--data", "wine", "--ood", "noise", "--batch-size", "40"]
    assert main([*arguments, *small, "--quiet", "--out", str(out)]) == 0
    found = parse((out / "report.html").read_text(encoding="utf-8"))
    ids = {attributes.get("id") for _, attributes in found.tags}
    assert {"summary", "runs", "methods", "figures", "examples", "environment", "reproduce"} <= ids
    assert len(found.all("article")) == 8
    assert [run["label"] for run in json.loads(found.scripts[0])["runs"]] == methods
    for index in range(8):
        assert f"figure-t0-{index}-reliability" in ids
