"""What is not installed is missed in one line; the extras of pyproject.toml are those that the package speaks of."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import bayeswell as bw
from bayeswell.extras import EXTRAS, needs_extra
from import_graph import CORE_LIBRARIES, LAB, OTHER_LIBRARIES
from quick_python import QUICK_PYTHON

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
IMPORT_NAMES = {"scikit-learn": "sklearn", "pillow": "PIL", "lightning-fabric": "lightning_fabric"}
BROUGHT_ALONG = {"joblib", "markupsafe"}
"""By distributions that are listed and cannot do without: scikit-learn, jinja2."""


def distributions(requirements: list[str]) -> set[str]:
    names = {re.split(r"[\[<>=! ]", requirement)[0] for requirement in requirements}
    return {IMPORT_NAMES.get(name, name) for name in names}


def test_the_extras_are_those_of_the_project_file_and_of_the_import_check() -> None:
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    assert (
        distributions(project["dependencies"])
        == CORE_LIBRARIES
        == {"torch", "numpy", "safetensors", "lightning_fabric"}
    )
    extras = project["optional-dependencies"]
    assert set(EXTRAS) == set(extras) - {"dev", "docs", "references"}
    for extra, modules in EXTRAS.items():
        assert set(modules) == distributions(extras[extra]) | (BROUGHT_ALONG if extra == "lab" else set())
    assert "bayeswell[lab,huggingface,lightning,docs]" in extras["dev"]
    allowed = set().union(*OTHER_LIBRARIES.values())
    assert allowed == set().union(*EXTRAS.values())
    # Of the core only what does without or says what is missing: the progress bar, tables of predictions, and the doors
    # to other libraries for those who have them.
    assert set(OTHER_LIBRARIES) - LAB == {"training", "predictive", "integrations", "sklearn"}


def test_a_missing_module_of_the_extra_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(bw.MissingExtra) as caught, needs_extra("lab", "a sweep"):
        import optuna.study  # noqa: F401
    assert str(caught.value) == "a sweep needs the extra 'lab' (optuna is not installed): pip install 'bayeswell[lab]'"
    assert isinstance(caught.value, bw.SettingError)  # as it was before there were extras
    assert isinstance(caught.value, ImportError)


def test_a_broken_library_is_not_taken_for_a_missing_one() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module") as caught, needs_extra("lab", "a sweep"):
        import no_such_module  # noqa: F401
    assert not isinstance(caught.value, bw.MissingExtra)
    with pytest.raises(ImportError, match="cannot import name") as broken, needs_extra("lab", "a sweep"):
        from json import no_such_name  # noqa: F401
    assert not isinstance(broken.value, bw.MissingExtra)


WITHOUT_THE_LAB = """
import runpy, sys
lab = {lab!r}
for name in list(sys.modules):
    if name.partition(".")[0] in lab:
        sys.modules[name] = None
    elif name.partition(".")[0] in ("lightning_fabric", "safetensors"):  # they are imported anew, without the lab
        del sys.modules[name]
for name in lab:
    sys.modules[name] = None
"""


def without_the_lab(program: str, *arguments: str, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    """A Python in which nothing of the lab can be imported, also of what it may have had before."""
    head = WITHOUT_THE_LAB.format(lab=EXTRAS["lab"])
    command = [python, "-c", head + program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", [[], ["--help"], ["train", "--data", "digits"]])
def test_the_command_line_without_the_lab_is_one_line(arguments: list[str]) -> None:
    found = without_the_lab("runpy.run_module('bayeswell', run_name='__main__', alter_sys=True)", *arguments)
    assert found.returncode == 2
    assert found.stdout == ""
    assert re.fullmatch(
        r"bayeswell: the command line needs the extra 'lab' \(\w+ is not installed\): pip install 'bayeswell\[lab\]'\n",
        found.stderr,
    )


def test_the_core_trains_predicts_saves_and_loads_without_the_lab(tmp_path: Path) -> None:
    program = (
        "import torch, bayeswell as bw\n"
        "x = torch.randn(60, 2)\n"
        "net = torch.nn.Linear(2, 2)\n"
        "result = bw.fit(net, (x, x.argmax(1)), 'bbb', likelihood='categorical', epochs=1, progress=True)\n"
        "result.save(sys.argv[1])\n"
        "print(bw.load(sys.argv[1]).predict(x, draws=3).probabilities.shape)\n"
        "for act in (lambda: bw.datasets.load_data('digits'), lambda: __import__('bayeswell.sweeps')):\n"
        "    try:\n        act()\n"
        "    except bw.MissingExtra as error:\n        print(error)\n"
    )
    found = without_the_lab(program, str(tmp_path / "model"), python=QUICK_PYTHON)
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines() == [
        "torch.Size([60, 2])",
        "the data set 'digits' needs the extra 'lab' (sklearn is not installed): pip install 'bayeswell[lab]'",
        "a sweep needs the extra 'lab' (sqlalchemy is not installed): pip install 'bayeswell[lab]'",
    ]
