"""The manifest of a bundle: which files it has, how long they are, and what their SHA-256 must be.

It is JSON whose last entry is the SHA-256 of every byte before that entry, so a manifest can be checked
before it is parsed, also by a version that does not know its other entries. safetensors and JSON themselves
notice almost no flipped bit; with the checksums every one is found. They guard against accidents, not
against a forger, who can compute them anew: against forgers it helps that no format here can run code, and a
key (seals.py): with one the entry before the last is the HMAC of every byte before it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from .seals import require_signature, signature, signing_key

TENSORS = "tensors.safetensors"
RECORD = "record.json"
MANIFEST = "manifest.json"
FILES = (TENSORS, RECORD, MANIFEST)

FORMAT = "bayeswell-bundle"
VERSION = 1
MAX_BYTES = 65536
"""No manifest is longer: nothing beyond is ever read."""

_TAIL = re.compile(rb',\n  "sha256": "([0-9a-f]{64})"\n\}\n')
_SIGNED = re.compile(rb',\n  "hmac_sha256": "([0-9a-f]{64})"')
_SIGNED_BYTES = len(b',\n  "hmac_sha256": ""') + 64
_TAIL_BYTES = len(b',\n  "sha256": ""\n}\n') + 64


@dataclass(frozen=True)
class Fingerprint:
    """What a file must be."""

    size: int
    sha256: str


def seal(contents: Mapping[str, bytes]) -> bytes:
    """The manifest of these files, by name."""
    files = {name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in contents.items()}
    head = json.dumps({"format": FORMAT, "version": VERSION, "files": files}, indent=2)[:-2].encode("ascii")
    key = signing_key()
    if key is not None:
        head += b',\n  "hmac_sha256": "%b"' % signature(key, "manifest", head).encode("ascii")
    return head + b',\n  "sha256": "%b"\n}\n' % hashlib.sha256(head).hexdigest().encode("ascii")


def open_seal(data: bytes) -> dict[str, Fingerprint]:
    """What the manifest says of each file; any fault is a one-line ValueError."""
    tail = _TAIL.fullmatch(data[-_TAIL_BYTES:])
    if tail is None:
        raise ValueError("it is cut short or altered, or was not written by bayeswell")
    if hashlib.sha256(data[:-_TAIL_BYTES]).hexdigest().encode("ascii") != tail[1]:
        raise ValueError("it was altered (SHA-256 differs)")
    try:
        manifest = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError("it is not JSON") from error
    if manifest.get("format") != FORMAT:
        raise ValueError(f"it is of the format {manifest.get('format')!r:.40}, not {FORMAT!r}")
    if manifest.get("version") != VERSION:
        version = f"{manifest.get('version')!r:.40}"
        raise ValueError(f"it has format version {version}, and this bayeswell reads {VERSION} only: update it")
    head = data[:-_TAIL_BYTES]
    signed = _SIGNED.fullmatch(head[-_SIGNED_BYTES:])
    require_signature(None if signed is None else signed[1].decode("ascii"), "manifest", head[:-_SIGNED_BYTES])
    return _fingerprints(manifest.get("files"))


def matches(data: bytes, fingerprint: Fingerprint) -> bool:
    """Whether the bytes are the ones that were saved."""
    return hashlib.sha256(data).hexdigest() == fingerprint.sha256


def _fingerprints(files: object) -> dict[str, Fingerprint]:
    if not isinstance(files, dict) or set(files) != {TENSORS, RECORD}:
        raise ValueError(f"it must list {TENSORS} and {RECORD}, and nothing else")
    found = {}
    for name, entry in files.items():
        size = entry.get("bytes") if isinstance(entry, dict) else None
        sha256 = entry.get("sha256") if isinstance(entry, dict) else None
        if type(size) is not int or size < 0 or not isinstance(sha256, str):
            raise ValueError(f"its entry for {name} has no size or no SHA-256")
        found[name] = Fingerprint(size, sha256)
    return found
