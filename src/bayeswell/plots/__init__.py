"""Pictures of records: functions that take what was measured and return matplotlib axes."""

from .rate_range import plot_rate_range

__all__ = ["plot_rate_range"]
