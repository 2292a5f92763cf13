"""The rows that a statement reads, as a frozen tree: private relations, their joins, and the conditions of a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from sqlglot import exp

from dpduck.kernel.columns.expressions import Column, Expression
from dpduck.kernel.relations import LOOKED_UP, PERIOD_COLUMN, UNIT_COLUMN, Units
from dpduck.kernel.units import Referenced, SamePeriod, Together, first_of, person_of
from dpduck.language.rows.facts import Clamp, Policy, PrivateTable
from dpduck.language.rows.joins import ANTI, SEMI, PublicJoin
from dpduck.language.rows.relation import PrivateRelation
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


Pair = tuple[tuple[PrivateRelation, str], tuple[PrivateRelation, str]]
"""A column of each side of a join, with the relation that it is of: the left one first."""


@dataclass(frozen=True)
class PrivateJoin:
    """A join of private rows with private rows of the same unit.

    kind: INNER is JOIN; LEFT, RIGHT, FULL, SEMI or ANTI before it. source: what is joined; its own filters have been
    moved, so it has none. conditions: all of ON; one of them at least proves that both sides are of one unit.
    equal: stored columns that are compared as keys. period: where units are by periods, that both rows are of one.
    within: conditions that say no more than that.
    """

    kind: str
    source: RowSource
    conditions: tuple[exp.Expr, ...]
    equal: tuple[Pair, ...]
    period: SamePeriod | None = None
    within: tuple[exp.Expr, ...] = ()

    @property
    def keyed(self) -> frozenset[str]:
        """Returns the relations of which a key is compared with a column of the other side."""
        return frozenset(one.alias for pair in self.equal for one, name in pair if one.is_key(name))


@dataclass(frozen=True)
class RowSource:
    """Private rows with their joins, scope and conditions (resolved, not yet made safe).

    Of every row, each private relation is absent (all NULL) or belongs to the row's unit: removing a unit removes
    its rows of this source and changes no other.
    units: choices of the unit of a row. The unit is the first column of a choice that is not NULL.
    Rows that are units have no choices: None.
    branches: the tables of a UNION ALL, where `first` is one, or the rows that `first` counts for each unit.
    counted: what is counted of these rows for each unit, where they are such a branch.
    """

    first: PrivateRelation
    joins: tuple[PublicJoin | PrivateJoin, ...]
    scope: Scope
    filters: tuple[exp.Expr, ...]
    units: tuple[tuple[Expression, ...], ...]
    branches: tuple[RowSource, ...] = ()
    counted: tuple[exp.Expr, ...] = ()

    @property
    def unit(self) -> Expression | None:
        """Returns the privacy unit of a row, by columns that hold it if there are any. Rows that are units give None.

        By periods it has the period of the row.
        """
        direct = (one for one in self.units if not any(isinstance(person_of(unit), Referenced) for unit in one))
        choice = next(direct, next(iter(self.units), ()))
        return first_of(choice) if choice else None

    @property
    def persons(self) -> list[Expression]:
        """Lists what tells the unit of every row by itself, without its period."""
        found = (person_of(choice[0]) for choice in self.units if len(choice) == 1)
        return [one for one in found if one is not None]

    @property
    def together(self) -> list[Together]:
        """Lists the columns that hold the unit of every row together."""
        return [one for one in self.persons if isinstance(one, Together)]

    @property
    def unit_columns(self) -> list[str]:
        """Lists columns that a statement may name as its privacy_unit_column: those of the policies."""
        unit = self.first.policy.unit
        own = unit.column if unit.reference is None else unit.reference.column
        found = [name for branch in self.branches for name in branch.unit_columns] or ([own] if own else [])
        return [*found, *(name for join in self.joined for name in join.source.unit_columns)]

    @property
    def joined(self) -> list[PrivateJoin]:
        """Lists the joins with private rows."""
        return [join for join in self.joins if isinstance(join, PrivateJoin)]

    @property
    def always_there(self) -> list[PrivateRelation]:
        """Lists relations that have a row in each row: those that no outer join makes NULL."""
        found = [self.first]
        for join in self.joined:
            if join.kind not in ("LEFT JOIN", SEMI, ANTI):
                theirs = join.source.always_there
                found = {"JOIN": [*found, *theirs], "RIGHT JOIN": theirs}.get(join.kind, [])
        return found

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
        return (self.first, *(relation for join in self.joined for relation in join.source.relations))

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
        for join in self.joined:
            found += join.source.all_branches
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
            ours, theirs = bool(join.keyed & once), bool(join.keyed & others)
            power = max(power, other) if ours or theirs else power + other
            once = (once if theirs else frozenset()) | (others if ours else frozenset())
        return power, once

    @property
    def leaves(self) -> int:
        """Returns tables that are read, of UNION ALL each as often as it is there."""
        return (sum(branch.leaves for branch in self.branches) or 1) + sum(join.source.leaves for join in self.joined)

    @property
    def nested(self) -> int:
        """Returns how many subqueries by unit are inside of each other at most."""
        own = max((branch.nested for branch in self.branches), default=0) + isinstance(self.first.nested, Units)
        return max(own, *(join.source.nested for join in self.joined), 0)

    def multiplies(self, number: int) -> bool:
        """Tells whether that join of private rows is by a key of neither side, so that each row is joined with many."""
        join = self.joins[number]
        if not isinstance(join, PrivateJoin) or join.kind in (SEMI, ANTI):
            return False
        once = replace(self, joins=self.joins[:number]).repeated[1] | join.source.repeated[1]
        return not join.keyed & once

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
        inside = (sum(branch.found for branch in self.branches) or 1) * prod(join.source.found for join in self.joined)
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
        for join in self.joined:
            found += () if join.kind in (SEMI, ANTI) else join.source._row_bounds()
        return found

    def relation(self, alias: str) -> PrivateRelation | None:
        """Returns the private relation of an alias."""
        return next((relation for relation in self.relations if relation.alias == alias), None)

    def public_join(self, alias: str) -> PublicJoin:
        """Returns the public join of an alias."""
        return next(join for join in self.public_joins if join.alias == alias)

    def owner(self, node: exp.Expr) -> PrivateRelation | None:
        """Returns the private relation of a column. A public column gives None, and so does anything else."""
        return self.relation(node.table) if isinstance(node, exp.Column) else None

    def domain(self, node: exp.Expr) -> Domain | None:
        """Returns the public domain that a policy gives to a column of a private relation."""
        relation = self.owner(node)
        return None if relation is None else relation.domain(node.name)

    def clamp(self, node: exp.Expr) -> Clamp | None:
        """Returns the clamp that a policy gives to a column of a private relation, under the column's own name."""
        relation = self.owner(node)
        return None if relation is None else relation.policy.clamp(node.name)

    def link(self, node: exp.Expr) -> str | None:
        """Returns the name under which equal values of a column tell one unit, or None where they do not."""
        relation = self.owner(node)
        return None if relation is None else relation.link(node.name)

    @cached_property
    def columns(self) -> Mapping[str, Column]:
        """Returns the columns of every relation, public ones included, by their SQL."""
        named = [(relation.alias, relation.columns) for relation in self.relations]
        named += [(join.alias, join.columns) for join in self.public_joins]
        found = (Column(alias, column.name, column.type_name) for alias, columns in named for column in columns)
        return {column.quoted: column for column in found}

    @cached_property
    def types(self) -> Mapping[str, str]:
        """Returns DuckDB's type of each column, by its SQL."""
        return {sql: column.type_name for sql, column in self.columns.items()}


def equal_columns(condition: exp.Expr, left: RowSource, right: RowSource) -> Pair | None:
    """Returns the columns of two sides that a condition says are equal. Another condition gives None."""
    node = condition.unnest()
    if not isinstance(node, exp.EQ):
        return None
    sides = (node.left.unnest(), node.right.unnest())
    for one, other in (sides, sides[::-1]):
        ours, theirs = left.owner(one), right.owner(other)
        if ours is not None and theirs is not None:
            return (ours, one.name), (theirs, other.name)
    return None


def require_one_unit(sources: Sequence[RowSource], places: Sequence[exp.Expr], what: str, accepted: str) -> None:
    """Refuses rows of two kinds of units. what, accepted: words for rows that are units, which have no other rows."""
    first = sources[0]
    for source, place in zip(sources, places, strict=True):
        if source.first.policy.unit.column is None:
            raise refusal(place, f"{source.table.table} protects single rows: {what} is refused", accepted)
        if source.first.policy.unit.key != first.first.policy.unit.key:
            raise refusal(
                place,
                f"{first.table.table} and {source.table.table} do not share a privacy unit",
                "policies whose PRIVACY UNIT is one column, or REFERENCES it",
            )


def require_few_copies(source: RowSource, place: exp.Expr) -> None:
    """Refuses joins that could make so many rows of one unit's few, or of one row, that it decides what fails."""
    last = source.joins[-1]
    joined = isinstance(last, PrivateJoin) and last.source.joined and len(source.joined) > 1
    if joined and source.multiplies(len(source.joins) - 1):
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
    made = rest.isdigit() or fold(name) in (UNIT_COLUMN, PERIOD_COLUMN, LOOKED_UP)
    return rest != fold(name) and not made


def of_relation(relation: PrivateRelation) -> RowSource:
    """Returns a relation alone."""
    columns = tuple((column.name, base_column(relation.alias, column.name)) for column in relation.columns)
    return RowSource(relation, (), Scope((Relation("", columns),)), (), choices_of(relation))


def choices_of(relation: PrivateRelation) -> tuple[tuple[Expression, ...], ...]:
    """Returns the one choice of the unit of a relation's rows, or none where rows are units."""
    return () if relation.unit is None else ((relation.unit,),)
