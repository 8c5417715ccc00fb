"""Methods at other lengths of training: their names, which of them are run and how long, and the tables of them."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from benchmarks.quality import against_control, command, page, plan
from benchmarks.quality.deciding import checksum, sha
from benchmarks.quality.differences import Results
from benchmarks.quality.lengths import Length, parted
from benchmarks.quality.plan import Cell, Choice
from benchmarks.quality.pool import measure
from benchmarks.quality.problems import PROBLEMS, TEN
from benchmarks.quality.runs import DRAWS

import measured
import one_training

# Epochs of 40: divided by 2, by 3 (13.3) and by 1.5 (26.7); a budget is divided by the method itself.
EPOCHS_ON_WINE = {
    "auto@budget=1": None, "sgvb-lrt/2": 20, "flipout/2": 20, "vl/3": 13, "vl-lazy/1.5": 27, "hwa/2": 20,
    "deep-ensemble/5": 8, "ivon/2": 20,
}  # fmt: skip


# ---- names


def test_a_name_says_the_method_and_its_length() -> None:
    assert parted("map*5") == Length("map", 5.0)
    assert parted("vl-lazy/1.5") == Length("vl-lazy", 1 / 1.5)
    assert parted("auto@budget=1") == Length("auto", settings={"budget": 1.0})
    for plain in ("map", "deep-ensemble", "peer: laplace-torch", "map*1", "map/0", "ivon@stepper.lr=1"):
        assert parted(plain) == Length(plain), plain
    kinds = {
        name: (parted(name).ordinary, parted(name).shortened) for name in ("map", "map*2", "vl/3", "auto@budget=1")
    }
    assert kinds == {
        "map": (True, False), "map*2": (False, False), "vl/3": (False, True), "auto@budget=1": (False, True),
    }  # fmt: skip


def test_epochs_are_rounded_and_one_at_least() -> None:
    assert [parted("vl/3").epochs(usual) for usual in (40, 20, 10, 1)] == [13, 7, 3, 1]
    assert parted("map*2").epochs(40) == 80
    assert plan.cell("fashion-10k", "deep-ensemble/5", 0).epochs == 2
    assert plan.cell("fashion-10k", "deep-ensemble/5", 0, epochs=2).epochs == 1


# ---- what is run


def test_a_longer_control_is_the_method_with_more_epochs() -> None:
    cells = plan.cells(Choice(("longer",), problems=("wine",), seeds=1))
    assert [(one.method, one.epochs) for one in cells] == [("map*2", 80), ("map*5", 200)]
    assert len({one.decided for one in (*cells, plan.cell("wine", "map", 0))}) == 3


def test_at_equal_cost_only_dearer_methods_are_run_with_fewer_epochs() -> None:
    cells = plan.cells(Choice(("equal-cost",)))
    assert {one.method: one.epochs for one in cells if one.problem == "wine"} == EPOCHS_ON_WINE
    assert {one.problem for one in cells} == {*TEN, "cifar-5k"}
    assert len(cells) == len(EPOCHS_ON_WINE) * (len(TEN) + 1) * 3
    # What costs no more is in the record already, and the dearer ones at all epochs are other runs.
    ordinary = plan.cells(Choice())
    assert not {one.key for one in cells} & {one.key for one in ordinary}
    dear = {parted(one.method).method for one in cells}
    cheap = {one.method for one in ordinary} - dear
    assert {"map", "bbb", "sghmc", "swag", "laplace", "snapshot-ensemble"} <= cheap
    assert len(cheap) + len(dear) == len(plan.named())


def test_some_methods_and_problems_of_those_at_equal_cost() -> None:
    for typed in ("deep-ensemble", "deep-ensemble/5"):
        groups, methods, problems = plan.sort_out(["equal-cost", "cifar-5k", typed, "bbb"])
        cells = plan.cells(Choice(groups, methods, problems))
        assert [one.key for one in cells] == [f"cifar-5k/deep-ensemble/5/{seed}" for seed in range(3)]
    with pytest.raises(SystemExit, match="deep-ensembel/5"):
        plan.sort_out(["deep-ensembel/5"])


def test_a_budget_decides_a_result_and_results_of_full_length_are_the_same_as_before() -> None:
    assert plan.cell("wine", "auto@budget=1", 0).decided != plan.cell("wine", "auto", 0).decided
    assert plan.cell("wine", "auto@budget=1", 0).decided != plan.cell("wine", "auto@budget=2", 0).decided
    about = dataclasses.asdict(PROBLEMS["wine"])
    for name, epochs in (("hwa", None), ("hwa*2", 80), ("hwa/2", 20)):
        assert plan.cell("wine", name, 0).decided == sha([about, checksum("hwa"), DRAWS, 1, epochs])


def test_shortened_runs_cost_one_ordinary_training() -> None:
    found = measure(plan.cell("wine", "deep-ensemble/5", 0))
    assert found["passes"] == pytest.approx(1.0)  # five members, 8 of 40 epochs
    assert found["nll"] < math.log(3)
    found = measure(plan.cell("wine", "auto@budget=1", 0, epochs=4))
    assert found["passes"] == pytest.approx(4 / 40)  # one member of all epochs that there are
    assert math.isfinite(found["nll"])


def test_the_smoke_test_has_a_method_at_equal_cost_and_fails_with_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BAYESWELL_DATA", raising=False)
    monkeypatch.setattr(command.signal, "signal", lambda *given: None)
    ran: list[Cell] = []
    broken: set[str] = set()

    def finished(cells: Sequence[Cell], workers: int) -> Iterator[tuple[Cell, dict[str, Any]]]:
        for cell in list(cells):
            ran.append(cell)
            yield cell, {"error": "no"} if cell.method in broken else {"nll": 1.0, "passes": 1.0, "seconds": 1.0}

    monkeypatch.setattr(command, "finished", finished)
    asked = ["--quick", "--again", "--out", str(tmp_path / "quick.jsonl")]
    assert command.main(asked) == 0
    assert {(one.method, one.epochs) for one in ran} == {("map", 2), ("bbb", 2), ("hwa/2", 1)}
    broken.add("hwa/2")
    assert command.main(asked) == 1


# ---- a problem beside the others


def lines(problem: str, method: str, values: Sequence[float], **more: Any) -> list[dict[str, Any]]:
    base = {"problem": problem, "method": method, "warnings": [], "seconds": 2.0, "passes": 1.0, "session": "s"}
    return [{**base, "seed": seed, "nll": value, **more} for seed, value in enumerate(values)]


def test_a_problem_beside_the_others_is_shown_and_decides_nothing() -> None:
    groups, methods, problems = plan.sort_out(["cifar-5k"])
    cells = plan.cells(Choice(groups or ("ten",), methods, problems))
    assert {one.problem for one in cells} == {"cifar-5k"}
    assert {one.method for one in cells} == set(plan.named())
    assert "cifar-5k" not in {one.problem for one in plan.cells(Choice())}
    found = [line for problem in TEN for name in ("map", "bbb") for line in lines(problem, name, (1.0, 1.3, 0.9))]
    found += lines("cifar-5k", "map", (1.5, 1.6, 1.4)) + lines("cifar-5k", "bbb", (2.5, 2.6, 2.4))
    for verdict in (against_control.as_good_as_control, against_control.never_silently_worse):
        assert verdict(Results.of(found)).word == "met"
    text = page.render(Results.of(found), [])
    assert "| imdb-5k | cifar-5k |" in text
    assert "**+1.000 ± 0.000** |" in text
    assert "better on 0, level on 11, worse on 0 of 11." in text


def test_the_page_has_the_shortened_methods_apart_with_what_they_cost() -> None:
    found = lines("wine", "map", (1.0, 1.3, 0.9)) + lines("wine", "hwa", (0.5, 0.8, 0.4), passes=2.0)
    assert "At the cost of one training" not in page.render(Results.of(found), [])
    found += lines("wine", "vl/3", (1.1, 1.4, 1.03), passes=0.975)
    made = page.render(Results.of(found), [])
    own = made.split("### At the cost of one training: NLL above map's")[1].split("###")[0]
    assert "| vl/3 | **+0.110 ± 0.010** (0.97) |" in own
    assert "hwa" not in own
    assert "vl/3" not in made.replace(own, "")


# ---- which method at this cost?

# Differences to map of "deep-ensemble/5": (-0.3, -0.2, -0.1) and (-0.5, -0.5, -0.2), of "bbb": (-0.1, -0.3, -0.2) and
# (-0.4, -0.4, -0.3), of "hwa/2": (0.5, 0.5, 0.6) and (0.6, 0.5, 0.6).
PLANTED = {
    ("wine", "map", 1.0): (1.0, 1.2, 1.4),
    ("wine", "deep-ensemble", 5.0): (0.1, 0.2, 0.3),
    ("wine", "deep-ensemble/5", 1.0): (0.7, 1.0, 1.3),
    ("wine", "bbb", 1.0): (0.9, 0.9, 1.2),
    ("wine", "hwa", 2.0): (0.1, 0.2, 0.3),
    ("wine", "hwa/2", 1.0): (1.5, 1.7, 2.0),
    ("wine", "vl/3", 0.975): (0.1, 0.2, 0.3),
    ("wine", "f-bbb", 2.0): (0.1, 0.2, 0.3),
    ("wine", "map*5", 5.0): (0.1, 0.2, 0.3),
    ("breast_cancer", "map", 1.0): (3.0, 2.0, 2.5),
    ("breast_cancer", "deep-ensemble", 5.0): (0.1, 0.2, 0.3),
    ("breast_cancer", "deep-ensemble/5", 1.0): (2.5, 1.5, 2.3),
    ("breast_cancer", "bbb", 1.0): (2.6, 1.6, 2.2),
    ("breast_cancer", "hwa", 2.0): (0.1, 0.2, 0.3),
    ("breast_cancer", "hwa/2", 1.1): (3.6, 2.5, 3.1),
    ("breast_cancer", "f-bbb", 2.0): (0.1, 0.2, 0.3),
    ("breast_cancer", "map*5", 5.0): (0.1, 0.2, 0.3),
}
CLASSES = next(group for group in one_training.GROUPS if group.title == "tables of classes")


def plant(monkeypatch: pytest.MonkeyPatch, leave_out: str = "none") -> None:
    found = [
        line for (problem, method, passes), values in PLANTED.items() if leave_out not in method
        for line in lines(problem, method, values, passes=passes, ece=0.1, accuracy=values[0] / 10)
    ]  # fmt: skip
    monkeypatch.setattr(measured, "results", lambda: Results.of(found))
    session = {"session/s": {"when": "2026-01-02 03:04 UTC", "commit": "abc"}}
    monkeypatch.setattr(measured, "_lines", lambda: session)


def test_the_table_at_this_cost_has_cheap_methods_as_they_are_and_dear_ones_shortened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    made = one_training.table(CLASSES)
    rows = [line for line in made.splitlines() if line.startswith("| [`")]
    assert [row.split("`")[1] for row in rows] == ["deep-ensemble/5", "bbb", "map", "hwa/2"]
    # The errors over seeds of both problems are std / sqrt(3); that of their mean is half the root of their squares.
    assert rows[0].startswith("| [`deep-ensemble/5`](cards/deep-ensemble.md) | ✓ -0.300 ± 0.058 |")
    assert rows[1].startswith("| [`bbb`](cards/bbb.md) | ✓ -0.283 ± 0.033 |")
    assert rows[3].startswith("| [`hwa/2`](cards/hwa.md) | **+0.550 ± 0.024** |")
    assert [row.split("|")[-2].strip() for row in rows] == ["1.00", "1.00", "1.00", "1.05"]
    # Of seed 0 on both: 100 x (1.0 - 0.7) / 10 and 100 x (3.0 - 2.5) / 10 points of errors more, at all seeds alike.
    assert "| **+4.00 ± 0.00** |" in rows[0]
    left = made.split("Left out, since not measured on all of them at several seeds: ")[1]
    assert "vl/3" in left
    assert "flipout/2" in left
    assert "hwa/2" not in left
    assert made.count("Measured 2026-01-02 at commit abc.") == 1


def test_the_leader_at_this_cost_and_what_cannot_be_told_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    rows = {line.split("|")[1].strip(): line for line in one_training.leaders().splitlines()[2:]}
    assert set(rows) == {group.title for group in one_training.GROUPS}
    # bbb less deep-ensemble/5: (0.2, -0.1, -0.1) and (0.1, 0.1, -0.1), 0.017 ± 0.06; map and hwa/2 are far off.
    assert rows["tables of classes"].endswith("(cards/deep-ensemble.md) | ✓ -0.300 ± 0.058 | `bbb` |")
    assert rows["texts"] == "| texts | not measured yet |  |  |"


def test_the_words_are_those_of_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert one_training.in_words() == (
        "Lowest in NLL at this cost: `deep-ensemble/5` on tables of classes (✓ -0.300 ± 0.058). Of 2 comparisons of "
        "dearer methods, held to this cost, with `map` they win 1 (`deep-ensemble/5` on tables of classes) and lose 1 "
        "(`hwa/2` on tables of classes); the other 0 are within two standard errors."
    )


def test_without_shortened_runs_nothing_is_said_of_this_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, leave_out="/")
    assert "bbb" in measured.results().methods(["wine"])
    assert one_training.table(CLASSES) == one_training.in_words() == one_training.NOT_YET
    assert one_training.leaders().count("not measured yet") == len(one_training.GROUPS)
