"""The bundled sets are scikit-learn's own, number by number, though its functions are not called."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn import datasets

import bayeswell as bw
from bayeswell.datasets import bundled
from bayeswell.datasets.data import shuffled_split

LOADERS = {
    bundled.Digits: datasets.load_digits,
    bundled.BreastCancer: datasets.load_breast_cancer,
    bundled.Wine: datasets.load_wine,
    bundled.Diabetes: lambda: datasets.load_diabetes(scaled=False),  # else scaled by all rows, the test's among them
}


@pytest.mark.parametrize("kind", LOADERS, ids=lambda kind: kind.name)
def test_equal_to_scikit_learns(kind: type[bundled.Digits]) -> None:
    theirs, ours = LOADERS[kind](), kind(test_share=0.3, split=4).read(None)
    inputs = torch.from_numpy(np.asarray(theirs.data))
    targets = torch.from_numpy(np.asarray(theirs.target))
    if kind is bundled.Digits:
        inputs = torch.from_numpy(theirs.images).float().unsqueeze(1) / 16
    classes = tuple(map(str, theirs.target_names)) if "target_names" in theirs else None
    targets = targets.long() if classes else targets.double().unsqueeze(1)
    for pair, own in zip(shuffled_split(inputs, targets, test_share=0.3, seed=4), (ours.train, ours.test), strict=True):
        assert own is not None
        for expected, found in zip(pair, own, strict=True):
            assert found.dtype == expected.dtype
            assert torch.equal(found, expected)
    assert ours.class_names == classes


def test_a_scikit_learn_without_its_data_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundled, "_data_folder", lambda: tmp_path)
    with pytest.raises(bw.FileError, match=r"digits\.csv\.gz: the data of the installed scikit-learn cannot be read"):
        bundled.Digits().read(None)


def test_without_scikit_learn_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundled, "find_spec", lambda name: None)
    with pytest.raises(bw.BayeswellError, match="lab"):
        bundled.Wine().read(None)
