"""The table of functions agrees with DuckDB, and with the former lists of language, trusted code and server.

The golden file has the three allowlists from the time before the table.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import duckdb
import pytest
from sqlglot import exp
from sqlglot.errors import SqlglotError

from dpduck.kernel.worker import functions as trusted
from dpduck.language.rows import functions as language
from dpduck.language.rows.expressions import sql_of
from dpduck.language.text.dialect import PrivateDuckDB
from dpduck.server import syntax
from dpduck.values.errors import Refusal
from dpduck.values.functions import ROW_LOCAL_FUNCTIONS
from dpduck.values.served_functions import TABLE
from tests.support.instants import OF_AN_INSTANT

GOLDEN = json.loads((Path(__file__).parent / "function_table.json").read_text(encoding="utf-8"))
ROW_LOCAL = {one.name for one in TABLE if one.row_local}
NOT_IN_THE_CATALOG = {"!", "coalesce", "ifnull"}
"""Words of DuckDB's grammar: an operator of some versions, and two functions that it parses as an operator."""

MACROS_THAT_AGGREGATE = {"geomean", "geometric_mean", "wavg", "weighted_avg"}
"""Of aggregates: DuckDB's catalog calls them macros, as it calls some row-local functions."""

TYPED_BY_ARGUMENTS = {"||", "concat", "split_part"}
"""Functions that make texts, and of which the catalog has no type."""

ARGUMENTS = ("a", "a, b", "a, b, c", "a, 'x'", "a, 'x', 'y'", "'month', a", "'month', a, b")
OTHER_TEXTS: dict[type[exp.Expr], tuple[str, ...]] = {
    exp.Like: ("a LIKE 'x'", "a NOT LIKE 'x'"),
    exp.ILike: ("a ILIKE 'x'", "a NOT ILIKE 'x'"),
    exp.Escape: tuple(f"a {word} 'x' ESCAPE '!'" for word in ("LIKE", "NOT LIKE", "ILIKE", "NOT ILIKE")),
    exp.SimilarTo: ("a SIMILAR TO 'x'",),
    exp.Glob: ("a GLOB 'x'",),
    exp.RegexpLike: ("a ~ 'x'",),
    exp.Neg: ("-a",),
    exp.Pow: ("a ** b", "a ^ b"),
    exp.BitwiseXor: ("xor(a, b)",),
    exp.BitwiseNot: ("~a",),
    exp.Extract: ("EXTRACT(month FROM a)",),
    exp.DateAdd: ("date_add(a, INTERVAL 1 DAY)",),
}
"""Operators, and functions that are not written as a call of their name."""

BUILT: dict[type[exp.Expr], exp.Expr] = {
    exp.DateTrunc: exp.DateTrunc(this=exp.column("a"), unit=exp.Literal.string("month")),
    exp.RegexpILike: exp.RegexpILike(this=exp.column("a"), expression=exp.Literal.string("x")),
}
"""Classes that sqlglot makes of other dialects alone."""


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        yield opened


@pytest.fixture(scope="module")
def catalog(connection: duckdb.DuckDBPyConnection) -> list[tuple[str, str, str | None, bool]]:
    """Returns name, kind, stability and side effects of every function that an expression may have."""
    return connection.execute(
        "SELECT lower(function_name), function_type, stability, coalesce(has_side_effects, false) "
        f"FROM duckdb_functions() WHERE NOT {OF_AN_INSTANT}"
    ).fetchall()


def functions_read(connection: duckdb.DuckDBPyConnection, sql: str) -> set[str]:
    """Returns the functions in DuckDB's own parse of an expression."""
    row = connection.execute("SELECT json_serialize_sql($1::VARCHAR)", [f"SELECT {sql}"]).fetchone()
    parts = trusted.dicts(json.loads(row[0] if row else "{}"))
    return {str(part["function_name"]) for part in parts if "function_name" in part}


def parsed(text: str) -> exp.Expr | None:
    """Returns the expression as the language reads it, or None if the language refuses it."""
    try:
        query = PrivateDuckDB().parse(f"SELECT {text}")[0]
        found = None if query is None else query.expressions[0]
        if not isinstance(found, exp.Expr):
            return None
        language.check_row_local(found)
    except (Refusal, SqlglotError):
        return None
    return found


def forms(kind: type[exp.Expr], name: str) -> list[str]:
    """Writes the SQL forms of a class: calls of a function, or an operator between two columns."""
    texts = OTHER_TEXTS.get(kind, (f"a {name} b", *(f"{name}({arguments})" for arguments in ARGUMENTS)))
    found, written = [BUILT[kind]] if kind in BUILT else map(parsed, texts), []
    for one in found:
        with suppress(Refusal):
            written += [sql_of(one)] if isinstance(one, kind) else []
    return written


def test_the_lists_are_what_they_were() -> None:
    """Language, trusted code and server take the functions that they took before the table, and no others."""
    lists = {
        "row_local": trusted.FUNCTIONS,
        "makes_text": trusted.TEXTS,
        "served_scalar": syntax.SCALAR,
        "served_aggregate": syntax.AGGREGATE,
        "streams": syntax.STREAMED,
        "language_named": language.NAMED_FUNCTIONS,
        "language_operators": {kind.__name__ for kind in language.OPERATORS},
        "language_functions": {kind.__name__ for kind in language.FUNCTIONS},
    }
    assert {name: sorted(found) for name, found in lists.items()} == GOLDEN


def test_each_function_has_one_row() -> None:
    """No name is there twice with different facts. The row-local functions are in the first part of the table."""
    assert [name for name, count in Counter(one.name for one in TABLE).items() if count > 1] == []
    assert [one for one in TABLE if one.row_local] == list(ROW_LOCAL_FUNCTIONS)
    assert [one.name for one in TABLE if one.streams and not one.served] == []
    assert [one.name for one in TABLE if one.makes_text and not one.row_local] == []


def test_the_language_has_row_local_functions_alone() -> None:
    """Every class and every name that the language takes is row-local by the table."""
    written = {**language.OPERATOR_NAMES, **language.FUNCTION_NAMES}
    named = {name for names in written.values() for name in names.split()}
    assert named | (language.NAMED_FUNCTIONS - {"ifnull", "try"}) <= ROW_LOCAL
    assert (*language.OPERATORS, *language.FUNCTIONS) == tuple(written)


@pytest.mark.parametrize(
    ("kind", "names"),
    [(kind, names) for kind, names in {**language.OPERATOR_NAMES, **language.FUNCTION_NAMES}.items() if names],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_duckdb_reads_the_functions_of_a_class(
    connection: duckdb.DuckDBPyConnection, kind: type[exp.Expr], names: str
) -> None:
    """The SQL of a class is, in DuckDB's own parse, a call of the functions that the class lists.

    DuckDB 2.0 reads NOT before a function where 1.5 has a function with `not_` in its name.
    """
    for name in names.split():
        found = forms(kind, name)
        assert found, name
        read = set().union(*(functions_read(connection, sql) for sql in found))
        assert name in read or name.removeprefix("not_") in read, name


def test_every_row_is_a_function_of_duckdb(catalog: list[tuple[str, str, str | None, bool]]) -> None:
    """Each name in the table is a function of DuckDB, or a word of DuckDB's grammar."""
    assert {one.name for one in TABLE} - {name for name, *_ in catalog} == NOT_IN_THE_CATALOG


def test_no_other_rows_decide_a_row_local_function(catalog: list[tuple[str, str, str | None, bool]]) -> None:
    """Aggregates, table functions, volatile functions and those with side effects are never row-local.

    Functions that are constant within a query alone, as today() is, are not row-local either.
    """
    other = {
        name
        for name, kind, stability, effects in catalog
        if kind not in ("scalar", "macro") or stability not in ("CONSISTENT", None) or effects
    }
    assert {"sum", "random", "today", "nextval", "range"} <= other
    assert ROW_LOCAL & other == set()
    assert {one.name for one in TABLE if one.aggregate} & ROW_LOCAL == set()


def test_aggregates_are_those_of_duckdb(catalog: list[tuple[str, str, str | None, bool]]) -> None:
    """The server's aggregates are the functions that DuckDB calls aggregates, and macros over these."""
    aggregates = {name for name, kind, *_ in catalog if kind in ("aggregate", "window")}
    told = {one.name for one in TABLE if one.aggregate}
    assert told - aggregates == MACROS_THAT_AGGREGATE
    assert {one.name for one in TABLE if not one.aggregate} & aggregates == set()


def test_functions_that_make_texts_say_so(connection: duckdb.DuckDBPyConnection) -> None:
    """A worker keeps room for the result of each row-local function that returns a VARCHAR."""
    rows = connection.execute(
        "SELECT DISTINCT lower(function_name) FROM duckdb_functions() WHERE return_type = 'VARCHAR'"
    ).fetchall()
    texts = {row[0] for row in rows} & ROW_LOCAL
    told = {one.name for one in TABLE if one.makes_text}
    assert texts <= told
    assert told - texts == TYPED_BY_ARGUMENTS
