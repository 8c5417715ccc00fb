"""Experiments: from names to a run, its result, and several side by side.

The public names stand in ``__init__.pyi`` and are imported when first asked for: the schema of a run, from which the
command line makes its options, is read without torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
