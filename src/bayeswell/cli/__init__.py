"""The command line. Nothing here imports torch before a command needs it: help comes at once."""

from ..extras import needs_extra

with needs_extra("lab", "the command line"):
    from .app import app, main

__all__ = ["app", "main"]
