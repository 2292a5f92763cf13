"""Names of private tables in SQL, for tools that would show an owner's rows without being asked to.

This is a guard against accidents and no gate: the owner can read the rows elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlglot import exp, parse
from sqlglot.errors import SqlglotError

from dpduck.values.errors import Refusal
from dpduck.values.quoting import fold

STORE = "private"
DEFINITIONS = """SELECT view_name, sql FROM duckdb_views() WHERE NOT internal AND database_name <> 'private'
    UNION ALL SELECT function_name || '()', macro_definition FROM duckdb_functions()
    WHERE macro_definition IS NOT NULL AND NOT internal AND NOT starts_with(function_name, 'dp_')"""
"""Query of the definitions that private_names takes: views, and the owner's macros with brackets behind the name."""

OF_RELEASES = frozenset(
    ("dp_decode", "dp_margin", "dp_project", "dp_project_all", "dp_sketch_estimates", "dp_sketch_point")
)
"""Macros over released tables, which they take by name."""

READ_ONLY = OF_RELEASES | frozenset(
    ("dp", "dp_ask", "dp_budget", "dp_certificate", "dp_columns", "dp_difference", "dp_draft", "dp_errors",
     "dp_explain", "dp_known", "dp_ledger", "dp_plan", "dp_policies", "dp_ratio_of", "dp_releases", "dp_sessions",
     "dp_stderr_of", "dp_streams", "dp_twin", "duckdb_columns", "duckdb_databases", "duckdb_functions",
     "duckdb_schemas", "duckdb_views", "generate_series", "range", "unnest")
)  # fmt: skip
"""Table functions that show no exact figure of a private table, as dp_check and duckdb_tables do."""

HIDING = frozenset(("query()", "query_table()"))
"""Functions that read a table by a text."""

_ACCEPTED = "tables and views by name, range, generate_series, unnest, and dp functions without exact findings"
FILES = (".duckdb", ".ddb", ".db")
"""Ends of the names of databases, which DuckDB reads in FROM."""


def private_names(sql: str, policies: Iterable[str], views: Mapping[str, str]) -> list[str]:
    """Lists the tables with a policy that a query names, and the views and macros over such tables.

    policies: names of tables with a policy. views: the rows of DEFINITIONS. Only the last part of each name counts.
    A query that cannot be parsed is refused, and so is PRAGMA, and a table function that is not READ_ONLY.

    >>> private_names("SELECT * FROM old", ["db.main.visits"], {"old": "CREATE VIEW old AS FROM main.visits"})
    ['old']
    """
    private = {fold(name.rsplit(".", 1)[-1].strip('"')) for name in policies}
    trees = _trees(sql)
    if trees is None:
        raise Refusal("this SQL cannot be parsed, so it may read private rows", accepted="a plain SELECT")
    read = {fold(name): _names(_trees(definition)) for name, definition in views.items()}
    while more := {name for name, names in read.items() if name not in private and (private | HIDING) & names}:
        private |= more
    named = _names(trees)
    if not private & named:
        for tree in trees:
            _require_plain(tree, private)
    return sorted(private & named)


def _trees(sql: str) -> list[exp.Expr] | None:
    """Parses SQL. Returns None if a part cannot be parsed."""
    try:
        trees = [tree for tree in parse(sql, dialect="duckdb") if tree is not None]
    except (SqlglotError, RecursionError):
        return None
    return None if any(isinstance(tree, exp.Command) for tree in trees) else trees


def _names(trees: Iterable[exp.Expr] | None) -> set[str]:
    """Returns the last parts of the names of tables, without those of the store, and of functions with brackets.

    A definition that cannot be parsed may read any table.
    """
    named = set(HIDING) if trees is None else set[str]()
    for tree in trees or ():
        named |= {fold(table.name) for table in tree.find_all(exp.Table) if not _is_of_store(table)}
        named |= {f"{name}()" for function in tree.find_all(exp.Func) for name in _function_names(function)}
    return named - {""}


def _function_names(function: exp.Expr) -> set[str]:
    """Returns the names in small letters that a function may have been written with."""
    if isinstance(function, exp.Anonymous):
        return {fold(function.name)}
    return {fold(name) for name in function.sql_names()} if isinstance(function, exp.Func) else set()


def _require_plain(tree: exp.Expr, private: set[str]) -> None:
    """Refuses what may show rows or exact figures of a private table without its name."""
    if tree.find(exp.Pragma) is not None:
        raise Refusal("PRAGMA may tell of private rows", accepted="a plain SELECT")
    for called in (source.this for source in tree.find_all(exp.Table, exp.Lateral)):
        if not isinstance(called, exp.Func):
            continue
        names = _function_names(called)
        shown = min(names, default="this")
        if not (names & READ_ONLY or isinstance(called, exp.GenerateSeries | exp.Unnest)):
            raise Refusal(f"the table function {shown} may read private rows", accepted=_ACCEPTED)
        given = {fold(text.name.rsplit(".", 1)[-1].strip('"')) for text in called.find_all(exp.Literal)}
        if names & OF_RELEASES and given & private:
            raise Refusal(f"{shown} reads released tables", accepted="the name of one of dp_releases()")
    for table in tree.find_all(exp.Table):
        name = fold(table.name)
        if name in ("duckdb_tables", "pg_class") or name.endswith(FILES):  # both have a table's number of rows
            raise Refusal(f"{name[:80]!r} may tell of private rows", accepted=_ACCEPTED)


def _is_of_store(table: exp.Table) -> bool:
    return STORE in (fold(table.catalog), "" if table.catalog else fold(table.db))
