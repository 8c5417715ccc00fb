"""What a page measures otherwise than usual."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from ...errors import SettingError, require_count, require_positive
from ..scores import ECE_BINS


@dataclass(frozen=True)
class Knobs:
    """``bins`` of the calibration curve; ``ranks`` at which the stds are cut off (given: also without ``full``);
    ``rho``, the radius of sharpness; ``draws`` for predictions (None: the run's own); ``layers``, patterns of the
    matrices whose stds are shown (none: all spectra, and the largest as a map).
    """

    bins: int = ECE_BINS
    ranks: tuple[int, ...] = ()
    rho: float = 0.05
    draws: int | None = None
    layers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_count("report", "bins", self.bins)
        require_positive("report", "rho", self.rho)
        for rank in self.ranks:
            require_count("report", "ranks", rank)
        if self.draws is not None:
            require_count("report", "draws", self.draws)

    def shows(self, layer: str) -> bool:
        """Whether a layer is among those asked for."""
        return not self.layers or any(fnmatchcase(layer, one) or fnmatchcase(layer, f"{one}.*") for one in self.layers)

    def require_known(self, layers: list[str]) -> None:
        """Refuse a pattern that fits nothing."""
        for pattern in self.layers:
            if not any(Knobs(layers=(pattern,)).shows(layer) for layer in layers):
                raise SettingError(f"layers: '{pattern}' matches none of {', '.join(layers)}")


USUAL = Knobs()
