"""Why no worker could begin, in one line that claims no more than is known."""

from __future__ import annotations

from typing import Any

import pytest

from bayeswell.errors import SettingError
from bayeswell.processes import CannotStart, start_worker, try_worker


class Context:
    """Processes that cannot begin."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def Process(self, **given: Any) -> Context:
        return self

    def start(self) -> None:
        raise self.error


@pytest.mark.parametrize("error", [EOFError(), ConnectionResetError(104, "reset"), ConnectionRefusedError(111, "no")])
def test_a_lost_connection_may_be_a_missing_guard_or_a_killed_process(error: Exception) -> None:
    context: Any = Context(error)
    with pytest.raises(SettingError) as refused:
        start_worker(context, "workers = 2", print)
    with pytest.raises(CannotStart) as without:
        try_worker(context, print)
    for said in (str(refused.value).removeprefix("workers = 2: "), str(without.value)):
        assert said.startswith("the process that they are forked from was killed, or, likelier, the program starts")
        assert said.endswith('put what it does below `if __name__ == "__main__":`')
        assert "\n" not in said
