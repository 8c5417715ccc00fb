"""``init``: a run that starts at the weights of a finished one."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from bayeswell.cli.app import main
from bayeswell.errors import BayeswellError, BayeswellWarning, FileError, SettingError
from bayeswell.experiments import Experiment, compare, finished_result, load_model, load_problem, resume_run, run
from bayeswell.studies.cells import Cell

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")  # short runs

SMALL: dict[str, Any] = {
    "data": "digits", "model": {"name": "mlp", "hidden": [12]}, "epochs": 4, "batch_size": 100, "draws": 5,
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    run(Experiment(method="map", **SMALL), folder / "map")
    run(Experiment(method="bbb", **SMALL), folder / "bbb")
    return folder


@pytest.mark.parametrize("method", ["map", "bbb"])
def test_the_network_starts_at_the_means(runs: Path, method: str) -> None:
    problem = load_problem(Experiment(method="swag", seed=7, init=str(runs / method), **SMALL))
    inputs = problem.data.test[0][:20]
    model = load_model(runs / method).model.eval()
    with torch.no_grad():
        torch.testing.assert_close(problem.net.eval()(inputs), model(inputs), rtol=1e-5, atol=1e-6)


def test_batch_norm_brings_its_statistics(tmp_path: Path) -> None:
    narrow = {**SMALL, "model": {"name": "resnet10", "width": 2}, "epochs": 1}
    run(Experiment(method="map", **narrow), tmp_path / "map")
    net = load_problem(Experiment(method="map", seed=5, init=str(tmp_path / "map"), **narrow)).net
    there = load_model(tmp_path / "map").model.net.state_dict()
    statistics = [name for name in net.state_dict() if name.endswith("running_mean")]
    assert statistics
    for name in statistics:
        assert torch.equal(net.state_dict()[name], there[name])
        assert float(there[name].abs().max()) > 0


def test_training_goes_on_from_there(runs: Path, tmp_path: Path) -> None:
    def first_nll(**settings: Any) -> float:
        place = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        run(Experiment(method={"name": "map", "lr": 1e-5}, **{**SMALL, "epochs": 1, **settings}), place)
        return float(json.loads((place / "metrics.jsonl").read_text().splitlines()[0])["nll"])

    trained = json.loads((runs / "map" / "metrics.jsonl").read_text().splitlines()[-1])["nll"]
    # At a rate of next to nothing an epoch measures where it starts.
    assert first_nll(init=str(runs / "map")) < trained * 1.05
    assert first_nll() > 2


def test_the_command_has_it(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start = ["train", "-d", "digits", "-n", "mlp", "--model-set", "hidden=[12]", "-e", "1", "-m", "swag", "-q"]
    assert main([*start, "--set", "collector.cycle=3", "--init", str(runs / "map"), "--out", str(tmp_path / "on")]) == 0
    problem = json.loads((tmp_path / "on" / "config.json").read_text())["problem"]
    assert problem["experiment"]["init"] == str(runs / "map")
    assert len(problem["init_sha256"]) == 64
    capsys.readouterr()
    assert main([*start, "--init", str(tmp_path / "nowhere"), "--out", str(tmp_path / "off")]) != 0
    assert "there is no finished run" in capsys.readouterr().err


def test_a_run_that_was_made_anew_is_noticed(runs: Path, tmp_path: Path) -> None:
    run(Experiment(method="map", **{**SMALL, "epochs": 1}), tmp_path / "first")
    run(Experiment(method="map", init=str(tmp_path / "first"), **SMALL), tmp_path / "second")
    (tmp_path / "first").rename(tmp_path / "kept")
    run(Experiment(method="map", seed=3, **{**SMALL, "epochs": 1}), tmp_path / "first")
    with pytest.raises(BayeswellError, match="init_sha256"):
        resume_run(tmp_path / "second", epochs=6)


def test_a_finished_run_is_taken_only_with_the_start_it_had(tmp_path: Path) -> None:
    short = {**SMALL, "epochs": 1}
    first, second = tmp_path / "first", tmp_path / "out" / "map-seed0"
    run(Experiment(method="map", **short), first)
    on = Experiment(method="map", init=str(first), **short)
    made = run(on, second)
    assert run(on, second, resume=True) == finished_result(second, on) == made
    shutil.rmtree(first)
    assert run(on, second, resume=True) == made  # of a start that is gone nothing else can be known
    run(Experiment(method="map", **short), first)
    assert run(on, second, resume=True) == made  # the same numbers again
    shutil.rmtree(first)
    run(Experiment(method="map", seed=3, **short), first)
    with pytest.raises(SettingError, match=r"the finished run in .* is another one: init_sha256 was"):
        run(on, second, resume=True)
    with pytest.raises(SettingError, match="is another one: init_sha256 was"):
        resume_run(second)
    with pytest.raises(SettingError, match="is another one: init_sha256 was"):
        compare({"map": on}, [0], tmp_path / "out", progress=False)
    assert finished_result(second) == made


def test_the_start_is_named_wherever_one_stands(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = {**SMALL, "epochs": 1}
    monkeypatch.chdir(runs)
    assert Experiment(init="map", **short).init == str(runs / "map")
    run(Experiment(method="map", init="./map", **short), tmp_path / "on")
    monkeypatch.chdir(tmp_path)
    resume_run(tmp_path / "on", epochs=2)
    monkeypatch.setenv("HOME", str(runs))
    assert Experiment(init="~/map", **short).init == str(runs / "map")
    load_problem(Experiment(init="~/map", **short))


@pytest.mark.parametrize("means", ["redrawn", "prior"])
def test_means_that_would_lose_the_start_are_refused(runs: Path, means: str) -> None:
    with pytest.raises(SettingError, match=f"init = .*: means = '{means}' draws other weights; leave out one"):
        Experiment(method={"name": "bbb", "means": means}, init=str(runs / "map"), **SMALL)
    Experiment(method={"name": "bbb", "means": means}, **SMALL)
    Experiment(method={"name": "bbb", "means": "network"}, init=str(runs / "map"), **SMALL)


@pytest.mark.parametrize(("hidden", "epochs", "trained"), [(12, 1, False), (100, 20, True)])
def test_one_warning_says_that_only_the_first_member_starts_there(
    tmp_path: Path, hidden: int, epochs: int, trained: bool
) -> None:
    small = {**SMALL, "model": {"name": "mlp", "hidden": [hidden]}}
    run(Experiment(method={"name": "map", "lr": 0.01}, **{**small, "epochs": epochs}), tmp_path / "map")

    def said(name: str, **settings: Any) -> list[str]:
        method = {"name": "deep-ensemble", "members": 2, **settings}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", BayeswellWarning)
            run(Experiment(method=method, init=str(tmp_path / "map"), **{**small, "epochs": 1}), tmp_path / name)
        return [str(one.message) for one in caught if "only the first of 2 members starts" in str(one.message)]

    (warning,) = said("dispersed")
    assert ("look trained" in warning) == trained
    assert said("all", means="network") == []


@pytest.mark.parametrize(
    ("method", "model", "said"),
    [
        ("map", {"name": "mlp", "hidden": [13]}, r"differs from this one in 'dense1.bias' \(12 there, 13 here\)"),
        ("map", {"name": "mlp", "hidden": [12, 12]}, "differs from this one in"),
    ],
)
def test_another_network_is_refused(runs: Path, method: str, model: Any, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        load_problem(Experiment(method=method, init=str(runs / "map"), **{**SMALL, "model": model}))


def test_what_has_no_one_mean_and_no_run_are_refused(tmp_path: Path) -> None:
    run(Experiment(method={"name": "deep-ensemble", "members": 2}, **{**SMALL, "epochs": 1}), tmp_path / "several")
    with pytest.raises(SettingError, match="is made of several networks"):
        load_problem(Experiment(method="map", init=str(tmp_path / "several"), **SMALL))
    with pytest.raises(FileError, match="there is no finished run"):
        load_problem(Experiment(method="map", init=str(tmp_path / "nowhere"), **SMALL))
    with pytest.raises(SettingError, match="init = 3; it must be the path of a folder"):
        Experiment(method="map", init=3, **SMALL)  # type: ignore[arg-type]


def test_results_that_were_kept_before_the_setting_stay_known(tmp_path: Path) -> None:
    def cell(**settings: Any) -> Cell:
        return Cell("a", {}, Experiment(method={"name": "bbb", "lr": 0.01}, data="digits", **settings), tmp_path)

    plain = cell()
    assert "init" not in plain.settings
    # As it was before `init`, `std_lr`, `std_rate` and `gradient_scale` were there.
    assert (plain.settings_hash, plain.parts_hash) == ("ad29a43239abf44a", "f44f0809ab652364")
    assert cell(init="runs/a").settings_hash != plain.settings_hash


def test_a_study_knows_its_start_by_its_weights(tmp_path: Path) -> None:
    short = {**SMALL, "epochs": 1}
    start = tmp_path / "runs" / "map"
    cell = Cell("a", {}, Experiment(method="bbb", init=str(start), **short), tmp_path)
    assert cell.settings["init"] == "runs/map"
    hashes, folders = [cell.settings_hash], [cell.folder]
    for seed in (0, 1, 0):
        run(Experiment(method="map", seed=seed, **short), start)
        hashes.append(cell.settings_hash)
        folders.append(cell.folder)
        assert len(cell.settings["init_sha256"]) == 64
        shutil.rmtree(start)
    assert len(set(hashes)) == len(set(folders)) == 3
    assert (hashes[1], folders[1]) == (hashes[3], folders[3])
