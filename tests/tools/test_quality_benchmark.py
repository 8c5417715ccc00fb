"""The quality benchmark: verdicts, tables and plans from planted numbers, and one run of seconds."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
import threading
import time
from pathlib import Path

import pytest

import dying_work

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # the benchmark is a package in the project's folder, not an installed one

from benchmarks.quality import (  # noqa: E402
    against_control,
    against_goals,
    command,
    deciding,
    page,
    peers,
    plan,
    plot,
    published,
)
from benchmarks.quality.differences import Mean, Results, at_equal_cost, mean_of  # noqa: E402
from benchmarks.quality.kept import Kept, small  # noqa: E402
from benchmarks.quality.plan import Cell, Choice  # noqa: E402
from benchmarks.quality.pool import finished, measure  # noqa: E402
from benchmarks.quality.problems import SPLITS, TEN, UCI  # noqa: E402

from bayeswell.methods import resolve  # noqa: E402

CONTROL_NLL = (1.0, 1.3, 0.9)
SESSION = {
    "when": "2026-01-01 00:00 UTC", "commit": "abc", "cpu": "a CPU", "cores": 2, "system": "Linux",
    "versions": {"torch": "2.13.0"},
}  # fmt: skip


def lines(problem: str, method: str, values, metric: str = "nll", **more) -> list[dict]:
    base = {"problem": problem, "method": method, "warnings": [], "seconds": 2.0, "passes": 1.0, "session": "s"}
    return [{**base, "seed": seed, metric: value, **more} for seed, value in enumerate(values)]


def ten(offsets, method: str = "bbb", **more) -> list[dict]:
    """The control on all problems, and a method above it by so much at each seed (one row for each problem)."""
    found = []
    for problem, own in zip(TEN, offsets, strict=True):
        found += lines(problem, "map", CONTROL_NLL)
        found += lines(problem, method, [c + o for c, o in zip(CONTROL_NLL, own, strict=True)], **more)
    return found


LEVEL, BETTER, WORSE = (0.01, -0.012, 0.005), (-0.1, -0.11, -0.09), (0.1, 0.11, 0.09)


def test_a_difference_is_paired_and_its_error_is_that_of_the_pairs():
    found = Results.of(ten([WORSE] * len(TEN)))
    one = found.difference("digits", "bbb")
    assert one.mean == pytest.approx(0.1)
    # The seeds differ by 0.2 from one another; in pairs only by 0.01: std 0.01, over the root of three.
    assert one.error == pytest.approx(0.01 / math.sqrt(3))
    assert not one.within_noise
    assert one.above(0.08)
    assert not one.above(0.09)


def test_a_single_seed_excuses_nothing_and_a_diverged_run_is_not_averaged_away():
    assert not mean_of([0.01]).within_noise
    assert mean_of([-0.01]).within_noise
    assert mean_of([0.1, math.nan, 0.1]).mean == math.inf
    assert not mean_of([-5.0, math.inf, -5.0]).within_noise


@pytest.mark.parametrize(("losses", "word"), [(0, "met"), (2, "met"), (3, "short")])
def test_at_least_as_good_on_eight_of_ten(losses, word):
    offsets = [WORSE] * losses + [LEVEL] * (len(TEN) - losses)
    found = against_control.as_good_as_control(Results.of(ten(offsets)))
    assert found.word == word
    assert f"bbb: {len(TEN) - losses} of {len(TEN)}" in found.details[0]
    assert ("loses on digits +0.100 ± 0.006" in found.details[0]) is (losses > 0)


def test_a_method_that_was_not_measured_everywhere_is_not_shown_to_be_good():
    some = [line for line in ten([BETTER] * len(TEN)) if line["problem"] != "yacht"]
    found = against_control.as_good_as_control(Results.of(some))
    assert found.word == "short"
    assert "1 not measured" in found.details[0]
    assert against_control.as_good_as_control(Results.of([])).word == "not measured"


def test_worse_without_a_warning_is_short_and_with_one_in_each_bad_run_is_met():
    offsets = [WORSE] + [BETTER] * (len(TEN) - 1)
    silent = ten(offsets)
    found = against_control.never_silently_worse(Results.of(silent))
    assert found.word == "short"
    assert "silent at 3 of 3 seeds" in found.details[0]
    warned = ten(offsets, warnings=["method 'bbb' ends worse than class frequencies"])
    told = against_control.never_silently_worse(Results.of(warned))
    assert told.word == "met"
    assert "class frequencies" in told.details[0]
    half = [{**line, "warnings": []} if line["seed"] == 1 else line for line in warned]
    assert against_control.never_silently_worse(Results.of(half)).word == "short"


def test_a_loss_that_noise_could_make_is_said_to_be_noise():
    offsets = [(0.2, -0.1, 0.02)] + [BETTER] * (len(TEN) - 1)  # 0.04 ± 0.09
    assert against_control.never_silently_worse(Results.of(ten(offsets))).word == "met within noise"
    offsets = [(0.019, 0.019, 0.021)] * len(TEN)  # below 0.02 on average
    assert against_control.never_silently_worse(Results.of(ten(offsets))).word == "met"


def test_a_run_that_failed_counts_as_worse_but_not_as_silent():
    failed = ten([BETTER] * len(TEN))
    failed = [
        {"problem": "wine", "method": "bbb", "seed": line["seed"], "error": "ended at step 5"}
        if (line["problem"], line["method"]) == ("wine", "bbb") else line
        for line in failed
    ]  # fmt: skip
    good = against_control.as_good_as_control(Results.of(failed))
    assert "10 of 11" in good.details[0]
    assert "wine failed" in good.details[0]
    assert against_control.never_silently_worse(Results.of(failed)).word == "met"


@pytest.mark.parametrize(
    ("own", "word"),
    [
        ((0.985, 0.975, 0.97), "met"),
        ((0.96, 0.95, 0.94), "short"),
        ((0.99, 0.90, 0.97), "met within noise"),
    ],
)
def test_foreign_images_must_stand_out_as_much_as_for_the_control(own, word):
    control = (0.98, 0.97, 0.96)
    found = lines("digits", "map", control, "auroc") + lines("digits", "bbb", own, "auroc")
    assert against_control.foreign_images_stand_out(Results.of(found)).word == word


@pytest.mark.parametrize(
    ("nll", "ece", "passes", "seconds", "word"),
    [
        (0.232, 0.009, 2.0, 4.1, "met"),
        (0.234, 0.009, 2.0, 4.1, "short"),
        (0.232, 0.011, 2.0, 4.1, "short"),
        (0.232, 0.009, 2.1, 4.1, "short"),
        (0.232, 0.009, 2.0, 4.5, "short"),
    ],
)
def test_the_goal_on_fashion_mnist(nll, ece, passes, seconds, word):
    found = lines("fashion", "map", [0.28] * 3, ece=0.02)
    found += lines("fashion", "hwa", [nll] * 3, ece=ece, passes=passes, seconds=seconds)
    assert against_goals.fashion(Results.of(found)).word == word
    assert against_goals.fashion(Results.of([])).word == "not measured"


def test_time_is_relative_to_the_control_of_the_same_session():
    found = lines("wine", "map", [1.0], seconds=2.0, session="a", cpu="x")
    found += [{**found[0], "seed": 1, "seconds": 20.0, "session": "b"}]
    found += lines("wine", "vl", [1.0], seconds=6.0, session="a", cpu="x")
    assert against_goals.time_ratio(Results.of(found), "wine", "vl") == 3.0
    elsewhere = [{**line, "session": "c"} if line["method"] == "vl" else line for line in found]
    assert against_goals.time_ratio(Results.of(elsewhere), "wine", "vl") == pytest.approx(6 / 11)
    stranger = [{**line, "session": "c", "cpu": "y"} if line["method"] == "vl" else line for line in found]
    assert against_goals.time_ratio(Results.of(stranger), "wine", "vl") is None


def uci_lines(method: str, below: int, spread: float = 0.0) -> list[dict]:
    """At the best published mean on all tables, but far above it in NLL on some."""
    found = []
    for position, problem in enumerate(UCI):
        best = published.best("nll", problem)[1].mean + (3.0 if position < below else 0.0)
        values = [best - spread, best + spread, best, best, best]
        found += lines(problem, method, values, rmse=published.best("rmse", problem)[1].mean)
    return found


@pytest.mark.parametrize(("below", "word"), [(0, "met"), (2, "met"), (3, "short")])
def test_level_with_published_studies_on_seven_of_nine(below, word):
    found = against_goals.uci(Results.of(uci_lines("hwa", below)))
    assert found.word == word
    assert found.numbers == f"hwa: log-likelihood on {9 - below}, RMSE on 9 of 9"


def test_level_means_two_combined_standard_errors():
    # Deep ensembles on boston: NLL 2.41, std 0.25 over 20 splits.
    assert published.best("nll", "boston") == ("deep ensembles", published.Published(2.41, 0.25 / math.sqrt(20)))
    own = 0.03
    limit = 2.41 + 2 * math.hypot(0.25 / math.sqrt(20), own) + 0.005
    step = own * math.sqrt(10)  # of m - step, m, m, m, m + step the std is step / sqrt(2) and its error own
    for shift, level in ((-1e-6, True), (1e-6, False)):
        values = [limit + shift + move for move in (-step, 0.0, 0.0, 0.0, step)]
        found = Results.of(lines("boston", "hwa", values))
        assert against_goals.level_sets(found, "hwa", "nll") == {"boston": level}


def test_published_numbers_are_complete_and_of_plausible_size():
    for metric in ("nll", "rmse"):
        for problem in UCI:
            found = published.published(metric, problem)
            assert list(found) == list(published.STUDIES)
            means = [one.mean for one in found.values()]
            assert max(means) - min(means) < 2.0
    assert sum(SPLITS.values()) == 165


def test_choosing_for_oneself_is_compared_with_the_best_single_choice():
    found = ten([BETTER] * len(TEN)) + [line for line in ten([LEVEL] * len(TEN), "hwa") if line["method"] == "hwa"]
    auto = [{**line, "method": "auto", "picked": "bbb"} for line in found if line["method"] == "bbb"]
    shown = against_goals.choosing_for_oneself(Results.of(found + auto))
    assert shown.word == "met"
    assert "best single choice is bbb" in shown.numbers
    assert "picked bbb" in shown.details[0]
    bad = [{**line, "nll": line["nll"] + 0.3} for line in auto]
    assert against_goals.choosing_for_oneself(Results.of(found + bad)).word == "short"
    assert against_goals.choosing_for_oneself(Results.of(found)).word == "not measured"


def test_the_page_holds_tables_words_and_circumstances(tmp_path):
    offsets = [WORSE] + [BETTER] + [LEVEL] * (len(TEN) - 2)
    whole = lines("fashion", "map", [0.28, 0.3], ece=0.02) + lines("fashion", "hwa", [0.24], ece=0.01, seconds=5.0)
    failed = [{"problem": "fashion", "method": "vl", "seed": 0, "error": "diverged at step 5"}]
    other = lines("digits", "peer: ivon-opt", [0.5, 0.7], version="0.1.3")
    found = Results.of([*ten(offsets), *uci_lines("hwa", 1), *whole, *failed, *other])
    text = page.render(found, [SESSION], old=4)
    assert "| hwa |  | 0.2400 | 0.0100 |  |  |  | 1.0 (2.5) | 1 |" in text
    assert "| vl | failed | failed |" in text
    assert "| fashion | vl | 0 | diverged at step 5 |" in text
    assert "| *ivon-opt* 0.1.3 | 0.600 ± 0.100 |" in text
    assert "| *deep ensembles* | -2.41 ± 0.06 |" in text
    assert "| hwa | **-5.41 ± 0.00** | -3.04 ± 0.00 |" in text
    assert "**bbb**: better on 1, level on 9, worse on 1 of 11." in text
    assert "Loses on digits (+0.100, without a warning)" in text
    assert "**+0.100 ± 0.006**" in text
    assert "at commit abc" in text
    assert "4 results of other settings" in text
    assert "sgvb is bbb" in text
    where = tmp_path / "quality.md"
    where.write_text(f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n")
    page.rewrite(where, found, [SESSION], 0)
    again = where.read_text()
    assert again.startswith("before\n")
    assert again.endswith("after\n")
    assert "old\n" not in again.split(page.BEGIN)[1][:20]
    assert page.render(Results.of([]), []) == "Nothing was measured yet."


def test_the_page_of_the_project_has_its_marks():
    text = (ROOT / "docs" / "quality.md").read_text(encoding="utf-8")
    assert text.count(page.BEGIN) == text.count(page.END) == 1


def test_the_plot_tells_better_from_worse(tmp_path):
    pytest.importorskip("matplotlib")
    red, _, blue = plot.colour(Mean(0.2, 0.01, 3))
    assert red > blue
    red, _, blue = plot.colour(Mean(-0.2, 0.01, 3))
    assert blue > red
    faint, strong = plot.colour(Mean(0.2, 0.2, 3)), plot.colour(Mean(0.2, 0.01, 3))
    assert min(faint) > min(strong)
    where = tmp_path / "plot.svg"
    assert plot.draw(Results.of(ten([WORSE] * len(TEN))), where)
    text = where.read_text()
    assert all(name in text for name in ("yacht", "bbb", "+.10"))
    assert "map</text>" not in text
    first = where.read_bytes()
    plot.draw(Results.of(ten([WORSE] * len(TEN))), where)
    assert where.read_bytes() == first
    assert not plot.draw(Results.of([]), tmp_path / "none.svg")


# ---- what is run


def test_every_named_method_runs_once_on_every_problem():
    found = plan.cells(Choice())
    assert len({one.key for one in found}) == len(found)
    methods = {one.method for one in found}
    assert methods | set(plan.other_names()) >= set(plan.METHODS)
    assert "sgvb" not in methods
    assert len(found) == len(methods) * len(TEN) * 3
    firsts = {}
    for one in found:
        firsts.setdefault(one.problem, one.method)
    assert set(firsts.values()) == {"map"}


def test_groups_add_splits_and_peers():
    found = plan.cells(Choice(("uci",), splits=20))
    assert sum(one.method == "map" for one in found) == 165
    assert {one.problem for one in plan.cells(Choice(("peers",)))} == set(peers.PROBLEMS)
    assert {one.problem for one in plan.cells(Choice(("slow",)))} == {"fashion", "cifar10"}
    some = plan.cells(Choice(("ten", "uci"), methods=("hwa",), problems=("kin8nm", "digits"), splits=2))
    assert sorted(one.key for one in some) == [*(f"digits/hwa/{n}" for n in range(3)), "kin8nm/hwa/0", "kin8nm/hwa/1"]


def test_names_are_sorted_out_and_an_unknown_one_is_refused():
    assert plan.sort_out(["uci", "map", "f-bbb", "digits"]) == (("uci",), ("map", "f-bbb"), ("digits",))
    with pytest.raises(SystemExit, match="'digit'"):
        plan.sort_out(["digit"])


def test_a_changed_default_is_another_result_and_another_name_is_not(monkeypatch):
    before = plan.cell("digits", "hwa", 0).decided
    assert plan.cell("digits", "hwa", 1).decided == before
    assert plan.cell("wine", "hwa", 0).decided != before
    assert plan.checksum("sgvb") == plan.checksum("bbb") != plan.checksum("flipout")
    changed = plan.METHODS["hwa"].changed(stepper={"lr": 0.0123}, summary="other words")
    plan.checksum.cache_clear()
    monkeypatch.setitem(plan.METHODS, "hwa", changed)
    assert plan.cell("digits", "hwa", 0).decided != before
    monkeypatch.setitem(plan.METHODS, "hwa", changed.changed(stepper={"lr": 0.003}))
    plan.checksum.cache_clear()
    monkeypatch.undo()
    plan.checksum.cache_clear()
    assert plan.cell("digits", "hwa", 0).decided == before


def test_a_changed_rule_for_the_rate_is_another_result(monkeypatch):
    stepper = type(resolve(plan.METHODS["bbb"]).stepper)
    before = {name: plan.checksum(name) for name in ("bbb", "sghmc")}
    plan.checksum.cache_clear()
    monkeypatch.setattr(stepper, "planned", lambda self, steps: dataclasses.replace(self, lr=1.0 / steps))
    assert plan.checksum("bbb") != before["bbb"]
    assert plan.checksum("sghmc") == before["sghmc"]
    plan.checksum.cache_clear()


def test_code_counts_without_its_comments_and_docstrings(tmp_path):
    file = tmp_path / "rule.py"
    found = []
    for text in (
        'SHARE = 0.1\ndef f(x):\n    """Half."""\n    return x * SHARE\n',
        'SHARE = 0.1  # a tenth\n"""Measured."""\n\ndef f(x):\n    return x * SHARE\n',
        "SHARE = 0.2\ndef f(x):\n    return x * SHARE\n",
    ):
        file.write_text(text)
        found.append(deciding.code_of([file]))
    assert found[0] == found[1] != found[2]


# ---- the record


def test_a_line_cut_short_by_a_kill_is_measured_again(tmp_path):
    kept = Kept(tmp_path / "record.jsonl")
    kept.add("a", nll=1.0)
    kept.add("b", nll=2.0)
    with kept.path.open("a") as file:
        file.write('{"key": "c", "nl')
    assert set(kept.read()) == {"a", "b"}
    kept.add("d", nll=4.0)
    kept.add("a", nll=5.0)
    assert {key: line["nll"] for key, line in kept.read().items()} == {"a": 5.0, "b": 2.0, "d": 4.0}
    kept.tidy()
    assert [json.loads(line)["key"] for line in kept.path.read_text().splitlines()] == ["a", "b", "d"]


def test_nothing_is_lost_while_the_record_is_tidied(tmp_path):
    kept = Kept(tmp_path / "record.jsonl")
    adding = threading.Thread(target=lambda: [kept.add(str(number), nll=float(number)) for number in range(200)])
    adding.start()
    while adding.is_alive():
        kept.tidy()
    adding.join()
    assert len(kept.read()) == 200


def test_the_record_stays_small():
    found = small({"nll": 0.123456789, "seed": 3, "warnings": ["x" * 500], "more": {"a": 1 / 3}, "ok": True})
    assert found["nll"] == 0.12346
    assert len(found["warnings"][0]) == 200
    assert found["more"] == {"a": 0.33333}
    assert found["ok"] is True


def test_results_of_other_settings_are_left_out(tmp_path):
    kept = Kept(tmp_path / "record.jsonl")
    now = plan.cell("wine", "map", 0)
    kept.add("session/s", **SESSION)
    for seed, decided in ((0, now.decided), (1, "other")):
        kept.add(
            f"wine/map/{seed}", problem="wine", method="map", seed=seed, decided=decided, session="s", nll=1.0, wall=1.0
        )
    kept.add("wine/gone/0", problem="wine", method="gone", seed=0, decided="x", session="s", nll=1.0)
    current, sessions, old = command.read(kept)
    assert [line["seed"] for line in current] == [0]
    assert old == 2
    assert [one["commit"] for one in sessions] == ["abc"]


def test_a_process_that_dies_is_replaced_and_its_run_tried_once_more(tmp_path):
    # Plain mappings in place of cells: the processes need not import torch.
    cells = [{"number": number, "folder": str(tmp_path)} for number in range(4)]
    found = {cell["number"]: values for cell, values in finished(cells, 2, dying_work.work)}
    assert {number: values.get("nll") for number, values in found.items()} == {0: 0.0, 1: 1.0, 2: None, 3: 3.0}
    assert "ended 2 times, with exit code 3" in found[2]["error"]
    assert found[0]["nice"] >= 10


def test_the_time_left_is_guessed_from_what_is_known():
    guess = command.Guess([{"problem": "wine", "method": "map", "wall": 2.0}])
    cells = [Cell("wine", "map", 1, ""), Cell("wine", "vl", 0, ""), Cell("digits", "map", 0, "")]
    assert guess.left(cells) == 6.0
    guess.learn({"problem": "wine", "method": "vl", "wall": 6.0})
    assert guess.left(cells) == 2.0 + 6.0 + 4.0


# ---- a run


def test_a_run_has_every_score_of_its_problem(monkeypatch):
    monkeypatch.delenv("BAYESWELL_DATA", raising=False)
    found = measure(plan.cell("digits", "flipout", 0, epochs=1))
    for score in ("nll", "accuracy", "ece", "auroc", "shifted_nll", "shifted_accuracy"):
        assert math.isfinite(found[score]), score
    assert found["nll"] < found["shifted_nll"]
    # One of 20 epochs, two forward passes in place of one.
    assert found["passes"] == pytest.approx(2 / 20)
    assert found["wall"] > found["seconds"] > 0
    refused = measure(Cell("digits", "bbb", 0, "x", epochs=0))
    assert "epochs" in refused["error"]


def test_ordinary_adam_is_among_the_peers_and_learns():
    began = time.perf_counter()
    found = measure(Cell("wine", "peer: Adam", 0, "x", epochs=10))
    assert found["nll"] < math.log(3)
    assert found["version"] == peers.version("peer: Adam")
    assert found["seconds"] < time.perf_counter() - began


def test_at_equal_cost_the_control_is_the_one_trained_as_long() -> None:
    found = Results.of([
        *lines("wine", "map", CONTROL_NLL),
        *lines("wine", "map*2", [value - 0.1 for value in CONTROL_NLL], passes=2.0),
        *lines("wine", "map*5", [value - 0.2 for value in CONTROL_NLL], passes=5.0),
        *lines("wine", "bbb", [value - 0.05 for value in CONTROL_NLL], passes=1.0),
        *lines("wine", "hwa", [value - 0.25 for value in CONTROL_NLL], passes=2.0),
        *lines("wine", "deep-ensemble", [value - 0.25 for value in CONTROL_NLL], passes=5.0),
        *lines("wine", "vl", CONTROL_NLL, passes=11.0),
    ])  # fmt: skip
    expected = {"bbb": (-0.05, 1), "hwa": (-0.15, 2), "deep-ensemble": (-0.05, 5)}
    for method, (difference, factor) in expected.items():
        one = at_equal_cost(found, "wine", method)
        assert one is not None
        assert (round(one[0].mean, 9), one[1]) == (difference, factor)
    assert at_equal_cost(found, "wine", "vl") is None  # nothing that was measured costs as much
    assert "map*2" not in found.methods(["wine"])
    assert "-0.150 ± 0.000" in page.render(found, [SESSION])
