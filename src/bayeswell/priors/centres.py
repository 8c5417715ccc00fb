"""Where a prior is centred: at zero, or at the weights that the network came with."""

from __future__ import annotations

from ..errors import SettingError, nearest

ZERO, NETWORK = "zero", "network"


def check_centre(owner: str, centre: str) -> None:
    """Refuse another word."""
    if centre not in (ZERO, NETWORK):
        raise SettingError(f"{owner} prior: centre = {centre!r}; {nearest(str(centre), (ZERO, NETWORK))}")
