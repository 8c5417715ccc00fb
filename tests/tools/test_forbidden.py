"""No source of ours can run code from a file or a string, or knows a path of one machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from forbidden import CODE_FOLDERS, faults_of, forbidden_names, machine_paths, main

PROJECT = Path(__file__).parents[2]


def names_in(source: str) -> list[str]:
    return [reason.split(":")[0] for _, reason in forbidden_names(source)]


def test_the_project_holds_nothing_forbidden() -> None:
    assert faults_of(PROJECT) == []


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import pickle\npickle.load(f)", "pickle.load"),
        ("import pickle as p\np.loads(b)", "pickle.loads"),
        ("from pickle import loads", "pickle.loads"),
        ("import pickle\nclass Mine(pickle.Unpickler): ...", "pickle.Unpickler"),
        ("import cloudpickle\ncloudpickle.load(f)", "cloudpickle.load"),
        ("import torch\ntorch.load(f, weights_only=True)", "torch.load"),
        ("import torch as t\nlist(map(t.load, files))", "torch.load"),
        ("from torch import load as read\nread(f)", "torch.load"),
        ("import torch.serialization\ntorch.serialization.load(f)", "torch.serialization.load"),
        ("def late():\n    import torch\n    return torch.load(f)", "torch.load"),
        ("import torch\ntorch.hub.load('a/b', 'c')", "torch.hub"),
        ("import torch\ntorch.jit.load(f)", "torch.jit.load"),
        ("import yaml\nyaml.load(f, Loader=yaml.SafeLoader)", "yaml.load"),
        ("from yaml import unsafe_load", "yaml.unsafe_load"),
        ("import joblib\njoblib.load(f)", "joblib.load"),
        ("import pandas as pd\npd.read_pickle(f)", "pandas.read_pickle"),
        ("import marshal", "marshal"),
        ("from marshal import loads", "marshal"),
        ("import shelve as s", "shelve"),
        ("eval('1 + 1')", "eval"),
        ("exec(text)", "exec"),
        ("run = eval", "eval"),
        ("import builtins\nbuiltins.exec(text)", "builtins.exec"),
        ("import os\nos.system('ls')", "os.system"),
        ("import subprocess\nsubprocess.run('ls', shell=True)", "shell=True"),
        ("import subprocess\nsubprocess.run('ls', shell=wanted)", "shell=wanted"),
        ("import subprocess\nsubprocess.getoutput('ls')", "subprocess.getoutput"),
        ("import numpy as np\nnp.load(f, allow_pickle=True)", "allow_pickle=True"),
        ("from numpy import load\nload(f, allow_pickle=1)", "allow_pickle=1"),
    ],
)
def test_a_forbidden_name_is_caught(source: str, name: str) -> None:
    assert name in names_in(source)


@pytest.mark.parametrize(
    "source",
    [
        "net.eval()",
        "import torch\ntorch.nn.Linear(2, 3).eval()",
        "import numpy as np\nnp.load(f)\nnp.load(f, allow_pickle=False)",
        "import yaml\nyaml.safe_load(f)",
        "import subprocess\nsubprocess.run(['ls'], shell=False)",
        "from safetensors.torch import load, load_file\nload(b)",
        "import json\njson.load(f)",
        "from bayeswell.persistence import load\nload(folder)",
        "from .persistence import load",
        "import pickle\npickle.dumps(part)",
        "posterior.load(f)\nself.torch.load(f)",
        "'torch.load and eval(x) in a docstring'",
    ],
)
def test_what_only_looks_like_one_is_left_alone(source: str) -> None:
    assert names_in(source) == []


@pytest.mark.parametrize(
    "line",
    [
        'path = "/home/someone/data.npz"',
        "# see /Users/someone/notes.md",
        "ROOT = Path('/work')",
        "'/tmp/run'",
        'f"/var/{name}"',
        "open(r'C:\\Users\\someone\\data')",
        "read /root/x",
    ],
)
def test_a_path_of_one_machine_is_caught(line: str) -> None:
    assert [number for number, _ in machine_paths(f"x = 1\n{line}\n")] == [2]


@pytest.mark.parametrize(
    "line",
    [
        "ratio = mean/var/n",
        "the mean / var of x and w/work",
        "Path.home() / 'work' / 'data'",
        "see https://example.org/home/page",
        "('src/bayeswell', './tmp/x', '../opt/y')",
        "slice x[a]/tmp/2",
        "shape: (batch, features)",
        "</dev/null",
    ],
)
def test_what_only_looks_like_a_path_is_left_alone(line: str) -> None:
    assert list(machine_paths(f"#!/usr/bin/env python\n{line}\n")) == []


@pytest.mark.parametrize("folder", CODE_FOLDERS)
def test_each_folder_of_code_is_read(tmp_path: Path, folder: str) -> None:
    path = tmp_path / folder / "deep" / "file.py"
    path.parent.mkdir(parents=True)
    path.write_text("import torch\n\nweights = torch.load('/tmp/w')\n", encoding="utf-8")
    faults = faults_of(tmp_path)
    assert [fault.rsplit(":", 1)[0] for fault in faults] == [
        f"{Path(folder, 'deep', 'file.py')}:3: /tmp/w",
        f"{Path(folder, 'deep', 'file.py')}:3: torch.load",
    ]


def test_an_empty_folder_is_not_taken_for_a_clean_project(tmp_path: Path) -> None:
    (fault,) = faults_of(tmp_path)
    assert "nothing was checked" in fault


def test_the_command_says_what_is_wrong_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("x = 1\n", encoding="utf-8")
    assert main([str(tmp_path)]) == 0
    (tmp_path / "src" / "b.py").write_text("import shelve\n", encoding="utf-8")
    capsys.readouterr()
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().out.startswith("src/b.py:1: shelve: it unpickles")
