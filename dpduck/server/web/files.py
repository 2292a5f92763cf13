"""Files with all rows of a private view, for a download."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

import pyarrow as pa

from dpduck.server.web.rows import FILE_BYTES, FORMULA
from dpduck.values.errors import Refusal
from dpduck.values.quoting import quote_identifier
from dpduck.values.sqltypes import sql_type


def file_sql(name: str, columns: Sequence[tuple[str, str]]) -> str:
    """Returns a SELECT of a view for a file. columns: names and types. Types that few programs read are cast."""
    shown = ", ".join(_as_read(quote_identifier(column), kind) for column, kind in columns)
    return f"SELECT {shown} FROM {quote_identifier(name)}"


def _as_read(column: str, kind: str) -> str:
    if sql_type(kind).is_read_by_programs:
        return column
    return f"CAST({column} AS {'DECIMAL(38, 0)' if sql_type(kind).is_whole else 'VARCHAR'}) AS {column}"


def file_of(kind: str, table: pa.Table) -> bytes:
    """Writes a table as a file. In CSV, a text that a spreadsheet would take for a formula gets a "'" at its start."""
    if table.nbytes > FILE_BYTES:
        raise Refusal("the view is too large for a file", accepted="a SELECT of fewer rows or columns")
    from pyarrow import csv, parquet  # noqa: PLC0415 - only files need them

    target = io.BytesIO()
    if kind == "parquet":
        parquet.write_table(table, target)
        return target.getvalue()
    columns = [_harmless(column) if pa.types.is_string(column.type) else column for column in table.columns]
    names = [f"'{name}" if re.match(FORMULA, name) else name for name in table.column_names]
    csv.write_csv(pa.table(columns, names=names), target)
    return target.getvalue()


def _harmless(column: pa.ChunkedArray) -> pa.ChunkedArray:
    import pyarrow.compute as pc  # noqa: PLC0415 - only files need it

    quoted = pc.binary_join_element_wise("'", column, "")
    return pc.if_else(pc.match_substring_regex(column, FORMULA), quoted, column)
