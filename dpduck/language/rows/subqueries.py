"""Conditions IN (SELECT ..), EXISTS and NOT EXISTS of WHERE, read as the SEMI and ANTI JOINs that say the same.

IN is TRUE exactly for the rows that a SEMI JOIN keeps, also with NULLs, and WHERE keeps no other rows. NOT IN is
neither join: one NULL among the values makes it TRUE for no row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from dpduck.kernel.relations import LOOKED_UP
from dpduck.language.rows.facts import CatalogColumn, PublicFacts
from dpduck.language.rows.scope import Relation, Scope, base_column, resolve
from dpduck.language.text.names import TableName
from dpduck.language.text.positions import copy_position, position_of, refusal
from dpduck.values.errors import Refusal
from dpduck.values.quoting import fold

_SELECTED = {"expressions", "from_", "where"}


def as_join(condition: exp.Expr, number: int) -> exp.Join | None:
    """Rewrites a condition as a join with the table inside it. Returns None for others. number: its place in WHERE."""
    node = condition.unnest()
    if isinstance(node, exp.In):
        return _membership(node, f"dpduck_in_{number}")
    negated = isinstance(node, exp.Not)
    inside = node.this.unnest() if negated else node
    return _existence(inside, "ANTI" if negated else "SEMI") if isinstance(inside, exp.Exists) else None


def _membership(condition: exp.In, alias: str) -> exp.Join | None:
    """Rewrites value IN (SELECT column FROM ..) as a SEMI JOIN."""
    query = condition.args.get("query")
    select = query.this if isinstance(query, exp.Subquery) else None
    if not isinstance(select, exp.Select) or len(select.expressions) != 1 or isinstance(condition.this, exp.Tuple):
        return None
    if select.expressions[0].find(exp.Star):
        return None
    shown = exp.TableAlias(this=exp.to_identifier(alias), columns=[exp.to_identifier(LOOKED_UP)])
    looked_into = exp.Subquery(this=select.copy(), alias=shown)
    equal = exp.EQ(this=condition.this.copy(), expression=exp.column(LOOKED_UP, table=alias))
    return _position_join(exp.Join(this=looked_into, kind="SEMI", on=equal), condition)


def _existence(condition: exp.Exists, kind: str) -> exp.Join | None:
    """Rewrites EXISTS (SELECT .. FROM table WHERE conditions) as a join of this kind."""
    select = condition.this.unnest()
    if not isinstance(select, exp.Select) or {key for key, value in select.args.items() if value} != _SELECTED:
        return None
    if not all(isinstance(item, (exp.Literal, exp.Star, exp.Null, exp.Column)) for item in select.expressions):
        return None
    looked_into, conditions = select.args["from_"].this, select.args["where"].this
    return _position_join(exp.Join(this=looked_into.copy(), kind=kind, on=conditions.copy()), condition)


def _position_join(join: exp.Join, condition: exp.Expr) -> exp.Join:
    """Gives a join the position of its condition, for refusals that point at it."""
    for node in (join, join.this, join.args["on"]):
        copy_position(condition, node)
    return join


# CTEs that private rows may be read through, each with the CTEs that are visible where it is defined.


@dataclass(frozen=True)
class CommonTable:
    """A CTE. query: its query. columns: names that replace its own. visible: the CTEs that it may read itself."""

    query: exp.Expr
    columns: tuple[str, ...]
    visible: Mapping[str, CommonTable]
    recursive: bool


CommonTables = Mapping[str, CommonTable]


def tables_of(with_: exp.Expr | None, outside: CommonTables, before: exp.Expr | None = None) -> CommonTables:
    """Returns the CTEs of a WITH, and those outside, by folded name. before: the CTE to stop at, None for no stop."""
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


# A declared public table in FROM, by its name or through SELECT [DISTINCT] of its columns.


@dataclass(frozen=True)
class PublicTable:
    """A declared public table in FROM, or a subquery that lists columns of one."""

    table: TableName
    shown: str
    columns: tuple[CatalogColumn, ...]
    names: tuple[tuple[str, str], ...] = ()
    distinct: bool = False


def read_public_table(node: exp.Expr, common: CommonTables, facts: PublicFacts) -> PublicTable:
    """Reads a public table by its name, or by SELECT [DISTINCT] of columns FROM one in a subquery or a CTE."""
    if not isinstance(node, exp.Table):
        return _read_selection(node.this, node.alias, alias_columns(node), common, facts)
    if {key for key, value in node.args.items() if value} - {"this", "db", "catalog", "alias"} or alias_columns(node):
        raise Refusal("this cannot follow a public table", accepted="an alias", position=position_of(node))
    cte = common.get(fold(node.name)) if len(node.parts) == 1 else None
    if cte is not None:
        return _read_selection(cte.query, node.alias or node.name, cte.columns, cte.visible, facts)
    name = TableName(tuple(part.name for part in node.parts))
    resolved = facts.resolve(name)
    if resolved is None or not facts.is_public(resolved):
        raise Refusal(
            f"{str(name)!r} is not declared public",
            accepted="a table after DECLARE PUBLIC TABLE",
            position=position_of(node),
        )
    return PublicTable(resolved, node.alias or name.table, facts.columns(resolved))


def _read_selection(
    query: exp.Expr, shown: str, names: tuple[str, ...], common: CommonTables, facts: PublicFacts
) -> PublicTable:
    """Reads SELECT [DISTINCT] of plain columns FROM one public table."""
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
