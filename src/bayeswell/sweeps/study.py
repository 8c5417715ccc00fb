"""The Optuna study of a sweep: opened or made, never mixed up with another; its faults in one line."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import FileError, SettingError, nearest
from ..extras import needs_extra
from ..persistence import write_document
from ..training.run_folder import differences
from .definition import DATABASE, DEFINITION, TRIALS, Definition
from .leases import shares_nothing_but

with needs_extra("lab", "a sweep"):
    import optuna
    from optuna.study import StudyDirection
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import SQLAlchemyError

_IDENTITY, _SHARED = "bayeswell:sweep", "bayeswell:definition"
_GONE = "Record does not exist."
"""What Optuna says of a study or trial that is no longer there."""
_OF_A_MACHINE = ("identity", "storage")
"""Not a part of what machines share: an address may be another on each, and hold a password."""


def storage_at(url: str, busy_seconds: float) -> optuna.storages.RDBStorage:
    """Optuna's face of a database; SQLite itself waits for another program's lock."""
    # A connection that the server closed meanwhile (it was started anew) is noticed and opened again.
    waits = url.startswith("sqlite")
    options: dict[str, Any] = {"connect_args": {"timeout": busy_seconds}} if waits else {"pool_pre_ping": True}
    # Optuna fills in what stands in braces: an address is no template.
    return optuna.storages.RDBStorage(url.replace("{", "{{").replace("}", "}}"), engine_kwargs=options)


def close_storage(storage: optuna.storages.RDBStorage) -> None:
    """Leave no connection open."""
    storage.remove_session()
    storage.engine.dispose()


def open_study(
    definition: Definition, folder: Path, url: str, storage: optuna.storages.RDBStorage
) -> tuple[optuna.Study, Definition]:
    """The study, made if this sweep has none yet, and the sweep.

    Where workers share nothing but the database, a folder without trials joins a sweep of the same definition, whoever
    began it.
    """
    where = without_password(url)
    known = definition.name in optuna.get_all_study_names(storage)
    has_trials = any((folder / TRIALS).iterdir())
    if not known and has_trials:
        raise FileError(
            f"{where} has no study '{definition.name}', but {str(folder / TRIALS)!r} holds its trials: the database "
            "was emptied or replaced; put it back, or begin the sweep in another folder"
        )
    with _quiet():
        study = optuna.create_study(
            storage=storage,
            study_name=definition.name,
            direction=StudyDirection[definition.direction.upper()],
            load_if_exists=True,
        )
    owner = study.user_attrs.get(_IDENTITY)
    if owner is None and not study.get_trials(deepcopy=False):
        study.set_user_attr(_SHARED, json.dumps(_shared(definition)))
        study.set_user_attr(_IDENTITY, definition.identity)
    elif owner != definition.identity:
        if has_trials or not shares_nothing_but(url) or _SHARED not in study.user_attrs:
            raise SettingError(
                f"the study '{definition.name}' in {where} is not of the sweep in {str(folder)!r}; give the sweep "
                "another name"
            )
        changes = differences(json.loads(study.user_attrs[_SHARED]), _shared(definition))
        if changes:
            raise SettingError(
                f"the study '{definition.name}' in {where} is of another sweep: {'; '.join(changes)}; give this one "
                "another name, or join that one by its own settings (sweep --join)"
            )
        definition = replace(definition, identity=str(owner))
        write_document(folder / DEFINITION, definition.record())
    return study, definition


def definition_in(url: str, name: str) -> dict[str, Any]:
    """What a study in a database says of its sweep; all but what is a machine's own."""
    where = without_password(url)
    with faults_of(where, 0.0):
        if not shares_nothing_but(url):
            raise SettingError(f"storage = {where}: only a sweep on PostgreSQL is joined by its address")
        storage = storage_at(url, 0.0)
        try:
            names = optuna.get_all_study_names(storage)
            if name not in names:
                raise SettingError(f"{where} has no study {name!r}; {nearest(name, names) if names else 'it has none'}")
            found = optuna.load_study(study_name=name, storage=storage).user_attrs.get(_SHARED)
        finally:
            close_storage(storage)
    if found is None:
        raise SettingError(f"the study {name!r} in {where} is not of a sweep that can be joined by its address")
    return dict(json.loads(found))


def _shared(definition: Definition) -> dict[str, Any]:
    return {name: value for name, value in definition.record().items() if name not in _OF_A_MACHINE}


@contextlib.contextmanager
def faults_of(where: str, busy_seconds: float) -> Iterator[None]:
    """Whatever is wrong with the database, in one line that names it."""
    try:
        yield
    except (SQLAlchemyError, optuna.exceptions.OptunaError, ImportError) as error:
        why = str(error.__cause__ or error).splitlines()[0]
        if "database is locked" in why:
            raise FileError(
                f"another program has kept {where} locked for {busy_seconds:g} s; close it and run the sweep again"
            ) from error
        raise FileError(f"the study in {where} cannot be used: {why}") from error
    except KeyError as error:
        if error.args != (_GONE,):
            raise
        raise FileError(
            f"the study in {where} has lost a trial that was written: it was deleted, or the server stopped before it "
            "had kept it (synchronous_commit); run the sweep again"
        ) from error


def without_password(url: str) -> str:
    """An address to be shown."""
    try:
        return repr(make_url(url).render_as_string(hide_password=True))
    except (SQLAlchemyError, ValueError) as error:
        raise SettingError("storage is no address of a database; write sqlite:///PATH or postgresql://...") from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without Optuna's remark that a study was made."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)


def check_database(definition: Definition, folder: Path) -> None:
    """Refuse a damaged file of the folder before anything is read from it or added to it."""
    path = folder / DATABASE
    if definition.storage is not None or not path.exists():
        return
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=0.0)) as connection:
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.DatabaseError as error:
        if "locked" in str(error):  # opening the study waits for it
            return
        found = str(error)
    if found != "ok":
        raise FileError(
            f"the database {str(path)!r} is damaged ({str(found).splitlines()[-1]}); put a copy of it back, or begin "
            "the sweep in another folder"
        )
