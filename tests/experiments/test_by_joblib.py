"""Runs by joblib: on a real Dask cluster of which a worker is killed, on loky, and on workers with another disk."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import joblib
import pytest
import torch

import bayeswell as bw
from bayeswell.experiments import Experiment, compare, finished_result
from bayeswell.experiments.by_joblib import _cell, _keep, joblib_is_asked
from bayeswell.experiments.given import NOTHING
from bayeswell.experiments.side_by_side import Task
from experiments.test_side_by_side import SMALL, result_of
from folder_holders import kill_the_holder_of

pytestmark = pytest.mark.filterwarnings("ignore")  # of runs that are too short, and of Dask about its own


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same comparison by one process."""
    place = tmp_path_factory.mktemp("alone")
    compare(methods(), [0, 1], place)
    return place


def methods() -> dict[str, Experiment]:
    base = Experiment(**SMALL, method="map", epochs=100)
    return {"map": base, "bbb": base.changed({"method": "bbb", "epochs": 4})}


def require_equal(one: Path, two: Path) -> None:
    for name in ("map-seed0", "map-seed1", "bbb-seed0", "bbb-seed1"):
        assert result_of(one / name) == result_of(two / name)
        assert (one / name / "metrics.jsonl").read_bytes() == (two / name / "metrics.jsonl").read_bytes()
        first, second = (bw.load(place / name / "model").model.posterior.mean_vector() for place in (one, two))
        assert torch.equal(first, second)


@pytest.fixture
def cluster(quick_workers: None) -> Iterator[Any]:
    if importlib.util.find_spec("distributed") is None:
        pytest.skip("Dask is not installed (pip install 'dask[distributed]')")
    import dask
    from distributed import Client, LocalCluster

    forked = {"distributed.worker.multiprocessing-method": "forkserver"}  # with bayeswell imported already
    with (
        dask.config.set({"distributed.admin.log-format": "%(message)s", **forked}),
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
        ) as workers,
        Client(workers) as client,
    ):
        yield client


def test_a_dask_cluster_of_which_a_worker_is_killed(cluster: Any, alone: Path, tmp_path: Path) -> None:
    told: list[tuple[str, str]] = []
    killed: list[int] = []
    killer = threading.Thread(target=lambda: killed.append(kill_the_holder_of(tmp_path / "runs" / "map-seed0")))
    killer.start()
    with joblib.parallel_config("dask"):
        record = compare(
            methods(), [0, 1], tmp_path / "runs", told=lambda *said: told.append(said), checkpoint_steps=20
        )
    killer.join()
    assert killed
    assert [row["finished"] for row in record["rows"]] == [2, 2]
    assert sorted(name for name, state in told if state.startswith("done")) == [
        "bbb-seed0", "bbb-seed1", "map-seed0", "map-seed1",
    ]  # fmt: skip
    require_equal(alone, tmp_path / "runs")
    assert not [path for path in (tmp_path / "runs").iterdir() if path.name.startswith(".")]


@pytest.mark.slow
def test_loky_of_which_a_worker_is_killed(alone: Path, tmp_path: Path) -> None:
    killed: list[int] = []
    killer = threading.Thread(target=lambda: killed.append(kill_the_holder_of(tmp_path / "runs" / "map-seed0")))
    killer.start()
    with joblib.parallel_config("loky", n_jobs=2):
        compare(methods(), [0, 1], tmp_path / "runs", checkpoint_steps=20)
    killer.join()
    assert killed
    require_equal(alone, tmp_path / "runs")


def test_threads_of_one_worker_take_turns(alone: Path, tmp_path: Path) -> None:
    with joblib.parallel_config("threading", n_jobs=2):
        compare(methods(), [0, 1], tmp_path / "runs")
    require_equal(alone, tmp_path / "runs")


def test_a_worker_with_another_disk_sends_the_run_back(alone: Path, tmp_path: Path) -> None:
    experiment = methods()["map"].changed({"seed": 1})
    away, here = Task(tmp_path / "away", experiment), Task(tmp_path / "here", experiment)
    threads = torch.get_num_threads()
    number, found = _cell(7, away, NOTHING, threads, tmp_path / "a mark that is not there", {"progress": False})
    assert number == 7
    _keep(here, found)
    assert not (here.place / "checkpoints").exists()
    assert finished_result(here.place, experiment) == found.outcome.result
    assert result_of(here.place) == result_of(alone / "map-seed1")
    mean = bw.load(here.place / "model").model.posterior.mean_vector()
    assert torch.equal(mean, bw.load(alone / "map-seed1" / "model").model.posterior.mean_vector())
    mark = tmp_path / "mark"
    mark.touch()
    assert not _cell(0, away, NOTHING, threads, mark, {"progress": False})[1].files


def test_joblib_is_asked_only_where_somebody_says_so() -> None:
    assert not joblib_is_asked()
    with joblib.parallel_config("loky"):
        assert not joblib_is_asked()  # joblib's own default says nothing
    with joblib.parallel_config(n_jobs=2):
        assert joblib_is_asked()
    with joblib.parallel_config("threading"):
        assert joblib_is_asked()
    assert not joblib_is_asked()
