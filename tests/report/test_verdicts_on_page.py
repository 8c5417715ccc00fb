"""What a result says of itself stands on its card and under its scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bayeswell.cli.screen import show_result
from bayeswell.metrics.chains import ChainReport
from bayeswell.report.cards import card_of
from bayeswell.report.reading import RunRecord
from bayeswell.report.summary import MethodRow
from bayeswell.training.disagreement import Disagreement
from bayeswell.training.verdicts import FinalELBO, Length, Note, Trust

LINE = "it has learned nothing: NLL 0.69 on its training data"


def result(**parts: Any) -> dict[str, Any]:
    elbo = FinalELBO("elbo", -1234.5, -2345.6, 12.3, 0.1, 0.4, 800.0, 8, 200, 1000)
    return {"method": "bbb", "elbo": elbo.as_json(), "trust": Trust(**parts).as_json(), "chains": None}


def test_a_card_has_the_bound_and_each_warning_once() -> None:
    length = Length(40, 0.12, 0.001, 0.3, 4)
    found = result(notes=(Note("baseline", LINE),), length=length, members=Disagreement(5, 0.03, 0.21))
    found["chains"] = {"r_hat": 1.2, "ess": 20.0, "chains": 2, "warnings": ["twice"]}
    found["trust"]["warnings"].append("twice")
    card = card_of(MethodRow("bbb", [RunRecord(Path("run"), result=found)]))
    assert ("ELBO", "-1,234 ± 12 nats at temperature 0.1, -2,346 at 1") in card.facts
    assert card.warnings == ["twice", *length.warnings, LINE]
    assert "about 4x the epochs are needed" in length.warnings[0]
    assert "members disagree by 0.03 at training inputs, by 0.21 away from them" in card.trust


def test_what_is_wrong_away_from_the_training_inputs_is_said_once() -> None:
    bad = ChainReport(3.0, 2.0, 2, 50, 64, 0, 90.0)
    good = ChainReport(1.0, 80.0, 2, 50, 64, 0, 90.0)
    assert Trust(chains=bad, chains_elsewhere=bad).warnings == bad.warnings
    assert Trust(chains=good, chains_elsewhere=good).trusted is True
    (line,) = Trust(chains=good, chains_elsewhere=bad).warnings
    assert line == f"away from the training inputs {bad.warnings[0]}"


def test_a_command_ends_with_them(capsys: pytest.CaptureFixture[str]) -> None:
    record = {
        **result(notes=(Note("baseline", LINE),)),
        "model": "mlp", "parameters": 10, "data": "d", "seed": 0, "draws": 1, "std_ratio": 0.1, "stopped": "",
        "cost": {"steps": 3, "per_step": 3, "total": 9}, "time": {"resumed": False, "train_seconds": 1.0},
        "temperature": 0.1,
    }  # fmt: skip
    show_result(record, "here")
    lines = capsys.readouterr().out.splitlines()
    assert f"not to be trusted: {LINE}" in lines
    assert "ELBO -1,234 ± 12 nats at temperature 0.1 (-2,346 at 1)" in lines
