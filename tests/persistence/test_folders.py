"""Where bundles are written: what is replaced, what is never, links, pipes, and what a crash left behind."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from bayeswell.errors import FileError
from bayeswell.persistence import write_bundle
from bayeswell.persistence.manifest import FILES, MANIFEST, RECORD, TENSORS
from persistence.bundles import assert_some, one_line, refused, save_some, some_tensors

# ------------------------------------------------------------------------------------------------ damage


@pytest.mark.parametrize("name", FILES)
def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path, name: str) -> None:
    save_some(tmp_path / "b")
    (tmp_path / "b" / name).unlink()
    os.mkfifo(tmp_path / "b" / name)
    assert refused(tmp_path / "b")


# --------------------------------------------------------------------------------------------- replacing


def test_what_is_not_a_bundle_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"dear")
    (tmp_path / "empty").mkdir()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").write_text("dear", encoding="utf-8")
    save_some(tmp_path / "extra")
    (tmp_path / "extra" / "notes.txt").write_text("dear", encoding="utf-8")
    (tmp_path / "namesake").mkdir()
    for name in FILES:
        (tmp_path / "namesake" / name).write_text('{"format": "another"}', encoding="utf-8")

    def everything() -> dict[str, bytes | None]:
        return {str(p): p.read_bytes() if p.is_file() else None for p in tmp_path.rglob("*")}

    before = everything()
    for name in ("file", "empty", "folder", "extra", "namesake"):
        with pytest.raises(FileError, match="move it or choose another path") as fault:
            save_some(tmp_path / name)
        one_line(fault)
    assert everything() == before
    assert_some(tmp_path / "extra", 0.37)


def test_a_bundle_whole_or_damaged_is_replaced(tmp_path: Path) -> None:
    save_some(tmp_path / "b", 0.1)
    save_some(tmp_path / "b", 0.2)
    assert_some(tmp_path / "b", 0.2)
    (tmp_path / "b" / TENSORS).unlink()
    (tmp_path / "b" / MANIFEST).write_bytes((tmp_path / "b" / MANIFEST).read_bytes()[:-9])
    assert refused(tmp_path / "b")
    save_some(tmp_path / "b", 0.3)
    assert_some(tmp_path / "b", 0.3)
    assert os.listdir(tmp_path) == ["b"]
    assert sorted(os.listdir(tmp_path / "b")) == sorted(FILES)


def test_a_link_stands_for_its_bundle(tmp_path: Path) -> None:
    save_some(tmp_path / "step-5", 0.1)
    (tmp_path / "latest").symlink_to("step-5")
    assert_some(tmp_path / "latest", 0.1)
    save_some(tmp_path / "latest", 0.2)
    assert_some(tmp_path / "step-5", 0.2)
    assert (tmp_path / "latest").is_symlink()


def test_relative_paths_and_text_paths_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_bundle("b", some_tensors(), {"value": 0.37})
    assert_some(Path("b"), 0.37)


def test_others_may_read_what_the_umask_lets_them(tmp_path: Path) -> None:
    previous = os.umask(0o027)
    try:
        save_some(tmp_path / "b")
    finally:
        os.umask(previous)
    assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o750
    assert {stat.S_IMODE((tmp_path / "b" / name).stat().st_mode) for name in FILES} == {0o640}


def test_leftovers_of_a_crash_are_ignored_and_cleaned_by_the_next_write(tmp_path: Path) -> None:
    path = tmp_path / "run.1"
    save_some(path, 0.1)
    half = tmp_path / ".run.1.bayeswell-tmp-0123456789abcdef"
    half.mkdir()
    (half / TENSORS).write_bytes(b"half")
    kept = [".run.2.bayeswell-tmp-0123456789abcdef", ".run.1.bayeswell-tmp-mine", ".runx1.bayeswell-old"]
    for name in kept:  # another bundle's, or not of our making
        (tmp_path / name).mkdir()
    assert_some(path, 0.1)
    assert half.exists()  # reading changes nothing
    save_some(path, 0.2)
    assert_some(path, 0.2)
    assert sorted(os.listdir(tmp_path)) == sorted(["run.1", *kept])


def test_an_old_bundle_that_a_crash_left_aside_is_read_and_put_back(tmp_path: Path) -> None:
    path = tmp_path / "b"
    save_some(path, 0.1)
    path.rename(tmp_path / ".b.bayeswell-old")
    assert_some(path, 0.1)
    assert not path.exists()
    with pytest.MonkeyPatch.context() as patch:  # the next write fails as well
        patch.setattr(os, "mkdir", lambda *_: os.open(tmp_path / "absent", os.O_RDONLY))
        with pytest.raises(FileError):
            save_some(path, 0.2)
    assert_some(path, 0.1)
    save_some(path, 0.2)
    assert_some(path, 0.2)
    assert os.listdir(tmp_path) == ["b"]


def test_an_old_bundle_left_aside_is_not_read_while_a_newer_one_is_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "b"
    save_some(path, 0.1)
    path.rename(tmp_path / "keep")
    save_some(path, 0.2)
    (tmp_path / "keep").rename(tmp_path / ".b.bayeswell-old")
    assert_some(path, 0.2)
    (path / RECORD).unlink()
    assert refused(path)
    save_some(path, 0.3)
    assert os.listdir(tmp_path) == ["b"]
