"""Methods: named choices of parts, and their assembly. The only room that sees all parts."""

from .assembly import Assembly, assemble
from .method import Method
from .named import METHODS, find_method, method_names
from .registering import register
from .resolved import ResolvedMethod, resolve
from .tempering import AUTO

__all__ = [
    "AUTO",
    "METHODS",
    "Assembly",
    "Method",
    "ResolvedMethod",
    "assemble",
    "find_method",
    "method_names",
    "register",
    "resolve",
]
