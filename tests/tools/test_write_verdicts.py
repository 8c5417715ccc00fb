"""The verdicts of studies in the pages on papers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import write_verdicts  # noqa: E402

INDEX = """# Studies

| paper | in short | runs | holds | does not hold | not testable at this scale | no results yet |
|---|---|---|---|---|---|---|
| [HWA, a paper](hwa/README.md) | It averages. | 7 of 9 | 3 | 2 | 1 | 4 |
| [Book](thesis/README.md) |  | 5 of 5 | 0 | 6 | 0 | 0 |

Words between.

| from | claim | in the paper | ours | verdict, and what controls say |
|---|---|---|---|---|
| [hwa](hwa/README.md) | HWA wins \\| MNIST | 0.25 | 0.125 ± 0.0625 | **holds**; more than averaging |
| [thesis](thesis/README.md) | low beta2 |  | -0.5 | **does not hold** |
"""


def test_a_page_has_the_rows_of_its_paper_and_no_others() -> None:
    text = write_verdicts.claims_of(INDEX, "hwa")
    assert "| HWA wins \\| MNIST | 0.25 | 0.125 ± 0.0625 | **holds**; more than averaging |" in text
    assert "low beta2" not in text
    assert "7 of 9 runs" in text
    assert "3 hold, 2 do not hold, 1 cannot be tested at this scale, 4 wait for their runs" in text
    assert text.startswith("**In short.** It averages.\n")
    assert "wait for" not in write_verdicts.claims_of(INDEX, "thesis")
    assert "In short" not in write_verdicts.claims_of(INDEX, "thesis")


def test_the_index_counts_and_links_to_the_pages() -> None:
    text = write_verdicts.counts_of(INDEX)
    assert "| [HWA, a paper](hwa.md#claims) | It averages. | 7 of 9 | 3 | 2 | 1 | 4 |" in text
    assert "| [Book](thesis.md#claims) |  | 5 of 5 | 0 | 6 | 0 | 0 |" in text


def test_an_index_of_another_form_is_refused() -> None:
    with pytest.raises(ValueError, match="1 tables, not 2"):
        write_verdicts.rows_of(INDEX.split("Words between")[0])


def test_a_paper_without_runs_says_so_and_one_without_a_page_is_refused() -> None:
    empty = INDEX.replace("7 of 9", "0 of 9")
    assert write_verdicts.claims_of(empty, "hwa").startswith("No runs yet; `studies/hwa/README.md`")
    with pytest.raises(ValueError, match="studies/an-other has no page in docs/papers"):
        write_verdicts.counts_of(INDEX.replace("(hwa/", "(an-other/"))
    with pytest.raises(ValueError, match="no studies of 'k_tied'"):
        write_verdicts.claims_of(INDEX, "k_tied")


STUDY = """
title = "One"
paper = "A paper, 2020"
scores = ["nll"]
[run]
data = "digits"
[cells.a]
method = {name = "map"}
[scales.cpu]
[[claims]]
name = "one"
text = "a is good"
headline = "a is good"
value = "a"
score = "nll"
between = [0, 1]
"""


def test_pages_and_index_that_are_out_of_date_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(write_verdicts, "PAGES", {"hwa": "hwa"})
    studies, pages = tmp_path / "studies", tmp_path / "pages"
    (studies / "hwa").mkdir(parents=True)
    (studies / "hwa" / "one.toml").write_text(STUDY)
    pages.mkdir()
    for path, text in write_verdicts.pages_of(studies).items():
        path.write_text(text, encoding="utf-8")
    for name in ("hwa", "index"):
        marks = f"{write_verdicts.BEGIN}\n\nold\n\n<!-- measured: to here -->"
        (pages / f"{name}.md").write_text(f"# A page\n\n{marks}\n\nend\n")
    where = ["--index", str(studies / "README.md"), "--pages", str(pages)]
    assert write_verdicts.main([*where, "--check"]) == 1
    assert "hwa.md is not what the studies say" in capsys.readouterr().out
    assert write_verdicts.main(where) == 0
    assert write_verdicts.main([*where, "--check"]) == 0
    page = (pages / "hwa.md").read_text(encoding="utf-8")
    assert "old" not in page.splitlines()
    assert page.endswith("end\n")
    (studies / "hwa" / "one.toml").write_text(STUDY.replace("a is good", "a is better"))
    assert write_verdicts.main([*where, "--check"]) == 1
    assert capsys.readouterr().out.count("is not what study files and results say") == 2
    (studies / "hwa" / "one.toml").write_text(STUDY.replace('"One"', '"Two"'))  # on the paper's own page alone
    assert write_verdicts.main([*where, "--check"]) == 1
    assert str(studies / "hwa" / "README.md") in capsys.readouterr().out
