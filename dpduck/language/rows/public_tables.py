"""Reader of a declared public table in FROM, by its name or through SELECT [DISTINCT] of its columns."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from dpduck.language.rows.common_tables import CommonTables, alias_columns
from dpduck.language.rows.facts import CatalogColumn, PublicFacts
from dpduck.language.rows.scope import Relation, Scope, base_column, resolve
from dpduck.language.text.names import TableName
from dpduck.language.text.positions import refusal
from dpduck.values.errors import Refusal
from dpduck.values.quoting import fold


@dataclass(frozen=True)
class PublicTable:
    """Declared public table in FROM."""

    table: TableName
    shown: str
    columns: tuple[CatalogColumn, ...]
    names: tuple[tuple[str, str], ...] = ()  # for a subquery, the shown name and the table's own name of each column
    distinct: bool = False


def read_public_table(node: exp.Expr, common: CommonTables, facts: PublicFacts) -> PublicTable:
    """Reads a public table by its name, or by SELECT [DISTINCT] of columns in a subquery or a CTE."""
    if not isinstance(node, exp.Table):
        return _read_selection(node.this, node.alias, alias_columns(node), common, facts)
    if {key for key, value in node.args.items() if value} - {"this", "db", "catalog", "alias"} or alias_columns(node):
        raise refusal(node, "this cannot follow a public table", "an alias")
    cte = common.get(fold(node.name)) if len(node.parts) == 1 else None
    if cte is not None:
        return _read_selection(cte.query, node.alias or node.name, cte.columns, cte.visible, facts)
    name = TableName(tuple(part.name for part in node.parts))
    resolved = facts.resolve(name)
    if resolved is None or not facts.is_public(resolved):
        raise refusal(node, f"{str(name)!r} is not declared public", "a table after DECLARE PUBLIC TABLE")
    return PublicTable(resolved, node.alias or name.table, facts.columns(resolved))


def _read_selection(
    query: exp.Expr, shown: str, names: tuple[str, ...], common: CommonTables, facts: PublicFacts
) -> PublicTable:
    given = {key for key, value in query.args.items() if value}
    distinct = query.args.get("distinct")
    from_ = query.args.get("from_")
    plain = isinstance(query, exp.Select) and given <= {"expressions", "from_", "distinct", "kind"}
    if not plain or from_ is None or (distinct is not None and distinct.args.get("on")) or query.args.get("kind"):
        raise _selection_refusal(query)
    if not isinstance(from_.this, exp.Table):
        raise _selection_refusal(from_.this)
    inner = read_public_table(from_.this, common, facts)
    if inner.distinct:
        raise _selection_refusal(from_.this)
    chosen = _read_columns(query, inner)
    if len(names) > len(chosen):
        raise _selection_refusal(query)
    listed = [
        (name, own) for name, (_, own) in zip((*names, *(n for n, _ in chosen[len(names) :])), chosen, strict=True)
    ]
    if len({fold(name) for name, _ in listed}) < len(listed):
        raise _selection_refusal(query)
    types = {fold(column.name): column.type_name for column in inner.columns}
    columns = tuple(CatalogColumn(name, types[fold(own)]) for name, own in listed)
    before = dict(inner.names)
    own_names = tuple((name, before.get(own, own)) for name, own in listed)
    return PublicTable(inner.table, shown, columns, own_names, distinct is not None)


def _read_columns(query: exp.Expr, inner: PublicTable) -> list[tuple[str, str]]:
    """Returns the shown name and the own name of each column in a select list of plain columns."""
    chosen: list[tuple[str, str]] = []
    for item in query.expressions:
        column = item.unalias()
        if isinstance(column, exp.Star) and not any(column.args.values()):
            chosen += [(own.name, own.name) for own in inner.columns]
            continue
        column = column.unnest()
        if not isinstance(column, exp.Column) or isinstance(column.this, exp.Star):
            raise _selection_refusal(item)
        relation = Relation(inner.shown, tuple((c.name, base_column("p", c.name)) for c in inner.columns))
        base = resolve(column, Scope((relation,)))
        chosen.append((item.alias_or_name or column.name, base.name))
    return chosen


def _selection_refusal(node: exp.Expr) -> Refusal:
    return refusal(
        node,
        "this subquery in IN or on the public side of a join is refused",
        "SELECT [DISTINCT] columns FROM a public table; with conditions: FROM private JOIN public ON .. = .. WHERE ..",
    )
