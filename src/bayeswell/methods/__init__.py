"""Methods: named choices of parts, and their assembly. The only room that sees all parts."""

from .assembly import Assembly, assemble, resolve_stepper
from .method import Method
from .named import METHODS, find_method, method_names

__all__ = ["METHODS", "Assembly", "Method", "assemble", "find_method", "method_names", "resolve_stepper"]
