"""Runs of a study: none twice, whatever stops them; the same seed gives the same numbers; pages tell what was found."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import joblib
import pytest

from bayeswell.cli import main
from bayeswell.errors import SettingError
from bayeswell.studies import Findings, find_studies, read_results, read_study, run_study, write_pages
from bayeswell.studies.pictures import draw
from bayeswell.studies.results import append_line, line_of
from quick_python import QUICK_PYTHON

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.errors.BayeswellWarning")


def test_every_cell_is_run_once_with_every_seed_and_a_second_time_none_is(study_file: Path, tmp_path: Path) -> None:
    study, out, told = read_study(study_file), tmp_path / "runs", []
    lines = run_study(study, "cpu", out, told=lambda *what: told.append(what))
    assert [(line.cell, line.seed) for line in lines] == [("cold", 0), ("warm", 0), ("cold", 1), ("warm", 1)]
    assert [state for _, state in told] == ["begun"] * 4
    result = json.loads(next(out.glob("temperatures/cpu/cold-*-seed1/result.json")).read_text())
    (line,) = [line for line in lines if (line.cell, line.seed) == ("cold", 1)]
    assert line.scores["nll"] == result["test"]["values"]["nll"]
    assert line.scores["variational_parameters"] == result["variational_parameters"]
    assert line.scores["train.kl.first"] == line.scores["train.kl.last"]  # of one epoch
    assert {"bayeswell", "torch", "python"} <= line.versions.keys()
    assert line.seconds > 0
    # The results are enough: with the runs' folders gone nothing is run again.
    told.clear()
    again = run_study(study, "cpu", tmp_path / "elsewhere", told=lambda *what: told.append(what))
    assert (again, told) == (lines, [])
    # A cell re-run with its seed gives the same numbers, to the last bit, but for the time that it took.
    study.results.unlink()
    anew = run_study(study, "cpu", tmp_path / "anew")
    timed = "milliseconds_per_step"
    for old, new in zip(lines, anew, strict=True):
        assert {**old.scores, timed: 0} == {**new.scores, timed: 0}
        assert old.curves == new.curves
    # Other settings are another run; the others stay.
    study_file.write_text(study_file.read_text().replace("temperature = 1}", "temperature = 0.5}"))
    changed = read_study(study_file)
    run_study(changed, "cpu", tmp_path / "anew", told=lambda *what: told.append(what))
    assert sorted(name.split("-")[0] for name, _ in told) == ["warm", "warm"]
    _page_tells(changed, tmp_path / "anew")


def _page_tells(study: Any, out: Path) -> None:
    (page,) = write_pages(study.path, [study])
    text = page.read_text()
    found = Findings(study, study.scale("cpu"), read_results(study.results))
    mean = found.score(study.scale("cpu").cells[0], "nll")
    assert mean is not None
    assert f"0.5 \\| {mean.value:.4g} ± {mean.error:.2g}" in text  # paper | ours
    assert found.verdict(study.claims[0]).word in text
    assert "Table 1, page 3" in text
    assert "4 of 4 runs" in text


def test_the_workers_of_a_joblib_backend_give_the_same_lines(study_file: Path, tmp_path: Path) -> None:
    study = read_study(study_file)
    alone = run_study(study, "smoke", tmp_path / "alone")
    with joblib.parallel_config("threading", n_jobs=2):
        lines = run_study(study, "smoke", tmp_path / "both")
    by_run = {(line.cell, line.seed): line for line in lines}
    assert len(lines) == len(by_run) == len(alone) == 4
    for line in alone:
        other, timed = by_run[line.cell, line.seed], "milliseconds_per_step"
        assert {**line.scores, timed: 0} == {**other.scores, timed: 0}
        assert line.curves == other.curves


def test_a_kill_costs_no_run_that_had_ended(study_file: Path, tmp_path: Path) -> None:
    study_file.write_text(study_file.read_text().replace("epochs = 1", "epochs = 40").replace("seeds = 2", "seeds = 1"))
    out, results = tmp_path / "runs", study_file.parent / "results" / "temperatures.jsonl"
    words = ["study", str(study_file), "--out", str(out), "--threads", "1"]
    number = tmp_path / "number"  # of the program itself, which is another process than the one that asks for it
    code = f"import os, pathlib; pathlib.Path({str(number)!r}).write_text(str(os.getpid()))\n"
    code += f"from bayeswell.cli import main; main({words!r})"
    command = [QUICK_PYTHON, "-c", code]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ))
    deadline = time.monotonic() + 300
    while not (results.exists() and list(out.glob("temperatures/cpu/warm-*"))) and child.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.kill(int(number.read_text()), signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    before = results.read_text()
    # What a kill in the middle of a line leaves.
    results.write_text(before + before[: len(before) // 3])
    told: list[tuple[str, str]] = []
    lines = run_study(read_study(study_file), "cpu", out, told=lambda *what: told.append(what))
    assert sorted(line.cell for line in lines) == ["cold", "warm"]
    assert [name.split("-")[0] for name, _ in told] == ["warm"]
    assert results.read_text().startswith(before)


def test_what_was_made_with_other_defaults_is_told_and_made_again_when_asked(study_file: Path, tmp_path: Path) -> None:
    study = read_study(study_file)
    cell = study.scale("cpu").cells[0]
    old = line_of("cpu", cell, 0, tmp_path, None)
    append_line(study.results, old.__class__(**{**vars(old), "parts_hash": "0", "scores": {"nll": 1.0}}))
    assert Findings(study, study.scale("cpu"), read_results(study.results)).stale == 1


def test_a_failed_run_is_told_and_tried_again(
    study_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = study_file.read_text().replace("seeds = 2", "seeds = 1")
    study_file.write_text(text.replace("temperature = 1}", 'stepper = {name = "sgd", lr = 1e30}}'))
    assert main(["study", str(study_file), "--quiet", "--out", str(tmp_path / "runs")]) == 1
    assert "warm seed 0: step" in capsys.readouterr().err
    (failed,) = [line for line in read_results(read_study(study_file).results) if line.error]
    assert failed.cell == "warm"
    assert "Failed: `warm`" in (study_file.parent / "README.md").read_text()
    assert main(["study", str(study_file), "--list", "--json", "--out", str(tmp_path / "runs")]) == 0
    states = {run["cell"]: run["state"] for run in json.loads(capsys.readouterr().out)["runs"]}
    assert states == {"cold": "done", "warm": "begun"}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("epochs = 1\n", "epoch = 1\n", "no setting 'epoch'.*did you mean 'epochs'"),
        ('name = "bbb", temperature = 1', 'name = "bbbb"', "cell 'warm'.*bbbb"),
        ("[scales.cpu]", "[scales.gpu]", "no scale 'gpu'"),
        ('model = {name = "mlp", hidden = [8]}', 'model = "net.py:Net"', "code, which no study file runs"),
        ("[scales.cpu]", '[scales.cpu]\ncells = ["hot"]', "no cell 'hot'"),
        ('cell = "cold"', 'cell = "hot"', "no cell 'hot'"),
        ("[scales.cpu]\nseeds = 2", "[scales.cpu]\nseeds = 0", "seeds = 0"),
    ],
)
def test_a_file_that_is_wrong_is_refused_in_one_line(study_file: Path, old: str, new: str, said: str) -> None:
    assert old in study_file.read_text()
    study_file.write_text(study_file.read_text().replace(old, new))
    with pytest.raises(SettingError, match=said):
        read_study(study_file)


def test_the_grid_is_every_combination_and_has_its_own_at_a_scale(study_file: Path) -> None:
    more = '[grid]\n"method.temperature" = [0.1, 0.3]\n"epochs" = [1, 2]\n[scales.paper]\ngrid = {"epochs" = [7]}\n'
    study_file.write_text(study_file.read_text().replace("[scales.smoke]", more + "[scales.smoke]"))
    study = read_study(study_file)
    names = [cell.name for cell in study.scale("cpu").cells if cell.label == "cold"]
    assert names == [f"cold@temperature={t},epochs={e}" for t in (0.1, 0.3) for e in (1, 2)]
    assert len({cell.folder for cell in study.scale("cpu").cells if cell.label == "cold"}) == 4
    assert [cell.experiment.epochs for cell in study.scale("paper").cells] == [7, 7]


def test_the_index_counts_the_claims_of_each_paper(study_file: Path) -> None:
    root = study_file.parent.parent
    pages = write_pages(root, find_studies(root))
    assert pages == [study_file.parent / "README.md", root / "README.md"]
    assert "| [A paper, 2020](paper/README.md) |  | 0 of 4 | 0 | 0 | 0 | 1 |" in pages[1].read_text()
    large = (
        study_file.read_text().replace("[scales.cpu]", "[scales.paper]").replace("title", 'summary = "Wide |"\ntitle')
    )
    study_file.with_name("large.toml").write_text(large)
    page, index = (path.read_text() for path in write_pages(root, find_studies(root)))
    assert "| [A paper, 2020](paper/README.md) | Wide \\| | 0 of 4 | 0 | 0 | 1 | 1 |" in index
    assert page.count("| only at the scale paper | **not testable at this scale** |") == 1


def test_the_index_says_what_a_paper_is_known_for_and_what_its_controls_tell(study_file: Path, tmp_path: Path) -> None:
    more = 'headline = "Cold wins"\n[[claims]]\nname = "control"\ntext = "warm too"\ncontrol_of = "cold"\n'
    more += 'value = "warm"\nscore = "nll"\nbetween = [0, 1]\nexact = true\nmeans = "warm is fine"\n'
    study_file.write_text(study_file.read_text() + more)
    study = read_study(study_file)
    for number, cell in enumerate(study.scale("cpu").cells):
        for seed in range(2):
            line = line_of("cpu", cell, seed, tmp_path, None)
            scores = {"nll": (0.25, 0.75)[number] + 0.01 * seed * (1 + number)}
            append_line(study.results, type(line)(**{**vars(line), "scores": scores}))
    text = write_pages(study_file.parent.parent, find_studies(study_file.parent.parent))[1].read_text()
    # gains 0.5 and 0.51: mean 0.505, standard error 0.005
    assert "| [paper](paper/README.md) | Cold wins | 0.1 | 0.505 ± 0.005 | **holds**; warm is fine |" in text
    study_file.write_text(study_file.read_text().replace("between = [0, 1]", "between = [2, 3]"))
    text = write_pages(study_file.parent.parent, find_studies(study_file.parent.parent))[1].read_text()
    assert '| **holds**; control not met: "warm too" |' in text


def test_the_example_of_the_page_is_a_study(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "studies.md").read_text(encoding="utf-8")
    (tmp_path / "example.toml").write_text(text.split("```toml\n")[1].split("```")[0], encoding="utf-8")
    study = read_study(tmp_path / "example.toml")
    assert [cell.name for cell in study.scale("cpu").cells] == [
        "vi@temperature=0.01", "vi@temperature=0.1", "vi@temperature=1", "point"
    ]  # fmt: skip


def test_pictures_are_drawn_of_what_there_is(study_file: Path, tmp_path: Path) -> None:
    plots = '[grid]\n"method.temperature" = [0.1, 1.0]\n'
    plots += '[[plots]]\nscore = "nll"\nagainst = "method.temperature"\nlog = true\n'
    plots += '[[plots]]\ntitle = "Along"\ncurve = ["average.nll", "train.nll"]\n[[plots]]\ncurve = "no.such"\n'
    file = study_file.with_name("two_words.toml")
    file.write_text(study_file.read_text().replace("[scales.smoke]", plots + "[scales.smoke]", 1))
    study = read_study(file)
    for number, cell in enumerate(study.scale("cpu").cells):
        for seed in range(2):
            line = line_of("cpu", cell, seed, tmp_path, None)
            curves = {"epoch": [1.0, 2.0], "train.nll": [2.0 + number, 1.0 + seed]}
            values = {**vars(line), "scores": {"nll": number + 0.1 * seed}, "curves": curves}
            append_line(study.results, type(line)(**values))
    found = Findings(study, study.scale("cpu"), read_results(study.results))
    made = draw(tmp_path / "pictures", found)
    assert [title for title, _ in made] == ["nll", "Along"]
    texts = [path.read_text() for _, path in made]
    assert all(text.count("<svg") == 1 and "cold" in text and "warm" in text for text in texts)


def test_the_run_it_starts_from_lies_beside_the_study(
    study_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = study_file.read_text()
    home = study_file.parent.resolve()

    def starts(init: str) -> tuple[str | None, str]:
        study_file.write_text(text.replace("[cells.warm]", f'[cells.warm]\ninit = "{init}"'))
        cell = read_study(study_file).scale("cpu").cells[1]
        return cell.experiment.init, cell.settings["init"]

    monkeypatch.chdir(tmp_path)
    assert starts("runs/first") == (str(home / "runs" / "first"), "runs/first")
    monkeypatch.setenv("HOME", str(home))
    assert starts("~/first") == (str(home / "first"), "first")
