"""What people hold as batches: loaders, data sets, columns by name; recognised, read and split."""

from .columns import Columns, is_columns, keywords_of
from .example_stream import ExampleStream, sample_sha256
from .mapped import MappedArrays
from .sources import (
    USUAL_SIZE,
    Collated,
    Parts,
    examples_in,
    is_source,
    parts_of,
    read_all,
    read_examples,
    require_source,
)
from .tasks import Task, read_tasks

__all__ = [
    "USUAL_SIZE",
    "Collated",
    "Columns",
    "ExampleStream",
    "MappedArrays",
    "Parts",
    "Task",
    "examples_in",
    "is_columns",
    "is_source",
    "keywords_of",
    "parts_of",
    "read_all",
    "read_examples",
    "read_tasks",
    "require_source",
    "sample_sha256",
]
