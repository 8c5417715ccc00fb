"""A finished run that goes on to more epochs: the same as one that was begun for as many."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import bayeswell as bw
from bayeswell.experiments import Experiment, resume_run, run
from bayeswell.persistence import read_document

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")


def wine(epochs: int, method: str = "bbb", **changes: object) -> Experiment:
    settings = {"name": method, "rate": "constant", "temperature": 0.1, **changes}
    return Experiment(data="wine", method=settings, epochs=epochs, draws=5)


@pytest.mark.parametrize("method", ["bbb", "swa"])
def test_a_longer_run_is_the_same_as_one_begun_so(method: str, tmp_path: Path) -> None:
    changes = {"collector": {"name": "swa", "start": 0.0}} if method == "swa" else {}
    run(wine(2, method, **changes), tmp_path / "first", progress=False)
    longer = resume_run(tmp_path / "first", epochs=5, progress=False)
    wanted = run(wine(5, method, **changes), tmp_path / "wanted", progress=False)
    assert {**longer, "time": 0} == {**wanted, "time": 0}
    for name in ("metrics.jsonl", "model/tensors.safetensors"):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "wanted" / name).read_bytes(), name
    configs = [read_document(tmp_path / name / "config.json") for name in ("first", "wanted")]
    assert [len(config.pop("run")["earlier"]) for config in configs] == [1, 0]
    assert configs[0] == configs[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert resume_run(tmp_path / "first", progress=False) == longer


def test_what_cannot_be_longer_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    done = run(wine(2), tmp_path / "run", progress=False)
    with pytest.raises(bw.SettingError, match="was begun for 2"):
        resume_run(tmp_path / "run", epochs=1, progress=False)
    assert resume_run(tmp_path / "run", progress=False) == done
    run(wine(1, "deep-ensemble", members=2), tmp_path / "several", progress=False)
    with pytest.raises(bw.SettingError, match="gathered"):
        resume_run(tmp_path / "several", epochs=2, progress=False)
