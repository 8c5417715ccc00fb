from __future__ import annotations

import functools
import json
import re
import shlex
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

from bayeswell.lab.comparison import ComparedRun, Comparison
from bayeswell.lab.overrides import with_settings
from bayeswell.lab.report import figures, render_report, write_report
from bayeswell.lab.report.page import train_command
from bayeswell.lab.settings import RunSettings
from made_runs import made_comparison, made_record

MAP, BETTER = [0.30, 0.34, 0.31], [0.20, 0.23, 0.21]
VOID = {"meta", "link", "br", "path", "use", "rect", "img", "image"}


class Page(HTMLParser):
    """Tags, ids, links and visible text of a page; ``balanced`` if every tag is closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.balanced = True
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        found = dict(attrs)
        self.ids += [found["id"] or ""] if "id" in found else []
        self.links += [value or "" for key, value in attrs if key in ("href", "src", "xlink:href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        self.balanced &= bool(self.open) and self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def class_examples(seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    probabilities = torch.randn(300, 3, generator=generator).softmax(-1)
    entropy = torch.special.entr(probabilities).sum(-1)
    kept = {"probabilities": probabilities, "entropy": entropy, "ood.noise.entropy": entropy + 0.1}
    return {**kept, "target": torch.randint(3, (300,), generator=generator)}


def comparison(
    problems: tuple[str, ...] = ("digits", "wine"), methods: tuple[str, ...] = ("map", "swag")
) -> Comparison:
    planted = {problem: {name: BETTER if name == "swag" else MAP for name in methods} for problem in problems}
    return made_comparison(planted, per_example=class_examples(0))


@functools.cache
def rendered() -> str:
    return render_report(comparison())


def test_page_is_well_formed_with_closed_sections():
    page = Page(rendered())
    assert page.balanced
    assert not page.open
    assert len(page.ids) == len(set(page.ids))
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    assert page.tags.count("details") >= 5
    assert "open" not in re.findall(r"<details([^>]*)>", rendered())


def test_page_loads_nothing_and_runs_no_script():
    text = rendered()
    page = Page(text)
    assert "script" not in page.tags
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert "default-src 'none'" in text
    assert "@import" not in text
    assert "url(http" not in text


def test_every_text_is_escaped():
    hostile = "<script>alert(1)</script>&\"'"
    check = {"name": "x", "ok": False, "message": hostile, "value": 0.0}
    record = made_record(hostile, hostile, 0, 0.3, checks=(check,), settings={"data": hostile, hostile: hostile})
    failed = ComparedRun(hostile, hostile + "2", 1, error=hostile)
    text = render_report(Comparison((ComparedRun(hostile, hostile, 0, None, record), failed)), hostile)
    page = Page(text)
    assert "script" not in page.tags
    assert page.balanced
    assert hostile in page.texts


def test_a_run_named_like_a_comparison_of_methods_is_escaped_in_figures():
    hostile = "<b>&$x$"
    text = render_report(made_comparison({"digits": {"map": MAP, hostile: BETTER}}))
    page = Page(text)
    assert page.balanced
    assert page.tags.count("b") == 1, "the legend of the table alone"


def test_scores_differences_and_settings_are_on_the_page():
    text = "".join(Page(rendered()).texts)
    assert "swag is significantly better in NLL than MAP on 2 of 2 problems" in text
    assert "0.2133 ± 0.0088" in text
    assert "bayeswell train --data digits --method swag --seed 0 --epochs 2" in text


def test_colors_follow_the_scheme_of_the_reader():
    text = rendered()
    assert "prefers-color-scheme: dark" in text
    assert text.count("--paper:") == 2
    svg = text[text.index("<svg") : text.rindex("</svg>")]
    assert not re.findall(r"(?:fill|stroke): #[0-9a-f]{6}", svg)


def test_large_comparisons_stay_below_3_mb(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(figures, "MOST_BYTES", 100_000)
    text = render_report(comparison(("a", "b", "c"), ("map", "swag", "x", "y")))
    assert "more figures are left out" in text
    assert len(text.encode()) < 250_000


def test_write_report_writes_one_file(tmp_path: Path):
    made_record("digits", "bbb", 0, 0.3).save(tmp_path / "run")
    out = write_report([tmp_path / "run"], tmp_path / "new" / "page.html", title="A title")
    assert out == tmp_path / "new" / "page.html"
    assert [path.name for path in out.parent.iterdir()] == ["page.html"]
    assert "<title>A title</title>" in out.read_text()
    again = write_report([tmp_path / "run"], tmp_path / "again.html", title="A title")
    assert again.read_bytes() == out.read_bytes(), "the same runs give the same bytes"


def test_train_commands_hold_every_setting():
    settings = {
        "data": "a b.csv",
        "ood": ["noise", "svhn"],
        "batch_size": 20,
        "settings": {"temperature": 1.0, "posterior": {"name": "k_tied", "rank": 3}},
        "model_settings": {"hidden": [5, 5]},
        "folder": "runs/x",
        "unknown": 1,
    }
    words = shlex.split(train_command(settings))
    assert words[:8] == ["bayeswell", "train", "--data", "a b.csv", "--ood", "noise", "svhn", "--batch-size"]
    assert words[8:11] == ["20", "--set", "temperature=1.0"]
    changes = {key: json.loads(value) for key, _, value in (word.partition("=") for word in words[10:])}
    made = with_settings(RunSettings(), changes)
    assert made.settings == settings["settings"]
    assert made.model_settings == settings["model_settings"]


def test_code_of_a_program_has_no_command():
    assert train_command({"data": {"path": "own.py", "name": "data"}}) == ""
