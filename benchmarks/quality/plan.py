"""What is to be run: cells of a problem, a method and a seed, each with what decides its result."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from bayeswell import BayeswellError
from bayeswell.datasets import data_status
from bayeswell.methods import METHODS, find_method
from bayeswell.methods.budget import ORDINARY

from . import peers
from .deciding import AUTO, checksum, sha
from .lengths import FACTORS, budgeted, longer, parted, shorter
from .problems import BESIDE, PROBLEMS, SLOW, SPLITS, TEN, UCI
from .runs import DRAWS

CONTROL = "map"
SEEDS = 3
UCI_METHODS = (AUTO, CONTROL, "deep-ensemble", "hwa", "sghmc")
EQUAL_COST = "equal-cost"
GROUPS = ("ten", "slow", "uci", "peers", "longer", EQUAL_COST)
DEVELOPMENT = "/development"
"""After the keys of runs that did not touch the test set."""
QUICK = ("digits", "wine", "yacht")
QUICK_METHODS = (CONTROL, "bbb", "hwa/2")
QUICK_EPOCHS = 2
"""The least that can be divided by a cost."""
_RECIPE = 1
"""Grows when the measurement itself changes: every result is then measured again."""


@dataclass(frozen=True)
class Cell:
    """One run. ``decided`` is a checksum of what decides its result: problem, settings and measurement."""

    problem: str
    method: str
    seed: int
    decided: str
    epochs: int | None = None
    development: bool = False

    @property
    def key(self) -> str:
        return f"{self.problem}/{self.method}/{self.seed}" + (DEVELOPMENT if self.development else "")


@dataclass(frozen=True)
class Choice:
    """What a command asks for: groups of problems, and of each the methods, problems and seeds."""

    groups: tuple[str, ...] = ("ten",)
    methods: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    seeds: int = SEEDS
    splits: int = 5
    epochs: int | None = None
    development: bool = False


def named() -> list[str]:
    """Every named method, and "auto" where there is one; of several names for the same settings only the first."""
    seen: dict[str, str] = {}
    for name in (*([AUTO] if has_auto() else []), *METHODS):
        seen.setdefault(checksum(name), name)
    return list(seen.values())


def other_names() -> dict[str, str]:
    """Names left out of ``named``, and the method that each of them is."""
    first = {checksum(name): name for name in reversed(METHODS)}
    return {name: first[checksum(name)] for name in METHODS if first[checksum(name)] != name}


def at_one_training() -> dict[str, str]:
    """Methods that cost more than ordinary training, and the name that each has at the cost of one.

    What costs no more stands in the record at the epochs of all, and is not run twice.
    """
    found = {}
    for name in named():
        method = find_method(name)
        if method.budget is not None:
            found[name] = budgeted(name)
        elif method.cost > ORDINARY:
            found[name] = shorter(name, method.cost / ORDINARY)
    return found


@cache
def has_auto() -> bool:
    """Whether ``fit`` can be left to choose."""
    try:
        find_method(AUTO)
    except BayeswellError:
        return False
    return True


def cell(problem: str, method: str, seed: int, epochs: int | None = None, development: bool = False) -> Cell:
    """The cell as it would be measured now."""
    described_problem = dataclasses.asdict(PROBLEMS[problem])
    length = parted(method)
    if length.factor != 1:
        epochs = length.epochs(epochs or PROBLEMS[problem].epochs)
    given = [dict(length.settings)] if length.settings else []
    decided = sha([described_problem, checksum(length.method), DRAWS, _RECIPE, epochs, *given])
    return Cell(problem, method, seed, decided, epochs, development)


def cells(choice: Choice) -> list[Cell]:
    """Every cell of the choice, the control of a problem first: times are relative to it."""
    found: dict[str, Cell] = {}
    for group in choice.groups:
        for problem in _problems(group, choice):
            for method in _methods(group, choice):
                for seed in range(_seeds(group, problem, choice)):
                    one = cell(problem, method, seed, choice.epochs, choice.development)
                    found.setdefault(one.key, one)
    return list(found.values())


def _problems(group: str, choice: Choice) -> list[str]:
    known: dict[str, Sequence[str]] = {
        "ten": TEN, "slow": SLOW, "uci": UCI, "peers": peers.PROBLEMS, "longer": TEN, EQUAL_COST: (*TEN, *BESIDE),
    }  # fmt: skip
    if group == "ten" and choice.problems:
        elsewhere = {name for other in choice.groups if other in {"slow", "uci"} for name in known[other]}
        return [name for name in choice.problems if name not in elsewhere]
    return [name for name in known[group] if not choice.problems or name in choice.problems]


def _methods(group: str, choice: Choice) -> list[str]:
    if group == "peers":
        return [name for name in peers.names() if not choice.methods or name in choice.methods]
    if group == "longer":
        return [longer(CONTROL, factor) for factor in FACTORS]
    if group == EQUAL_COST:
        named_so = at_one_training().items()
        return [short for name, short in named_so if not choice.methods or {name, short} & set(choice.methods)]
    own = [name for name in choice.methods if not name.startswith(peers.PREFIX)]
    if choice.methods:
        return sorted(own, key=lambda name: name != CONTROL)
    if group == "uci":
        return sorted((n for n in UCI_METHODS if n != AUTO or has_auto()), key=lambda name: name != CONTROL)
    return sorted(named(), key=lambda name: name != CONTROL)


def _seeds(group: str, problem: str, choice: Choice) -> int:
    return min(choice.splits, SPLITS[problem]) if group == "uci" else choice.seeds


def sort_out(only: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Groups, methods and problems among some names; an unknown one ends the command with what is allowed."""
    groups, methods, problems = [], [], []
    for name in only:
        if name in GROUPS:
            groups.append(name)
        elif name in PROBLEMS:
            problems.append(name)
        elif name in peers.names() or _is_method(name):
            methods.append(name)
        else:
            allowed = ", ".join([*GROUPS, *PROBLEMS, *named(), *peers.names()])
            raise SystemExit(f"quality: there is no group, problem or method '{name}'; allowed: {allowed}")
    return tuple(groups), tuple(methods), tuple(problems)


def _is_method(name: str) -> bool:
    try:
        find_method(parted(name).method)
    except BayeswellError:
        return False
    return True


def missing_data(problems: Iterable[str]) -> dict[str, str]:
    """Problems whose files, or those of their foreign images, are not here, with a word each."""
    absent = {}
    for name in dict.fromkeys(problems):
        files = [data for data in (PROBLEMS[name].data, PROBLEMS[name].ood) if data is not None]
        missing = [data for data in files if not data_is_here(data)]
        if missing:
            absent[name] = f"no files of {' and '.join(map(repr, missing))}" + _where()
    return absent


def _where() -> str:
    return "" if os.environ.get("BAYESWELL_DATA") else "; BAYESWELL_DATA names the folder where data lie"


def data_is_here(data: str) -> bool:
    """Whether a set can be read without a download."""
    return data_status(data) != "absent"
