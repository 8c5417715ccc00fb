"""Training that goes on: with what, and for whom there is no such thing."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

from ..errors import AbsentError, CompositionError
from ..posteriors import POSTERIORS
from ..training import Result, fit
from ..types import BANK, LOG_PROB, MIXTURE, POINT


class WhileItCanGoOn:
    """A method that is there as long as training can go on; ``hasattr`` says so."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __get__(self, estimator: Any, owner: type | None = None) -> Any:
        if estimator is None:
            return self.function
        result: Result | None = getattr(estimator, "result_", None)
        if result is not None and (result.method.members > 1 or result.model.posterior_part.provides & {BANK, MIXTURE}):
            raise AbsentError(
                f"{self.function.__name__}: what '{result.method.name}' has learned are several networks, which do not "
                "go on together; begin with partial_fit or warm_start=True, or a method such as 'bbb'"
            )
        return MethodType(self.function, estimator)


def updated(earlier: Result, data: Any, **settings: Any) -> Result:
    """Trained on further data: by Bayes' rule, the posterior as the next prior, where the method has such a posterior.

    A point, an average of points, a Laplace approximation or a bank of networks is none: those go on from where they
    are with the new data alone.
    """
    family = POSTERIORS.resolve(earlier.method.posterior).provides
    if LOG_PROB in family and not family & {POINT, BANK} and earlier.method.post_hoc is None:
        try:
            return fit(earlier, data, **{**settings, "prior": "posterior"})
        except CompositionError:  # refused before any work: a stepper that knows no other centre than zero
            pass
    return fit(earlier, data, **settings)
