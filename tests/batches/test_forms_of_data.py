"""Loaders, data sets, columns and tensors are the same data: training, validation and predictions agree to the bit."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, RandomSampler, TensorDataset, WeightedRandomSampler

import bayeswell as bw
from bayeswell.predictive import expected_nll, predictive_nll

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")

N = 48
TOKENS = torch.randint(1, 20, (N, 7), generator=torch.Generator().manual_seed(3))
LENGTHS = torch.arange(N) % 5 + 3
MASK = (torch.arange(7) < LENGTHS[:, None]).long()
LABELS = TOKENS[:, 0] % 3


class Reader(nn.Module):
    """Means of embeddings where the mask is 1."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.table, self.head = nn.Embedding(20, 6), nn.Linear(6, 3)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        weight = mask[..., None] / mask.sum(1)[:, None, None]
        out: Tensor = self.head((self.table(input_ids) * weight).sum(1))
        return out


class Columns(Dataset[dict[str, Tensor]]):
    """Examples by name, with a text that no network takes."""

    def __init__(self, target: str = "labels", text: bool = False) -> None:
        self.target, self.text = target, text

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> Any:
        row = {"input_ids": TOKENS[index], "attention_mask": MASK[index], self.target: LABELS[index]}
        return {**row, "text": "so it goes"} if self.text else row


class Table:
    """What Hugging Face's data sets can do, as far as it is used."""

    column_names = ("input_ids", "attention_mask", "label", "text")
    features = None

    def __len__(self) -> int:
        return N

    def __getitem__(self, rows: Any) -> dict[str, Any]:
        if isinstance(rows, int):
            return {name: values[0] for name, values in self[[rows]].items()}
        return {
            "input_ids": TOKENS[rows].tolist(), "attention_mask": MASK[rows].tolist(), "label": LABELS[rows].tolist(),
            "text": ["so it goes"] * len(rows),
        }  # fmt: skip


def by_name(target: str = "labels") -> dict[str, Tensor]:
    return {"input_ids": TOKENS, "attention_mask": MASK, target: LABELS}


INPUTS = {"input_ids": TOKENS, "attention_mask": MASK}


def trained(data: Any, **settings: Any) -> bw.Result:
    return bw.fit(Reader(), data, "bbb", epochs=2, batch_size=20, seed=3, progress=False, **settings)


@functools.cache
def trained_on_tensors(masked: bool = True, validated: bool = False) -> bw.Result:
    """What the other forms are compared with."""
    settings = {"validation": (INPUTS, LABELS), "early_stopping": 2} if validated else {}
    return trained((INPUTS if masked else TOKENS, LABELS), **settings)


def mean(result: bw.Result) -> Tensor:
    return result.model.posterior.mean_vector().detach()


FORMS: dict[str, tuple[Any, dict[str, Any]]] = {
    "columns": (by_name(), {}),
    "columns with a target of its own": (by_name("diagnosis"), {"target": "diagnosis"}),
    "a data set of columns": (Columns(), {}),
    "a data set with texts": (Columns("y", text=True), {}),
    "a Hugging Face data set": (Table(), {}),
    "a data set of pairs": (TensorDataset(TOKENS, LABELS), {}),
}


@pytest.mark.parametrize("form", FORMS)
def test_training_is_the_same_whatever_the_form(form: str) -> None:
    data, settings = FORMS[form]
    plain = trained_on_tensors(masked=form != "a data set of pairs")
    assert torch.equal(mean(trained(data, **settings)), mean(plain))


def test_masks_are_used() -> None:
    assert not torch.equal(mean(trained_on_tensors()), mean(trained_on_tensors(masked=False)))


def test_columns_that_the_network_does_not_take_are_named() -> None:
    with pytest.warns(bw.BayeswellWarning, match="'text'"):
        trained(Columns(text=True))


def padded(rows: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Each batch is as long as its longest sentence."""
    length = max(int(row["attention_mask"].sum()) for row in rows)
    return {
        name: torch.stack([row[name][:length] if row[name].dim() else row[name] for row in rows]) for name in rows[0]
    }


@pytest.fixture(scope="module")
def result() -> bw.Result:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return trained(by_name())


def looked_at(result: bw.Result, data: Any, targets: Any = None) -> dict[str, Tensor]:
    """Predictions, scores of them, and the NLL when they are calibrated."""
    model, likelihood = result.model, result.likelihood
    found: dict[str, Any] = {
        score.__name__: score(model, data, targets, likelihood, draws=5, seed=1)
        for score in (expected_nll, predictive_nll)
    }
    found["probabilities"] = result.predict(data, draws=7, seed=2).probabilities
    calibration = result.calibrate(data, targets, draws=10).calibration
    assert calibration is not None
    found["calibrated"] = calibration.nll_after
    return {name: torch.as_tensor(value) for name, value in found.items()}


@pytest.fixture(scope="module")
def of_tensors(result: bw.Result) -> dict[str, Tensor]:
    return looked_at(result, INPUTS, LABELS)


@pytest.mark.parametrize(
    "form",
    [Columns(), Table(), DataLoader(Columns(), batch_size=9), DataLoader(Columns(), batch_size=5, collate_fn=padded)],
    ids=["data set", "Hugging Face", "loader", "padded loader"],
)
def test_predictions_and_scores_of_a_source_are_those_of_its_tensors(
    form: Any, result: bw.Result, of_tensors: dict[str, Tensor]
) -> None:
    found = looked_at(result, form)
    assert found.keys() == of_tensors.keys()
    for name, wanted in of_tensors.items():
        torch.testing.assert_close(found[name], wanted, rtol=1e-5, atol=0.0 if name == "calibrated" else 1e-6)


def test_targets_may_be_named_or_given(result: bw.Result) -> None:
    model, likelihood = result.model, result.likelihood
    data = Columns("diagnosis")
    wanted = expected_nll(model, INPUTS, LABELS, likelihood, draws=3, seed=1)
    assert expected_nll(model, data, "diagnosis", likelihood, draws=3, seed=1) == pytest.approx(wanted)
    assert expected_nll(model, by_name(), None, likelihood, draws=3, seed=1) == pytest.approx(wanted)
    assert expected_nll(model, by_name(), "labels", likelihood, draws=3, seed=1) == pytest.approx(wanted)
    with pytest.raises(bw.DataError, match="no targets"):
        expected_nll(model, TensorDataset(TOKENS), None, likelihood)


def test_labels_in_the_inputs_of_a_prediction_are_left_out(result: bw.Result) -> None:
    found, wanted = (result.predict(data, draws=3) for data in (by_name(), INPUTS))
    assert torch.equal(found.probabilities, wanted.probabilities)


@pytest.mark.parametrize("form", ["loader", "padded loader", "columns", "data set"])
def test_validation_and_early_stopping_take_what_training_takes(form: str) -> None:
    held_out = {
        "loader": DataLoader(Columns(), batch_size=11, shuffle=True),
        "padded loader": DataLoader(Columns(), batch_size=11, collate_fn=padded),
        "columns": by_name(),
        "data set": Table(),
    }[form]
    found, wanted = trained(by_name(), validation=held_out, early_stopping=2), trained_on_tensors(validated=True)
    for own, given in zip(found.histories[0].epochs, wanted.histories[0].epochs, strict=True):
        assert own.validation["nll"] == pytest.approx(given.validation["nll"], rel=1e-5)
    calibrated = trained(by_name(), validation=held_out, calibrate=True)
    assert calibrated.calibration is not None
    assert calibrated.calibration.examples == N


@pytest.mark.parametrize("sampler", [RandomSampler(Columns()), WeightedRandomSampler([1.0] * N, N)])
def test_predictions_in_an_order_that_nobody_knows_are_refused(sampler: Any, result: bw.Result) -> None:
    with pytest.raises(bw.DataError, match=r"shuffles.*shuffle=False"):
        result.predict(DataLoader(Columns(), batch_size=9, sampler=sampler))


def test_a_network_argument_called_y_is_no_target() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 3)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            out: Tensor = self.layer(torch.stack([x, y], 1))
            return out

    x, y = torch.randn(30), torch.randn(30)
    label = (x > y).long()
    result = bw.fit(Two(), {"x": x, "y": y, "label": label}, "map", epochs=1, progress=False)
    assert result.predict({"x": x, "y": y}).probabilities.shape == (30, 3)


def test_one_column_is_the_input_whatever_the_network_calls_it() -> None:
    x = torch.randn(30, 4)
    net = nn.Sequential(nn.Linear(4, 3))
    found = bw.fit(net, {"picture": x, "label": x[:, :3].argmax(1)}, "map", epochs=1, progress=False)
    wanted = bw.fit(net, (x, x[:, :3].argmax(1)), "map", epochs=1, progress=False)
    assert torch.equal(mean(found), mean(wanted))


def test_looking_at_the_data_changes_nothing() -> None:
    """Neither random streams, nor modes, weights and statistics of the network that was given."""
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.3), nn.Linear(6, 3))
    net[1].eval()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    modes = [module.training for module in net.modules()]
    state = torch.get_rng_state()
    x = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    with pytest.raises(bw.DataError, match="label 7"):
        bw.fit(net, (x, torch.full((20,), 7)), "map", epochs=1)
    assert torch.equal(state, torch.get_rng_state())
    assert modes == [module.training for module in net.modules()]
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
