"""Settings that were refused, or ended in a traceback: where, settings without names, plateaus, two classes, knobs."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SMALL = ["--model", "mlp", "--model-set", "hidden=[5]", "-e", "2", "-b", "60", "--draws", "3", "-q"]

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        ("plateau=x", "plateau = 'x'; give a metric for each group"),
        ("plateau.means=nl", "metric = 'nl'; did you mean 'nll'"),
        ("std_multiplier=a", "std_multiplier = 'a'; it must be a number"),
        ("kl_weight=geometrc", "did you mean 'geometric'"),
        ("clip_norm=a", "clip_norm = 'a'; it must be a number"),
    ],
)
def test_a_wrong_setting_of_a_method_is_one_line(bayeswell: Any, tmp_path: Path, pair: str, said: str) -> None:
    found = bayeswell("train", "-d", "wine", "-m", "bbb", *SMALL, "--set", pair, "--out", tmp_path / "run")
    assert found.code == 2
    assert said in found.err
    assert "fault of bayeswell" not in found.err
    assert not (tmp_path / "run").exists()


def test_settings_of_parts_reach_the_run(bayeswell: Any, tmp_path: Path) -> None:
    words = ["--set", "kl_weight=geometric", "--set", "plateau.means=nll", "--where", "last_layer"]
    found = bayeswell("train", "-d", "wine", "-m", "bbb", *SMALL, *words, "--out", tmp_path / "run")
    assert found.code == 0, found.err
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["where"] == "last_layer"
    assert config["method"]["kl_weight"] == "geometric"
    assert config["method"]["plateau"] == {"means": "nll"}
    record = json.loads((tmp_path / "run" / "model" / "record.json").read_text())
    assert [site["names"] for site in record["sites"]] == [["dense2.weight"], ["dense2.bias"]]


def test_where_takes_names_of_layers_and_refuses_others(bayeswell: Any, tmp_path: Path) -> None:
    words = ["train", "-d", "wine", "-m", "bbb", *SMALL, "--out", tmp_path / "run"]
    found = bayeswell(*words, "--where", "nowhere*,last_layer")
    assert found.code == 2
    assert "where: 'nowhere*' matches no parameter" in found.err


def test_settings_of_the_model_that_suits_the_data(bayeswell: Any, tmp_path: Path) -> None:
    words = ["-d", "wine", "-m", "map", "-e", "1", "--draws", "2", "-q", "--out", tmp_path / "run"]
    found = bayeswell("train", *words, "--model-set", "hidden=[7]")
    assert found.code == 0, found.err
    record = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (record["model"], record["parameters"]) == ("small_mlp", 13 * 7 + 7 + 7 * 3 + 3)
    found = bayeswell("train", *words[:-1], tmp_path / "other", "--model-set", "hiden=[7]")
    assert found.code == 2
    assert "has no setting 'hiden'; did you mean 'hidden'" in found.err


def test_bernoulli_on_two_classes_is_one_logit(bayeswell: Any, tmp_path: Path) -> None:
    words = ["-m", "map", *SMALL, "--likelihood", "bernoulli", "--out", tmp_path / "run", "--json"]
    found = bayeswell("train", "-d", "breast_cancer", *words)
    assert found.code == 0, found.err
    record = json.loads(found.out)
    assert record["parameters"] == 30 * 5 + 5 + 5 * 1 + 1
    assert 0.3 < record["test"]["values"]["accuracy"] <= 1
    assert bayeswell("evaluate", tmp_path / "run", "--draws", "3").code == 0
    found = bayeswell("train", "-d", "wine", *words[:-2], tmp_path / "three")
    assert found.code == 2
    assert "'wine' has 3 classes" in found.err


def test_named_classes_take_labels_as_numbers(bayeswell: Any, tmp_path: Path) -> None:
    assert bayeswell("train", "-d", "wine", "-m", "map", *SMALL, "--out", tmp_path / "run").code == 0
    from bayeswell.datasets import find_data

    raw = find_data("wine").read(None)
    assert raw.class_names is not None
    assert not raw.class_names[0].isdigit()
    np.savez(tmp_path / "test.npz", x=raw.test[0].numpy(), y=raw.test[1].numpy())
    other = ["--data", tmp_path / "test.npz", "--data-set", "test_share=1", "--draws", "3", "--json"]
    own, numbers = (
        json.loads(bayeswell("evaluate", tmp_path / "run", *words).out)["test"]["values"]
        for words in (["--draws", "3", "--json"], other)
    )
    assert numbers == pytest.approx(own, abs=1e-6)


def test_a_comparison_as_csv_and_a_page_with_knobs(
    bayeswell: Any, tmp_path: Path, few_pictures: Callable[..., None]
) -> None:
    few_pictures("reliability", "spectra", "sharpness")  # what the knobs change
    out = tmp_path / "runs"
    words = ["compare", "--methods", "map,bbb", "-d", "wine", *SMALL, "--no-report", "--out", out]
    assert bayeswell(*words, "--csv", tmp_path / "table.csv").code == 0
    rows = list(csv.DictReader((tmp_path / "table.csv").read_text().splitlines()))
    record = json.loads((out / "comparison.json").read_text())
    assert [row["method"] for row in rows] == ["map", "bbb"]
    for row, one in zip(rows, record["rows"], strict=True):
        assert float(row["nll"]) == one["scores"]["nll"]["mean"]
        assert float(row["nll_error_over_examples"]) == one["scores"]["nll"]["standard_error_over_examples"]
    knobs = ["--bins", "5", "--ranks", "1", "--rho", "0.1", "--draws", "4", "--layers", "dense2", "-q"]
    run = out / "bbb-seed0"
    found = bayeswell("report", run, *knobs, "--out", tmp_path / "page.html")
    assert found.code == 0, found.err
    seen = json.loads((run / "inspection.json").read_text())
    assert seen["draws"] == 4
    assert seen["knobs"] == {"bins": 5, "ranks": [1], "rho": 0.1, "draws": 4, "layers": ["dense2"]}
    assert [row["rank"] for row in seen["records"]["truncation"]["rows"]] == [None, 1]
    assert {layer["layer"] for one in seen["records"]["spectra"] for layer in one["layers"]} == {"dense2.weight"}
    assert seen["records"]["sharpness"]["rho"] == 0.1
    assert bayeswell("report", run, "--ranks", "x").code == 2
    assert bayeswell("report", run, "--layers", "no-such", "-q", "--out", tmp_path / "p.html").code == 0
    seen = json.loads((run / "inspection.json").read_text())
    assert "'no-such' matches none of dense1.weight" in seen["left_out"]["spectra"]


def test_the_report_of_a_sweep_shows_its_trials(
    bayeswell: Any, tmp_path: Path, few_pictures: Callable[..., None]
) -> None:
    few_pictures()
    words = ["-d", "wine", "-m", "map", *SMALL, "--space", "stepper.lr=0.01,0.1", "--trials", "2"]
    assert bayeswell("sweep", *words, "--out", tmp_path / "sweep").code == 0
    found = bayeswell("report", tmp_path / "sweep", "-q", "--out", tmp_path / "page.html")
    assert found.code == 0, found.err
    page = (tmp_path / "page.html").read_text()
    assert "trial 0000" in page
    assert "trial 0001" in page
