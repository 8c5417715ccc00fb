"""Seals: what proves that a document, a log or a manifest is as it was written, and, with a key, who wrote it.

A sealed document is a JSON object whose last entry is

    "seal": "bayeswell 1, sha256 <digest of every byte before the digest>"

so the version of the seal and all that stands above it are under the digest, and a document can be checked before it is
parsed. A digest guards against accidents: whoever can write the file can compute it anew. With the environment variable
``BAYESWELL_KEY`` set, documents and manifests carry an HMAC-SHA256 (RFC 2104) besides, and are refused without the
right one: that nobody can make who has not the key.

A line of a log ends with ``"seal": "<digest of the seal before it and of the line>"``: a chain, whose last link stands
for all lines above it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re

from ..errors import SettingError

KEY = "BAYESWELL_KEY"
LEAST_KEY_BYTES = 16
SEAL = "seal"
"""The entry of a document, and of a line, that holds its seal."""

_VERSION = 1
_OPENING = f'"{SEAL}": "bayeswell {_VERSION}'.encode("ascii")
_TAIL = re.compile(rb"(?:, hmac-sha256 ([0-9a-f]{64}))?, sha256 ([0-9a-f]{64})\"\n\}\n")
_LONGEST_TAIL = len(b', hmac-sha256 , sha256 "\n}\n') + 128
_LINE_TAIL = re.compile(rb', "seal": "([0-9a-f]{64})"\}')
_LINE_TAIL_BYTES = len(b', "seal": ""}') + 64
_WHOLE_LINE = re.compile(rb'"seal": "[0-9a-f]{64}"\}.')


class NotSealed(ValueError):
    """There is no seal: an earlier version, or another program, has written it."""


def signing_key() -> bytes | None:
    """The key that the environment names; None if there is none. One that is too short to be a secret is refused."""
    text = os.environ.get(KEY)
    if text is None:
        return None
    key = os.fsencode(text)
    if len(key) < LEAST_KEY_BYTES:
        raise SettingError(
            f"{KEY} has {len(key)} bytes; a key has {LEAST_KEY_BYTES} at least (`openssl rand -hex 32` makes one), and "
            "without the variable nothing is signed"
        )
    return key


def signature(key: bytes, purpose: str, data: bytes) -> str:
    """HMAC-SHA256 of the data; what is signed for one purpose is nothing worth for another."""
    return hmac.new(key, f"bayeswell {purpose}\0".encode("ascii") + data, hashlib.sha256).hexdigest()


def require_signature(found: str | None, purpose: str, data: bytes) -> None:
    """Where there is a key, refuse what is not signed with it; a one-line ValueError. Takes the same time for all."""
    key = signing_key()
    if key is None:
        return
    if found is None:
        raise ValueError(f"it is not signed, and {KEY} is set: whoever made it must sign it with this key")
    if not hmac.compare_digest(found, signature(key, purpose, data)):
        raise ValueError(f"its signature is not made with this {KEY}: it is altered, or signed with another key")


def seal_document(data: bytes) -> bytes:
    """A JSON object, as ``encode_record`` writes it, with its seal for a last entry; signed where there is a key."""
    body = b"{" if data == b"{}\n" else data.removesuffix(b"\n}\n") + b","
    body += b"\n  " + _OPENING
    key = signing_key()
    if key is not None:
        body += f", hmac-sha256 {signature(key, 'document', body)}".encode("ascii")
    body += b", sha256 "
    return body + hashlib.sha256(body).hexdigest().encode("ascii") + b'"\n}\n'


def check_seal(data: bytes) -> None:
    """Refuse a document that is not as it was sealed; NotSealed if its end is not that of a seal; both in one line."""
    tail = _TAIL.search(data, max(0, len(data) - _LONGEST_TAIL))
    if tail is None or tail.end() != len(data):
        raise NotSealed("it has no seal")
    if not hmac.compare_digest(hashlib.sha256(data[: tail.start(2)]).hexdigest().encode("ascii"), tail[2]):
        raise ValueError("it was altered (SHA-256 differs); restore it from a copy")
    if not data[: tail.start()].endswith(_OPENING):
        raise ValueError(f"its seal is of another version than {_VERSION}: update bayeswell")
    require_signature(None if tail[1] is None else tail[1].decode("ascii"), "document", data[: tail.start()])


def looks_sealed(record: dict[str, object]) -> bool:
    """Whether an object was meant to be sealed, although its end does not say so: by the name or by the value."""
    if not record:
        return False
    name, value = list(record.items())[-1]
    return name == SEAL or (isinstance(value, str) and ("bayeswell" in value or "sha256" in value or len(value) == 64))


def next_link(link: str, body: bytes) -> str:
    """The seal of a line behind another: of the seal before it, and of the line without its own."""
    return hashlib.sha256(link.encode("ascii") + body).hexdigest()


def first_link(unsealed: bytes) -> str:
    """What the first sealed line stands on: nothing, or lines that an earlier version wrote."""
    return hashlib.sha256(unsealed).hexdigest() if unsealed else ""


def sealed_line(body: bytes, link: str) -> bytes:
    """A line, an object without its end of line, with its seal."""
    return body[:-1] + f', "{SEAL}": "{link}"}}'.encode("ascii") + b"\n"


def split_line(line: bytes) -> tuple[bytes, str | None]:
    """A line without its seal, and the seal; None if it has none."""
    tail = _LINE_TAIL.fullmatch(line[-_LINE_TAIL_BYTES:])
    return (line, None) if tail is None else (line[:-_LINE_TAIL_BYTES] + b"}", tail[1].decode("ascii"))


def is_torn(rest: bytes) -> bool:
    """Whether what stands behind the last end of line may be left of a line that a crash cut short."""
    return _WHOLE_LINE.search(rest) is None
