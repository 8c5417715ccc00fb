"""Readers that go away, terminals that know few letters, names that hold control sequences; and the exit codes."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bayeswell as bw
from bayeswell.cli.screen import one_line
from bayeswell.cli.streams import escaped, lasting
from bayeswell.errors import FileError
from bayeswell.experiments import DataSpec, verify

SMALL = ["--method", "map", "--model", "mlp", "--model-set", "hidden=[12]", "--epochs", "2", "--batch-size", "300"]
SMALL += ["--draws", "5", "--quiet"]


def test_a_pipe_whose_reader_has_gone_takes_everything() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", encoding="utf-8") as pipe, lasting(pipe) as stream:
        for _ in range(3):
            stream.write("nobody reads this\n" * 5000)
            stream.flush()
        assert os.fstat(writer).st_rdev == os.stat(os.devnull).st_rdev


def test_a_full_disk_is_still_an_error() -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        stream = lasting(full)
        with pytest.raises(OSError, match="No space"):
            stream.write("a table\n")  # a line goes out at once
        with pytest.raises(OSError, match="No space"):
            stream.close()


def test_what_an_encoding_does_not_know_is_written_plainly(tmp_path: Path) -> None:
    with open(tmp_path / "out", "w", encoding="ascii") as file, lasting(file) as stream:
        stream.write("0.93 ± 0.02 · k-tied 日\n")
    assert (tmp_path / "out").read_text() == "0.93 +- 0.02 - k-tied ?\n"


def test_a_terminal_shows_control_sequences_and_a_file_has_them_as_they_are(tmp_path: Path) -> None:
    evil = "\x1b]0;owned\x07 \x1b[2J cat\x9b5n\x1b[31mred\x1b[0m"
    keeper, terminal = pty.openpty()
    with open(terminal, "w", encoding="utf-8") as screen, lasting(screen) as stream:
        stream.write(f"{evil}\n")
        seen = os.read(keeper, 1000).decode()
    assert seen.strip() == "\\x1b]0;owned\\x07 \\x1b[2J cat\\x9b5n\x1b[31mred\x1b[0m"
    os.close(keeper)
    with open(tmp_path / "out", "w", encoding="utf-8") as file, lasting(file) as stream:
        stream.write(evil)
    assert (tmp_path / "out").read_text() == evil
    assert "\x1b" not in one_line(evil)
    assert one_line("a\x1b[31m\n b\u202e\udc80") == "a\\x1b[31m b\\u202e\\udc80"
    assert escaped("plain\ttext\r\n") == "plain\ttext\r\n"


def test_closed_streams_are_no_error() -> None:
    with lasting(None) as stream:
        assert stream.write("nobody\n") == 7


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_a_command_whose_readers_are_gone_ends_well(encoding: str, tmp_path: Path) -> None:
    """stdout and stderr are pipes that nobody reads any more, before the command says its first word."""
    ends = [os.pipe(), os.pipe()]
    for reader, _ in ends:
        os.close(reader)
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONPATH": str(Path(bw.__file__).parents[1])}
    command = [sys.executable, "-m", "bayeswell", "--help"]  # in boxes, whose lines are not of ASCII
    process = subprocess.Popen(command, stdout=ends[0][1], stderr=ends[1][1], env=environment)
    for _, writer in ends:
        os.close(writer)
    assert process.wait(120) == 0


def test_an_error_while_finishing_is_a_failed_run_that_resume_finishes(
    bayeswell: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = DataSpec.write

    def full(self: DataSpec, folder: Path) -> None:
        raise FileError("cannot write 'data.json': No space left on device")

    monkeypatch.setattr(DataSpec, "write", full)
    said = bayeswell("train", *SMALL, "--out", tmp_path / "run")
    assert said.code == 1
    assert "No space left" in said.err
    assert "resume" in said.err
    monkeypatch.setattr(DataSpec, "write", real)
    assert bayeswell("resume", tmp_path / "run", "--quiet").code == 0
    assert bayeswell("verify", tmp_path / "run").code == 0


def test_verify_names_what_was_altered(bayeswell: Any, finished: Path, tmp_path: Path) -> None:
    import shutil

    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    said = bayeswell("verify", folder)
    assert said.code == 0
    assert ", 0 not" in said.out
    for name in ("result.json", "model/record.json"):
        data = bytearray((folder / name).read_bytes())
        data[len(data) // 2] ^= 1
        (folder / name).write_bytes(bytes(data))
    said = bayeswell("verify", folder)
    assert said.code == 1
    assert "result.json" in said.out
    assert "record.json" in said.out
    assert ", 2 not" in said.out
    assert bayeswell("verify", tmp_path).code == 1  # also from above
    assert bayeswell("verify", tmp_path / "nowhere").code == 2
    faults = [verdict.path.name for verdict in verify(folder) if verdict.fault]
    assert faults == ["result.json", "model"]


def test_files_of_another_run_are_found_by_verify(bayeswell: Any, finished: Path, tmp_path: Path) -> None:
    import shutil

    folder, other = tmp_path / "run", tmp_path / "other"
    shutil.copytree(finished, folder)
    assert bayeswell("train", *SMALL, "--seed", "5", "--out", other).code == 0
    shutil.rmtree(folder / "model")
    shutil.copytree(other / "model", folder / "model")
    said = bayeswell("verify", folder)
    assert said.code == 1
    assert "model/manifest.json" in said.out


def test_a_model_that_is_a_link_is_not_written_through(bayeswell: Any, tmp_path: Path) -> None:
    """Nor the checkpoints: what was saved elsewhere is left as it was."""
    import shutil

    assert bayeswell("train", *SMALL, "--out", tmp_path / "run").code == 0
    (tmp_path / "run" / "model").rename(tmp_path / "mine")
    (tmp_path / "run" / "model").symlink_to(tmp_path / "mine")
    before = {path.name: path.read_bytes() for path in (tmp_path / "mine").iterdir()}
    (tmp_path / "run" / "result.json").unlink()
    said = bayeswell("resume", tmp_path / "run", "--quiet")
    assert said.code == 1
    assert "is a link out of its folder" in said.err
    said = bayeswell("evaluate", tmp_path / "run")
    assert said.code == 2
    assert "is a link out of its folder" in said.err
    assert {path.name: path.read_bytes() for path in (tmp_path / "mine").iterdir()} == before
    shutil.rmtree(tmp_path / "mine")


def test_resume_computes_with_the_threads_of_the_run(
    bayeswell: Any, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    import torch

    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    (folder / "result.json").unlink()
    asked: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    assert bayeswell("resume", folder, "--quiet").code == 0
    assert asked == [torch.get_num_threads()]
    asked.clear()
    (folder / "result.json").unlink()
    assert bayeswell("resume", folder, "--quiet", "--threads", "3").code == 0
    assert asked == [3]
