"""Each bad input is answered in one clear line, of our own kind, before any training."""

from __future__ import annotations

import pytest

import bayeswell as bw
from bad_inputs import CASES, trained
from bayeswell.training.engine import Step

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.BayeswellWarning")


def test_there_are_forty_at_least() -> None:
    assert len(CASES) >= 40


@pytest.mark.parametrize("case", CASES)
def test_one_line_before_any_training(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    action, kind, words = CASES[case]

    def trains(*_: object) -> None:
        raise AssertionError("a step of training was taken")

    trained()  # what is predicted with
    monkeypatch.setattr(Step, "gradient", trains)
    with pytest.raises(bw.BayeswellError) as caught:
        action()
    line = str(caught.value)
    assert isinstance(caught.value, kind), f"{type(caught.value).__name__}: {line}"
    assert "\n" not in line
    assert len(line.partition("allowed: ")[0]) < 320, line
    for word in words:
        assert word in line, f"'{word}' is not in: {line}"
