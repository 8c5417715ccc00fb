"""``fit(..., calibrate=...)``: no model is asked about data that it was trained on, and training goes on as before."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.errors import DataError, SettingError
from bayeswell.predictive.calibration import find_calibration
from bayeswell.training.calibrating import calibrated_fit, holding

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")
SETTINGS: dict[str, Any] = {"epochs": 3, "progress": False, "seed": 1}


@pytest.fixture(autouse=True)
def _few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten draws for each pair of numbers that is tried: which pair is the best one is not what is asked here."""
    few = functools.partial(find_calibration, draws=10)
    monkeypatch.setattr("bayeswell.training.calibrating.find_calibration", few)


def _net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def _data(count: int = 90) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, 4, generator=bw.make_generator(3))
    return x, (x[:, :3] + torch.randn(count, 3, generator=bw.make_generator(4))).argmax(-1)


class _Spy:
    """Trains nothing; notes which examples it was given (their index is their input)."""

    def __init__(self) -> None:
        self.given: list[list[int]] = []
        self.main: list[bool] = []

    def __call__(self, data: Any, validation: Any, folder: Any, *, main: bool) -> Any:
        self.given.append([int(value) for value in data[0][:, 0]])
        self.main.append(main)
        return _Asked(self.given[-1])


class _Asked:
    """In a model's place: notes what it is asked about."""

    def __init__(self, seen: list[int]) -> None:
        self.seen, self.model, self.likelihood = seen, self, None

    def calibrated(self, found: Any) -> Any:
        return self, found


@pytest.mark.parametrize(("calibrate", "folds"), [(True, 5), (3, 3), (0.2, 1)])
def test_nobody_is_asked_about_what_it_has_seen(calibrate: Any, folds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bayeswell.training.calibrating.find_calibration", lambda held_out, seed: held_out)
    spy, count = _Spy(), 47
    data = (torch.arange(count).float()[:, None], torch.zeros(count))
    kept, held_out = calibrated_fit(
        spy, data, calibrate, validation=None, folder=None, resume=False, seed=5, dtype=torch.float32
    )  # type: ignore[misc]
    asked = [[int(value) for value in one.inputs[:, 0]] for one in held_out]
    assert len(held_out) == folds
    for one, examples in zip(held_out, asked, strict=True):
        assert examples
        assert not set(examples) & set(one.model.seen)
        assert set(examples) | set(one.model.seen) == set(range(count))
    if folds > 1:
        assert sorted(example for examples in asked for example in examples) == list(range(count))
        assert sorted(kept.seen) == list(range(count))
        assert spy.main == [True] + [False] * folds
    else:
        assert kept is held_out[0].model
        assert len(asked[0]) == round(0.2 * count)


@pytest.mark.parametrize(
    ("calibrate", "examples", "expected"),
    [(True, 4999, (0, 5)), (True, 5000, (500, 1)), (True, 10**6, (10_000, 1)), (0.5, 20, (10, 1)), (7, 30, (0, 7))],
)
def test_how_many_are_held_out(calibrate: Any, examples: int, expected: tuple[int, int]) -> None:
    found = holding(calibrate, examples)
    assert (found.examples, found.folds) == expected


@pytest.mark.parametrize("calibrate", [1, 0, 1.0, -0.1, 16, None, "yes"])
def test_what_cannot_be_meant_is_refused(calibrate: Any) -> None:
    with pytest.raises(SettingError, match="calibrate ="):
        holding(calibrate, 30)


def test_folds_and_the_whole() -> None:
    """The kept model is that of the plain fit on all data, with the two numbers put to it."""
    found = bw.fit(_net(), _data(), "bbb", calibrate=3, **SETTINGS)
    plain = bw.fit(_net(), _data(), "bbb", **SETTINGS)
    assert found.calibration is not None
    assert (found.calibration.examples, found.calibration.folds) == (90, 3)
    assert plain.calibration is None
    assert torch.equal(found.model.posterior.mean_vector(), plain.model.posterior.mean_vector())
    torch.testing.assert_close(
        found.model.posterior.std_vector(), plain.model.posterior.std_vector() * found.calibration.std_scale
    )
    again = bw.fit(_net(), _data(), "bbb", calibrate=3, **SETTINGS)
    assert again.calibration == found.calibration


def test_validation_is_asked_if_there_is_one() -> None:
    x, y = _data(130)
    found = bw.fit(_net(), (x[:90], y[:90]), "k-tied", calibrate=True, validation=(x[90:], y[90:]), **SETTINGS)
    assert found.calibration is not None
    assert (found.calibration.examples, found.calibration.folds) == (40, 1)
    plain = bw.fit(_net(), (x[:90], y[:90]), "k-tied", validation=(x[90:], y[90:]), **SETTINGS)
    assert torch.equal(found.model.posterior.mean_vector(), plain.model.posterior.mean_vector())


def test_training_goes_on_from_the_model_as_it_was_trained() -> None:
    """Bit for bit the run that was never calibrated."""
    plain = bw.fit(_net(), _data(), "bbb", rate="constant", **SETTINGS)
    changed = plain.calibrated(_numbers(0.5, 1.5))
    assert changed.likelihood.temperature == 1.5  # type: ignore[attr-defined]
    both = [bw.fit(one, _data(), **SETTINGS) for one in (plain, changed)]
    assert torch.equal(both[0].model.posterior.mean_vector(), both[1].model.posterior.mean_vector())
    assert torch.equal(both[0].model.posterior.std_vector(), both[1].model.posterior.std_vector())
    assert both[1].calibration is None
    assert both[1].likelihood.temperature == 1  # type: ignore[attr-defined]
    point = bw.fit(plain.calibrated(_numbers(0.0, 1.0)), _data(), **SETTINGS)
    assert torch.equal(both[0].model.posterior.mean_vector(), point.model.posterior.mean_vector())


def _numbers(scale: float, widening: float) -> bw.Calibration:
    return bw.Calibration(scale, widening, "logits", 10, 1, 1.0, 0.1, 0.9, 0.1, 0.05)


def test_a_run_in_a_folder_comes_back_the_same(tmp_path: Path) -> None:
    whole = bw.fit(_net(), _data(), "bbb", calibrate=2, folder=tmp_path / "run", **SETTINGS)
    again = bw.fit(_net(), _data(), "bbb", calibrate=2, folder=tmp_path / "run", resume=True, **SETTINGS)
    assert again.calibration == whole.calibration
    assert torch.equal(again.model.posterior.std_vector(), whole.model.posterior.std_vector())


def test_data_that_cannot_be_cut_are_refused() -> None:
    x, y = _data()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=30)
    with pytest.raises(DataError, match="cannot be cut in two"):
        bw.fit(_net(), loader, "bbb", calibrate=True, **SETTINGS)
    result = bw.fit(_net(), _data(), "bbb", **SETTINGS)
    with pytest.raises(SettingError, match="has seen the data"):
        bw.fit(result, _data(), calibrate=True, **SETTINGS)
