"""Refuse source that could run code found in a file or in a string, and paths of one machine.

Nothing this project loads may run code: tensors are safetensors, all else is JSON. So no unpickling in any
dress, no ``eval`` or ``exec``, no shell. A name is followed through its import (``from torch import load as
read`` is found as ``torch.load``) and is refused wherever it stands, called or not. The files are read,
never run.

    python tools/forbidden.py [project folder]
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

CODE_FOLDERS = ("src", "examples", "benchmarks", "tools")
OTHER_FILES = ("pyproject.toml", "constraints.txt", "Makefile", ".ci/run", ".pre-commit-config.yaml")

SAFE_FILES = "keep tensors in safetensors and the rest in JSON"
NAMES = {
    "eval": "it runs text as code; parse the text instead (json, ast.literal_eval)",
    "exec": "it runs text as code",
    "os.system": "it starts a shell; subprocess.run takes a list of arguments",
    "os.popen": "it starts a shell; subprocess.run takes a list of arguments",
    "subprocess.getoutput": "it starts a shell; subprocess.run takes a list of arguments",
    "subprocess.getstatusoutput": "it starts a shell; subprocess.run takes a list of arguments",
    "yaml.load": "it can build any object; yaml.safe_load cannot",
    "yaml.load_all": "it can build any object; yaml.safe_load_all cannot",
    "yaml.full_load": "it can build objects; yaml.safe_load cannot",
    "yaml.unsafe_load": "it builds any object; yaml.safe_load does not",
    "torch.hub": "it downloads code and runs it",
}
UNPICKLERS = (
    *(f"{module}.{way}" for module in ("pickle", "_pickle", "dill") for way in ("load", "loads", "Unpickler")),
    *("cloudpickle.load", "cloudpickle.loads", "joblib.load", "pandas.read_pickle"),
    *("torch.load", "torch.serialization.load", "torch.jit.load", "torch.package"),
    *("marshal", "shelve"),
)
NAMES |= dict.fromkeys(UNPICKLERS, f"it unpickles, and a pickle can run code; {SAFE_FILES}")
NAMES |= {f"builtins.{name}": NAMES[name] for name in ("eval", "exec")}

KEYWORDS = {
    "shell": "it starts a shell; subprocess.run takes a list of arguments",
    "allow_pickle": f"a pickle can run code; {SAFE_FILES}",
}
"""Keyword arguments that may be given only as a plain ``False``."""

MACHINE_PATH = re.compile(
    r"(?<![\w.)\]}/])"  # not the middle of a longer path, of an address or of a fraction
    r"(?:/(?:home|Users|root|work|tmp|opt|mnt|srv|usr|etc|var|private)/[\w.{]"
    r"|/(?:root|work)\b"
    r"|[A-Za-z]:\\+\w)"
)


def forbidden_names(source: str) -> Iterator[tuple[int, str]]:
    """Line and reason for each use of a forbidden name or keyword."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    known: dict[str, str] = {}  # the name in this file -> what it stands for
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.split(".")[0]
                known[alias.asname or first] = alias.name if alias.asname else first
                yield from _judged(alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            if _refused(node.module):
                yield from _judged(node.module, node.lineno)
                continue
            for alias in node.names:
                known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                yield from _judged(f"{node.module}.{alias.name}", node.lineno)
    for node in nodes:
        if isinstance(node, ast.Attribute):
            yield from _judged(_dotted(node, known), node.lineno)
        elif isinstance(node, ast.Name) and node.id in {"eval", "exec"} and node.id not in known:
            yield from _judged(node.id, node.lineno)
        elif isinstance(node, ast.Call):
            for keyword in node.keywords:
                given = keyword.value
                plain_false = isinstance(given, ast.Constant) and given.value is False
                if keyword.arg in KEYWORDS and not plain_false:
                    yield given.lineno, f"{keyword.arg}={ast.unparse(given)}: {KEYWORDS[keyword.arg]}"


def _dotted(node: ast.expr, known: dict[str, str]) -> str:
    """``a.b.c`` written out with what its first name was imported as; empty if that is no import."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in known:
        return ""
    return ".".join([known[node.id], *names])


def _refused(name: str) -> str:
    """The reason a dotted name is refused; empty if it is not."""
    return NAMES.get(name, "")


def _judged(name: str, line: int) -> Iterator[tuple[int, str]]:
    if reason := _refused(name):
        yield line, f"{name}: {reason}"


def machine_paths(text: str) -> Iterator[tuple[int, str]]:
    """Line and reason for each absolute path that holds on one machine only."""
    for number, line in enumerate(text.splitlines(), start=1):
        if number == 1 and line.startswith("#!"):
            continue
        for match in MACHINE_PATH.finditer(line):
            shown = line[match.start() :].split()[0].rstrip("\"'`,;:)")
            yield number, f"{shown}: a path of one machine; build paths from what the user gives"


def faults_of(project: Path) -> list[str]:
    """Everything forbidden in a project, one line each."""
    faults = []
    sources = [path for folder in CODE_FOLDERS for path in sorted((project / folder).rglob("*.py"))]
    if not sources:
        return [f"{project}: no Python files under {', '.join(CODE_FOLDERS)}; nothing was checked"]
    scripts = sorted((project / "tools").glob("*.sh"))
    others = [project / name for name in OTHER_FILES if (project / name).is_file()]
    for path in [*sources, *scripts, *others]:
        text = path.read_text(encoding="utf-8")
        found = set(machine_paths(text))
        if path.suffix == ".py":
            found |= set(forbidden_names(text))
        faults += [f"{path.relative_to(project)}:{line}: {reason}" for line, reason in sorted(found)]
    return faults


def main(arguments: list[str]) -> int:
    """Print the faults; 1 if there are any."""
    faults = faults_of(Path(arguments[0]) if arguments else Path(__file__).parents[1])
    for fault in faults:
        print(fault)
    if not faults:
        print("safety: nothing forbidden")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
