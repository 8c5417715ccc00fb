"""The command ``bayeswell``, also as ``python -m bayeswell``."""

from __future__ import annotations

import sys

EXTRA = 'bayeswell: the command line needs the lab extra; install it with: pip install "bayeswell[lab]"'


def main() -> int:
    """Run the command of ``sys.argv`` and return its exit code."""
    try:
        from .lab.cli import main as run
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("bayeswell"):
            raise
        sys.stderr.write(f"{EXTRA} ({error.name} is missing)\n")
        return 2
    return run()


if __name__ == "__main__":
    sys.exit(main())
