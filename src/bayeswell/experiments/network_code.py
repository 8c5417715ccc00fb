"""A network of the user's own as the command line names it: ``net.py:Net``, or ``package.module:Net``.

Code is run because the user says so on the command line, and for no other reason: a name in a file (``config.json``,
settings in TOML) is a label, and nothing in the folder of a run is ever run. What is kept with a run is the name of the
file without its folder, and the SHA-256 of what was run.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from ..errors import BayeswellError, FileError, NetworkError, SettingError, nearest
from ..training.run_folder import CHECKPOINTS, CONFIG, METRICS, MODEL, RESULT

SHA256 = "sha256"
"""Beside the name in the table of a model: which code, or which object, it was."""

_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_KEPT_BY_A_RUN = (METRICS, CHECKPOINTS, RESULT, MODEL)


@dataclass(frozen=True)
class NetworkCode:
    """What a spec led to: a class, a function or a network; ``name`` and ``sha256`` are what a run keeps of it.

    ``spec`` is empty for an object of a program. For code it says where it is: another process of ours, which is sent
    one of these, runs it there again.
    """

    name: str
    sha256: str
    found: Any
    spec: str = ""

    def __reduce__(self) -> Any:
        return (network_code, (self.spec,)) if self.spec else super().__reduce__()


def is_code(name: Any) -> bool:
    """Whether the name of a model is that of code or of an object, and not of one in ``bayeswell.models``."""
    return isinstance(name, str) and ":" in name


def shown_name(name: str) -> str:
    """As people read it: an object of a program goes by its class alone."""
    return name.removeprefix(":")


def network_code(spec: str) -> NetworkCode:
    """Run the user's code and take the network out of it; refused, unrun, where it lies in the folder of a run."""
    place, _, attribute = spec.rpartition(":")
    if not place or not attribute.isidentifier():
        raise SettingError(f"--model {spec}: write file.py:Net or package.module:Net")
    if place.endswith(".py") or os.sep in place:
        path, module = _from_file(place, spec)
        name, spec = f"{path.name}:{attribute}", f"{path}:{attribute}"
    else:
        path, module = _from_module(place, spec)
        name = spec
    if not hasattr(module, attribute):
        offered = [key for key, value in vars(module).items() if _is_network(value) and not key.startswith("_")]
        raise SettingError(f"--model {spec}: there is no '{attribute}' in {place}; {nearest(attribute, offered)}")
    found = getattr(module, attribute)
    if not callable(found):
        raise SettingError(
            f"--model {spec}: '{attribute}' is of type {type(found).__name__}; give a class, a function that returns a "
            "network, or a network"
        )
    return NetworkCode(name, hashlib.sha256(path.read_bytes()).hexdigest(), found, spec)


def _from_file(place: str, spec: str) -> tuple[Path, Any]:
    path = Path(os.path.abspath(os.path.expanduser(place)))
    if not path.is_file():
        raise FileError(f"--model {spec}: there is no file {str(path)!r}")
    _require_outside_of_runs(path, spec)
    name = f"bayeswell_network_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise SettingError(f"--model {spec}: {path.name} is not a Python file")
    module = importlib.util.module_from_spec(found)
    with _told(spec), _importable(path.parent):
        sys.modules[name] = module  # where dataclasses and pickles look for the classes in it
        try:
            found.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return path, module


def _from_module(place: str, spec: str) -> tuple[Path, Any]:
    if not _MODULE.fullmatch(place):
        raise SettingError(f"--model {spec}: {place!r} is neither a .py file nor the name of a module")
    here = Path.cwd()
    first = here / place.split(".")[0]
    if first.is_dir() or first.with_suffix(".py").is_file():
        _require_outside_of_runs(first, spec)
    with _told(spec), _importable(here):
        module = importlib.import_module(place)
    file = getattr(module, "__file__", None)
    if not file:
        raise SettingError(f"--model {spec}: the module {place} has no file of its own")
    return Path(file), module


def _require_outside_of_runs(path: Path, spec: str) -> None:
    """Refuse what lies in the folder of a run, whichever way it is reached: such a folder may come from anybody."""
    for start in {path, Path(os.path.realpath(path))}:
        for folder in start.parents:
            if (folder / CONFIG).is_file() and any((folder / name).exists() for name in _KEPT_BY_A_RUN):
                raise SettingError(
                    f"--model {spec}: it lies in the run {str(folder)!r}, and nothing in the folder of a run is run; "
                    "look at it, and copy it elsewhere if it is yours"
                )


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """What lies beside the code can be imported by it, now and later, but stands behind all that is installed."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    yield


@contextmanager
def _told(spec: str) -> Iterator[None]:
    """What goes wrong in the user's code, in one line."""
    try:
        yield
    except BayeswellError:
        raise
    except ModuleNotFoundError as error:
        raise SettingError(f"--model {spec}: {error}") from error
    except Exception as error:
        raise SettingError(f"--model {spec}: running it failed: {one_line_of(error)}") from error


def one_line_of(error: Exception) -> str:
    """Which error it was, and where in the user's code."""
    last = None
    trace = error.__traceback__
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith("<frozen"):
            last = trace
        trace = trace.tb_next
    where = f" (line {last.tb_lineno} of {Path(last.tb_frame.f_code.co_filename).name})" if last is not None else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())}{where}"


def built(name: str, found: Any, settings: dict[str, Any], offered: dict[str, Any]) -> nn.Module:
    """The network: an object as it is, a class or function called with its settings.

    Of what is ``offered`` (``input_shape``, ``outputs``) it gets that which its arguments ask for by name, and which no
    setting has given.
    """
    if isinstance(found, nn.Module):
        if settings:
            raise SettingError(f"model {name} is a network already and has no setting '{next(iter(settings))}'")
        return found
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        signature = inspect.Signature()
    names = signature.parameters
    every = any(one.kind is one.VAR_KEYWORD for one in names.values())
    for key in settings:
        if key not in names and not every:
            raise SettingError(f"model {name} has no setting '{key}'; {nearest(key, names)}")
    arguments = {**{key: value for key, value in offered.items() if key in names}, **settings}
    missing = [
        key for key, one in names.items()
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD) and key not in arguments
    ]  # fmt: skip
    if missing:
        raise SettingError(f"model {name} asks for '{missing[0]}': give it as a setting (--model-set {missing[0]}=...)")
    try:
        net = found(**arguments)
    except BayeswellError:
        raise
    except Exception as error:
        raise NetworkError(f"model {name} cannot be made: {one_line_of(error)}") from error
    if not isinstance(net, nn.Module):
        raise NetworkError(f"model {name} gives a {type(net).__name__}; it must be a network (torch.nn.Module)")
    return net


def _is_network(value: Any) -> bool:
    return isinstance(value, nn.Module) or (isinstance(value, type) and issubclass(value, nn.Module))
