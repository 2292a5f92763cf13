"""Recognition of texts that only read: a SELECT over one dp function, or over private views."""

from __future__ import annotations

from sqlglot import exp, parse, parse_one
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import traverse_scope

from dpduck.commands.answering import ANSWER, FunctionReading
from dpduck.database.macros import MACROS
from dpduck.server.bare_statements import read_bare
from dpduck.server.syntax import in_selects


def reading(text: str) -> FunctionReading | None:
    """Parses a SELECT over one dp function. Returns None for any other text, also for one in dpduck's own language.

    >>> reading("SELECT domain FROM dp_columns('visits') WHERE column_name = 'sex'").call
    "dp_columns('visits')"
    >>> reading("SELECT * FROM visits")
    """
    if read_bare(text) is not None:
        return None
    try:
        tree = parse_one(in_selects(text).strip().rstrip(";"), read="duckdb")
    except (SqlglotError, RecursionError):
        return None
    tables = list(tree.find_all(exp.Table))
    called = tables[0].this if len(tables) == 1 and isinstance(tree, exp.Select) else None
    if not isinstance(called, exp.Anonymous) or called.name.lower() not in MACROS:
        return None
    arguments = ", ".join(argument.sql("duckdb") for argument in called.expressions)
    function = called.name.lower()
    tables[0].set("this", exp.to_identifier(ANSWER))
    return FunctionReading(function, f"{function}({arguments})", arguments, tree.sql("duckdb"))


def is_of_views(text: str) -> bool:
    """Tells whether a text is a SELECT or a PIVOT over private views and over nothing else.

    >>> is_of_views("WITH w AS (FROM private.by_ward) FROM w WHERE n > 9"), is_of_views("SELECT ward FROM visits")
    (True, False)
    """
    try:
        trees = [] if read_bare(text) is not None else parse(text.strip().rstrip(";"), read="duckdb")
        if len(trees) == 1 and isinstance(trees[0], exp.Pivot):
            trees = parse(f"FROM ({text.strip().rstrip(';')})", read="duckdb")
        scopes = traverse_scope(trees[0]) if len(trees) == 1 and isinstance(trees[0], exp.Query) else []
    except (SqlglotError, RecursionError):
        return False
    tree = trees[0] if scopes else None
    if tree is None or any(node.recursive for node in tree.find_all(exp.With)):
        return False  # in WITH RECURSIVE v, v may be a table's name, too
    ctes = {id(node) for scope in scopes for node in scope.tables if not node.db and node.name in scope.cte_sources}
    all_tables = tree.find_all(exp.Table)  # some are in no scope, such as t in SUMMARIZE t
    tables = [node for node in all_tables if id(node) not in ctes]
    views = {isinstance(node.this, exp.Identifier) and (node.catalog, node.db) for node in tables}
    return bool(views) and views <= {("", "private"), ("private", "main")}
