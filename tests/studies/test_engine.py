"""One study from its file to its lines and pictures."""

from __future__ import annotations

import pytest
import torch
from studies.definition import read_study
from studies.engine import compare_settings, run_study
from studies.page import _section
from studies.results import read_lines
from studies.verdicts import Findings

from studies import figures

STUDY = """
title = "Two methods"
choose = "validation.nll"
[run]
data = "digits"
model = "mlp"
model_settings = {hidden = [8]}
validation = 100
train_size = 300
batch_size = 25
draws = 3
[cells]
bbb = {method = "bbb", measure = {ranks = [1], spectra = true, signal_to_noise = "all", sharpness = 0.05}}
map = {method = "map"}
[grid]
"optimizer.lr" = [0.001, 0.01]
[scales.small]
run = {epochs = 1}
seeds = 1
[scales.paper]
run = {epochs = 2}
[[claims]]
text = "bbb is better"
rule = {better = "bbb", than = "map", score = "nll"}
[[plots]]
title = "NLL"
score = "nll"
against = "optimizer.lr"
log = true
[[plots]]
title = "NLL along training"
curve = ["train.nll"]
[[plots]]
title = "Landscape"
score = "nll"
landscape = ["optimizer.lr", "optimizer.lr"]
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hwa")
    (folder / "two.toml").write_text(STUDY)
    found = read_study(folder / "two.toml")[0]
    run_study(found, "small", folder / "runs")
    return found


def test_runs_have_scores_curves_and_measures(study):
    lines = read_lines(study.results)
    assert len(lines) == 4
    assert not [line.error for line in lines if line.error]
    bbb = next(line for line in lines if line.cell == "bbb")
    wanted = {"nll", "accuracy", "negative_elbo", "rank1.nll", "whole.nll", "spectra.stds.1", "start.stds.2",
              "snr.stds.first", "sharpness.ascent", "validation.nll", "train.nll.last", "passes"}  # fmt: skip
    assert wanted <= bbb.scores.keys()
    assert bbb.scores["negative_elbo"] == pytest.approx(bbb.scores["expected_nll"] + bbb.scores["kl_per_example"])
    assert bbb.scores["start.stds.1"] > 0.99


def test_finished_runs_are_not_run_again(study, tmp_path):
    assert run_study(study, "small", tmp_path) == []


def test_page_and_pictures(study):
    page = _section(Findings.of(study))
    assert "| bbb is better |" in page
    assert page.count("![") == 3
    assert len(list((study.folder / "pictures").glob("*.svg"))) == 3


def test_betas_of_the_landscape_are_one_setting(study):
    cell = study.scales["small"].cells[0]
    cell.settings["optimizer"] |= {"beta1": 0.5, "beta2": 0.9}
    assert compare_settings(cell, study.folder)["optimizer"]["betas"] == (0.5, 0.9)


def test_figures_of_single_networks():
    maps = {"full": torch.rand(4, 5), "rank 1": torch.rand(4, 5)}
    spectrum = {"layer": {"stds": torch.tensor([0.9, 0.1]), "means": torch.tensor([0.6, 0.4])}}
    places = torch.linspace(-1, 1, 3)
    made = [
        figures.heat_map_figure(maps),
        figures.spectrum_figure(spectrum),
        figures.plane_figure(places, {"swag": torch.rand(3, 3), "f-swag": torch.rand(3, 3)}),
        figures.line_figure({"swag": (places, places.square())}),
        figures.region_figure(),
        figures.schedule_figure({"cosine": "cosine", "steps": "step"}, steps=200),
        figures.noise_figure(torch.rand(1, 8, 8), {"point": torch.rand(1, 10), "Bayesian": torch.rand(5, 10)}),
    ]
    assert all(figure.axes for figure in made)
