"""A PostgreSQL of a test's own: a cluster in a temporary folder, on a free port, gone when the test is.

The server refuses to be root; where the tests are, it is started as nobody.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PASSWORD = "SWEEP_TEST_PASSWORD"
# Set when tests are collected: workers are forked from a process that keeps the environment it was started with.
os.environ.setdefault(PASSWORD, secrets.token_hex(8) + "%7B")
NOBODY = ("setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups")
# Nothing here outlives the machine: not waiting for the disk takes nothing from what a killed worker can do.
# (synchronous_commit=off would: a server that is stopped at once then loses what it had said was written.)
HASTY = ("fsync=off", "full_page_writes=off", "max_connections=100", "shared_buffers=16MB")


def missing() -> str:
    """What keeps these tests from running here, in a word; empty if nothing does."""
    if importlib.util.find_spec("psycopg") is None:
        return "psycopg is not installed (pip install 'psycopg[binary]')"
    if programs() is None:
        return "PostgreSQL is not installed (Debian: apt install postgresql)"
    if os.geteuid() == 0 and shutil.which(NOBODY[0]) is None:
        return "PostgreSQL refuses to run as root, and there is no setpriv to be another"
    return ""


def programs() -> Path | None:
    """Where initdb and postgres are: Debian keeps each version's apart, and off the PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


@dataclass
class Cluster:
    """A server that can be stopped and started; its password is in the environment of this process alone."""

    folder: Path
    port: int
    server: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"postgresql+psycopg://me:${{{PASSWORD}}}@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        options = [word for setting in HASTY for word in ("-c", setting)]
        command = [*_as_other(), str(_bin() / "postgres"), "-D", str(self.folder / "data"), "-p", str(self.port),
                   "-h", "127.0.0.1", "-k", str(self.folder), *options]  # fmt: skip
        with open(self.folder / "log", "ab") as log:
            self.server = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + 60
        asked = [_bin() / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        while subprocess.run(asked, check=False).returncode:
            assert self.server.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.05)

    def stop(self) -> None:
        if self.server is not None:
            self.server.send_signal(signal.SIGQUIT)  # at once
            self.server.wait(60)
            self.server = None


@contextlib.contextmanager
def cluster() -> Iterator[Cluster]:
    """A server with one user, who has a password."""
    folder = Path(tempfile.mkdtemp(prefix="pg"))  # short: a socket's path may not be long
    password = os.environ[PASSWORD]
    try:
        (folder / "password").write_text(password.replace("%7B", "{"))  # in an address it is percent-encoded
        if os.geteuid() == 0:
            for path in (folder, folder / "password"):
                shutil.chown(path, "nobody", "nogroup")
        command = [*_as_other(), str(_bin() / "initdb"), "-D", str(folder / "data"), "-U", "me", "--no-sync",
                   "-A", "scram-sha-256", f"--pwfile={folder / 'password'}", "-E", "UTF8", "--locale=C"]  # fmt: skip
        made = subprocess.run(command, check=False, capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
        found = Cluster(folder, _free_port())
        found.start()
        try:
            yield found
        finally:
            found.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _as_other() -> tuple[str, ...]:
    return NOBODY if os.geteuid() == 0 else ()


def _bin() -> Path:
    found = programs()
    assert found is not None
    return found


def _free_port() -> int:
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        return int(asked.getsockname()[1])
