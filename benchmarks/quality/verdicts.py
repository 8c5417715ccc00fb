"""What has to be shown, and whether the record shows it."""

from __future__ import annotations

from .against_control import as_good_as_control, foreign_images_stand_out, never_silently_worse
from .against_goals import choosing_for_oneself, fashion, uci
from .differences import Results
from .verdict import Verdict


def verdicts(found: Results) -> list[Verdict]:
    """All of it."""
    return [
        as_good_as_control(found), never_silently_worse(found), foreign_images_stand_out(found),
        fashion(found), uci(found), choosing_for_oneself(found),
    ]  # fmt: skip
