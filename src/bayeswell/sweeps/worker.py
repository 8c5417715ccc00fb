"""One worker of a sweep: take a trial, run the function, record what came out, until nothing is left."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from ..errors import BayeswellError, FileError, InUseError
from ..metrics.estimates import Estimate
from ..processes import be_a_worker
from .definition import TrialFunction, read_definition
from .ledger import Claim, Ledger

POLL_SECONDS = 0.25
"""How often a worker without a trial looks whether another's has lost its worker."""


def work(ledger: Ledger, function: TrialFunction, after_trial: Callable[[], None] = lambda: None) -> None:
    """Run trials until every one has ended, here or elsewhere."""
    while True:
        claim = ledger.claim()
        if claim is not None:
            _run(ledger, claim, function)
            after_trial()
        elif ledger.result().finished:
            return
        else:  # the rest is being worked on; a trial whose worker dies will be free
            time.sleep(POLL_SECONDS)


def _run(ledger: Ledger, claim: Claim, function: TrialFunction) -> None:
    """One attempt at one trial. What is raised by the function ends the trial, never the sweep."""
    try:
        found = function(dict(claim.settings), claim.folder)
        value, error_of_value = float(found), found.error if isinstance(found, Estimate) else None
    except InUseError:  # whoever works on it is alive, and has lost its lease with a connection: it will end it
        ledger.give_back(claim)
        time.sleep(POLL_SECONDS)
    except Exception as error:
        message = f"{type(error).__name__}: {error}".splitlines()[0]
        if passing(error) and claim.attempt < ledger.definition.attempts:
            ledger.give_back(claim, message)
        else:
            ledger.fail(claim, message)
    except BaseException:  # told to stop: not the trial's fault
        ledger.give_back(claim)
        raise
    else:
        if math.isfinite(value):
            ledger.finish(claim, value, error_of_value)
        else:
            ledger.fail(claim, f"the objective is {value}")


def passing(error: Exception) -> bool:
    """Whether another attempt may end otherwise: a full disk may, settings that diverge will diverge again."""
    return isinstance(error, FileError) or not isinstance(
        error, BayeswellError | ArithmeticError | ValueError | TypeError
    )


def worker_process(function: TrialFunction, folder: Path, messages: Connection) -> None:
    """What a worker process does. It ends with the process that started it."""
    be_a_worker()
    try:
        work(Ledger(read_definition(folder), folder), function)
    except BayeswellError as error:
        messages.send(str(error))
        sys.exit(1)
