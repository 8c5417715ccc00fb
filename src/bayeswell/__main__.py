"""The command ``bayeswell``, and ``python -m bayeswell``: the command line, or one line on how to install it."""

import sys

from .errors import MissingExtra


def main() -> int:
    """Run the command that was typed; the exit code."""
    try:
        from .cli import main as run
        from .cli.imports import process_is_ours
    except MissingExtra as missing:
        print(f"bayeswell: {missing}", file=sys.stderr)  # noqa: T201
        return 2  # as for any other usage that cannot be
    except MemoryError:
        print("bayeswell: out of memory", file=sys.stderr)  # noqa: T201
        return 1
    process_is_ours()
    return run()


if __name__ == "__main__":
    sys.exit(main())
