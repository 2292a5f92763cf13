"""Names of private tables in SQL, for tools that would show an owner's rows without being asked to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlglot import exp, parse
from sqlglot.errors import SqlglotError

from dpduck.values.errors import Refusal
from dpduck.values.quoting import fold

STORE = "private"


def private_names(sql: str, policies: Iterable[str], views: Mapping[str, str]) -> list[str]:
    """Lists the tables with a policy that a query names, and the views over such tables.

    policies: names of tables with a policy. views: definitions of the views of the database, by name. Only the last
    part of each name counts. A query that cannot be parsed is refused. This warns an owner, who could also read rows
    elsewhere: it is no gate.

    >>> private_names("SELECT * FROM old", ["db.main.visits"], {"old": "CREATE VIEW old AS FROM main.visits"})
    ['old']
    """
    private = {fold(name.rsplit(".", 1)[-1].strip('"')) for name in policies}
    read = {fold(name): _tables(definition) for name, definition in views.items()}
    while more := {name for name, tables in read.items() if name not in private and private & tables}:
        private |= more
    return sorted(private & _tables(sql))


def _tables(sql: str) -> set[str]:
    """Returns the last parts of the names of tables in SQL, in small letters, without those of the store."""
    try:
        trees = [tree for tree in parse(sql, dialect="duckdb") if tree is not None]
    except (SqlglotError, RecursionError):
        trees = [exp.Command()]
    if any(isinstance(tree, exp.Command) for tree in trees):
        raise Refusal("this SQL cannot be parsed, so it may read private rows", accepted="a plain SELECT")
    named = [table for tree in trees for table in tree.find_all(exp.Table)]
    return {fold(table.name) for table in named if not _is_of_store(table)}


def _is_of_store(table: exp.Table) -> bool:
    return STORE in (fold(table.catalog), "" if table.catalog else fold(table.db))
