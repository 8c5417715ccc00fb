"""The pure parts of the benchmark: orders, ratios, verdicts and pages. Nothing here depends on how fast anything is."""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # the benchmark is a package in the project's folder, not an installed one

from benchmarks import averages, command, goals, ours, peers, record, table  # noqa: E402
from benchmarks.nets import NETS, with_dropout  # noqa: E402
from benchmarks.parts import PARTS  # noqa: E402
from benchmarks.summary import ratios, summarise  # noqa: E402
from benchmarks.timing import Case, Times, bracket, from_json, run, turns  # noqa: E402

PART = {
    "when": "2026-01-01 00:00 UTC", "commit": "abc", "cpu": "a CPU", "cores": 2, "system": "Linux", "python": "3.11",
    "load": 0.5, "compiled": True, "versions": {"torch": "2.13.0", "torchbnn": None}, "threads": 2, "rounds": 3,
}  # fmt: skip


def times(**ratio_by_case: list[float]) -> Times:
    """Cases at these ratios to a reference that speeds up from round to round."""
    near = [2.0, 1.0, 0.5]
    seconds = {name: [r * n for r, n in zip(values, near, strict=True)] for name, values in ratio_by_case.items()}
    return Times({"base": near, **seconds}, dict.fromkeys(ratio_by_case, near), {})


def step_record(**ratio_by_case: list[float]) -> dict:
    found = times(**ratio_by_case)
    found.seconds[ours.PLAIN] = found.seconds.pop("base")
    # Fused Adam a fifth faster than the reference.
    found.seconds[ours.PLAIN_FUSED] = [0.8 * one for one in found.seconds[ours.PLAIN]]
    found.reference[ours.PLAIN_FUSED] = list(found.seconds[ours.PLAIN])
    return {"parts": {"step/mlp": {**PART, "reference": ours.PLAIN, **found.as_json()}}}


def test_a_round_visits_every_case_once_between_references():
    names = ["base", *"abcdefg"]
    for number in range(20):
        order = turns(names, "base", number)
        assert sorted(name for name in order if name != "base") == list("abcdefg")
        assert order[0] == order[-1] == "base"
        places = [position for position, name in enumerate(order) if name == "base"]
        assert max(b - a for a, b in pairwise(places)) <= 4


def test_rounds_start_at_different_cases():
    firsts = {turns(["base", *"abcdefg"], "base", number)[1] for number in range(14)}
    assert firsts == set("abcdefg")


def test_a_case_is_compared_with_the_references_around_it():
    order = ["base", "a", "b", "base", "c", "base"]
    found = bracket(order, [1.0, 10.0, 20.0, 3.0, 30.0, 5.0], "base")
    assert found == {"a": (10.0, 2.0), "b": (20.0, 2.0), "c": (30.0, 4.0)}


def test_drift_of_the_machine_leaves_ratios_alone():
    found = times(a=[3.0, 3.0, 3.0], b=[1.5, 1.5, 1.5])
    assert ratios(found, "a", "base", "base") == [3.0, 3.0, 3.0]
    assert ratios(found, "a", "b", "base") == [2.0, 2.0, 2.0]
    assert ratios(found, "base", "b", "base") == pytest.approx([1 / 1.5] * 3)
    assert ratios(found, "base", "base", "base") == [1.0, 1.0, 1.0]


def test_summary_has_the_median_of_ratios_and_its_error():
    found = summarise([1.0, 5.0, 2.0, 3.0, 4.0])
    assert (found.median, found.low, found.high, found.count) == (3.0, 2.0, 4.0, 5)
    # The bootstrap's law of a median of five is known: P(value k) from the binomial law; its std is 1.018.
    assert found.error == pytest.approx(1.018, abs=0.12)
    assert summarise([2.5]).error == 0.0
    with pytest.raises(ValueError, match="nothing"):
        summarise([])


def test_whole_cycles_are_timed():
    calls = []
    cases = [
        Case("base", lambda: lambda: None),
        Case("lazy", lambda: lambda: calls.append(1), cycle=4, calls=2, settle=1),
    ]
    found = run(cases, "base", rounds=2, warm_up=1, say=lambda text: None)
    assert len(calls) == 4 + 2 * (1 + 4)
    assert len(found.seconds["lazy"]) == len(found.reference["lazy"]) == len(found.seconds["base"]) == 2


def test_a_case_that_fails_is_named_and_the_rest_goes_on():
    def broken():
        raise RuntimeError("no\nsuch  layer")

    later = iter([None, None])
    cases = [Case("base", lambda: lambda: None), Case("bad", broken), Case("tired", lambda: lambda: next(later))]
    found = run(cases, "base", rounds=2, warm_up=1, say=lambda text: None)
    assert found.failed["bad"] == "RuntimeError: no such layer"
    assert "tired" in found.failed
    assert set(found.seconds) == {"base"}
    with pytest.raises(RuntimeError, match="reference"):
        run([Case("base", broken)], "base", 1, say=lambda text: None)


@pytest.mark.parametrize(
    ("measured", "met", "word"),
    [
        ([1.99, 1.99, 1.99], True, "met"),
        ([2.05, 2.05, 2.05], True, "met within noise (2 % above)"),
        ([2.08, 2.08, 2.08], False, "short by 4 %"),
        ([1.9, 2.1, 2.4], True, "met within noise (5 % above)"),
        ([1.2, 2.3, 3.4], False, "short by 15 %"),
    ],
)
def test_the_margin_is_three_per_cent_or_two_standard_errors_but_never_above_ten(measured, met, word):
    found = goals.judge(goals.Goal("a step", "step/mlp", "bbb", 2.0), measured)
    assert found.met is met
    assert found.word == word
    assert goals.LEAST_MARGIN <= found.margin <= goals.MOST_MARGIN


def test_goals_are_read_off_the_record():
    found = step_record(bbb=[1.5, 1.5, 1.5], **{"f-bbb": [3.0, 3.0, 3.3], "k-tied": [1.9, 2.0, 2.0]})
    by_title = {one.goal.title: one for one in goals.verdicts(found)}
    assert by_title["mean-field step, MLP"].word == "met"
    assert by_title["sharpness-aware over its base, MLP"].found.median == pytest.approx(2.0)
    assert by_title["2-tied step, MLP"].word == "short by 11 %"
    assert by_title["mean-field step, LeNet-5"].word == "not measured"
    assert not by_title["mean-field step, LeNet-5"].met


def test_memory_is_compared_with_the_deterministic_peak():
    peaks = {ours.PLAIN: [10, 12, 11], "bbb": [33, 55, 44]}
    found = {"parts": {"memory/mlp": {**PART, "parts": {}, "peaks": peaks, "failed": {}}}}
    goal = next(goal for goal in goals.GOALS if goal.kind == "memory" and goal.part == "memory/mlp")
    assert goals.values(goal, found) == [3.0, 5.0, 4.0]


def test_overhead_counts_one_snapshot_an_epoch():
    assert averages.overhead([2.0], [0.01], 4) == [pytest.approx(2.0 / 4 + 0.75 * 0.01)]
    pair = {"swag snapshot": [6.0, 6.0, 6.0], "swag other step": [0.0, 0.0, 0.0]}
    part = step_record(**pair)["parts"]["step/mlp"]
    goal = next(goal for goal in goals.GOALS if goal.kind == "overhead" and goal.case == "swag" and "mlp" in goal.part)
    assert goals.values(goal, {"parts": {"average/mlp": {**part, "batches": 300}}}) == pytest.approx([0.02] * 3)


def test_every_goal_is_about_a_part_and_a_case_that_exist():
    known = {f"step/{net}": {*ours.METHODS} for net in ("lenet", "mlp")}
    for goal in goals.GOALS:
        assert goal.part in PARTS
        if goal.part in known:
            assert goal.case in known[goal.part]
            assert goal.over is None or goal.over in known[goal.part]
        assert {*goal.peers} <= {peer.name for peer in peers.PEERS}


def test_check_fails_on_one_goal_that_is_short(capsys):
    found = step_record(bbb=[1.5, 1.5, 1.5], **{"f-bbb": [3.0, 3.0, 3.0], "k-tied": [3.0, 3.0, 3.0]})
    short = command.check(found, {"step/mlp"})
    assert "2-tied step, MLP" in {one.goal.title for one in short}
    assert "mean-field step, MLP" not in {one.goal.title for one in short}
    assert "short by 67 %" in capsys.readouterr().out


def test_the_page_keeps_what_is_outside_the_marks():
    page = f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n"
    assert table.between_marks(page, "new") == f"before\n{table.BEGIN}\n\nnew\n\n{table.END}\nafter\n"
    with pytest.raises(ValueError, match="each once"):
        table.between_marks("no marks", "new")
    readme = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    assert table.between_marks(readme, "new").count("new") >= 1


def test_tables_show_ratios_peers_and_failures():
    found = step_record(bbb=[1.5, 1.5, 1.5], **{f"{peers.PREFIX}torchbnn": [3.0, 3.1, 3.0]})
    found["parts"]["step/mlp"]["failed"] = {f"{peers.PREFIX}blitz": "Cannot: a | b"}
    text = table.render(found)
    assert "| bbb | 1.50 ± 0.00 (1.88) |" in text
    assert "| *torchbnn* | 3.00 ±" in text
    assert "| mean-field step, MLP | 1.50 ± 0.00 | 2.00 | met | 1.88 | torchbnn 3.00 |" in text
    assert "| step/mlp | *blitz* | Cannot: a / b |" in text
    assert "not installed: torchbnn" in text


def test_records_of_other_machines_stand_beside_the_goals(tmp_path):
    assert record.elsewhere(tmp_path / "none") == {}
    other = step_record(bbb=[1.25, 1.25, 1.25], **{"k-tied": [3.0, 3.0, 3.0]})
    other["parts"]["step/mlp"].update(cpu="another CPU", commit="def")
    record.write(tmp_path / "a_kind.json", other)
    text = table.render(step_record(bbb=[1.5, 1.5, 1.5], **{"k-tied": [1.5, 1.5, 1.5]}), record.elsewhere(tmp_path))
    assert "| on a kind |" in text
    assert "(another CPU, at commit def)" in text
    assert "| mean-field step, MLP | 1.50 ± 0.00 | 2.00 | met | 1.88 |  | 1.25 ± 0.00 |" in text
    assert "| 2-tied step, MLP | 1.50 ± 0.00 | 1.80 | met | 1.88 |  | 3.00 ± 0.00 (short by 67 %) |" in text


def test_the_record_comes_back_as_it_was_written(tmp_path):
    path = tmp_path / "deep" / "record.json"
    assert record.read(path) == {"parts": {}}
    found = step_record(bbb=[1.5, 1.25, 1.5])
    record.write(path, found)
    assert record.read(path) == found == json.loads(path.read_text(encoding="utf-8"))
    assert [p.name for p in path.parent.iterdir()] == ["record.json"]
    again = from_json(found["parts"]["step/mlp"])
    assert again.seconds["bbb"] == [3.0, 1.25, 0.75]


def test_parts_are_chosen_by_group_net_or_name():
    assert command.choose(["update"], False) == ["update/lenet", "update/mlp", "update/flat"]
    assert "memory/mlp" in command.choose(["mlp"], False)
    assert command.choose(["step/mlp"], True) == ["step/mlp"]
    assert not any("resnet" in name or "growth" in name for name in command.choose([], True))
    on_request = [name for name, part in PARTS.items() if part.on_request]
    assert on_request == command.choose(["large"], False) == ["large/50m", "large/200m"]
    assert command.choose([], False) == [name for name in PARTS if name not in on_request]
    with pytest.raises(SystemExit, match="no part 'stpe'"):
        command.choose(["stpe"], False)


def test_dropout_comes_before_every_dense_layer_but_the_first():
    text = str(with_dropout(NETS["mlp"].build()))
    assert text.count("Dropout") == 2
    assert str(with_dropout(NETS["lenet"].build())).count("Dropout") == 3
