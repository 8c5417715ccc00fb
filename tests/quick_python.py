"""The interpreter for programs that tests start: it has torch and other libraries already (``tools/preloaded.py``).

Everything else is as in a new process, the import of bayeswell included. Where a test is about what is imported, about
the interpreter's own beginning or end, or about its options, or where processes form a group of torch.distributed (one
of two was seen to hang at its end; those that a program forks itself and ends by ``os._exit`` do not),
``sys.executable`` is the one to use. A program that is to be killed writes down its own number: the command is another
process, which ends a moment before or after it.
"""

from __future__ import annotations

import os
import sys

from preloaded import EXECUTABLE

QUICK_PYTHON = os.environ.get(EXECUTABLE, sys.executable)
"""conftest.py leaves the command in this variable, for all workers of pytest."""
