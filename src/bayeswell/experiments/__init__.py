"""Experiments: from names to a run, its result, and several side by side.

The public names stand in ``__init__.pyi`` and are imported when first asked for: the schema of a run, from which the
command line makes its options, is read without torch.
"""

from ..lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
