"""Agreement and total variation against reference files, whole and broken."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

import bayeswell as bw
from bayeswell.diagnostics import fidelity, fidelity_to_file, read_probabilities

FOUND = np.array([[0.7, 0.2, 0.1], [0.1, 0.5, 0.4], [0.3, 0.3, 0.4], [0.2, 0.2, 0.6]])
TRUTH = np.array([[0.5, 0.3, 0.2], [0.2, 0.3, 0.5], [0.1, 0.2, 0.7], [0.2, 0.2, 0.6]])
DISTANCES = np.array([0.2, 0.2, 0.3, 0.0])
"""By hand: half the sums of absolute differences."""


def check(found: object) -> None:
    assert found.agreement == 0.75
    assert found.agreement_error == pytest.approx(math.sqrt(0.75 * 0.25 / 3))
    assert found.total_variation == pytest.approx(DISTANCES.mean())
    assert found.total_variation_error == pytest.approx(DISTANCES.std(ddof=1) / 2)
    assert (found.examples, found.classes) == (4, 3)
    json.dumps(found.as_json(), allow_nan=False)


def csv(path: Path, rows: np.ndarray, header: str = "", label: bool = False) -> Path:
    lines = [header] if header else []
    lines += [",".join((["cat"] if label else []) + [repr(float(v)) for v in row]) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_by_hand() -> None:
    check(fidelity(torch.tensor(FOUND), torch.tensor(TRUTH)))


def test_the_same_from_every_kind_of_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", TRUTH)
    np.savez(tmp_path / "named.npz", probabilities=TRUTH.astype(np.float32), other=np.zeros(3))
    np.savez_compressed(tmp_path / "mean.npz", mean=TRUTH, std=TRUTH)
    files = [tmp_path / name for name in ("one.npz", "named.npz", "mean.npz")]
    files.append(csv(tmp_path / "bare.csv", TRUTH))
    files.append(csv(tmp_path / "names.csv", TRUTH, "a,b,c"))
    with_more = np.c_[TRUTH, [0.9, 0.8, 0.7, 0.6]]
    files.append(csv(tmp_path / "predictions.csv", with_more, "label,p_a,p_b,p_c,entropy", label=True))
    for file in files:
        check(fidelity_to_file(torch.tensor(FOUND), file))
        check(fidelity_to_file(csv(tmp_path / "found.csv", FOUND, "p_a,p_b,p_c"), str(file)))


def test_classes_are_matched_by_name(tmp_path: Path) -> None:
    found = csv(tmp_path / "found.csv", FOUND, "p_a,p_b,p_c")
    check(fidelity_to_file(found, csv(tmp_path / "turned.csv", TRUTH[:, [2, 0, 1]], "p_c,p_a,p_b")))
    with pytest.raises(bw.DataError, match="its classes are a, b, d; the prediction's are a, b, c"):
        fidelity_to_file(found, csv(tmp_path / "other.csv", TRUTH, "p_a,p_b,p_d"))


def test_other_shapes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(bw.DataError, match=r"\(4, 3\); the reference has shape \(3, 3\)"):
        fidelity_to_file(torch.tensor(FOUND), csv(tmp_path / "short.csv", TRUTH[:3]))


def test_files_that_hold_no_probabilities(tmp_path: Path) -> None:
    cases = {
        "logits.csv": (lambda p: csv(p, TRUTH * 3), bw.DataError, "sum to 1"),
        "text.csv": (lambda p: p.write_text("a,b\n0.5,half\n"), bw.DataError, "row 2, column 'b': 'half'"),
        "nan.csv": (lambda p: p.write_text("a,b\n0.5,nan\n"), bw.DataError, "'nan' is not a finite number"),
        "ragged.csv": (lambda p: p.write_text("0.5,0.5\n1.0\n"), bw.DataError, "row 2 has 1 columns"),
        "two.npz": (lambda p: np.savez(p, a=TRUTH, b=TRUTH), bw.DataError, "it holds a, b"),
        "labels.npz": (lambda p: np.savez(p, probabilities=np.eye(3, dtype=int)), bw.DataError, "real numbers"),
        "objects.npz": (lambda p: np.savez(p, probabilities=np.array([{}, None])), bw.FileError, "never objects"),
        "broken.npz": (lambda p: p.write_bytes(b"PK\x03\x04nonsense"), bw.FileError, "not a whole npz"),
        "pickle.npz": (lambda p: p.write_bytes(pickle.dumps(TRUTH)), bw.FileError, "not a whole npz"),
        "table.txt": (lambda p: p.write_text("0.5 0.5"), bw.SettingError, r"\.csv or \.npz"),
        "missing.csv": (lambda p: None, bw.FileError, "cannot be read"),
    }
    for name, (write, error, words) in cases.items():
        write(tmp_path / name)
        with pytest.raises(error, match=words) as caught:
            read_probabilities(tmp_path / name)
        assert name in str(caught.value)
        assert "\n" not in str(caught.value)
