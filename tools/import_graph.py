"""Check the direction of imports inside the package.

Each first-level module or sub-package is a room, and each room stands on a level. A room imports from
lower levels only; two rooms of one level do not know each other; modules do not import one another in a
circle. The ground level is the exception to the second rule: its few small modules may stand on one
another, in no circle.

Some rooms are the core, for ``pip install bayeswell``; the others are the lab, for ``bayeswell[lab]``. No room of the
core imports one of the lab, and each imports only those other libraries that are written down for it here.

Every import counts, also one inside a function or under ``TYPE_CHECKING``: an import that is hidden to
break a circle is a circle still. The files are read, never run.

    python tools/import_graph.py [package folder]
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

GROUND = 0
LEVELS: Mapping[int, tuple[str, ...]] = {
    GROUND: (
        "baselines",
        "composition",
        "eager",
        "elements",
        "errors",
        "extras",
        "fingerprint",
        "finite",
        "guards",
        "lazy",
        "modes",
        "native",
        "nested",
        "outputs",
        "plain",
        "processes",
        "random",
        "random_settings",
        "refusals",
        "registry",
        "schedules",
        "tree",
        "types",
        "version",
    ),
    1: ("batches", "layers", "likelihoods", "metrics", "models", "persistence", "priors", "tables"),
    2: ("datasets", "divergences", "estimators", "gradients", "optimizers", "posteriors", "samplers"),
    3: ("averaging", "lifting", "objectives", "post_hoc"),
    4: ("methods", "predictive"),
    5: ("training",),
    6: ("diagnostics", "integrations", "pretrained", "testing"),
    7: ("experiments", "plots", "sweeps"),
    8: ("report",),
    9: ("studies", "workbench"),
    10: ("cli", "sklearn"),
}
FACE_LEVEL = 10.5
"""The package's own ``__init__``: it shows the rooms, and only examples/ and benchmarks/, outside, look at it."""

LAB = frozenset({"cli", "datasets", "diagnostics", "experiments", "plots", "report", "studies", "sweeps", "workbench"})
"""The rooms that need ``bayeswell[lab]``, or stand on one that does. All others are the core, and so is ``__main__``,
the door of ``cli``: it says what is missing."""

CORE_LIBRARIES = frozenset({"lightning_fabric", "numpy", "safetensors", "torch"})
"""What ``pip install bayeswell`` brings, and every room may import."""

OTHER_LIBRARIES: Mapping[str, frozenset[str]] = {
    "cli": frozenset({"matplotlib", "rich", "typer"}),
    "datasets": frozenset({"PIL", "pooch", "scipy", "sklearn"}),
    "experiments": frozenset({"joblib", "pandas", "tensorboard"}),  # joblib where a program has imported it
    "integrations": frozenset({"accelerate", "lightning", "peft", "transformers"}),
    "plots": frozenset({"matplotlib"}),
    "predictive": frozenset({"pandas"}),  # predictions as data frames, for those who have it
    "report": frozenset({"jinja2", "markupsafe"}),
    "sklearn": frozenset({"sklearn"}),
    "studies": frozenset({"matplotlib"}),
    "sweeps": frozenset({"optuna", "sqlalchemy"}),
    "workbench": frozenset({"pandas"}),
    "training": frozenset({"rich"}),  # a better progress bar where it is installed; without it there is a plain one
}
"""What a room may import besides."""

LEVEL_OF: Mapping[str, float] = {room: level for level, rooms in LEVELS.items() for room in rooms}


@dataclass(frozen=True, order=True)
class Edge:
    """One import: where it is written, and what it names."""

    importer: str
    imported: str
    path: Path
    line: int


def modules_of(package: Path) -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    modules = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


def edges_of(modules: Mapping[str, Path]) -> list[Edge]:
    """Every import of one module of the package by another."""
    return _edges(modules, lambda edge: edge.importer != edge.imported and _root(edge.importer) == _root(edge.imported))


def outside_edges_of(modules: Mapping[str, Path]) -> list[Edge]:
    """Every import of another library; Python's own count for nothing."""
    own = {*sys.stdlib_module_names, *map(_root, modules)}
    return _edges(modules, lambda edge: _root(edge.imported) not in own)


def _edges(modules: Mapping[str, Path], wanted: Callable[[Edge], bool]) -> list[Edge]:
    found = set()
    for name, path in modules.items():
        is_package = path.name == "__init__.py"
        for node in _importing_nodes(path, path.read_text(encoding="utf-8")):
            for target in _targets(node, name, is_package, modules):
                found.add(Edge(name, target, path, node.lineno))
    return sorted(filter(wanted, found))


@cache
def _importing_nodes(path: Path, text: str) -> tuple[ast.Import | ast.ImportFrom | ast.Call, ...]:
    """What may import in a file's text: parsed and walked once, however many questions are asked of it."""
    nodes = ast.walk(ast.parse(text, filename=str(path)))
    return tuple(node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom | ast.Call))


def _root(module: str) -> str:
    return module.split(".")[0]


def _targets(node: ast.AST, importer: str, is_package: bool, modules: Mapping[str, Path]) -> Iterator[str]:
    """The package's modules that one syntax node imports, and the names of other libraries."""
    root = importer.split(".")[0]
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            # One dot is the folder the file lies in; each further dot is one folder up.
            up = node.level - 1 if is_package else node.level
            folder = importer.split(".")[: len(importer.split(".")) - up]
            base = ".".join([*folder, *([node.module] if node.module else [])])
        # `from room import name`: the name may be a module of that room.
        names = [f"{base}.{alias.name}" for alias in node.names]
    elif isinstance(node, ast.Call):
        function = node.func
        called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        first = node.args[0] if node.args else None
        if called in {"import_module", "__import__"} and isinstance(first, ast.Constant):
            names = [str(first.value)]
    for name in names:
        yield _nearest_module(name, modules) if _root(name) == root else _root(name)


def _nearest_module(name: str, modules: Mapping[str, Path]) -> str:
    """The module that ``name`` is, or that holds it; a room that does not exist keeps its name."""
    shown = name
    while "." in shown:
        if shown in modules:
            return shown
        shown = shown.rpartition(".")[0]
    return shown


def room_of(module: str) -> str:
    """The room a module is in; the empty string for the package's own face."""
    _, _, inside = module.partition(".")
    return inside.split(".")[0]


def _level(module: str) -> float:
    room = room_of(module)
    if room == "__main__":  # `python -m` is a door of the command line
        return LEVEL_OF["cli"]
    return LEVEL_OF[room] if room else FACE_LEVEL


def _place(module: str) -> str:
    return f"{module} (level {_level(module):g})" if room_of(module) else f"{module} (the public face)"


def unknown_rooms(modules: Mapping[str, Path]) -> list[str]:
    """Rooms that stand on no level."""
    rooms: dict[str, Path] = {}
    for module, path in modules.items():
        rooms.setdefault(room_of(module), path)
    return [
        f"{path}: room '{room}' stands on no level; give it one in tools/import_graph.py"
        for room, path in sorted(rooms.items())
        if room and room != "__main__" and room not in LEVEL_OF
    ]


def wrong_directions(edges: Iterable[Edge]) -> list[str]:
    """Imports that go up, or across from room to room on one level."""
    faults = []
    for edge in edges:
        here, there = room_of(edge.importer), room_of(edge.imported)
        known = all(room in LEVEL_OF or room in {"", "__main__"} for room in (here, there))
        if here == there or not known:  # an unknown room has its own fault
            continue
        source, target = _level(edge.importer), _level(edge.imported)
        if target > source:
            kind = "upward"
        elif target == source and source != GROUND and here != "__main__":
            kind = "across, from room to room of one level"
        else:
            continue
        faults.append(f"{edge.path}:{edge.line}: {kind}: {_place(edge.importer)} imports {_place(edge.imported)}")
    return faults


def core_on_lab(edges: Iterable[Edge]) -> list[str]:
    """Imports of the lab by the core."""
    return [
        f"{edge.path}:{edge.line}: the core on the lab: {edge.importer} imports {edge.imported}"
        for edge in edges
        if room_of(edge.imported) in LAB and room_of(edge.importer) not in LAB | {"", "__main__"}
    ]


def unlisted_libraries(edges: Iterable[Edge]) -> list[str]:
    """Imports of libraries that are not written down for the room."""
    faults = []
    for edge in edges:
        allowed = CORE_LIBRARIES | OTHER_LIBRARIES.get(room_of(edge.importer), frozenset())
        if edge.imported not in allowed:
            side = "of the lab" if room_of(edge.importer) in LAB else "of the core"
            faults.append(
                f"{edge.path}:{edge.line}: {edge.importer}, {side}, imports {edge.imported}; "
                f"for it there are {', '.join(sorted(allowed))} (tools/import_graph.py)"
            )
    return faults


def cycles(edges: Iterable[Edge]) -> list[str]:
    """One line for each knot of modules that import one another, showing a shortest way round."""
    graph: dict[str, set[str]] = {}
    for edge in edges:
        graph.setdefault(edge.importer, set()).add(edge.imported)
    faults, seen = [], set()
    for start in sorted(graph):
        if start in seen:
            continue
        way = _way_back(start, graph)
        if way:
            seen.update(way)
            faults.append("circle: " + " -> ".join(way))
    return faults


def _way_back(start: str, graph: Mapping[str, set[str]]) -> list[str]:
    """A shortest walk from a module back to itself; empty if there is none."""
    walks = [[start]]
    reached: set[str] = set()
    for walk in walks:
        for following in sorted(graph.get(walk[-1], ())):
            if following == start:
                return [*walk, start]
            if following not in reached:
                reached.add(following)
                walks.append([*walk, following])
    return []


def circles_through_faces(modules: Mapping[str, Path], edges: Iterable[Edge]) -> list[str]:
    """Modules that import through the ``__init__`` of their own room while it imports them.

    ``from . import sibling`` runs the ``__init__`` of the room first: it works as long as nobody changes an order.
    ``from .sibling import name`` asks the sibling alone.
    """
    graph: dict[str, set[str]] = {}
    for edge in edges:
        graph.setdefault(edge.importer, set()).add(edge.imported)
    faults = []
    for name, path in modules.items():
        face = name.rpartition(".")[0]
        if path.name == "__init__.py" or face.count(".") == 0 or not _way_back(face, {**graph, name: {face}}):
            continue
        for node in _importing_nodes(path, path.read_text(encoding="utf-8")):
            if not isinstance(node, ast.ImportFrom) or (node.level, node.module) not in {(1, None), (0, face)}:
                continue
            if any(f"{face}.{alias.name}" in modules for alias in node.names):
                faults.append(
                    f"{path}:{node.lineno}: circle: {name} -> {face} -> ... -> {name}; import from the sibling"
                )
    return faults


def faults_of(package: Path) -> list[str]:
    """Everything that is wrong with the imports of a package, one line each."""
    modules = modules_of(package)
    if not modules:
        return [f"{package}: no Python files; nothing was checked"]
    edges = edges_of(modules)
    outside = unlisted_libraries(outside_edges_of(modules))
    circles = [*cycles(edges), *circles_through_faces(modules, edges)]
    return [*unknown_rooms(modules), *wrong_directions(edges), *core_on_lab(edges), *outside, *circles]


def main(arguments: list[str]) -> int:
    """Print the faults; 1 if there are any."""
    package = Path(arguments[0]) if arguments else Path(__file__).parents[1] / "src" / "bayeswell"
    faults = faults_of(package)
    for fault in faults:
        print(fault)
    if not faults:
        modules = modules_of(package)
        counts = f"{len(modules)} modules, {len(edges_of(modules))} imports"
        print(f"imports: {counts}, all downwards, no circle, none of the lab by the core")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
