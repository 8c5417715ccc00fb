"""A sampler that offers too few draws for a collector is refused before the first step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell.averaging.timetable import Timetable
from bayeswell.training.run import Callback, Run
from bayeswell.types import Progress

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")  # short runs

X, Y = torch.randn(60, 4, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3


class NoStep(Callback):
    def after_step(self, run: Run) -> None:
        raise AssertionError("a step was taken")


@pytest.mark.parametrize("collector", ["hwa", "swag", "swag_diag"])
def test_too_few_snapshots_are_refused_before_training(collector: str) -> None:
    # 32 steps in 4 cycles: draws are offered after steps 6, 7, 14, 15, ...; the snapshots are due after 27 and 31.
    given = {"stepper": {"cycles": 4}, "callbacks": [NoStep()], "progress": False}
    with pytest.raises(bw.SettingError, match=rf"{collector}: 1 snapshots can be taken .* at least 2"):
        bw.fit(nn.Linear(4, 3), (X, Y), "csgld", epochs=8, collector=collector, **given)


def test_a_bank_that_stays_empty_is_refused_before_training() -> None:
    bank = {"name": "bank", "thinning": 9, "burn_in": 0}
    with pytest.raises(bw.SettingError, match="offers 8 of the 32 steps after burn-in, and one in 9"):
        bw.fit(nn.Linear(4, 3), (X, Y), "csgld", epochs=8, collector=bank, callbacks=[NoStep()], progress=False)


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("sgld", {"collector": "swag"}),
        ("sgld", {"collector": "hwa"}),
        ("csgld", {"collector": {"name": "swag", "start": 0.2, "cycle": 1}}),
        ("csgld", {"collector": {"name": "bank", "thinning": 8, "burn_in": 0}}),
    ],
)
def test_what_has_enough_draws_is_trained(method: str, settings: dict[str, Any]) -> None:
    result = bw.fit(nn.Linear(4, 3), (X, Y), method, epochs=8, progress=False, **settings)
    assert float(result.predict(X).probabilities.sum()) == pytest.approx(60, abs=1e-3)


@pytest.mark.parametrize(("burn_in", "cycle", "total"), [(0, 1, 5), (24, 4, 32), (25, 4, 32), (23, 4, 31), (7, 3, 7)])
def test_the_steps_of_a_timetable_are_those_that_are_due(burn_in: int, cycle: int, total: int) -> None:
    timetable = Timetable(burn_in, cycle, total)
    due = [step for step in range(total) if timetable.due(Progress(step, total, 0, 1))]
    assert list(timetable.steps()) == due
    assert len(due) == timetable.planned
