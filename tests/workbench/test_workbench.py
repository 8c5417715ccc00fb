"""compare, sweep and lr_range of a program: the runs of the command line, for networks and data of one's own."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bayeswell as bw
from bayeswell.experiments import Experiment, load_problem, run
from bayeswell.experiments.own_data import own_data
from bayeswell.report import figures, page
from bayeswell.workbench.problem import problem_of

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")  # the runs are too short
QUICK: dict[str, Any] = {"epochs": 3, "batch_size": 40, "draws": 5}


def examples(count: int = 120, seed: int = 0) -> tuple[Tensor, Tensor]:
    inputs = torch.randn(count, 3, generator=torch.Generator().manual_seed(seed))
    return inputs, (inputs[:, 0] + 0.5 * inputs[:, 1] > 0).long()


class Own(nn.Module):
    """A network that no file can describe."""

    def __init__(self, width: int = 5) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, width), nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.first(x)))


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("compared") / "own"
    return bw.compare(Own, examples(), ["map", "bbb"], test=0.3, seeds=2, folder=folder, **QUICK)


def test_the_table_is_that_of_the_runs(compared: Any) -> None:
    frame = compared.to_frame()
    assert list(frame.index) == ["map", "bbb"]
    for method in ("map", "bbb"):
        results = [
            json.loads((compared.folder / f"{method}-seed{seed}" / "result.json").read_text()) for seed in (0, 1)
        ]
        values = [result["test"]["values"]["nll"] for result in results]
        assert frame.loc[method, "nll"] == pytest.approx(np.mean(values), rel=1e-12)
        assert frame.loc[method, "nll_error_over_seeds"] == pytest.approx(abs(values[0] - values[1]) / 2, rel=1e-9)
        assert results[0]["examples"] == {"train": 84, "test": 36}
        assert results[0]["model"] == "Own"
    assert "map" in str(compared)
    assert len(str(compared).splitlines()) == 3


def test_differences_are_in_pairs(compared: Any) -> None:
    rows = {row["score"]: row for row in compared.differences()}
    by_seed = []
    for seed in (0, 1):
        one, other = (
            json.loads((compared.folder / f"{method}-seed{seed}" / "result.json").read_text())["test"]["values"]["nll"]
            for method in ("bbb", "map")
        )
        by_seed.append(one - other)
    assert rows["nll"]["method"] == "bbb"
    assert rows["nll"]["difference"] == pytest.approx(np.mean(by_seed), rel=1e-12)
    assert rows["nll"]["error"] == pytest.approx(np.std(by_seed, ddof=1) / math.sqrt(2), rel=1e-9)
    assert rows["nll"]["over"] == "2 seeds"
    with pytest.raises(bw.SettingError, match="did you mean 'map'"):
        compared.differences(base="mapp")


def test_it_is_the_engine_of_the_command_line(compared: Any, tmp_path: Path) -> None:
    """The same run, made of an Experiment by hand, is the same to the last digit."""
    experiment, given = problem_of(Own, examples(), None, 0.3, None, QUICK)
    record = run(experiment.changed({"method": "bbb", "seed": 1}), tmp_path / "run", given=given)
    result = json.loads((compared.folder / "bbb-seed1" / "result.json").read_text())
    assert {**record, "time": None} == {**result, "time": None}


def test_again_nothing_is_trained_and_other_data_are_refused(compared: Any) -> None:
    said: list[tuple[str, str]] = []
    again = bw.compare(
        Own, examples(), ["map", "bbb"], test=0.3, seeds=2, folder=compared.folder, **QUICK,
        told=lambda name, state: said.append((name, state)),
    )  # fmt: skip
    assert {state for _, state in said} == {"finished"}
    assert again.table == compared.table
    with pytest.raises(bw.SettingError, match=r"is another one: data\.sha256 was"):
        bw.compare(Own, examples(seed=1), ["map"], test=0.3, seeds=2, folder=compared.folder, **QUICK)
    with pytest.raises(bw.SettingError, match=r"is another one: .*model\.sha256 was"):
        bw.compare(nn.Linear, examples(), ["map"], test=0.3, seeds=1, folder=compared.folder, **QUICK,
                   model_settings={"in_features": 3, "out_features": 2})  # fmt: skip


def test_the_page_and_the_csv(compared: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Every picture is drawn, of data of one's own; as a text, which takes longest, it is like that of any other data.
    monkeypatch.setattr(figures, "_laid_out", lambda figure: figure)
    monkeypatch.setattr(figures, "figure_to_svg", lambda figure, **named: "<svg></svg>")
    missing: list[str] = []
    text = compared.report(tmp_path / "page.html", told=missing.append, bins=7).read_text()
    assert "own data" in text
    assert "bbb" in text
    assert not missing
    inspection = json.loads((compared.folder / "bbb-seed0" / "inspection.json").read_text())
    assert inspection["knobs"]["bins"] == 7
    assert max(inspection["records"]["reliability"]["high"]) <= 1
    counts = inspection["records"]["reliability"]["count"]
    assert len(counts) == 7
    assert max(counts) - min(counts) <= 1, "bins of equally many examples"
    compared.to_csv(tmp_path / "table.csv")
    rows = list(csv.DictReader((tmp_path / "table.csv").read_text().splitlines()))
    assert [float(row["nll"]) for row in rows] == [row["nll"] for row in compared.table]


def test_one_seed_is_compared_example_by_example_after_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is compared is what the report measures; the test above sees it draw.
    monkeypatch.setattr(page, "pictures_of", lambda *given: figures.Pictures([], {}, []))
    found = bw.compare(Own, examples(), ["map", "swag"], seeds=[4], folder=tmp_path / "one", **{**QUICK, "epochs": 8})
    found.report()
    (row,) = [row for row in found.differences("map") if row["score"] == "nll"]
    assert row["over"] == "the same test examples"
    assert row["error"] > 0


def test_a_network_begins_with_its_own_weights_and_a_class_anew(tmp_path: Path) -> None:
    torch.manual_seed(3)
    net = Own()
    starts: dict[str, list[Tensor]] = {"object": [], "class": []}
    for kind, given_net in (("object", net), ("class", Own)):
        experiment, given = problem_of(given_net, examples(), None, 0.3, None, {})
        for seed in (0, 1):
            starts[kind].append(load_problem(experiment.changed({"seed": seed}), given).net.first.weight)  # type: ignore[union-attr]
    assert torch.equal(*starts["object"])
    assert torch.equal(starts["object"][0], net.first.weight)
    assert not torch.equal(*starts["class"])


@pytest.mark.parametrize("kind", ["arrays", "dataset", "loader", "name"])
def test_data_in_every_form(kind: str, tmp_path: Path) -> None:
    x, y = examples()
    data: Any = {
        "arrays": (x.numpy(), y.numpy()),
        "dataset": TensorDataset(x, y),
        "loader": DataLoader(TensorDataset(x[:90], y[:90]), batch_size=30, shuffle=True),
        "name": "wine",
    }[kind]
    net: Any = nn.Linear(13, 3) if kind == "name" else Own()
    test = (x[90:], y[90:]) if kind == "loader" else 30
    found = bw.compare(net, data, ["map"], seeds=1, test=test, folder=tmp_path / "run", **QUICK)
    result = json.loads((tmp_path / "run" / "map-seed0" / "result.json").read_text())
    assert found.table[0]["runs"] == 1
    if kind != "name":
        assert result["examples"] == {"train": 90, "test": 30}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"methods": ["mapp"]}, "did you mean 'map'"),
        ({"methods": ["map", "map"]}, "'map' twice"),
        ({"methods": [3]}, "give names, or tables"),
        ({"epoch": 3}, "no setting 'epoch'; did you mean 'epochs'"),
        ({"test": 1.5}, "test = 1.5"),
        ({"net": 3}, "net is of type int"),
        ({"data": None}, "data is None"),
        ({"data": (torch.ones(9, 3), torch.ones(8).long())}, "9 inputs but 8 targets"),
        ({"likelihood": "gausian"}, "did you mean 'gaussian'"),
        ({"class_names": ["no"]}, "1 class_names, but targets go up to 1"),
        ({"folds": 1}, "folds = 1"),
        ({"seeds": [0, 0]}, "hold one twice"),
        ({"data": DataLoader(TensorDataset(*examples(10)))}, "nothing can be held out"),
        ({"where": "lst_layer"}, "did you mean 'last_layer'"),
    ],
)
def test_bad_input_is_one_line_before_any_training(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"net": Own, "data": examples(), "methods": ["map"], "folder": tmp_path / "run"}
    with pytest.raises(bw.BayeswellError, match=said):
        bw.compare(**{**arguments, **QUICK, **change})
    assert not list(tmp_path.glob("run/*/config.json"))


def test_real_targets_and_counts_are_not_classes() -> None:
    x = torch.randn(20, 2)
    assert own_data((x, torch.randn(20))).class_names is None
    assert own_data((x, torch.randn(20))).train[1].shape == (15, 1)
    assert own_data((x, torch.arange(20) % 4)).class_names == ("0", "1", "2", "3")
    assert own_data((x, torch.arange(20) % 4), likelihood="poisson").class_names is None
    assert own_data((x, (torch.arange(20) % 2).float()), likelihood="bernoulli").train[1].dtype == torch.int64


def test_given_data_are_not_changed() -> None:
    x, y = torch.randn(12, 1, 6, 6), torch.arange(12) % 3
    kept = x.clone()
    experiment, given = problem_of("cnn", (x, y), None, 4, None, {"standardise": True})
    problem = load_problem(experiment, given)
    assert float(problem.data.train[0].std()) == pytest.approx(1, abs=0.1)
    assert torch.equal(x, kept)


def test_a_sweep_finds_what_is_better(tmp_path: Path) -> None:
    found = bw.sweep(
        Own, examples(300), {"stepper.lr": "1e-5,0.03", "model.width": "3,8"}, method="map", trials=4, sampler="random",
        folder=tmp_path / "sweep", **QUICK,
    )  # fmt: skip
    frame = found.to_frame()
    assert len(frame) == 4
    assert list(frame["nll"]) == sorted(frame["nll"])
    assert found.best["stepper.lr"] == 0.03
    assert isinstance(found.experiment, Experiment)
    assert found.experiment.model["width"] == found.best["model.width"]  # type: ignore[index,call-overload]


def test_learning_rates_are_those_of_rate_range(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net, data = Own(), examples()
    found = bw.lr_range(net, data, "map", steps=12, batch_size=30)
    truth = bw.rate_range(net, data, "map", "categorical", steps=12, batch_size=30)
    assert (found.rates, found.objectives, found.suggestion) == (truth.rates, truth.objectives, truth.suggestion)
    assert list(found.to_frame().columns) == ["lr", "objective"]
    assert found.plot(tmp_path / "rates.png").stat().st_size > 1000
