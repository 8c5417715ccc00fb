"""A run on a table with texts and missing cells: its data card prepares new files for predict and evaluate."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch

from bayeswell.errors import DataError, FileError
from bayeswell.experiments import Experiment, evaluate, predict_file, run
from bayeswell.experiments.data_spec import NAME, DataSpec
from bayeswell.experiments.predicting import prediction_rows
from bayeswell.experiments.table_inputs import id_cells
from bayeswell.persistence import read_document, write_document

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.errors.BayeswellWarning")


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on dose = 2 age + 30 (sex = m), some ages missing; the file lies beside it."""
    folder = tmp_path_factory.mktemp("clinic")
    rng = np.random.default_rng(0)
    rows = [["patient", "age", "sex", "dose"]]
    for i in range(200):
        age, sex = float(rng.normal(50, 10)), "fm"[i % 2]
        rows.append([f"=p{i}", "" if i % 9 == 0 else f"{age:.3f}", sex, f"{2 * age + 30 * (sex == 'm'):.3f}"])
    with open(folder / "t.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    experiment = Experiment(
        method={"name": "map", "stepper": {"lr": 0.03}}, batch_size=50, epochs=40, model={"name": "mlp", "hidden": []},
        data={"name": "csv", "path": str(folder / "t.csv"), "id": "patient"},
    )  # fmt: skip
    run(experiment, folder / "run")
    return folder


def test_new_files_are_prepared_as_the_training_rows_were(clinic: Path) -> None:
    spec = DataSpec.read(clinic / "run")
    assert spec.table is not None
    assert spec.table.features == ("age", "age is missing", "sex = f", "sex = m")
    new = clinic / "new.csv"
    new.write_text("sex,more,age,patient\nm,x,40,=1+1\nf,x,60,q2\nm,x,,q3\n", encoding="utf-8")
    found, spec = predict_file(clinic / "run", new, draws=1)
    ids = id_cells(new, spec)
    assert ids == ("patient", ["=1+1", "q2", "q3"])
    header, *rows = list(prediction_rows(found, spec, ids=ids))
    assert header[:3] == ["patient", "mean", "std"]
    assert [row[0] for row in rows] == ["'=1+1", "q2", "q3"]
    # The slopes are those of the table: 2 for the age, 30 for the sex (stds of 20 would show a slip of units).
    assert [row[1] for row in rows[:2]] == pytest.approx([110, 120], abs=8)
    assert rows[2][1] == pytest.approx(130, abs=25)
    new.write_text("sex,age\nx,40\n", encoding="utf-8")
    with pytest.warns(UserWarning, match=r"new\.csv: unlike the training rows: column 'sex': 'x'"):
        found, spec = predict_file(clinic / "run", new, draws=1)
    assert id_cells(new, spec) is None


def test_evaluate_prepares_another_file(clinic: Path) -> None:
    other = clinic / "other.csv"
    lines = [f"{'fm'[i % 2]},{30 + i},{2 * (30 + i) + 30 * (i % 2)}.0" for i in range(30)]
    other.write_text("sex,age,dose\n" + "\n".join(lines) + "\nf,,100.0\n", encoding="utf-8")
    found = evaluate(clinic / "run", {"name": "csv", "path": str(other), "test_share": 1}, draws=1)
    assert found["examples"] == 31
    assert found["test"]["values"]["rmse"] < 12
    again = evaluate(clinic / "run", draws=1)
    assert again["test"]["values"]["rmse"] < 15


def test_a_card_without_a_table_is_read_as_before(clinic: Path, tmp_path: Path) -> None:
    """Runs of earlier versions know nothing of tables."""
    spec = DataSpec.read(clinic / "run")
    spec.write(tmp_path)
    again = DataSpec.read(tmp_path)
    assert (again.table, again.id, again.columns) == (spec.table, "patient", ("age", "sex"))
    record = dict(read_document(tmp_path / NAME))
    old = {key: value for key, value in record.items() if key not in ("table", "id")}
    write_document(tmp_path / NAME, old)
    assert (DataSpec.read(tmp_path).table, DataSpec.read(tmp_path).id) == (None, "")
    assert torch.equal(DataSpec.read(tmp_path).scaling.input_shift, spec.scaling.input_shift)  # type: ignore[arg-type]
    write_document(
        tmp_path / NAME, {**record, "table": [{"name": "age", "kind": "number", "mean": None, "missing": True}]}
    )
    with pytest.raises(FileError, match="does not describe data"):
        DataSpec.read(tmp_path)


def test_a_missing_column_is_named(clinic: Path) -> None:
    new = clinic / "short.csv"
    new.write_text("age\n40\n50\n", encoding="utf-8")
    with pytest.raises(DataError, match="no column 'sex'; allowed: age"):
        predict_file(clinic / "run", new, draws=1)
