"""Joins of private rows with a public table ON equal keys. Public facts bound the copies that they make of a row."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from dpduck.kernel.relations import Stored
from dpduck.language.rows.facts import CatalogColumn, PublicFacts
from dpduck.language.rows.functions import check_row_local
from dpduck.language.rows.public_tables import PublicTable
from dpduck.language.rows.relation import numbers_rows
from dpduck.language.rows.scope import Relation, Scope, base_column, resolve
from dpduck.language.text.names import TableName
from dpduck.language.text.positions import copy_position, refusal
from dpduck.values.quoting import fold

INNER, LEFT, SEMI, ANTI = "JOIN", "LEFT JOIN", "SEMI JOIN", "ANTI JOIN"


@dataclass(frozen=True)
class PublicJoin:
    """Join of private rows, on the left, with a public table. A public row without a private row is left out."""

    table: TableName
    stored: Stored  # the table as a kernel node, with the alias p1, p2, ..
    columns: tuple[CatalogColumn, ...]  # the visible columns
    kind: str  # JOIN, LEFT JOIN, SEMI JOIN or ANTI JOIN
    pairs: tuple[tuple[exp.Expr, str], ...]  # each private expression, and the public column that it must equal
    multiplicity: int  # the most rows of the public table for one key, at least 1

    @property
    def alias(self) -> str:
        return self.stored.alias

    @property
    def outer(self) -> bool:
        """Tells whether the join keeps private rows without a public row."""
        return self.kind == LEFT

    def own_name(self, column: str) -> str:
        """Returns the public table's own name of a visible column, which a subquery may have renamed."""
        return next((own for shown, own in self.stored.selected if fold(shown) == fold(column)), column)


def read_join(
    join: exp.Join, public: PublicTable, scope: Scope, number: int, private_on_right: bool, facts: PublicFacts
) -> tuple[Scope, PublicJoin]:
    """Reads a join with a public table. Returns the scope after the join, and the join. number: n in the alias pn."""
    kind = _kind(join, private_on_right)
    alias, columns = f"p{number}", public.columns
    relation = Relation(public.shown, tuple((column.name, base_column(alias, column.name)) for column in columns))
    pairs = _pairs(join, scope, relation, alias)
    numbered = not public.names and numbers_rows(public.table, columns, facts)
    stored = Stored(public.table.sql, alias, numbered, public.names, public.distinct)
    public_join = PublicJoin(public.table, stored, columns, kind, pairs, 1)
    if kind in (INNER, LEFT):
        keys = [public_join.own_name(column) for _, column in pairs]
        distinct = [own for _, own in public.names] if public.distinct else []
        public_join = replace(public_join, multiplicity=max(1, facts.multiplicity(public.table, keys, distinct)))
    merged = frozenset(fold(column.name) for column in using_columns(join))
    keeps_public = join.side.upper() == ("LEFT" if private_on_right else "RIGHT")
    return _scope_after(scope, relation, kind, merged, keeps_public), public_join


def _scope_after(scope: Scope, relation: Relation, kind: str, merged: frozenset[str], keeps_public: bool) -> Scope:
    """Builds the scope after a join. A USING column is the private one, or the public one if `keeps_public` is true."""
    if kind in (SEMI, ANTI):
        return scope
    if keeps_public:
        hidden = tuple(replace(other, merged=other.merged | merged) for other in scope.relations)
        return Scope((*hidden, relation))
    return Scope((*scope.relations, replace(relation, merged=merged)))


def _kind(join: exp.Join, private_on_right: bool) -> str:
    """Returns the kind of join, with private rows on the left. Public rows without a private row are left out."""
    side, kind, method = join.side.upper(), join.kind.upper(), str(join.args.get("method") or "").upper()
    accepted = "INNER, LEFT, RIGHT, FULL, SEMI or ANTI JOIN of a private table with a public table ON equal keys"
    if kind == "CROSS" or not (method or side or kind or join.args.get("on") or join.args.get("using")):
        raise refusal(join, "a cross join is refused", accepted)
    if method or kind not in ("", "INNER", "OUTER", "SEMI", "ANTI") or side not in ("", "LEFT", "RIGHT", "FULL"):
        raise refusal(join, f"{' '.join(filter(None, (method, side, kind)))} JOIN is refused", accepted)
    if kind in ("SEMI", "ANTI"):
        if private_on_right or side:
            raise refusal(join, f"{kind} JOIN keeps rows of the public table", accepted)
        return f"{kind} JOIN"
    if side in ("FULL", "RIGHT" if private_on_right else "LEFT"):
        return LEFT
    return INNER


def using_columns(join: exp.Join) -> list[exp.Column]:
    """Lists the columns of USING, each with its position. The list is empty without USING."""
    columns = []
    for item in join.args.get("using") or ():
        columns.append(exp.column(exp.to_identifier(item.name)))
        copy_position(item, columns[-1])
    return columns


def _pairs(join: exp.Join, scope: Scope, relation: Relation, alias: str) -> tuple[tuple[exp.Expr, str], ...]:
    columns = using_columns(join)
    if columns:
        both = [(resolve(column, scope), resolve(column, Scope((relation,)))) for column in columns]
    else:
        condition = join.args.get("on")
        if condition is None:
            raise refusal(join, "a join without ON is refused", "ON private.key = public.key")
        resolved = resolve(condition, Scope((*scope.relations, relation)))
        conjuncts = list(resolved.flatten()) if isinstance(resolved, exp.And) else [resolved]
        both = [_equal_sides(conjunct, alias) for conjunct in conjuncts]
    for private, _ in both:
        check_row_local(private)
    return tuple((private, public.name) for private, public in both)


def _equal_sides(condition: exp.Expr, alias: str) -> tuple[exp.Expr, exp.Expr]:
    node = condition.unnest()
    if isinstance(node, exp.EQ):
        for public, private in ((node.left, node.right), (node.right, node.left)):
            inside = {column.table for column in private.find_all(exp.Column)}
            if isinstance(public, exp.Column) and public.table == alias and inside and alias not in inside:
                return private, public
    raise refusal(
        node,
        "this condition of a join or of EXISTS is refused",
        "private.key = public.key, joined by AND; other conditions: FROM private JOIN public ON .. = .. WHERE ..",
    )
