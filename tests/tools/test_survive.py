"""`tools/survive.py` counts what is lost: a planted loss is seen, by the table and by the judge of a run."""

from __future__ import annotations

import signal
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

if sys.platform != "linux":
    pytest.skip("the faults are those of Linux", allow_module_level=True)

import survive
from survival import faults
from survival.table import ALIKE, LOST, REFUSED, Clock, Kind, Row, Verdict, lost, run_kinds, shown
from survival.trial import Ended, judged, start, warm_up, whole_run

pytestmark = pytest.mark.filterwarnings("ignore")


def test_a_planted_loss_is_counted_and_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def planted(_: object, clock: Clock) -> Iterator[Verdict]:
        for number in clock.tries():
            yield Verdict(LOST, "planted") if number == 3 else Verdict((ALIKE, REFUSED)[number % 2])

    def none(_: object, clock: Clock) -> Iterator[Verdict]:
        yield Verdict(ALIKE, tries=7)

    monkeypatch.setattr(survive, "warm_up", lambda _: None)
    monkeypatch.setattr(survive, "TRIED", {"bad": (planted, 0.5, 6, 1), "good": (none, 0.5, 1, 1)})
    handler = signal.getsignal(signal.SIGTERM)
    try:
        assert survive.main(["--seed", "4"]) == 1
        said = capsys.readouterr().out
        assert survive.main(["good"]) == 0
        assert survive.main(["--quick"]) == 0  # the first try of "bad" is good
    finally:
        signal.signal(signal.SIGTERM, handler)
    assert "lost, bad: planted" in said
    assert "seed 4" in said
    rows = {line.split("|")[0].strip(): line.split("|")[1:] for line in said.splitlines() if "|" in line}
    assert [[int(cell) for cell in rows[name]] for name in ("bad", "good", "all")] == [
        [6, 3, 2, 1], [7, 7, 0, 0], [13, 10, 2, 1],
    ]  # fmt: skip


def test_a_kind_that_was_never_tried_counts_as_lost() -> None:
    table = run_kinds({"empty": Kind(lambda _: [], 1.0, 5)}, 1.0)
    assert table == {"empty": Row()}
    assert lost(table) == 1
    assert "empty" in shown(table)


def test_time_is_shared_and_what_is_left_goes_to_the_next() -> None:
    clocks: list[float] = []

    def look(clock: Clock) -> Iterator[Verdict]:
        clocks.append(clock.left)
        yield Verdict(ALIKE)

    run_kinds({"a": Kind(look, 0.25, 1), "b": Kind(look, 0.25, 1), "c": Kind(look, 0.5, 1)}, 100.0)
    assert clocks == pytest.approx([25.0, 100 / 3, 100.0], rel=0.02)


@pytest.mark.parametrize(
    ("ended", "clear"),
    [
        (Ended(1, "warning: w\nbayeswell: no space\n", 1.0), True),
        (Ended(1, "bayeswell: KeyError: 'x' (a fault of bayeswell; --debug shows where)\n", 1.0), False),
        (Ended(1, "bayeswell: a\nbayeswell: b\n", 1.0), False),
        (Ended(1, "Traceback (most recent call last):\n  File\nKeyError: 1\n", 1.0), False),
        (Ended(-11, "bayeswell: a\n", 1.0), False),
        (Ended(None, "", 60.0), False),
    ],
)
def test_only_one_clear_line_is_clear(ended: Ended, clear: bool) -> None:
    assert (ended.unclear() == "") == clear


def test_a_run_is_judged_by_what_it_ends_with(tmp_path: Path) -> None:
    """A kill is survived, other numbers are lost, so is a run that ends without a word."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    warm_up(tmp_path)
    whole = whole_run(tmp_path / "whole", "map")
    assert whole.changes > 50
    folder = tmp_path / "run"
    ended = start(folder, "map", faults.killed_at(folder, whole.changes // 2)).finish()
    assert ended.code == -signal.SIGKILL
    assert judged(folder, "map", ended, whole.outcome, "killed").kind == LOST  # nobody was to kill it
    assert judged(folder, "map", ended, whole.outcome, "killed", killed=True).kind == ALIKE
    other = {**whole.outcome, "tensors.safetensors": b"other"}
    verdict = judged(folder, "map", ended, other, "killed", killed=True)
    assert (verdict.kind, "other tensors.safetensors" in verdict.why) == (LOST, True)
    full = tmp_path / "full"
    ended = start(full, "map", faults.failing(full, whole.changes // 2, 10**9, 28)).finish()
    assert "No space left" in ended.said
    assert judged(full, "map", ended, whole.outcome, "full").kind == REFUSED
