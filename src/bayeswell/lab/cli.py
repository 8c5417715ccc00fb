"""The command line: nine commands, each of which parses its options and calls a Python function.

Exit codes: 0 done; 1 a run failed, or a file has changed; 2 bad input; 128 + number after a signal (130 after Ctrl-C).
"""

from __future__ import annotations

import json
import os
import re
import sys
import typing
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser, DefaultHelpFormatter

from ..core.errors import BayeswellError, DivergenceError, SettingError, nearest
from ..version import __version__
from . import listing
from .compare import compare
from .overrides import with_settings
from .runs import evaluate, predict_file, resume, train, verify
from .settings import Code, RunSettings
from .summary import evaluation_text, prediction_text, printable_frame, run_summary
from .sweep import SAMPLERS, sweep
from .terminal import json_text, one_line, safe_streams, terminal_width

DEBUG = "--debug"
FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130
_SKIPPED = ("data_settings", "settings", "model_settings", "augment")
"""Tables of settings, which --set changes."""


class _Help(DefaultHelpFormatter):
    """Help without types: the texts say what a value may be."""

    def _get_help_string(self, action: Any) -> str:
        return action.help or ""


class Command(typing.NamedTuple):
    """A command: its line of help, its options, and the function that runs it and returns an exit code."""

    summary: str
    add_options: Callable[[ArgumentParser], None]
    run: Callable[[Any], int]
    example: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = DEBUG in given
    with safe_streams() as out, warnings.catch_warnings():
        _show_warnings_in_one_line()
        code = _run_safely([one for one in given if one != DEBUG], debug)
        out.flush()
        if out.lost_output:
            code = _say(f"the output could not be written: {out.error.strerror}", code or FAILED)
    return code


def _run_safely(arguments: list[str], debug: bool) -> int:
    try:
        return _run(arguments)
    except KeyboardInterrupt as stop:
        text = str(stop).replace("resume=True", "`bayeswell resume FOLDER`")
        return _say(f"interrupted{f': {text}' if text else ''}", INTERRUPTED)
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else 0
    except Exception as error:
        if debug:
            raise
        return _say(*_explained(error))


def _explained(error: Exception) -> tuple[str, int]:
    text = one_line(str(error))
    if isinstance(error, ArgumentError):
        return text, BAD_INPUT
    if isinstance(error, BayeswellError):
        return text, FAILED if isinstance(error, DivergenceError) else BAD_INPUT
    if isinstance(error, MemoryError) or re.search("out of memory|allocate memory", text):
        return f"out of memory ({text:.150}); use a smaller batch_size or network", FAILED
    if isinstance(error, OSError):
        return f"{error.strerror or text}{f': {error.filename!r}' if error.filename else ''}", FAILED
    return f"{type(error).__name__}: {text:.300} ({DEBUG} shows where)", FAILED


def _say(message: str, code: int) -> int:
    sys.stderr.write(f"bayeswell: {message}\n")
    return code


def _show_warnings_in_one_line() -> None:
    seen: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = one_line(str(message))
        if text not in seen:
            seen.add(text)
            sys.stderr.write(f"warning: {text}\n")

    for category in (DeprecationWarning, FutureWarning, PendingDeprecationWarning):
        warnings.simplefilter("ignore", category)
    warnings.simplefilter("always", UserWarning)
    warnings.showwarning = show


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.stdout.write(_overview() + "\n")
        return 0
    if arguments[0] == "--version":
        sys.stdout.write(f"bayeswell {__version__}\n")
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        raise SettingError(f"unknown command {name!r}; {nearest(name, COMMANDS)}")
    return COMMANDS[name].run(_parsed(name, rest))


def _overview() -> str:
    lines = [f"  {name:<10}{command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: bayeswell COMMAND [options]",
            "",
            "Train any PyTorch network as a Bayesian one.",
            "",
            *lines,
            "",
            "bayeswell COMMAND --help shows the options of a command.",
            "Begin with: bayeswell train --data digits --method bbb",
        ]
    )


def _parsed(name: str, arguments: Sequence[str]) -> Any:
    command = COMMANDS[name]
    parser = ArgumentParser(
        prog=f"bayeswell {name}",
        description=command.summary,
        epilog=f"Example: {command.example}",
        formatter_class=_Help,
        exit_on_error=False,
        allow_abbrev=False,
    )
    command.add_options(parser)
    options = {option for action in parser._actions for option in action.option_strings}
    given = [_known_option(name, one, options) for one in arguments]
    try:
        return parser.parse_args(given)
    except ArgumentError as error:
        raise SettingError(f"{_argument_error(str(error))} (see: bayeswell {name} --help)") from error


def _known_option(command: str, argument: str, options: set[str]) -> str:
    option, equals, value = argument.partition("=")
    if not re.fullmatch(r"--[A-Za-z][\w-]*", option):
        return argument
    option = option.replace("_", "-")
    if option not in options:
        close = nearest(option, options)
        raise SettingError(f"{command} has no option {option}; {close} (settings of the method: --set NAME=VALUE)")
    return option + equals + value


def _argument_error(text: str) -> str:
    key = re.search(r'Parser key "([\w.]+)"', text)
    if key is None:
        return one_line(text)
    kinds = [kind for kind in re.findall(r"Expected an? <class '(\w+)'>", text) if kind != "NoneType"]
    value = re.search(r"(?:Given value|Got value): (.*)", text)
    shown = f", got {value[1].strip()!r}" if value else ""
    return f"--{key[1].replace('_', '-')} must be {' or '.join(dict.fromkeys(kinds)) or 'another value'}{shown}"


def _add_settings(parser: ArgumentParser, skipped: Sequence[str] = ()) -> None:
    parser.add_argument("--config", type=str | None, metavar="FILE", help="TOML file of settings; options override it")
    hints, texts = typing.get_type_hints(RunSettings), RunSettings.descriptions()
    for name in RunSettings.names():
        if name in (*_SKIPPED, *skipped):
            continue
        option, text = f"--{name.replace('_', '-')}", texts[name].replace("``", "").replace("%", "%%").rstrip(".")
        default = getattr(RunSettings(), name)
        text += "" if default in (None, [], False) else f" ({default})"
        if name == "ood":
            parser.add_argument(option, type=str, nargs="+", metavar="NAME", help=text)
        elif name in ("data", "model", "likelihood"):
            parser.add_argument(option, type=str | None, metavar="NAME", help=text)
        else:
            metavar = "FOLDER" if name in ("folder", "init") else name.rpartition("_")[2].upper()
            parser.add_argument(option, type=hints[name] | None, metavar=metavar, default=None, help=text)
    parser.add_argument(
        "--set", nargs="+", action="append", default=[], metavar="KEY=VALUE",
        help="settings of method, network or data: temperature=1, posterior.rank=3, model.hidden=[100,100]",
    )  # fmt: skip


def _add_output(parser: ArgumentParser, *, quiet: bool = False) -> None:
    if quiet:
        parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _settings(options: Any) -> RunSettings:
    settings = RunSettings() if options.config is None else RunSettings.from_toml(options.config)
    given = {name: getattr(options, name, None) for name in RunSettings.names()}
    settings = settings.changed(**{name: value for name, value in given.items() if value is not None})
    return with_settings(settings, _assignments("--set", options.set))


def _assignments(option: str, groups: Sequence[Sequence[str]]) -> dict[str, Any]:
    found = {}
    for text in (one for group in groups for one in group):
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise SettingError(f"{option} {text!r}: write NAME=VALUE")
        found[key] = _value(value)
    return found


def _value(text: str) -> Any:
    try:
        return json.loads({"True": "true", "False": "false", "None": "null"}.get(text, text))
    except ValueError:
        return text


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _code(option: str, text: str | None) -> Code | None:
    if text is None:
        return None
    found = Code.parse(text)
    if found is None:
        raise SettingError(f"--{option} {text!r}: the run knows it, unless it is your own code: FILE.py:NAME")
    return found


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _train_options(parser: ArgumentParser) -> None:
    _add_settings(parser)
    _add_output(parser, quiet=True)


def _train(options: Any) -> int:
    settings = _settings(options)
    folder = settings.folder or os.path.join("runs", settings.title)
    record = train(settings.changed(folder=folder), progress=not options.quiet)
    _print(json_text(record.to_json()) if options.json else run_summary(record, folder))
    return 0


def _resume_options(parser: ArgumentParser) -> None:
    parser.add_argument("run", type=str, metavar="RUN", help="folder of the run")
    parser.add_argument("--model", type=str | None, metavar="FILE.py:NAME", help="the network, if it is your own code")
    parser.add_argument("--data", type=str | None, metavar="FILE.py:NAME", help="the data, if they are your own code")
    _add_output(parser, quiet=True)


def _resume(options: Any) -> int:
    data, net = _code("data", options.data), _code("model", options.model)
    record = resume(options.run, data=data, net=net, progress=not options.quiet)
    _print(json_text(record.to_json()) if options.json else run_summary(record, options.run))
    return 0


def _add_draws(parser: ArgumentParser) -> None:
    parser.add_argument("--draws", type=int | None, metavar="N", help="number of networks (as in the run)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the draws (0)")
    parser.add_argument("--prediction", type=str | None, metavar="KIND", help="sampled, linearized or mean")
    parser.add_argument("--model", type=str | None, metavar="FILE.py:NAME", help="the network, if it is your own code")


def _evaluate_options(parser: ArgumentParser) -> None:
    parser.add_argument("run", type=str, metavar="RUN", help="folder of the run")
    parser.add_argument("--data", type=str | None, metavar="NAME", help="other data of the same kind")
    parser.add_argument("--ood", type=str, nargs="+", metavar="NAME", help="out-of-distribution data")
    _add_draws(parser)
    _add_output(parser)


def _evaluate(options: Any) -> int:
    data = None if options.data is None else Code.parse(options.data) or options.data
    found = evaluate(
        options.run, data=data, ood=options.ood, draws=options.draws, seed=options.seed,
        prediction=options.prediction, net=_code("model", options.model),
    )  # fmt: skip
    record = {
        "run": options.run, "examples": found.examples, "draws": found.draws, "prediction": found.prediction,
        "likelihood": found.likelihood, "scores": dict(found.scores),
    }  # fmt: skip
    _print(json_text(record) if options.json else evaluation_text(found, options.run))
    return 0


def _predict_options(parser: ArgumentParser) -> None:
    parser.add_argument("run", type=str, metavar="RUN", help="folder of the run, or of a saved model")
    parser.add_argument(
        "--input", type=str, required=True, metavar="FILE", help="a table, an .npz file with x, or images"
    )
    parser.add_argument("--out", type=str | None, metavar="FILE.csv", help="where the predictions go (stdout)")
    parser.add_argument("--interval", type=float, default=0.9, metavar="LEVEL", help="of real targets (0.9)")
    _add_draws(parser)
    _add_output(parser)


def _predict(options: Any) -> int:
    draws = {} if options.draws is None else {"draws": options.draws}
    found = predict_file(
        options.run,
        options.input,
        seed=options.seed,
        prediction=options.prediction,
        net=_code("model", options.model),
        **draws,
    )
    frame = printable_frame(found, options.interval)
    if options.out is not None:
        frame.to_csv(options.out, index=False, float_format="%.6g")
    if options.json:
        rows = frame.to_dict("records")
        _print(json_text({"run": options.run, "examples": len(frame), "draws": found.draws, "predictions": rows}))
    elif options.out is not None:
        _print(f"{len(frame):,} predictions in {options.out}")
    elif sys.stdout.isatty():
        _print(prediction_text(frame, terminal_width()))
    else:
        _print(frame.to_csv(index=False, float_format="%.6g").rstrip("\n"))
    return 0


def _compare_options(parser: ArgumentParser) -> None:
    parser.add_argument("--methods", type=str, required=True, metavar="NAME,...", help="such as map,bbb,laplace")
    parser.add_argument("--data", type=str, default="digits", metavar="NAME,...", help="problems (digits)")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="runs of each method (3)")
    parser.add_argument("--folds", type=int | None, metavar="K", help="test on each of K parts of the data")
    parser.add_argument("--reference", type=str, default="map", metavar="NAME", help="compared with the others (map)")
    _add_settings(parser, ("data", "method", "seed", "fold", "workers"))
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="runs trained at a time (1)")
    _add_output(parser, quiet=True)


def _compare(options: Any) -> int:
    base, methods, problems = _settings(options), _names(options.methods), _names(options.data)
    choices = {name: Code.parse(name) or name for name in problems}
    found = compare(
        methods, choices, seeds=options.seeds, epochs=base.epochs, folds=options.folds,
        folder=base.folder or "runs/compare", workers=options.workers, reference=options.reference,
        progress=not options.quiet, **_changes(base, "epochs", "folder"),
    )  # fmt: skip
    if options.json:
        _print(json_text(found.to_json()))
    else:
        _print(f"{found.text(terminal_width())}\nruns in {found.folder}; bayeswell report {found.folder} makes a page")
    return FAILED if found.failed else 0


def _changes(settings: RunSettings, *skipped: str) -> dict[str, Any]:
    default = RunSettings()
    names = [name for name in RunSettings.names() if name not in skipped]
    return {name: getattr(settings, name) for name in names if getattr(settings, name) != getattr(default, name)}


def _sweep_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--space", nargs="+", action="append", required=True, metavar="KEY=VALUES",
        help="lr=log,1e-4,1e-1 or dropout=linear,0,0.5 or members=int,1,8 or posterior.rank=1,2,3",
    )  # fmt: skip
    parser.add_argument("--trials", type=int, default=20, metavar="N", help="finished trials in all (20)")
    parser.add_argument("--score", type=str, default="nll", metavar="KEY", help="on validation data (nll)")
    parser.add_argument("--sampler", type=str, default="tpe", metavar="NAME", help=f"{', '.join(SAMPLERS)} (tpe)")
    parser.add_argument("--prune", action="store_true", help="stop trials that are worse than the median")
    parser.add_argument("--name", type=str, default="sweep", metavar="NAME", help="of the sweep in its storage (sweep)")
    parser.add_argument(
        "--storage", type=str | None, metavar="URL",
        help="of a database for several machines (a journal file in --folder); the same command joins the sweep",
    )  # fmt: skip
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes (1)")
    _add_settings(parser, ("workers",))
    _add_output(parser, quiet=True)


def _sweep(options: Any) -> int:
    base = _settings(options)
    space = {key: _values(value) for key, value in _assignments("--space", options.space).items()}
    folder = base.folder or os.path.join("runs", f"sweep-{base.title}")
    found = sweep(
        space, base.data, base.method, trials=options.trials, score=options.score, sampler=options.sampler,
        prune=options.prune, name=options.name, folder=folder, storage=options.storage, workers=options.workers,
        progress=not options.quiet, **_changes(base, "data", "method", "folder"),
    )  # fmt: skip
    _print(json_text(found.to_json()) if options.json else f"{found.text(terminal_width())}\ntrials in {folder}")
    return 0 if found.trials else FAILED


def _values(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    return [_value(part) for part in value.split(",")] if isinstance(value, str) else [value]


def _report_options(parser: ArgumentParser) -> None:
    parser.add_argument("paths", type=str, nargs="+", metavar="FOLDER", help="runs, comparisons, or folders of them")
    parser.add_argument("--out", type=str, default="report.html", metavar="FILE", help="the page (report.html)")


def _report(options: Any) -> int:
    from .report import write_report

    _print(f"report in {write_report(options.paths, options.out)}")
    return 0


def _list_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "kind", type=str, nargs="?", default="", metavar="KIND",
        help=f"{', '.join(listing.kinds())}, or a folder of runs",
    )  # fmt: skip
    _add_output(parser)


def _list(options: Any) -> int:
    rows = listing.rows_of(options.kind)
    _print(json_text(rows) if options.json else listing.text_of(options.kind, rows, terminal_width()))
    return 0


def _verify_options(parser: ArgumentParser) -> None:
    parser.add_argument("folder", type=str, metavar="FOLDER", help="of a run, a comparison or a saved model")
    _add_output(parser)


def _verify(options: Any) -> int:
    found = verify(options.folder)
    faults = [one for one in found if one.fault]
    if options.json:
        _print(json_text([{"path": one.path, "fault": one.fault or None} for one in found]))
    else:
        for one in faults:
            _print(one_line(one.fault))
        _print(f"{len(found) - len(faults)} of {len(found)} as written")
    return FAILED if faults else 0


COMMANDS: Mapping[str, Command] = {
    "train": Command(
        "Train and measure a network.", _train_options, _train,
        "bayeswell train --data digits --method k-tied --set posterior.rank=3 --epochs 40",
    ),
    "resume": Command(
        "Continue a run that was stopped.", _resume_options, _resume, "bayeswell resume runs/digits-bbb-seed0"
    ),
    "evaluate": Command(
        "Show the scores of a run, or measure it on other data.", _evaluate_options, _evaluate,
        "bayeswell evaluate runs/digits-bbb-seed0 --ood noise --draws 500",
    ),
    "predict": Command(
        "Predict new inputs with their uncertainty.", _predict_options, _predict,
        "bayeswell predict runs/price --input new.csv --out predictions.csv",
    ),
    "compare": Command(
        "Compare methods on problems over several seeds.", _compare_options, _compare,
        "bayeswell compare --methods map,bbb,laplace --data digits,wine --seeds 5",
    ),
    "sweep": Command(
        "Search for the best settings on validation data.", _sweep_options, _sweep,
        "bayeswell sweep --data wine --method k-tied --space lr=log,1e-4,1e-1 posterior.rank=1,2,3",
    ),
    "report": Command(
        "Write a page about runs and comparisons.", _report_options, _report, "bayeswell report runs/compare"
    ),
    "list": Command("List methods, data, models, parts or runs.", _list_options, _list, "bayeswell list methods"),
    "verify": Command(
        "Check that the files of a run are as they were written.", _verify_options, _verify, "bayeswell verify runs"
    ),
}  # fmt: skip
