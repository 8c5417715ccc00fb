"""What held-out data have changed of a trained model."""

from __future__ import annotations

from dataclasses import dataclass, replace

LOGITS = "logits"
"""What makes a likelihood of classes less sure: its logits are divided."""
NOISE = "noise"
"""What makes a likelihood of real numbers less sure: its noise std is multiplied."""
LARGEST_SCALE, LARGEST_WIDENING = 3.0, 8.0
"""Where the search ends: scales of stds from 0 on, widenings from 1 / LARGEST_WIDENING on."""
_WORDS = {LOGITS: "logit temperature x", NOISE: "noise std x"}


@dataclass(frozen=True)
class Calibration:
    """Two numbers chosen by the NLL of ``examples`` held-out data, and that NLL before and after, in nats per datum.

    ``std_scale`` multiplies the posterior's deviations from its mean (0: the mean network alone); ``widening`` divides
    the logits, or multiplies the noise std, as ``widens`` says (empty: the likelihood has neither). ``gain_error`` is
    the standard error of ``nll_before - nll_after`` over examples; both numbers are 1 unless the gain exceeds it.
    ``folds`` above 1: the held-out predictions are those of so many cross-fitted models, together.
    """

    std_scale: float
    widening: float
    widens: str
    examples: int
    folds: int
    nll_before: float
    nll_before_error: float
    nll_after: float
    nll_after_error: float
    gain_error: float

    @property
    def gain(self) -> float:
        """By how much the held-out NLL fell; chosen on these very data, so slightly flattering (1 / examples)."""
        return self.nll_before - self.nll_after

    @property
    def changes(self) -> bool:
        """Whether either number is other than 1."""
        return self.std_scale != 1 or self.widening != 1

    @property
    def at_the_end(self) -> str:
        """Which number the search ended with at the last it tries, so that the data may ask for more; or empty.

        A scale of 0 is no such end: there is nothing beyond it.
        """
        ends = [f"stds x {LARGEST_SCALE:g}"] if self.std_scale == LARGEST_SCALE else []
        if self.widening in (1 / LARGEST_WIDENING, LARGEST_WIDENING):
            ends.append(f"{_WORDS.get(self.widens, 'widening x')} {self.widening:g}")
        return " and ".join(ends)

    def shifted(self, nats: float) -> Calibration:
        """The same with NLLs of targets in other units: so many nats more for each datum."""
        return replace(self, nll_before=self.nll_before + nats, nll_after=self.nll_after + nats)

    def __str__(self) -> str:
        done = [f"stds x {self.std_scale:.3g}"] if self.std_scale != 1 else []
        done += [f"{_WORDS.get(self.widens, 'widening x')} {self.widening:.3g}"] if self.widening != 1 else []
        source = f"{self.examples:,} held-out examples" + (f" of {self.folds} folds" if self.folds > 1 else "")
        before = f"NLL {self.nll_before:.4f} ± {self.nll_before_error:.4f}"
        if not done:
            return f"nothing to change by {source} ({before}; no gain above its standard error)"
        after = f"{self.nll_after:.4f} ± {self.nll_after_error:.4f}"
        end = f"; {self.at_the_end} is as far as the search goes" if self.at_the_end else ""
        gain = f"gain {self.gain:.4f} ± {self.gain_error:.4f}"
        return f"{', '.join(done)} by {source}: {before} -> {after} ({gain}){end}"
