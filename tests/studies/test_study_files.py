"""The study files that come with the project: whole, about cells that there are, with claims that could be judged."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from bayeswell.studies import Findings, Study, read_study
from bayeswell.studies.validation import validate_study

FILES = sorted((Path(__file__).parents[2] / "studies").glob("*/*.toml"))

read_once = functools.cache(read_study)


@pytest.fixture(scope="module", params=FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def study(request: pytest.FixtureRequest) -> Study:
    return read_once(request.param)


def test_every_claim_and_every_printed_number_is_about_a_cell_of_the_scale(study: Study) -> None:
    name = "cpu" if "cpu" in study.scales else "paper"
    points = {(cell.label, *map(str, cell.at.items())) for cell in study.scale(name).cells}
    labels = {cell.label for cell in study.scale(name).cells}
    findings = functools.cache(lambda scale: Findings(study, study.scale(scale), []))
    for one in study.printed:
        assert (one.cell, *map(str, one.at.items())) in points or (not one.at and one.cell in labels)
        assert set(one.values) <= {*study.scores, "milliseconds_per_step"}
    for claim in study.claims:
        s = claim.settings
        own = name if name in s.get("scales", [name]) else s["scales"][0]
        found = findings(own)
        keys = [("at", "better", "value", "ratio"), ("than_at", "than", "to")]
        for at, *rules in keys:
            for rule in rules:
                if rule in s and s.get(at):
                    assert found.cell(s[rule], s[at]) is not None, (claim.name, s[rule], s[at])
        if claim.rule == "trend":
            assert len(found.points(s["of"], s["along"], s["score"])) > 1
        assert found.verdict(claim).word


def test_names_are_unique_and_folders_too(study: Study) -> None:
    for scale in study.scales.values():
        assert len({cell.name for cell in scale.cells}) == len(scale.cells)
        assert len({cell.folder for cell in scale.cells}) == len(scale.cells), scale.name


def test_each_paper_has_a_smoke_scale() -> None:
    papers = {study.path.parent.name for study in map(read_once, FILES) if "smoke" in study.scales}
    assert papers == {"flat_seeking", "hwa", "k_tied", "thesis", "variational_laplace"}


def test_a_cell_is_validated_by_one_step_with_noise_for_images_that_are_absent(
    study_file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BAYESWELL_DATA", str(tmp_path / "nothing"))
    text = study_file.read_text().replace(
        "[scales.cpu]", '[scales.paper]\nseeds = 1\nrun = {data = "mnist", train_size = 5000}\n[scales.cpu]'
    )
    study_file.write_text(text.replace('{name = "bbb", temperature = 1}', '{name = "vl", posterior = "low_rank"}'))
    told: list[tuple[str, str]] = []
    faults = validate_study(read_study(study_file), "paper", lambda *what: told.append(what))
    assert told[0] == ("cold", "one step (on noise: mnist is not on this machine)")
    assert list(faults) == ["warm"]
    assert "low_rank" in faults["warm"]
    assert not list(tmp_path.glob("nothing/*"))


def test_the_files_that_the_help_names_are_there() -> None:
    from bayeswell.cli.study import EXAMPLES

    named = [word for line in EXAMPLES for word in line.split() if word.startswith("studies/")]
    assert named
    for name in named:
        assert (Path(__file__).parents[2] / name).is_file(), name
