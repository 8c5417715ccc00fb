"""A progress bar: where training stands, how fast it is, when it will be done, and what it has learned."""

from __future__ import annotations

import shutil
import sys
import time
from typing import Any

from ..types import POINT
from .records import EpochRecord
from .run import Callback, Run

_REFRESH_SECONDS = 0.3
"""Drawing the bar takes milliseconds, as long as a step of a small network."""


def wants_progress(asked: bool | None) -> bool:
    """What was asked for; else whether a person is looking at a terminal."""
    return sys.stderr.isatty() if asked is None else asked


_LONG = ("expected_nll", "minus_elbo", "minus_elbo_tempered")
"""In the log, and not on the line: it is long enough."""


class ProgressBar(Callback):
    """On a terminal a bar (rich's if installed, else a line that is written over); in a file a line an epoch."""

    every_step = False

    def __init__(self, label: str = "") -> None:
        self.label = label
        self._bar: Any = None
        self._task: Any = None
        self._shown_at = 0.0
        self._began, self._began_step = 0.0, 0
        self._numbers = ""

    def start(self, run: Run) -> None:
        self._began, self._began_step = time.monotonic(), run.step
        if sys.stderr.isatty():
            self._bar = _rich_bar() or PlainBar()
            self._bar.start()
            self._task = self._bar.add_task(self._name(run), total=run.total_steps, completed=run.step, numbers="")

    def after_step(self, run: Run) -> None:
        now = time.monotonic()
        if self._bar is not None and now - self._shown_at > _REFRESH_SECONDS:
            self._shown_at = now
            examples = run.fold()[4]
            if examples:
                score = "" if run.score_name is None else f" {run.score_name} {_score(run, examples):.4f}"
                kl = run.sums[1] / max(1, run.batch)
                self._numbers = f" · nll {run.sums[2] / examples:.4f}{score} {_divergence(run)} {kl:.4g}"
            # What matters least comes last: a narrow terminal cuts it off.
            self._bar.update(self._task, completed=run.step, numbers=f"{self._rate(run)}{self._numbers}")

    def after_epoch(self, run: Run, record: EpochRecord) -> None:
        scores = "".join(f" {name} {value:.4f}" for name, value in record.scores.items())
        held_out = "".join(f" {name} {record.validation[name]:.4f}" for name in record.validation if name not in _LONG)
        numbers = f"nll {record.nll:.4f} {_divergence(run)} {record.kl:.4g}{scores}"
        numbers += f" | validation{held_out}" if held_out else ""
        if self._bar is None:
            left = (run.total_steps - run.step) * (time.monotonic() - self._began)
            seconds = left / max(1, run.step - self._began_step)
            where = f"{self._name(run)}: epoch {record.epoch + 1}/{run.epochs}"
            print(f"{where} {numbers} ({self._rate(run)}, {_clock(seconds)} left)", file=sys.stderr, flush=True)  # noqa: T201

    def end(self, run: Run) -> None:
        self.close()

    def close(self) -> None:
        """Leave the terminal as it should be; also after an error."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _name(self, run: Run) -> str:
        member = f" {run.member + 1}/{run.members}" if run.members > 1 else ""
        return f"{self.label or run.assembly.method.name}{member}"

    def _rate(self, run: Run) -> str:
        rate = (run.step - self._began_step) / max(1e-9, time.monotonic() - self._began)
        return f"{rate:,.0f} steps/s" if rate >= 999.5 else f"{rate:.3g} steps/s"


def _rich_bar() -> Any:
    # Imported here: it takes a tenth of a second, and only a terminal needs it.
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TextColumn, TimeRemainingColumn
        from rich.table import Column
        from rich.text import Text
    except ModuleNotFoundError:
        return None  # an extra: who has only the core sees a plainer bar, not an error

    class Numbers(TextColumn):
        """The one column that gives way where a line is too long, and is cut, not wrapped."""

        def __init__(self) -> None:
            super().__init__("{task.fields[numbers]}", table_column=Column(no_wrap=False))

        def render(self, task: Task) -> Text:
            text = super().render(task)
            text.no_wrap, text.overflow = True, "ellipsis"
            return text

    def whole() -> Column:
        return Column(no_wrap=True)

    return Progress(
        TextColumn("{task.description}"), BarColumn(bar_width=12, table_column=whole()),
        MofNCompleteColumn(table_column=whole()), TimeRemainingColumn(table_column=whole()), Numbers(),
        console=Console(stderr=True), refresh_per_second=3,
    )  # fmt: skip


class PlainBar:
    """One line on stderr that is written over: as much of rich's ``Progress`` as a ``ProgressBar`` asks for."""

    def __init__(self) -> None:
        self._name, self._total, self._began_at, self._began = "", 0, 0, 0.0
        self._shown = 0

    def start(self) -> None:
        self._began = time.monotonic()

    def add_task(self, name: str, *, total: int, completed: int, numbers: str) -> None:
        self._name, self._total, self._began_at = name, total, completed
        self.update(None, completed=completed, numbers=numbers)

    def update(self, task: None, *, completed: int, numbers: str) -> None:
        done = completed - self._began_at
        seconds = (self._total - completed) * (time.monotonic() - self._began) / done if done else None
        clock = "-:--:--" if seconds is None else _clock(seconds)
        line = f"{self._name} {completed}/{self._total} {clock} {numbers}".rstrip()
        line = line[: max(1, shutil.get_terminal_size().columns - 1)]  # a broken line could not be written over
        sys.stderr.write("\r" + line.ljust(self._shown))
        sys.stderr.flush()
        self._shown = len(line)

    def stop(self) -> None:
        sys.stderr.write("\n")
        sys.stderr.flush()


def _divergence(run: Run) -> str:
    """What ``kl`` is: of one weight vector -log p(w)."""
    return "-log prior" if POINT in run.assembly.model.posterior_part.provides else "kl"


def _score(run: Run, examples: float) -> float:
    mean = run.sums[3] / examples
    return mean**0.5 if run.score_name == "rmse" else mean


def _clock(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
