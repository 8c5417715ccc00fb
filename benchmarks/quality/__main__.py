"""`python -m benchmarks.quality`."""

from .command import main

if __name__ == "__main__":
    raise SystemExit(main())
