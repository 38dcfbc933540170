"""A column of texts of a Parquet file, document after document, as from a file of jsonl.

pyarrow is an extra, which only a process that converts such data imports: the worker's. Where the
tokens are in the cache nothing imports it.
"""

from collections.abc import Iterator

from daa_node.errors import UserError
from daa_node.training.datasets.files import Content
from daa_node.training.datasets.jsonl import LINE_BYTES_MAX

BATCH_ROWS = 1024  # documents in memory at a time, beside the row group that they are of


def documents(content: Content, column: str) -> Iterator[str]:
    """The text of each row. Raises UserError naming file and row."""
    try:
        from pyarrow import ArrowException, types
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise UserError(
            "data of kind parquet need pyarrow, which is not installed: "
            "pip install 'daa-compute[parquet]'"
        ) from None
    where, row = content.source, 0
    try:
        with ParquetFile(content.path, memory_map=True) as file:
            schema = file.schema_arrow
            if column not in schema.names:
                known = ", ".join(schema.names)
                raise UserError(
                    f"{where}:1: no column {column!r}; there is {known}: set data.column"
                )
            if schema.names.count(column) > 1:
                raise UserError(f"{where}:1: several columns are called {column!r}: rename them")
            kind = schema.field(column).type
            if not (types.is_string(kind) or types.is_large_string(kind)):
                raise UserError(f"{where}:1: column {column!r} holds {kind}, not texts")
            for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=[column]):
                for text in batch.column(column).to_pylist():
                    row += 1
                    yield _checked(text, f"{where}:1: row {row}")
    except UnicodeDecodeError as fault:
        raise UserError(
            f"{where}:1: a text after row {row} is not UTF-8 ({fault.reason}); write the file again"
        ) from None
    except (ArrowException, OSError) as fault:
        raise UserError(f"{where}:1: no Parquet file that can be read: {fault}") from None
    if not row:
        raise UserError(f"{where}:1: no rows; there is nothing to train on")


def _checked(text: str | None, where: str) -> str:
    if text is None:
        raise UserError(f"{where}: no text; take out the rows that have none")
    if len(text) > LINE_BYTES_MAX:
        raise UserError(f"{where}: longer than {LINE_BYTES_MAX} characters")
    return text
