"""The interpreter for programs that tests start: it has torch and other libraries already (``tools/preloaded.py``).

Everything else is as in a new process, the import of bayeswell included. Where a test is about what is imported, about
the interpreter's own beginning or end, or about its options, or where it kills the process that it has started (the
program ends a moment after the command), ``sys.executable`` is the one to use. Processes that form a group of
torch.distributed are forked like others, and start the other ranks by the same command
(``tests/training/test_ranks.py``).
"""

from __future__ import annotations

import os
import sys

from preloaded import EXECUTABLE

QUICK_PYTHON = os.environ.get(EXECUTABLE, sys.executable)
"""conftest.py leaves the command in this variable, for all workers of pytest."""
