"""Imports of a command are out of the garbage collector's sight, those of a program that calls one are not."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from bayeswell.cli.imports import kept_imports


@pytest.mark.parametrize("collects", [True, False])
def test_the_collector_is_afterwards_as_it_was(collects: bool) -> None:
    frozen, before = gc.get_freeze_count(), gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        with kept_imports():
            assert not gc.isenabled()
        assert gc.isenabled() == collects
        with pytest.raises(ImportError), kept_imports():
            raise ImportError
        assert gc.isenabled() == collects
    finally:
        (gc.enable if before else gc.disable)()
    assert gc.get_freeze_count() == frozen  # garbage of this program must stay in sight


def test_a_process_of_the_command_alone_leaves_its_imports_alone() -> None:
    code = """
import gc, sys
from bayeswell.__main__ import main
sys.argv = ["bayeswell", "train", "-d", "no-such-data"]
assert gc.get_freeze_count() == 0
assert main() == 2
assert gc.isenabled()
assert gc.get_freeze_count() > 100_000, gc.get_freeze_count()
assert "torch" in sys.modules
assert "bayeswell.experiments.comparing" not in sys.modules  # one run compares nothing
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
