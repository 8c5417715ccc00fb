"""A fault at any step of writing leaves the old bundle or the new one, and says what to do."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from bayeswell.errors import FileError
from bayeswell.persistence import folders, read_bundle, write_bundle
from bayeswell.persistence.manifest import FILES
from persistence.bundles import assert_some, one_line, save_some

STEPS = ("mkdir", "open", "fsync", "rename", "unlink", "rmdir", "listdir")


def break_disk(patch: pytest.MonkeyPatch, at: int, lasting: bool) -> list[str]:
    """Let the call number ``at`` to the disk fail, alone or with all after it; returns the log of calls."""
    calls: list[str] = []

    def breakable(step: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls.append(step)
            if len(calls) > at and (lasting or len(calls) == at + 1):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*args, **kwargs)

        return call

    for step in STEPS:
        patch.setattr(os, step, breakable(step, getattr(os, step)))
    patch.setattr(folders, "open", breakable("open a file", open), raising=False)
    return calls


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize("replaces", [True, False], ids=["replaces", "first"])
def test_a_fault_at_any_step_leaves_the_old_bundle_or_the_new(tmp_path: Path, replaces: bool, lasting: bool) -> None:
    failures = 0
    for at in range(100):
        parent = tmp_path / str(at)
        parent.mkdir()
        path = parent / "b"
        if replaces:
            save_some(path, 0.1)
        line = ""
        with pytest.MonkeyPatch.context() as patch:
            calls = break_disk(patch, at, lasting)
            try:
                save_some(path, 0.2)
            except FileError as error:
                line = str(error)
        if len(calls) <= at:
            break
        if not line:
            assert_some(path, 0.2)
        else:
            failures += 1
            assert "\n" not in line
            assert f"{os.strerror(errno.ENOSPC)}; " in line
            assert line.endswith("free some space or choose another disk")
        if line and not lasting:  # undone in full
            assert os.listdir(parent) == ["b"] * replaces
            if replaces:
                assert_some(path, 0.1)
        elif replaces:
            assert_some(path, read_bundle(path).record["value"])
            assert read_bundle(path).record["value"] in (0.1, 0.2)
        save_some(path, 0.3)
        assert_some(path, 0.3)
        assert os.listdir(parent) == ["b"]
    else:
        pytest.fail("the write never got through")
    assert failures >= (12 if replaces else 10)


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (errno.EACCES, "choose a folder that you may write to"),
        (errno.EROFS, "choose a folder that you may write to"),
        (errno.ENOSPC, "free some space"),
        (errno.EDQUOT, "free some space"),
        (errno.EIO, "try again"),
    ],
)
@pytest.mark.parametrize("step", ["mkdir", "fsync", "rename"])
def test_a_disk_that_refuses_is_reported_with_the_remedy(tmp_path: Path, code: int, remedy: str, step: str) -> None:
    path = tmp_path / "b"
    save_some(path, 0.1)

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, step, refuse)
        with pytest.raises(FileError) as fault:
            save_some(path, 0.2)
        with pytest.raises(FileError, match="nothing was saved"):
            save_some(tmp_path / "first", 0.2)
    assert os.strerror(code) in one_line(fault)
    assert remedy in str(fault.value)
    assert "can still be read" in str(fault.value)
    assert isinstance(fault.value.__cause__, OSError)
    assert_some(path, 0.1)
    assert os.listdir(tmp_path) == ["b"]


def test_everything_is_on_disk_before_it_takes_the_place(tmp_path: Path) -> None:
    """Without the order file, folder, rename, parent a power cut may leave a bundle of empty files."""
    path = tmp_path / "b"
    save_some(path, 0.1)
    log: list[tuple[str, int]] = []
    fsync, rename, unlink = os.fsync, os.rename, os.unlink

    def logged_fsync(descriptor: int) -> None:
        fsync(descriptor)
        log.append(("sync", os.fstat(descriptor).st_ino))

    def logged_rename(old: Path, new: Path) -> None:
        log.append(("rename", os.stat(old).st_ino))
        rename(old, new)

    def logged_unlink(name: Path) -> None:
        log.append(("unlink", os.stat(name).st_ino))
        unlink(name)

    before = [path.stat().st_ino, *((path / name).stat().st_ino for name in FILES)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", logged_fsync)
        patch.setattr(os, "rename", logged_rename)
        patch.setattr(os, "unlink", logged_unlink)
        save_some(path, 0.2)
    synced = [("sync", (path / name).stat().st_ino) for name in FILES]
    swapped = [("rename", before[0]), ("rename", path.stat().st_ino), ("sync", tmp_path.stat().st_ino)]
    removed = [("rename", before[0]), *(("unlink", inode) for inode in before[1:])]
    assert log == [*synced, ("sync", path.stat().st_ino), *swapped, *removed]


def test_a_file_that_can_only_be_written_in_part_is_undone(tmp_path: Path) -> None:
    """A real fault of the system in the middle of a file: no file of this process may exceed 4096 bytes."""
    path = tmp_path / "b"
    save_some(path, 0.1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(FileError, match="cannot save the bundle") as fault:
            write_bundle(path, {"w": torch.zeros(10_000)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.strerror(errno.EFBIG) in one_line(fault)
    assert_some(path, 0.1)
    assert os.listdir(tmp_path) == ["b"]


def test_an_interrupt_while_writing_is_undone_and_passed_on(tmp_path: Path) -> None:
    path = tmp_path / "b"
    save_some(path, 0.1)
    for at in range(8):
        with pytest.MonkeyPatch.context() as patch:
            seen = 0
            real = os.fsync

            def fsync(descriptor: int, at: int = at, real: Callable[[int], None] = real) -> None:
                nonlocal seen
                seen += 1
                if seen == at + 1:
                    raise KeyboardInterrupt
                real(descriptor)

            patch.setattr(os, "fsync", fsync)
            try:
                save_some(path, 0.2)
            except KeyboardInterrupt:
                assert_some(path, 0.1)
                assert os.listdir(tmp_path) == ["b"]
            else:
                break
    assert at == 5  # three files, the new folder, the parent
    assert_some(path, 0.2)


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("absent/b", "make the folder that is to hold it first"),
        ("file/b", "the path leads through a file"),
        ("x" * 300, "choose a shorter name"),
        ("x" * 250, "choose a shorter name"),
        ("nul\0", "cannot be used"),
        ("y/" * 2500, "check"),
    ],
)
def test_a_path_that_cannot_be_written_is_reported(tmp_path: Path, name: str, named: str) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(FileError) as fault:
        save_some(Path(os.path.join(tmp_path, name)))
    assert one_line(fault)
    assert named == "check" or named in str(fault.value)
    assert os.listdir(tmp_path) == ["file"]
