"""IN (SELECT ..), EXISTS and NOT EXISTS as conditions of WHERE, read as the SEMI and ANTI JOINs that say the same.

IN is TRUE exactly for the rows that a SEMI JOIN keeps, whatever is NULL, and WHERE keeps no others. NOT IN is none of
the joins: one NULL among the values makes it TRUE for no row.
"""

from __future__ import annotations

from sqlglot import exp

from dpduck.frontend.positions import copy_position

_VALUE = "dpduck_value"
_SELECTED = {"expressions", "from_", "where"}


def as_join(condition: exp.Expr, number: int) -> exp.Join | None:
    """The join with what a condition looks into; None where it is another condition. number: its place in WHERE."""
    found = condition.unnest()
    if isinstance(found, exp.In):
        return _membership(found, f"dpduck_in_{number}")
    negated = isinstance(found, exp.Not)
    inside = found.this.unnest() if negated else found
    return _existence(inside, "ANTI" if negated else "SEMI") if isinstance(inside, exp.Exists) else None


def _membership(condition: exp.In, alias: str) -> exp.Join | None:
    """value IN (SELECT column FROM ..)"""
    query = condition.args.get("query")
    select = query.this if isinstance(query, exp.Subquery) else None
    if not isinstance(select, exp.Select) or len(select.expressions) != 1 or isinstance(condition.this, exp.Tuple):
        return None
    if select.expressions[0].find(exp.Star):
        return None
    shown = exp.TableAlias(this=exp.to_identifier(alias), columns=[exp.to_identifier(_VALUE)])
    looked_into = exp.Subquery(this=select.copy(), alias=shown)
    equal = exp.EQ(this=condition.this.copy(), expression=exp.column(_VALUE, table=alias))
    return _placed(exp.Join(this=looked_into, kind="SEMI", on=equal), condition)


def _existence(condition: exp.Exists, kind: str) -> exp.Join | None:
    """EXISTS (SELECT .. FROM table WHERE conditions)"""
    select = condition.this.unnest()
    if not isinstance(select, exp.Select) or {key for key, value in select.args.items() if value} != _SELECTED:
        return None
    if not all(isinstance(item, (exp.Literal, exp.Star, exp.Null, exp.Column)) for item in select.expressions):
        return None
    looked_into, conditions = select.args["from_"].this, select.args["where"].this
    return _placed(exp.Join(this=looked_into.copy(), kind=kind, on=conditions.copy()), condition)


def _placed(join: exp.Join, condition: exp.Expr) -> exp.Join:
    """The join where the condition was written, for refusals that point at it."""
    for node in (join, join.this, join.args["on"]):
        copy_position(condition, node)
    return join
