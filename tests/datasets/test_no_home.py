"""A process without HOME, of a user whom the system does not know: what containers start."""

from __future__ import annotations

import pwd
import tempfile
from pathlib import Path
from typing import Any

import pytest

from bayeswell.datasets.files import cache_folder, data_folders


def test_the_cache_is_somewhere_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(user: int) -> Any:
        raise KeyError(f"getpwuid(): uid not found: {user}")

    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(RuntimeError):
        Path.home()
    assert cache_folder().parent == Path(tempfile.gettempdir())
    monkeypatch.setenv("BAYESWELL_DATA", "~/data")
    assert data_folders() == [Path("~/data")]
