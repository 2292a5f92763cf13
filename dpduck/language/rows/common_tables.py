"""CTEs of WITH through which private rows may be read, each with the CTEs that are visible where it is defined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from dpduck.language.text.positions import refusal
from dpduck.values.quoting import fold


@dataclass(frozen=True)
class CommonTable:
    """CTE of a WITH."""

    query: exp.Expr
    columns: tuple[str, ...]  # the names a, b in WITH t (a, b), empty without such a list
    visible: Mapping[str, CommonTable]  # the CTEs that the query may read
    recursive: bool


CommonTables = Mapping[str, CommonTable]


def tables_of(with_: exp.Expr | None, outside: CommonTables, before: exp.Expr | None = None) -> CommonTables:
    """Returns the CTEs of a WITH and `outside`, by lower-case name. before: the CTE at which the reading stops."""
    if with_ is None:
        return outside
    visible = dict(outside)
    recursive = bool(with_.args.get("recursive"))
    for cte in with_.expressions:
        if cte is before:
            break
        if not isinstance(cte, exp.CTE) or cte.args.get("key_expressions"):
            raise refusal(cte, "this is refused in WITH", "plain CTEs that filter or project")
        visible[fold(cte.alias)] = CommonTable(cte.this, alias_columns(cte), dict(visible), recursive)
    return visible


def tables_around(select: exp.Expr) -> CommonTables:
    """Returns the CTEs of surrounding queries that DuckDB would let a SELECT read."""
    chain: list[exp.Expr] = [select]
    while chain[-1].parent is not None:
        chain.append(chain[-1].parent)
    visible: CommonTables = {}
    for depth in range(len(chain) - 1, 0, -1):
        with_ = chain[depth].args.get("with_")
        below = chain[depth - 1]
        inside = chain[depth - 2] if below is with_ and depth > 1 else None
        visible = tables_of(with_, visible, inside)
    return visible


def alias_columns(node: exp.Expr) -> tuple[str, ...]:
    """Returns the column names in AS t (a, b)."""
    alias = node.args.get("alias")
    return tuple(column.name for column in alias.args.get("columns") or ()) if isinstance(alias, exp.TableAlias) else ()
