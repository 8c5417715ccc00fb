"""Documents and logs: whatever is changed in them is noticed, and with a key nobody without it can make one."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import time
import warnings
from pathlib import Path

import pytest
import torch

from bayeswell.errors import BayeswellWarning, FileError, SettingError
from bayeswell.persistence import LineLog, read_bundle, read_document, read_lines, seals, write_bundle, write_document
from bayeswell.persistence import documents as documents_module

RECORD = {"format": 1, "name": "digits", "scaling": [0.25, 1e-3], "nested": {"a": None, "b": [True, "é"]}}
KEY = "0123456789abcdef-of-a-test"


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(seals.KEY, raising=False)


def refused(read: object, path: Path) -> str:
    with pytest.raises(FileError) as caught:
        read(path)  # type: ignore[operator]
    assert "\n" not in str(caught.value)
    assert path.name in str(caught.value)
    return str(caught.value)


def assert_no_flipped_bit_passes(read: object, path: Path, bits: range) -> None:
    good = path.read_bytes()
    with path.open("r+b", buffering=0) as file:
        for bit in bits:
            place = bit // 8
            os.pwrite(file.fileno(), bytes([good[place] ^ 1 << bit % 8]), place)
            refused(read, path)
            os.pwrite(file.fileno(), good[place : place + 1], place)
    assert path.read_bytes() == good


def test_a_document_comes_back_and_is_plain_json(tmp_path: Path) -> None:
    for record in (RECORD, {}):
        write_document(tmp_path / "d.json", record)
        assert read_document(tmp_path / "d.json") == record
        data = (tmp_path / "d.json").read_bytes()
        found = json.loads(data)
        # By hand: the digest of all before it.
        digest = found.pop("seal").removeprefix("bayeswell 1, sha256 ")
        assert found == record
        assert hashlib.sha256(data[: data.index(digest.encode())]).hexdigest() == digest
    with pytest.raises(SettingError, match="'seal'"):
        write_document(tmp_path / "d.json", {"seal": 1})


@pytest.mark.parametrize("record", [RECORD, {}], ids=["some", "empty"])
def test_no_flipped_bit_and_no_cut_of_a_document_passes(record: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    write_document(path, record)  # type: ignore[arg-type]
    good = path.read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_no_flipped_bit_passes(read_document, path, range(8 * len(good)))
        for length in range(len(good)):
            path.write_bytes(good[:length])
            refused(read_document, path)


def test_a_document_of_an_earlier_version_is_read_with_a_word(tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    path.write_text(json.dumps({"problem": {"data_sha256": "0" * 64}}))
    with pytest.warns(BayeswellWarning, match=r"d\.json' has no seal"):
        assert read_document(path) == {"problem": {"data_sha256": "0" * 64}}
    with pytest.raises(FileError, match="no seal, but what was written with it has"):
        read_document(path, sealed=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_document(path, users=True)


def log_of(path: Path, lines: int = 3) -> LineLog:
    log = LineLog(path)
    for epoch in range(lines):
        log.append({"epoch": epoch, "nll": 1 / (epoch + 3)})
    return log


@pytest.mark.parametrize("lines", [1, 3])
def test_no_flipped_bit_of_a_log_passes(lines: int, tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    log_of(path, lines)
    wanted = read_lines(path)
    assert wanted == [{"epoch": epoch, "nll": 1 / (epoch + 3)} for epoch in range(lines)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_no_flipped_bit_passes(read_lines, path, range(8 * path.stat().st_size))


def test_lines_that_are_missing_swapped_or_repeated_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    log = log_of(path)
    first, second, third = path.read_bytes().splitlines(keepends=True)
    for lines in ([second, third], [first, third], [second, first, third], [first, first, second, third]):
        path.write_bytes(b"".join(lines))
        refused(read_lines, path)
    # The last ones gone: the log alone cannot know, who remembers its length and last seal can.
    path.write_bytes(first + second)
    assert len(read_lines(path)) == 2
    with pytest.raises(FileError, match="were written"):
        read_lines(path, log.size, log.link)
    with pytest.raises(FileError, match="were written"):
        LineLog(path).cut(log.size, log.link)


def test_a_line_cut_short_by_a_crash_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    log_of(path)
    good = path.read_bytes()
    last = good.rindex(b"\n", 0, -1) + 1
    for length in range(last, len(good)):
        path.write_bytes(good[:length])
        assert len(read_lines(path)) == 2


def test_another_log_of_the_same_length_is_not_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    log = log_of(path)
    other = LineLog(tmp_path / "other.jsonl")
    for epoch in range(3):
        other.append({"epoch": epoch, "nll": 1 / (epoch + 4)})
    (tmp_path / "other.jsonl").replace(path)
    size = path.stat().st_size
    with pytest.raises(FileError, match=r"l\.jsonl' was altered"):
        LineLog(path).cut(size, log.link)
    with pytest.warns(BayeswellWarning, match="going on behind it"):
        LineLog(path).cut(size, log.link, force=True)
    assert path.stat().st_size == size


def test_a_log_of_an_earlier_version_goes_on_sealed(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    path.write_text('{"epoch": 0}\n{"epoch": 1}\n')
    with pytest.warns(BayeswellWarning, match="no seal"):
        assert len(read_lines(path)) == 2
    log = LineLog(path)
    log.cut(path.stat().st_size)
    log.append({"epoch": 2})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [line["epoch"] for line in read_lines(path)] == [0, 1, 2]
    path.write_text(path.read_text().replace('{"epoch": 1}', '{"epoch": 7}'))
    refused(read_lines, path)


@pytest.mark.parametrize("what", ["link", "pipe"])
def test_a_link_or_a_pipe_is_neither_followed_nor_waited_for(what: str, tmp_path: Path) -> None:
    write_document(tmp_path / "real.json", RECORD)
    path = tmp_path / "d.json"
    if what == "link":
        path.symlink_to("real.json")
    else:
        os.mkfifo(path)
    assert ("it is a link" if what == "link" else "not a regular file") in refused(read_document, path)
    if what == "link":
        before = (tmp_path / "real.json").read_bytes()
        with pytest.raises(FileError):
            LineLog(path).append({"epoch": 0})
        write_document(path, {"new": 1})  # it takes the link's place
        assert (tmp_path / "real.json").read_bytes() == before
        assert not path.is_symlink()


def test_what_killed_writers_left_is_removed_when_it_is_old(tmp_path: Path) -> None:
    old, new = (tmp_path / f".d.json.bayeswell-tmp-{digit * 16}" for digit in "01")
    other = tmp_path / ".e.json.bayeswell-tmp-0000000000000000"
    for path in (old, new, other):
        path.write_text("half")
    long_ago = time.time() - documents_module._LEFT_SECONDS - 5
    os.utime(old, (long_ago, long_ago))
    write_document(tmp_path / "d.json", {})
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([new.name, other.name, "d.json"])


# ------------------------------------------------------------------------------------------------ signing


def save(kind: str, path: Path) -> Path:
    if kind == "document":
        write_document(path, RECORD)
        return path
    write_bundle(path, {"w": torch.tensor([0.37])}, {"value": 0.37})
    return path / "manifest.json"


def read(kind: str, path: Path) -> object:
    return read_document(path) if kind == "document" else read_bundle(path).record


@pytest.mark.parametrize("kind", ["document", "bundle"])
def test_with_a_key_only_what_is_signed_with_it_is_read(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(seals.KEY, KEY)
    file = save(kind, tmp_path / "signed")
    wanted = read(kind, tmp_path / "signed")
    # Without a key the checksum alone counts; another key is refused.
    monkeypatch.delenv(seals.KEY)
    assert read(kind, tmp_path / "signed") == wanted
    save(kind, tmp_path / "unsigned")
    monkeypatch.setenv(seals.KEY, KEY[::-1])
    with pytest.raises(FileError, match="not made with this BAYESWELL_KEY"):
        read(kind, tmp_path / "signed")
    monkeypatch.setenv(seals.KEY, KEY)
    with pytest.raises(FileError, match="not signed"):
        read(kind, tmp_path / "unsigned")
    assert KEY.encode() not in file.read_bytes()


def test_the_signature_is_hmac_sha256_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(seals.KEY, KEY)
    data = save("document", tmp_path / "d").read_bytes()
    head, _, rest = data.partition(b", hmac-sha256 ")
    assert rest[:64].decode() == hmac.new(KEY.encode(), b"bayeswell document\0" + head, "sha256").hexdigest()
    data = save("bundle", tmp_path / "b").read_bytes()
    head, _, rest = data.partition(b',\n  "hmac_sha256": "')
    assert rest[:64].decode() == hmac.new(KEY.encode(), b"bayeswell manifest\0" + head, "sha256").hexdigest()


def test_a_forger_with_the_file_but_not_the_key_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Contents changed and every checksum made anew, the signature kept, and the signature of another file put in."""
    monkeypatch.setenv(seals.KEY, KEY)
    path = save("document", tmp_path / "d")
    data = path.read_bytes().replace(b"digits", b"giraff")
    head = data[: data.rindex(b", sha256 ") + len(b", sha256 ")]
    path.write_bytes(head + hashlib.sha256(head).hexdigest().encode() + b'"\n}\n')
    assert "signature is not made" in refused(read_document, path)
    # The signature stripped, the seal made anew.
    path = save("document", tmp_path / "d")
    head = path.read_bytes().partition(b", hmac-sha256 ")[0] + b", sha256 "
    path.write_bytes(head + hashlib.sha256(head).hexdigest().encode() + b'"\n}\n')
    assert "not signed" in refused(read_document, path)
    # The whole seal stripped.
    path.write_text(json.dumps(RECORD))
    assert "neither seal nor signature" in refused(read_document, path)
    # What is signed as a manifest is no signature of a document.
    assert seals.signature(KEY.encode(), "manifest", b"x") != seals.signature(KEY.encode(), "document", b"x")


def test_no_flipped_bit_of_a_signed_document_passes_with_or_without_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(seals.KEY, KEY)
    path = save("document", tmp_path / "d")
    for key in (KEY, None):
        if key is None:
            monkeypatch.delenv(seals.KEY)
        assert_no_flipped_bit_passes(read_document, path, range(3, 8 * path.stat().st_size, 5))


def test_signatures_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the one function that promises it: an ordinary comparison ends at the first letter that differs."""
    monkeypatch.setenv(seals.KEY, KEY)
    seen = []
    monkeypatch.setattr(seals.hmac, "compare_digest", lambda a, b: seen.append((a, b)) or False)
    with pytest.raises(ValueError, match="not made with this"):
        seals.require_signature("0" * 64, "document", b"data")
    assert seen == [("0" * 64, seals.signature(KEY.encode(), "document", b"data"))]


@pytest.mark.parametrize("key", ["", "short"])
def test_a_key_that_is_none_is_refused_and_nothing_written(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(seals.KEY, key)
    for kind in ("document", "bundle"):
        with pytest.raises(SettingError, match=f"BAYESWELL_KEY has {len(key)} bytes"):
            save(kind, tmp_path / kind)
    assert not any(tmp_path.iterdir())
