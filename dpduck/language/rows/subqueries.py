"""Conditions IN (SELECT ..), EXISTS and NOT EXISTS of WHERE, read as the SEMI and ANTI JOINs that say the same.

A row meets IN exactly if a SEMI JOIN keeps it, also with NULLs. NOT IN is no ANTI JOIN: one NULL among the values
makes it TRUE for no row.
"""

from __future__ import annotations

from sqlglot import exp

from dpduck.kernel.relations import LOOKED_UP
from dpduck.language.text.positions import copy_position

_SELECTED = {"expressions", "from_", "where"}


def as_join(condition: exp.Expr, number: int) -> exp.Join | None:
    """Rewrites IN (SELECT ..) or [NOT] EXISTS as a join, else returns None. number: the condition's place in WHERE."""
    node = condition.unnest()
    if isinstance(node, exp.In):
        return _membership(node, f"dpduck_in_{number}")
    negated = isinstance(node, exp.Not)
    inside = node.this.unnest() if negated else node
    return _existence(inside, "ANTI" if negated else "SEMI") if isinstance(inside, exp.Exists) else None


def _membership(condition: exp.In, alias: str) -> exp.Join | None:
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
