from __future__ import annotations

from pathlib import Path

import pytest

from bayeswell.core.errors import FileError
from bayeswell.lab.report import read_comparison
from made_runs import made_comparison, made_record


def test_comparisons_and_single_runs_are_joined(tmp_path: Path):
    planted = {"digits": {"map": [0.3, 0.4], "bbb": [0.2, 0.3]}}
    comparison = made_comparison(planted)
    for run in comparison.runs:
        object.__setattr__(run, "folder", f"{run.problem}-{run.method}-{run.seed}")
    comparison.save(tmp_path / "compared")
    made_record("wine", "map", 0, 0.1).save(tmp_path / "runs" / "wine-map")
    found = read_comparison([tmp_path / "compared", tmp_path / "runs"])
    assert [(run.problem, run.method, run.seed) for run in found.runs] == [
        *[("digits", method, seed) for method in ("map", "bbb") for seed in (0, 1)],
        ("wine", "map", 0),
    ]
    assert found.values("digits", "bbb", "nll") == {(0, None): 0.2, (1, None): 0.3}
    nested = read_comparison([tmp_path])
    assert len(nested.runs) == 5, "runs of a comparison are not read twice"


def test_other_runs_of_the_same_settings_get_a_number(tmp_path: Path):
    for name, nll in (("one", 0.3), ("two", 0.2)):
        made_record("digits", "bbb", 0, nll).save(tmp_path / name)
    assert read_comparison([tmp_path]).methods == ["bbb", "bbb (2)"]


def test_a_folder_without_runs_is_refused(tmp_path: Path):
    with pytest.raises(FileError, match="holds no finished run"):
        read_comparison([tmp_path])


def test_an_altered_record_is_refused(tmp_path: Path):
    made_record("digits", "bbb", 0, 0.3).save(tmp_path)
    (tmp_path / "per_example.safetensors").write_bytes(b"")
    with pytest.raises(FileError):
        read_comparison([tmp_path])
