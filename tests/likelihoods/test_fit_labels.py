"""Whole runs with class weights and with ignored labels."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.training.scores import Score


@pytest.fixture(autouse=True)
def _quiet() -> None:
    warnings.simplefilter("ignore", bw.BayeswellWarning)


def test_class_weights_are_examples_met_so_often(tmp_path: Path) -> None:
    """Weights (1, 3) on the data and plain labels on data with class 1 three times: one and the same posterior."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(40, 3, generator=generator)
    y = (x[:, 0] + torch.randn(40, generator=generator) > 0.5).long()
    often = torch.cat([torch.arange(40), *[torch.nonzero(y)[:, 0]] * 2])

    def weights_of(likelihood: Any, inputs: Tensor, labels: Tensor) -> Tensor:
        torch.manual_seed(6)
        result = bw.fit(
            nn.Linear(3, 2), (inputs, labels), "laplace", likelihood, epochs=60, batch_size=len(labels),
            temperature=1.0, prior={"name": "normal", "std": 0.9}, stepper={"name": "adam", "lr": 0.3}, rate="cosine",
            post_hoc={"name": "laplace", "structure": "full"}, progress=False,
        )  # fmt: skip
        result.save(tmp_path / "weighted")
        loaded = bw.load(tmp_path / "weighted")
        assert torch.equal(loaded.predict(x, seed=1).probabilities, result.predict(x, seed=1).probabilities)  # type: ignore[union-attr]
        posterior = result.model.posterior
        return torch.stack([posterior.mean_vector(), posterior.std_vector()]).detach()

    weighted = weights_of(bw.Categorical(class_weights=(1.0, 3.0)), x, y)
    repeated = weights_of("categorical", x[often], y[often])
    plain = weights_of("categorical", x, y)
    torch.testing.assert_close(weighted, repeated, rtol=1e-3, atol=1e-3)
    assert (weighted - plain).abs().max() > 0.02


@pytest.mark.parametrize("method", ["bbb", "vl"])
def test_sequences_with_padding(method: str) -> None:
    """(batch, time, classes) outputs, padded places ignored: what stands at padded places changes nothing."""
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(24, 5, 3, generator=generator)
    labels = x.argmax(-1)
    labels[:, 3:] = -100
    labels[0] = -100
    other = x.clone()
    other[:, 3:] += 7.0
    likelihood = {"name": "categorical", "class_axis": -1, "ignore_index": -100}
    found = []
    for inputs in (x, other):
        torch.manual_seed(8)
        result = bw.fit(
            nn.Linear(3, 3), (inputs, labels), method, likelihood, epochs=25, batch_size=24, seed=1, progress=False,
            validation=(inputs, labels), stepper={"name": "adam", "lr": 0.2},
        )  # fmt: skip
        found.append(result)
    first, second = (torch.cat([r.model.posterior.mean_vector(), r.model.posterior.std_vector()]) for r in found)
    torch.testing.assert_close(first, second)
    record = found[0].histories[0].epochs[-1]
    assert record.scores["accuracy"] > 0.9
    assert record.validation["accuracy"] > 0.9
    assert found[0].predict(x, draws=3, seed=1).probabilities.shape == (24, 5, 3)  # type: ignore[union-attr]


@pytest.mark.parametrize("weights", [None, torch.tensor([0.5, 2.0, 1.0])])
def test_the_running_score_leaves_out_ignored_labels(weights: Tensor | None) -> None:
    likelihood = bw.Categorical(ignore_index=-100, class_axis=-1)
    outputs = torch.nn.functional.one_hot(torch.tensor([[0, 1, 2], [1, 1, 0], [2, 2, 2]]), 3).float()
    labels = torch.tensor([[0, 2, -100], [1, -100, -100], [-100, -100, -100]])
    score = Score(likelihood)
    # Hits: right, wrong; right. The third example has no label that counts.
    expected = 3 * 2 / 3 if weights is None else 3.5 * (0.5 + 2.0) / (0.5 * 2 + 2.0)
    assert score.name == "accuracy"
    assert score(outputs, labels, weights) == pytest.approx(expected)
    assert score(outputs, torch.full((3, 3), -100), weights) == 0
