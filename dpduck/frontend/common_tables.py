"""CTEs that private rows may be read through, each with the CTEs that are visible where it is defined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from dpduck.frontend.names import fold
from dpduck.frontend.positions import refusal


@dataclass(frozen=True)
class CommonTable:
    """query: what the CTE selects. columns: names that replace its own. visible: CTEs that it may read itself."""

    query: exp.Expr
    columns: tuple[str, ...]
    visible: Mapping[str, CommonTable]
    recursive: bool


CommonTables = Mapping[str, CommonTable]


def tables_of(with_: exp.Expr | None, outside: CommonTables, before: exp.Expr | None = None) -> CommonTables:
    """CTEs by folded name, added to those outside; only those before a CTE of the same WITH where it is given."""
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
    """The CTEs of the queries around a SELECT that DuckDB would let it read."""
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
    """The names in AS t (a, b)."""
    alias = node.args.get("alias")
    return tuple(column.name for column in alias.args.get("columns") or ()) if isinstance(alias, exp.TableAlias) else ()
