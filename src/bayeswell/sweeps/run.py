"""Running a sweep: one process, or several that share its folder."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..errors import SettingError, require_count
from ..persistence import JSON
from ..processes import leave_if_imported
from .definition import (
    DEFINITION,
    Definition,
    TrialFunction,
    check_storage,
    definition_of,
    establish,
    fill_in,
    name_of,
    read_definition,
)
from .grid import trials_of
from .ledger import Ledger
from .pool import Watcher, WorkerPool
from .results import SweepResult
from .space import Spread, Value, check_space
from .study import definition_in
from .worker import work


def run_sweep(
    function: TrialFunction,
    space: Mapping[str, Spread | str | Sequence[Value]],
    folder: str | os.PathLike[str],
    *,
    trials: int | None = None,
    sampler: str = "tpe",
    seed: int = 0,
    direction: str = "minimize",
    workers: int = 1,
    storage: str | None = None,
    name: str | None = None,
    attempts: int = 5,
    settings: Mapping[str, JSON] | None = None,
    watch: Watcher | None = None,
) -> SweepResult:
    """Try ``trials`` settings of ``space`` (20) on a function, and go on with what is in ``folder`` already.

    ``space``: a range or choices for each setting, as text (``"1e-4:1e-1:log"``) or as a list (``["all", "last"]``).

    ``function(settings, folder)`` gives the value to minimize (or maximize). It has a folder of its own for each trial,
    and is called with the same one if the trial is begun again: what it keeps there, it can go on with. With several
    ``workers`` it runs in processes of their own, and must be importable: a function of a module, not of a function.

    ``sampler``: "tpe" (Bergstra et al., 2011, as Optuna has it) learns from finished trials; "random" draws settings
    that depend on ``seed`` and the trial's number alone; "grid" visits every combination once, and has as many trials
    as there are. ``settings`` is what all trials share, kept with the sweep
    and compared when it is gone on with. ``watch`` is called whenever a trial ends.

    With a ``storage`` on PostgreSQL other machines work on the sweep too, each in a folder of its own that no other
    need see: by the same call, or by ``join_sweep``. A trial whose machine is gone begins anew on another.
    """
    require_count("sweep", "workers", workers)
    if workers > 1:
        leave_if_imported()
    place, ranges = Path(os.path.abspath(folder)), check_space(space)
    wanted = Definition(
        name=name or place.name,
        function=name_of(function),
        space=ranges,
        trials=trials_of(sampler, ranges, trials),
        sampler=sampler,
        seed=seed,
        direction=direction,
        attempts=attempts,
        storage=check_storage(storage),
        settings=dict(settings or {}),
    )
    return _go(establish(wanted, place), function, place, workers, watch)


def join_sweep(
    function: TrialFunction,
    folder: str | os.PathLike[str],
    *,
    workers: int = 1,
    storage: str | None = None,
    name: str | None = None,
    watch: Watcher | None = None,
) -> SweepResult:
    """Work on the sweep in a folder, beside whoever else does, until it is finished.

    On a machine that does not see that folder: with the address of the sweep's PostgreSQL and its name there (that of
    the folder, if none is given), in a folder of this machine's own.
    """
    require_count("sweep", "workers", workers)
    if workers > 1:
        leave_if_imported()
    place = Path(os.path.abspath(folder))
    definition = sweep_definition(folder, storage=storage, name=name)
    if name_of(function) != definition.function:
        raise SettingError(
            f"the sweep in {str(place)!r} is of the function {definition.function}, not of {name_of(function)}"
        )
    return _go(definition, function, place, workers, watch)


def sweep_definition(
    folder: str | os.PathLike[str], *, storage: str | None = None, name: str | None = None
) -> Definition:
    """What the sweep in a folder is; a folder that has none yet gets that of the database."""
    place = Path(os.path.abspath(folder))
    if storage is None or (place / DEFINITION).exists():
        found = read_definition(place)
        for setting, wanted, own in (("storage", check_storage(storage), found.storage), ("name", name, found.name)):
            if wanted is not None and wanted != own:
                raise SettingError(f"{setting}: the sweep in {str(place)!r} has another one; leave it out")
        return found
    address = check_storage(storage)
    assert address is not None
    shared = definition_in(fill_in(address), name or place.name)
    return establish(definition_of({**shared, "storage": address}), place)


def sweep_result(folder: str | os.PathLike[str]) -> SweepResult:
    """What the sweep in a folder has so far."""
    place = Path(os.path.abspath(folder))
    return Ledger(read_definition(place), place).result()


def _go(
    definition: Definition, function: TrialFunction, folder: Path, workers: int, watch: Watcher | None
) -> SweepResult:
    ledger = Ledger(definition, folder)
    if workers == 1:
        work(ledger, function, lambda: watch(ledger.result()) if watch else None)
    elif not ledger.result().finished:
        WorkerPool(function, folder, workers, ledger, watch).run()
    return ledger.result()
