"""strategy_table: an analyst's own strategy from a declared public table (row, column, value)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dpduck.database.catalog import Catalog
from dpduck.frontend.select.analyse import Analysis
from dpduck.frontend.select.request import Question
from dpduck.frontend.text.names import TableName
from dpduck.values.errors import Refusal

MOST_ENTRIES = 200_000
MOST_ROWS = 4096
LARGEST_VALUE = 1000
_COLUMNS = ("row", "column", "value")


def with_matrix(analysis: Analysis, catalog: Catalog) -> Analysis:
    """Returns the analysis with the matrix that its option names; the table's content becomes part of the request."""
    request = analysis.request
    named = request.question.treatment.strategy_table
    if (
        len(request.question.keys) != 1
        or request.question.grouping_sets != ((0,),)
        or request.question.treatment.strategy != "auto"
    ):
        raise Refusal(
            "strategy_table serves one grouping column",
            accepted="GROUP BY column, PREFIXES(column) or RANGES(column), without the option strategy",
        )
    table = catalog.resolve(TableName(tuple(named.split("."))))
    if table is None or not catalog.is_public(table):
        raise Refusal(f"{named!r} is no public table", accepted="a table after DECLARE PUBLIC TABLE")
    entries = catalog.integer_rows(table, _COLUMNS, MOST_ENTRIES)
    matrix = _checked(entries, len(request.question.keys[0].labels), str(table))
    digests = (*request.rows.public_digests, (table, catalog.public_digest(table)))
    rows, question = replace(request.rows, public_digests=digests), replace(request.question, matrix=matrix)
    return replace(analysis, request=replace(request, rows=rows, question=question))


def _checked(entries: list[tuple[int, ...]], size: int, table: str) -> tuple[tuple[int, int, int], ...]:
    if not 1 <= len(entries) <= MOST_ENTRIES:
        raise Refusal(f"{table} has {len(entries) or 'no'} entries", accepted=f"1 to {MOST_ENTRIES} of them")
    if len({entry[:2] for entry in entries}) != len(entries):
        raise Refusal(f"{table} has two values for one row and column", accepted="one value for each")
    for row, column, value in entries:
        if not (1 <= row <= MOST_ROWS and 1 <= column <= size and abs(value) <= LARGEST_VALUE):
            raise Refusal(
                f"{table} has the entry ({row}, {column}, {value})",
                accepted=f"rows from 1 to {MOST_ROWS}, columns from 1 to {size} (the values of the domain in order), "
                f"values from -{LARGEST_VALUE} to {LARGEST_VALUE}",
            )
    return tuple((row - 1, column - 1, value) for row, column, value in entries)


def matrix_of(question: Question) -> NDArray[np.int64]:
    """Returns the strategy as a matrix, shape (rows, n)."""
    rows, columns, values = np.array(question.matrix, np.int64).T
    matrix = np.zeros((int(rows.max()) + 1, len(question.keys[0].labels)), np.int64)
    matrix[rows, columns] = values
    return matrix
