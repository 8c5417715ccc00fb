"""The table of README.md comes from the record of ``make quality``: means, errors, and which differences are marked."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]  # neither the benchmarks nor the tools are installed

from benchmarks.quality import plan  # noqa: E402

import readme_table as tool  # noqa: E402

SEEDS = range(3)
NLL = {"map": [0.30, 0.32, 0.31], "deep-ensemble": [0.20, 0.23, 0.21], "auto": [0.27, 0.31, 0.285],
       "hwa": [0.41, 0.43, 0.42], "bbb": [0.27, 0.30, 0.28]}  # fmt: skip


def line(problem: str, method: str, seed: int, **values: object) -> dict:
    cell = plan.cell(problem, method, seed)
    scores = {"nll": NLL[method][seed], "accuracy": 0.9, "ece": 0.02, "auroc": 0.8 + 0.01 * seed, "passes": 1.0}
    about = {"problem": problem, "method": method, "seed": seed, "session": "none"}
    return {"key": cell.key, "decided": cell.decided, **about, **scores, **values}


def lines(problem: str = tool.PROBLEM) -> list[dict]:
    return [line(problem, method, seed) for method in tool.ROWS for seed in SEEDS]


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "README.md"
    path.write_text(f"before\n\n{tool.BEGIN}\n\nold numbers\n\n<!-- measured: to here -->\n\nafter\n", encoding="utf-8")
    return path


def run(page: Path, record: list[dict], *options: str) -> int:
    path = page.with_name("quality.jsonl")
    path.write_text("".join(json.dumps(one) + "\n" for one in record), encoding="utf-8")
    return tool.main(["--record", str(path), "--page", str(page), *options])


def rows_of(text: str) -> dict[str, list[str]]:
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in text.splitlines() if row.startswith("|")]
    return {row[0]: row[1:] for row in cells[2:]}


def test_means_and_errors_over_seeds(page):
    assert run(page, lines()) == 0
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old numbers" not in text
    row = rows_of(text)[tool.ROWS["map"]]
    error = math.sqrt(2e-4 / 2 / 3)  # 0.30, 0.31, 0.32
    assert row[1] == f"0.310 ± {error:.3f}" == "0.310 ± 0.006"
    assert row[3] == "0.810 ± 0.006"
    assert row[4] == "1x"


def test_only_differences_beyond_chance_are_marked_and_in_the_right_sense(page):
    run(page, lines())
    rows = rows_of(page.read_text(encoding="utf-8"))
    assert rows[tool.ROWS["deep-ensemble"]][1] == "**0.213 ± 0.009**"  # lower by 0.097 ± 0.003
    assert rows[tool.ROWS["hwa"]][1] == "_0.420 ± 0.006_"  # higher by 0.11, the same at every seed
    # Lower by 0.022 ± 0.006: 3.6 standard errors, of which three seeds need 4.3.
    assert rows[tool.ROWS["auto"]][1] == "0.288 ± 0.012"
    assert rows[tool.ROWS["deep-ensemble"]][3] == "0.810 ± 0.006"


def test_more_is_better_of_accuracy_and_auroc(page):
    record = lines()
    for one in record:
        if one["method"] == "bbb":
            one["accuracy"], one["auroc"] = one["accuracy"] + 0.05, one["auroc"] - 0.1
    run(page, record)
    row = rows_of(page.read_text(encoding="utf-8"))[tool.ROWS["bbb"]]
    assert row[0] == "**0.950 ± 0.000**"
    assert row[3] == "_0.710 ± 0.006_"


def test_counts_over_all_problems(page):
    run(page, lines() + lines("wine") + lines("boston"))
    rows = rows_of(page.read_text(encoding="utf-8"))
    assert rows[tool.ROWS["deep-ensemble"]][5] == "3, 0, 0"
    assert rows[tool.ROWS["auto"]][5] == "0, 3, 0"
    assert rows[tool.ROWS["hwa"]][5] == "0, 0, 3"
    assert rows[tool.ROWS["map"]][5] == ""


def test_what_other_settings_gave_or_what_is_missing_is_refused(page, capsys):
    before = page.read_text(encoding="utf-8")
    record = lines()
    record[-1]["decided"] = "of other defaults"
    assert run(page, record) == 1
    assert "fewer than 3 seeds of bbb; run make quality ARGS=" in capsys.readouterr().out
    assert page.read_text(encoding="utf-8") == before


def test_check_tells_numbers_typed_by_hand(page, capsys):
    assert run(page, lines(), "--check") == 1
    run(page, lines())
    assert run(page, lines(), "--check") == 0
    page.write_text(page.read_text(encoding="utf-8").replace("0.213", "0.113"), encoding="utf-8")
    assert run(page, lines(), "--check") == 1
    assert "out of date" in capsys.readouterr().out


def test_the_readme_has_the_marks_and_both_pictures():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.count(tool.BEGIN) == 1
    for name in ("readme-light.svg", "readme-dark.svg"):
        assert f"docs/pictures/{name}" in text
        assert (ROOT / "docs" / "pictures" / name).stat().st_size < 80_000
    assert len(text.splitlines()) < 130
