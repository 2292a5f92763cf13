"""The frontend on a connection without dpduck, which analyses a statement and runs nothing."""

from __future__ import annotations

import duckdb

from dpduck.language.select.analyse import Analysis, analyse
from dpduck.language.select.request import SelectRequest
from dpduck.language.statements.kinds import AskStatement
from dpduck.language.statements.parse import parse_statement
from dpduck.store.catalog import Catalog
from dpduck.store.policies import PolicyStore


def analysed(connection: duckdb.DuckDBPyConnection, text: str) -> Analysis | None:
    """Returns the analysis of a SELECT, or None for other statements."""
    statement = parse_statement(text)
    if not isinstance(statement, AskStatement):
        return None
    with connection.cursor() as cursor:
        return analyse(statement, Catalog(cursor, PolicyStore(connection.cursor, "private", dict)))


def request_of(connection: duckdb.DuckDBPyConnection, text: str) -> SelectRequest:
    """Returns the request of a SELECT that is accepted."""
    analysis = analysed(connection, text)
    assert analysis is not None
    return analysis.request
