"""What every diagnostic leaves behind: a plain record that goes into a file as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..plain import fields_of


@dataclass(frozen=True)
class Record:
    """Numbers, texts, lists of them and further records; ``as_json`` is what is written and what is drawn."""

    def as_json(self) -> dict[str, Any]:
        """The fields as plain data; a number that is not finite becomes None, which JSON can say."""
        return fields_of(self, finite=True)
