"""What the commands ``compare``, ``sweep`` and ``lr-range`` do, for networks and data of a program: the same runs."""

from .comparison import Comparison, compare
from .rates import LearningRates, lr_range
from .sweeping import Sweep, sweep

__all__ = ["Comparison", "LearningRates", "Sweep", "compare", "lr_range", "sweep"]
