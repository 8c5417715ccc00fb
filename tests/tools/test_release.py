"""A bill of materials that names what is installed and needed, and hashes that notice a change."""

from __future__ import annotations

import hashlib
import json
from importlib import metadata
from pathlib import Path

import pytest

import release


def test_the_bill_names_every_package_that_is_needed_and_no_other() -> None:
    found = release.bill()
    parts = {part["name"]: part for part in found["components"]}
    assert parts.keys() >= {"torch", "numpy", "safetensors", "lightning-fabric", "typer", "optuna"}
    assert not parts.keys() & {"pytest", "ruff", "mypy", "bayeswell"}
    assert parts["torch"]["version"] == metadata.version("torch")
    assert parts["numpy"]["purl"] == f"pkg:pypi/numpy@{metadata.version('numpy')}"
    references = {part["bom-ref"] for part in [*parts.values(), found["metadata"]["component"]]}
    needs = {entry["ref"]: entry["dependsOn"] for entry in found["dependencies"]}
    assert needs.keys() == references
    assert {other for others in needs.values() for other in others} <= references
    assert parts["torch"]["bom-ref"] in needs[found["metadata"]["component"]["bom-ref"]]
    core = {part["name"] for part in release.bill(extras=())["components"]}
    assert "torch" in core
    assert "optuna" not in core


def test_hashes_are_those_of_the_files_and_a_change_is_noticed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert release.main([str(tmp_path)]) == 1  # nothing to release
    (tmp_path / "bayeswell-1-py3-none-any.whl").write_bytes(b"wheel")
    (tmp_path / "bayeswell-1.tar.gz").write_bytes(b"source")
    assert release.main([str(tmp_path)]) == 0
    lines = dict(reversed(line.split("  ")) for line in (tmp_path / "SHA256SUMS").read_text().splitlines())
    assert lines["bayeswell-1.tar.gz"] == hashlib.sha256(b"source").hexdigest()
    (bill,) = tmp_path.glob("*.cdx.json")
    assert json.loads(bill.read_text())["bomFormat"] == "CycloneDX"
    assert bill.name in lines
    before = bill.read_bytes()
    assert release.main([str(tmp_path)]) == 0
    assert bill.read_bytes() == before
    assert release.main([str(tmp_path), "--check"]) == 0
    (tmp_path / "bayeswell-1.tar.gz").write_bytes(b"other")
    assert release.main([str(tmp_path), "--check"]) == 1
    capsys.readouterr()
