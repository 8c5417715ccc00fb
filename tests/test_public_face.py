"""The names of the package: written once, in the stub; imported when first used."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import bayeswell as bw
from quick_python import QUICK_PYTHON


def stub() -> ast.Module:
    return ast.parse(Path(str(bw.__file__)).with_suffix(".pyi").read_text())


def test_every_name_of_the_stub_is_there_and_no_other() -> None:
    (listed,) = [
        ast.literal_eval(node.value)
        for node in stub().body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    assert sorted(listed) == bw.__all__ == dir(bw)
    for node in stub().body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                module = importlib.import_module(f"bayeswell.{node.module or alias.name}")
                assert getattr(bw, alias.name) is (getattr(module, alias.name) if node.module else module)


def test_a_wrong_name_is_refused_and_the_nearest_is_offered() -> None:
    with pytest.raises(AttributeError, match="module 'bayeswell' has no attribute 'fitt'"):
        bw.fitt  # type: ignore[attr-defined]
    found = subprocess.run(
        [sys.executable, "-c", "import bayeswell; bayeswell.fitt"], capture_output=True, text=True, check=False
    )
    assert found.stderr.rstrip().endswith("has no attribute 'fitt'. Did you mean: 'fit'?")
    with pytest.raises(ImportError, match="cannot import name 'fitt'"):
        from bayeswell import fitt  # type: ignore[attr-defined]  # noqa: F401


def test_the_package_is_imported_without_torch_and_the_lab() -> None:
    program = (
        "import sys, bayeswell\n"
        "bayeswell.__version__, bayeswell.BayeswellError, dir(bayeswell)\n"
        "print(sorted({'torch', 'numpy', 'typer', 'rich', 'matplotlib', 'sklearn'} & set(sys.modules)))\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
    # Here torch may be there before.
    program = "import bayeswell\nfrom bayeswell import *\nprint(fit.__module__)"
    found = subprocess.run([QUICK_PYTHON, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "bayeswell.training.fit\n"
