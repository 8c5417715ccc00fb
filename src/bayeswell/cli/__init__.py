"""The command line. Nothing here imports torch before a command needs it: help comes at once."""

from .app import app, main

__all__ = ["app", "main"]
