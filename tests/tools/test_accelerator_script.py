"""The smoke test for people with an accelerator runs here as a rehearsal, and sees what differs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2]))  # the benchmark is a package in the project's folder

from benchmarks import accelerator

REHEARSAL = ["--device", "cpu", "--net", "mlp", "--tiny", "--rounds", "1"]


def test_a_rehearsal_on_the_cpu_agrees(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(accelerator, "METHODS", ("bbb", "k-tied", "vl"))
    assert accelerator.main(REHEARSAL) == 0
    said = capsys.readouterr().out
    assert "a rehearsal" in said
    assert "all agree" in said


def test_a_device_that_computes_otherwise_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right, calls = accelerator._gradients, []

    def wrong(*given: Any) -> list[torch.Tensor]:
        calls.append(given)
        return [(1.01 if len(calls) == 2 else 1.0) * tensor for tensor in right(*given)]

    monkeypatch.setattr(accelerator, "METHODS", ("bbb",))
    monkeypatch.setattr(accelerator, "_gradients", wrong)
    assert accelerator.main(REHEARSAL) == 1
    said = capsys.readouterr().out
    assert "FAILED: ArithmeticError: gradients differ by 0.01" in said
    assert "failed: bbb" in said
