"""The rows that a statement reads, as a frozen tree: private relations, their joins, and the conditions of a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from sqlglot import exp

from dpduck.kernel.relations import PERIOD_COLUMN, UNIT_COLUMN, Units
from dpduck.language.rows.facts import Column, Policy, PrivateTable
from dpduck.language.rows.joins import ANTI, SEMI, PublicJoin
from dpduck.language.rows.relation import PrivateRelation, comparable
from dpduck.language.rows.scope import Relation, Scope, base_column
from dpduck.language.text.names import TableName
from dpduck.language.text.positions import refusal
from dpduck.values.domain import Domain
from dpduck.values.quoting import fold

MOST_COPIES, MOST_COPIES_OF_MANY = 1000, 30
"""Rows that joins with public tables may make of one, and where rows of a unit are joined with many of its rows: with
two for a key, forty such joins made 2^40 of one person's."""

MOST_ROWS, MOST_OF_ALL = 128, 1 << 10
"""Rows for a key that one join may find of a unit, where it is by a key of neither side, and all such joins together:
what is beyond is not read. With thirty such joins two rows of one person became 2^30. A served analyst could read from
failures whether somebody's sixty visits met a condition."""

MOST_FOUND = 8 * MOST_OF_ALL
"""What such joins may find inside of each other and in all tables of a UNION ALL, times the copies of public tables."""

MOST_BRANCHES = 64
"""Tables of a UNION ALL, those inside of it included: by CTEs, each of the one before twice, they would be 2^k."""

MOST_NESTED = 10
"""Subqueries by unit inside of each other. DuckDB plans ten of them in 0.2 s, sixteen in 3.7, twenty in minutes."""

MOST_POWER = 11
"""Tables whose rows of a unit may be joined each with each, so that each join finds two at least."""


@dataclass(frozen=True)
class PrivateJoin:
    """A join of private rows with private rows of the same unit.

    kind: INNER is JOIN; LEFT, RIGHT, FULL, SEMI or ANTI before it. source: what is joined; its own filters have been
    moved, so it has none. conditions: all of ON; one of them at least proves that both sides are of one unit.
    """

    kind: str
    source: RowSource
    conditions: tuple[exp.Expr, ...]

    @property
    def private_joins(self) -> bool:
        """Tells whether what is joined has joins of private rows itself."""
        return any(isinstance(join, PrivateJoin) for join in self.source.joins)


@dataclass(frozen=True)
class RowSource:
    """Private rows with their joins, scope and conditions (resolved, not yet made safe).

    Of every row, each private relation is absent (all NULL) or belongs to the row's unit: removing a unit removes
    its rows of this source and changes no other.
    units: choices of relations to take the unit from; of a choice, the first one that is not NULL.
    branches: the tables of a UNION ALL, where `first` is one, or the rows that `first` counts for each unit.
    counted: what is counted of these rows for each unit, where they are such a branch.
    """

    first: PrivateRelation
    joins: tuple[PublicJoin | PrivateJoin, ...]
    scope: Scope
    filters: tuple[exp.Expr, ...]
    units: tuple[tuple[PrivateRelation, ...], ...]
    branches: tuple[RowSource, ...] = ()
    counted: tuple[exp.Expr, ...] = ()

    @property
    def together(self) -> list[PrivateRelation]:
        """Returns the relations whose own columns hold the unit of every row together."""
        choices = (choice[0] for choice in self.units if len(choice) == 1)
        return [one for one in choices if one.together and not one.parents]

    @property
    def table(self) -> TableName:
        """Returns the first private table, under whose name the charge is booked."""
        return self.first.table

    @property
    def policy(self) -> Policy:
        """Returns the policy of the first relation, with the narrowest limits of a price of all that are joined."""
        largest = [one for one in (relation.policy.max_epsilon for relation in self.relations) if one is not None]
        smallest = [one for one in (relation.policy.min_epsilon for relation in self.relations) if one is not None]
        return replace(
            self.first.policy, max_epsilon=min(largest, default=None), min_epsilon=max(smallest, default=None)
        )

    @property
    def relations(self) -> tuple[PrivateRelation, ...]:
        """Returns every private relation, in the order of the statement."""
        inner = (join.source.relations for join in self.joins if isinstance(join, PrivateJoin))
        return (self.first, *(relation for relations in inner for relation in relations))

    @property
    def public_joins(self) -> tuple[PublicJoin, ...]:
        """Returns every join with a public table, those of joined sources included."""
        found: list[PublicJoin] = []
        for join in self.joins:
            found += join.source.public_joins if isinstance(join, PrivateJoin) else (join,)
        return tuple(found)

    @property
    def all_branches(self) -> tuple[RowSource, ...]:
        """Returns the sources that subqueries with SQL of their own and joined relations were made of, theirs too."""
        found: list[RowSource] = []
        for branch in self.branches:
            found += (branch, *branch.all_branches)
        for join in self.joins:
            found += join.source.all_branches if isinstance(join, PrivateJoin) else ()
        return tuple(found)

    @property
    def reads(self) -> tuple[PrivateTable, ...]:
        """Returns every private table that is read, once."""
        found: dict[TableName, PrivateTable] = {}
        for read in (read for relation in self.relations for read in relation.reads):
            known = found.get(read.table)
            found[read.table] = read if known is None else known.and_also(read)
        return tuple(found.values())

    @property
    def tables(self) -> tuple[TableName, ...]:
        """Lists the private tables that are read."""
        return tuple(read.table for read in self.reads)

    @property
    def every_public_join(self) -> tuple[PublicJoin, ...]:
        """Joins with public tables, those inside branches of a UNION ALL included."""
        inside = (join for branch in self.all_branches for join in branch.public_joins)
        return (*self.public_joins, *inside)

    @property
    def every_table(self) -> tuple[TableName, ...]:
        """Returns every table that is read, private or public, once."""
        return tuple(dict.fromkeys((*self.tables, *(join.table for join in self.every_public_join))))

    @property
    def multiplicity(self) -> int:
        """Returns the most rows that the joins with public tables make of one row."""
        return prod(join.multiplicity for join in self.public_joins)

    @property
    def copies(self) -> int:
        """Returns the most rows that joins with public tables make of one row, those inside of branches included."""
        inside = sum(branch.copies for branch in self.branches) or 1
        joined = (join.multiplicity if isinstance(join, PublicJoin) else join.source.copies for join in self.joins)
        return inside * prod(joined)

    @property
    def repeated(self) -> tuple[int, frozenset[str]]:
        """Tells how the number of a unit's rows grows with that of its tables, as a power; relations each row of which
        is there once at most. A join by a key of one side repeats no row of the other side.
        """
        inside = [branch.repeated[0] for branch in self.branches]
        power, once = max([1, *inside]), frozenset([self.first.alias])
        for join in self.joins:
            if isinstance(join, PublicJoin):
                once = once if join.kind in (SEMI, ANTI) or join.multiplicity == 1 else frozenset()
                continue
            other, others = join.source.repeated
            if join.kind in (SEMI, ANTI):
                power = max(power, other)
                continue
            keys = {alias for condition in join.conditions for alias in _keyed(condition, self, join.source)}
            ours, theirs = bool(keys & once), bool(keys & others)
            power = max(power, other) if ours or theirs else power + other
            once = (once if theirs else frozenset()) | (others if ours else frozenset())
        return power, once

    @property
    def leaves(self) -> int:
        """Returns tables that are read, of UNION ALL each as often as it is there."""
        joined = (join.source.leaves for join in self.joins if isinstance(join, PrivateJoin))
        return (sum(branch.leaves for branch in self.branches) or 1) + sum(joined)

    @property
    def nested(self) -> int:
        """Returns how many subqueries by unit are inside of each other at most."""
        own = max((branch.nested for branch in self.branches), default=0) + isinstance(self.first.nested, Units)
        return max(own, *(join.source.nested for join in self.joins if isinstance(join, PrivateJoin)), 0)

    def multiplies(self, number: int) -> bool:
        """Tells whether that join of private rows is by a key of neither side, so that each row is joined with many."""
        join = self.joins[number]
        if not isinstance(join, PrivateJoin) or join.kind in (SEMI, ANTI):
            return False
        once = replace(self, joins=self.joins[:number]).repeated[1] | join.source.repeated[1]
        return not any(alias in once for one in join.conditions for alias in _keyed(one, self, join.source))

    @property
    def rows_for_a_key(self) -> int:
        """Returns the most rows that such a join finds: all of them together, those inside included, MOST_OF_ALL."""
        return self._found[0]

    @property
    def found(self) -> int:
        """Returns the most rows that joins by a key of neither side make of one, those inside included."""
        return self._found[1]

    @cached_property
    def _found(self) -> tuple[int, int]:
        inner = (join.source.found for join in self.joins if isinstance(join, PrivateJoin))
        inside = (sum(branch.found for branch in self.branches) or 1) * prod(inner)
        joins = sum(map(self.multiplies, range(len(self.joins))))
        most = next(most for most in range(MOST_ROWS, 0, -1) if inside * most**joins <= MOST_OF_ALL or most == 1)
        return most, inside * most**joins

    @property
    def usual_rows(self) -> int:
        """m where the statement does not say: the largest MAX ROWS of the relations."""
        return max(self._row_bounds())

    @property
    def most_rows(self) -> int:
        """Returns the largest m that may be asked for: a unit's rows within MAX ROWS, each joined with each."""
        return prod(self._row_bounds())

    def _row_bounds(self) -> list[int]:
        """MAX ROWS of the relations whose rows are kept: those that SEMI and ANTI JOIN look at add none."""
        found = [self.first.policy.unit.max_rows]
        for join in self.joins:
            if isinstance(join, PrivateJoin) and join.kind not in (SEMI, ANTI):
                found += join.source._row_bounds()
        return found

    def relation(self, alias: str) -> PrivateRelation | None:
        """Returns the private relation of an alias."""
        return next((relation for relation in self.relations if relation.alias == alias), None)

    def public_join(self, alias: str) -> PublicJoin:
        """Returns the public join of an alias."""
        return next(join for join in self.public_joins if join.alias == alias)

    def domain(self, column: exp.Column) -> Domain | None:
        """Returns the public domain that a policy gives to a column of a private relation."""
        relation = self.relation(column.table)
        return None if relation is None else relation.domain(column.name)

    def columns(self) -> Iterator[tuple[str, Column]]:
        """Yields aliases and columns of every relation, public ones included."""
        for relation in self.relations:
            yield from ((relation.alias, column) for column in relation.columns)
        for join in self.public_joins:
            yield from ((join.alias, column) for column in join.columns)


def _keyed(condition: exp.Expr, source: RowSource, right: RowSource) -> Iterator[str]:
    """Yields aliases of the relations whose key stands in a plain equality with a stored column of the join's other
    side.
    """
    yield from (one.alias for one, name in equal_columns(condition, source, right) if one.is_key(name))


def equal_columns(condition: exp.Expr, source: RowSource, right: RowSource) -> list[tuple[PrivateRelation, str]]:
    """Returns both sides of a plain equality of stored columns, one of them of the right source; else none."""
    node = condition.unnest()
    sides = [node.left.unnest(), node.right.unnest()] if isinstance(node, exp.EQ) else []
    columns = [side for side in sides if isinstance(side, exp.Column)]
    pair = [(found, one.name) for one in columns if (found := source.relation(one.table)) is not None]
    across = len(pair) == 2 and len([one for one, _ in pair if right.relation(one.alias) is not None]) == 1
    return pair if across and comparable(*(one.type_of(name) for one, name in pair)) else []


def require_few_copies(source: RowSource, place: exp.Expr) -> None:
    """Refuses joins that could make so many rows of one unit's few, or of one row, that it decides what fails."""
    *before, last = source.joins
    joined = (
        isinstance(last, PrivateJoin) and last.private_joins and any(isinstance(one, PrivateJoin) for one in before)
    )
    if joined and source.multiplies(len(before)):
        raise refusal(
            place,
            "rows of a unit would be joined each with each row of a join",
            "its tables one after the other, JOIN a ON .. JOIN b ON ..; or a join by a PRIMARY KEY or UNIQUE column",
        )
    power, _ = source.repeated
    if power > MOST_POWER:
        raise refusal(
            place,
            f"each row of a unit would be joined with each, {power} tables at a time",
            f"at most {MOST_POWER} such tables; joins by a PRIMARY KEY or UNIQUE column of one side, SEMI JOIN",
        )
    if source.found > MOST_FOUND:
        raise refusal(
            place,
            "rows of a unit would be joined each with each, in joins inside of joins",
            "fewer such joins; joins by a PRIMARY KEY or UNIQUE column of one side",
        )
    most = MOST_COPIES if power == 1 else min(MOST_COPIES_OF_MANY, MOST_FOUND // source.found)
    if source.copies > most:
        raise refusal(
            place,
            f"one row may be multiplied {source.copies} times by the joins",
            f"joins on keys that repeat less, {most} times in all",
        )


def require_free_names(names: Iterable[str], place: exp.Expr) -> None:
    """Refuses names of columns that dpduck adds beside those of a statement."""
    taken = next((name for name in names if is_reserved(name)), None)
    if taken is not None:
        raise refusal(place, f"{taken!r} is a name of dpduck's own", "another name for the column")


def is_reserved(name: str) -> bool:
    """Tells whether a name is dpduck's own. What a subquery makes of units is called dpduck_0, and so on."""
    rest = fold(name).removeprefix("dpduck_")
    made = rest.isdigit() or fold(name) in (UNIT_COLUMN, PERIOD_COLUMN)
    return rest != fold(name) and not made


def of_relation(relation: PrivateRelation) -> RowSource:
    """Returns a relation alone."""
    columns = tuple((column.name, base_column(relation.alias, column.name)) for column in relation.columns)
    return RowSource(relation, (), Scope((Relation("", columns),)), (), ((relation,),))
