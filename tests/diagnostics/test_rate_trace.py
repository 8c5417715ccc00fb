"""The rates of a run, step by step: schedule, plateau and what was found, as they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell.diagnostics import RateTrace, rate_path, schedules
from bayeswell.experiments import Experiment, run
from bayeswell.plots import plot_schedules
from bayeswell.report import write_report
from bayeswell.samplers.fitting import FittedSampler

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")  # short runs

X = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0.2).long()


def test_every_step_has_the_rate_it_was_taken_with() -> None:
    trace = RateTrace()
    bw.fit(
        nn.Linear(3, 2), (X, Y), "bbb", epochs=3, batch_size=15, lr=0.02, std_lr=0.5, std_rate="constant",
        callbacks=[trace], progress=False,
    )  # fmt: skip
    steps = np.arange(12)
    assert set(trace.paths) == {"means", "stds"}
    assert trace.paths["means"]["steps"] == steps.tolist()
    np.testing.assert_allclose(trace.paths["means"]["values"], 0.02 * (1 + np.cos(np.pi * steps / 12)) / 2, rtol=1e-6)
    np.testing.assert_allclose(trace.paths["stds"]["values"], 0.5)


def test_samplers_show_the_rate_of_the_step_and_not_the_factor() -> None:
    trace = RateTrace()
    stepper = {"name": "sgld", "lr": 0.1, "gamma": 0.55, "b": 1.0}
    result = bw.fit(
        nn.Linear(3, 2), (X, Y), "sgld", epochs=30, batch_size=15, stepper=stepper, callbacks=[trace], progress=False
    )
    # Welling & Teh 2011: lr (b + t)^-gamma, b = 1.
    known = 0.1 * (1 + np.arange(120.0)) ** -0.55
    assert known[100] == pytest.approx(0.0079, abs=5e-5)
    np.testing.assert_allclose(trace.paths["means"]["values"], known, rtol=1e-6)
    ends = [record.rates["means"] for record in result.histories[0].epochs]
    np.testing.assert_allclose(ends, known[3::4], rtol=1e-6)


@pytest.mark.parametrize("method", ["sghmc", "csgld"])
def test_fitted_samplers_show_the_rate_they_stepped_with(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[float] = []
    own = FittedSampler._proposal

    def watched(self: FittedSampler, group: dict[str, Any], lr: float) -> Any:
        used.append(lr)
        return own(self, group, lr)

    monkeypatch.setattr(FittedSampler, "_proposal", watched)
    trace = RateTrace()
    result = bw.fit(nn.Linear(3, 2), (X, Y), method, epochs=12, batch_size=15, callbacks=[trace], progress=False)
    assert len(set(used)) > 3  # descent, chain, and what their schedules make of them
    assert trace.paths["means"]["values"] == used
    assert [record.rates["means"] for record in result.histories[0].epochs] == used[3::4]


def test_long_runs_are_thinned_to_their_last_step(monkeypatch: pytest.MonkeyPatch) -> None:
    assert schedules._MOST == 2000
    monkeypatch.setattr(schedules, "_MOST", 20)  # a hundredth, so that a hundredth of the steps is a long run
    trace = RateTrace()
    bw.fit(nn.Linear(3, 2), (X[:19], Y[:19]), "map", epochs=2, batch_size=1, callbacks=[trace], progress=False)
    steps = trace.paths["means"]["steps"]
    assert steps[:2] == [0, 2]
    assert steps[-1] == 2 * 19 - 1
    assert len(steps) <= 21


def test_a_run_keeps_them_and_the_report_draws_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bayeswell.report.figures.TOGETHER", ())
    monkeypatch.setattr("bayeswell.report.figures.ALONE", ("schedules",))
    small = {"name": "mlp", "hidden": [8]}
    place = tmp_path / "run"
    run(Experiment(method="bbb", data="digits", model=small, epochs=2, batch_size=300, draws=3, diagnose=True), place)
    kept = json.loads((place / "records.json").read_text())["schedules"]
    assert len(kept["means"]["steps"]) == len(kept["stds"]["values"]) == 10
    rows = [json.loads(line) for line in (place / "metrics.jsonl").read_text().splitlines()]
    assert [kept["stds"]["values"][step] for step in (4, 9)] == pytest.approx([row["lr.stds"] for row in rows])
    state = RateTrace()
    state.load_state_dict(json.loads(json.dumps({"paths": kept})))
    assert state.state_dict()["paths"] == kept
    page = write_report([place], tmp_path / "page.html")
    assert "Schedules; means" in Path(page).read_text()


def test_rates_are_labelled_as_what_they_are() -> None:
    planned = {"cosine": rate_path("cosine", 12)}
    trace = RateTrace()
    bw.fit(nn.Linear(3, 2), (X, Y), "map", epochs=3, batch_size=15, callbacks=[trace], progress=False)
    assert plot_schedules(planned).get_ylabel() == "factor"
    assert plot_schedules(trace.paths).get_ylabel() == "learning rate"
    assert plot_schedules({**planned, **trace.paths}).get_ylabel() == "factor, learning rate"
