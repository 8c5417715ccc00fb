"""The Optuna study of a sweep: opened or made, never mixed up with another; its suggestions; its faults in one line."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from ..errors import FileError, SettingError
from ..extras import needs_extra
from ..random import derive_seed
from .definition import DATABASE, TRIALS, Definition
from .space import Choices, Spread, Value

with needs_extra("lab", "a sweep"):
    import optuna
    from optuna.study import StudyDirection
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import SQLAlchemyError

_IDENTITY = "bayeswell:sweep"


def open_study(definition: Definition, folder: Path, url: str, busy_seconds: float) -> optuna.Study:
    """Open the study, or make it if this sweep has none yet; SQLite itself waits for another program's lock."""
    if definition.storage is None:
        _check_database(folder / DATABASE)
    connect = {"timeout": busy_seconds} if url.startswith("sqlite") else {}
    # Optuna fills in what stands in braces: an address is no template.
    literal = url.replace("{", "{{").replace("}", "}}")
    storage = optuna.storages.RDBStorage(literal, engine_kwargs={"connect_args": connect})
    where = without_password(url)
    if definition.name not in optuna.get_all_study_names(storage) and any((folder / TRIALS).iterdir()):
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
        study.set_user_attr(_IDENTITY, definition.identity)
    elif owner != definition.identity:
        raise SettingError(
            f"the study '{definition.name}' in {where} is not of the sweep in {str(folder)!r}; give the sweep another "
            "name"
        )
    return study


def suggest(study: optuna.Study, definition: Definition, trial: optuna.Trial) -> dict[str, Value]:
    """The trial's settings; Optuna gives those again that are recorded already.

    The sampler begins anew for each, from the sweep's seed, the trial's number and the setting's name: settings of a
    random sweep depend on nothing else, whichever worker draws them and whatever was killed in between.
    """
    settings: dict[str, Value] = {}
    for name, spread in definition.space.items():
        study.sampler = _sampler(definition, trial.number, name)
        settings[name] = _suggested(trial, name, spread)
    return settings


def _suggested(trial: optuna.Trial, name: str, spread: Spread) -> Value:
    if isinstance(spread, Choices):
        chosen: Value = trial.suggest_categorical(name, spread.values)  # type: ignore[assignment]  # none is None
        return chosen
    if spread.whole:
        return trial.suggest_int(name, int(spread.low), int(spread.high), log=spread.log)
    return trial.suggest_float(name, spread.low, spread.high, log=spread.log)


def _sampler(definition: Definition, number: int, name: str) -> optuna.samplers.BaseSampler:
    seed = derive_seed(definition.seed, "sweep", number, name) % 2**32  # all that numpy's old generators take
    if definition.sampler == "random":
        return optuna.samplers.RandomSampler(seed)
    return optuna.samplers.TPESampler(seed=seed)


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


def _check_database(path: Path) -> None:
    """Refuse a damaged file before anything is read from it or added to it."""
    if not path.exists():
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
