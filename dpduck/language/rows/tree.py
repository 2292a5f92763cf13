"""Frozen tree of the rows that a statement reads: private relations, their joins, and the conditions of a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from sqlglot import exp

from dpduck.kernel.columns.expressions import Expression, RelationColumn
from dpduck.kernel.relations import LOOKED_UP, PERIOD_COLUMN, UNIT_COLUMN, Units
from dpduck.kernel.units import Referenced, SamePeriod, UnitTuple, first_of, person_of
from dpduck.language.rows.facts import Clamp, Policy, PrivateTable
from dpduck.language.rows.joins import ANTI, SEMI, PublicJoin
from dpduck.language.rows.relation import PrivateRelation
from dpduck.language.rows.scope import Relation, Scope, base_column
from dpduck.language.text.names import TableName
from dpduck.language.text.positions import refusal
from dpduck.values.domain import Domain
from dpduck.values.quoting import fold

MOST_COPIES, MOST_COPIES_OF_MANY = 1000, 30
"""Most rows that joins with public tables make of one row. The second limit holds if a row also joins many rows of its
unit. Without limits, forty public tables with two rows for a key made 2^40 rows of one row."""

MOST_ROWS, MOST_OF_ALL = 128, 1 << 10
"""Most rows of a unit for one value, in one join by a key of neither side, and in all such joins. Further rows are not
read. Without limits, thirty joins made 2^30 rows of a person's two rows, and the failure would reveal those rows."""

MOST_FOUND = 8 * MOST_OF_ALL  # rows of all joins by a key of neither side, with nested joins, times the public copies

MOST_BRANCHES = 64  # tables of nested UNION ALLs: k CTEs that each read the previous one twice would make 2^k
MOST_NESTED = 10  # levels of subqueries by unit: DuckDB plans ten in 0.2 s, sixteen in 3.7 s, twenty in minutes
MOST_POWER = 11  # tables that are joined row by row. With more, a join might find only one row for a value

Pair = tuple[tuple[PrivateRelation, str], tuple[PrivateRelation, str]]
"""A column of each side of a join, with its relation. The left side is first."""


@dataclass(frozen=True)
class PrivateJoin:
    """Join of private rows with private rows of the same unit."""

    kind: str  # JOIN for INNER, or LEFT, RIGHT, FULL, SEMI or ANTI JOIN
    source: RowSource  # the joined rows, without their filters
    conditions: tuple[exp.Expr, ...]  # the conjuncts of ON, which prove that both sides are of one unit
    equal: tuple[Pair, ...]  # pairs of columns that are compared as keys
    period: SamePeriod | None = None  # if units have periods, the condition that both rows are of one period
    within: tuple[exp.Expr, ...] = ()  # the conjuncts that say the same as `period`

    @property
    def aliases_by_key(self) -> frozenset[str]:
        """Returns the aliases of the relations with a key among the columns that the join compares."""
        return frozenset(relation.alias for pair in self.equal for relation, name in pair if relation.is_key(name))


@dataclass(frozen=True)
class RowSource:
    """Private rows with their joins, scope and conditions (resolved, not yet made safe).

    In every row, each private relation is absent (all NULL) or belongs to the row's unit. So if a unit is removed, only
    its own rows disappear, and no other row changes.
    units: choices of the unit of a row. The unit is the first column of a choice that is not NULL.
        No choice means PRIVACY UNIT ROW.
    branches: the tables of the UNION ALL in `first`, or the rows from which `first` makes features of each unit.
    """

    first: PrivateRelation
    joins: tuple[PublicJoin | PrivateJoin, ...]
    scope: Scope
    filters: tuple[exp.Expr, ...]
    units: tuple[tuple[Expression, ...], ...]
    branches: tuple[RowSource, ...] = ()
    counted: tuple[exp.Expr, ...] = ()  # in a branch for features, the expressions over its rows

    @property
    def unit(self) -> Expression | None:
        """Returns the unit of a row, with its period if units have periods. Prefers a stored column to a reference."""
        direct = (group for group in self.units if not any(isinstance(person_of(unit), Referenced) for unit in group))
        choice = next(direct, next(iter(self.units), ()))
        return first_of(choice) if choice else None

    @property
    def persons(self) -> list[Expression]:
        """Lists the expressions that each give the unit of every row. If units have periods, the period is left out."""
        candidates = (person_of(choice[0]) for choice in self.units if len(choice) == 1)
        return [person for person in candidates if person is not None]

    @property
    def together(self) -> list[UnitTuple]:
        """Lists the groups of columns that together identify the unit of every row."""
        return [person for person in self.persons if isinstance(person, UnitTuple)]

    @property
    def unit_columns(self) -> list[str]:
        """Lists the columns of policies that a statement may name as its privacy_unit_column."""
        unit = self.first.policy.unit
        own = unit.column if unit.reference is None else unit.reference.column
        names = [name for branch in self.branches for name in branch.unit_columns] or ([own] if own else [])
        return [*names, *(name for join in self.private_joins for name in join.source.unit_columns)]

    @property
    def private_joins(self) -> list[PrivateJoin]:
        return [join for join in self.joins if isinstance(join, PrivateJoin)]

    @property
    def always_there(self) -> list[PrivateRelation]:
        """Lists the relations that are present in every row: no outer join makes them NULL."""
        relations = [self.first]
        for join in self.private_joins:
            if join.kind not in ("LEFT JOIN", SEMI, ANTI):
                theirs = join.source.always_there
                relations = {"JOIN": [*relations, *theirs], "RIGHT JOIN": theirs}.get(join.kind, [])
        return relations

    @property
    def table(self) -> TableName:
        """Returns the first private table. The charge is booked under its name."""
        return self.first.table

    @property
    def policy(self) -> Policy:
        """Returns the policy of the first relation, with the narrowest price limits of all joined relations."""
        largest = [cost for cost in (relation.policy.max_epsilon for relation in self.relations) if cost is not None]
        smallest = [cost for cost in (relation.policy.min_epsilon for relation in self.relations) if cost is not None]
        return replace(
            self.first.policy, max_epsilon=min(largest, default=None), min_epsilon=max(smallest, default=None)
        )

    @property
    def relations(self) -> tuple[PrivateRelation, ...]:
        """Returns every joined private relation, in the order of the statement."""
        return (self.first, *(relation for join in self.private_joins for relation in join.source.relations))

    @property
    def public_joins(self) -> tuple[PublicJoin, ...]:
        """Returns every join with a public table, also in joined sources."""
        joins: list[PublicJoin] = []
        for join in self.joins:
            joins += join.source.public_joins if isinstance(join, PrivateJoin) else (join,)
        return tuple(joins)

    @property
    def all_branches(self) -> tuple[RowSource, ...]:
        """Returns the branches of this source and of joined sources, and all branches inside these branches."""
        branches: list[RowSource] = []
        for branch in self.branches:
            branches += (branch, *branch.all_branches)
        for join in self.private_joins:
            branches += join.source.all_branches
        return tuple(branches)

    @property
    def reads(self) -> tuple[PrivateTable, ...]:
        """Returns the private tables that are read, each once."""
        tables: dict[TableName, PrivateTable] = {}
        for read in (read for relation in self.relations for read in relation.reads):
            earlier = tables.get(read.table)
            tables[read.table] = read if earlier is None else earlier.and_also(read)
        return tuple(tables.values())

    @property
    def tables(self) -> tuple[TableName, ...]:
        return tuple(read.table for read in self.reads)

    @property
    def every_public_join(self) -> tuple[PublicJoin, ...]:
        """Returns every join with a public table, also inside branches of a UNION ALL."""
        inside = (join for branch in self.all_branches for join in branch.public_joins)
        return (*self.public_joins, *inside)

    @property
    def every_table(self) -> tuple[TableName, ...]:
        return tuple(dict.fromkeys((*self.tables, *(join.table for join in self.every_public_join))))

    @property
    def copies(self) -> int:
        """Returns the most rows that joins with public tables make of one row, also inside branches."""
        inside = sum(branch.copies for branch in self.branches) or 1
        joined = (join.multiplicity if isinstance(join, PublicJoin) else join.source.copies for join in self.joins)
        return inside * prod(joined)

    @property
    def repetition(self) -> tuple[int, frozenset[str]]:
        """Returns the power to which joins raise a unit's number of rows, and the relations that no join repeats.

        Each row of such a relation, given by its alias, occurs at most once. A join by a key of one side repeats no row
        of the other side.
        """
        inside = [branch.repetition[0] for branch in self.branches]
        power, once = max([1, *inside]), frozenset([self.first.alias])
        for join in self.joins:
            if isinstance(join, PublicJoin):
                once = once if join.kind in (SEMI, ANTI) or join.multiplicity == 1 else frozenset()
                continue
            other, others = join.source.repetition
            if join.kind in (SEMI, ANTI):
                power = max(power, other)
                continue
            ours, theirs = bool(join.aliases_by_key & once), bool(join.aliases_by_key & others)
            power = max(power, other) if ours or theirs else power + other
            once = (once if theirs else frozenset()) | (others if ours else frozenset())
        return power, once

    @property
    def leaves(self) -> int:
        """Returns the number of tables that are read. A table of a UNION ALL counts at each of its places."""
        return (sum(branch.leaves for branch in self.branches) or 1) + sum(
            join.source.leaves for join in self.private_joins
        )

    @property
    def nesting_depth(self) -> int:
        own = max((branch.nesting_depth for branch in self.branches), default=0) + isinstance(
            self.first.subquery_node, Units
        )
        return max(own, *(join.source.nesting_depth for join in self.private_joins), 0)

    def multiplies(self, number: int) -> bool:
        """Tells whether a join of private rows is by a key of neither side, so that a row may join many rows."""
        join = self.joins[number]
        if not isinstance(join, PrivateJoin) or join.kind in (SEMI, ANTI):
            return False
        once = replace(self, joins=self.joins[:number]).repetition[1] | join.source.repetition[1]
        return not join.aliases_by_key & once

    @property
    def rows_for_a_key(self) -> int:
        """Returns the most rows with one value in a join by a key of neither side. All such joins share MOST_OF_ALL."""
        return self._row_factors[0]

    @property
    def join_factor(self) -> int:
        """Returns the most rows that joins by a key of neither side make of one row, including nested joins."""
        return self._row_factors[1]

    @cached_property
    def _row_factors(self) -> tuple[int, int]:
        inside = (sum(branch.join_factor for branch in self.branches) or 1) * prod(
            join.source.join_factor for join in self.private_joins
        )
        joins = sum(map(self.multiplies, range(len(self.joins))))
        most = next(most for most in range(MOST_ROWS, 0, -1) if inside * most**joins <= MOST_OF_ALL or most == 1)
        return most, inside * most**joins

    @property
    def usual_rows(self) -> int:
        """Returns the default bound on a unit's rows: the largest MAX ROWS of the relations."""
        return max(self._row_bounds())

    @property
    def most_rows(self) -> int:
        """Returns the largest bound on a unit's rows that a statement may ask for: the product of all MAX ROWS."""
        return prod(self._row_bounds())

    def _row_bounds(self) -> list[int]:
        """Lists MAX ROWS of the relations that add rows. Tables behind SEMI and ANTI JOIN add none."""
        bounds = [self.first.policy.unit.max_rows]
        for join in self.private_joins:
            bounds += () if join.kind in (SEMI, ANTI) else join.source._row_bounds()
        return bounds

    def relation(self, alias: str) -> PrivateRelation | None:
        return next((relation for relation in self.relations if relation.alias == alias), None)

    def public_join(self, alias: str) -> PublicJoin:
        return next(join for join in self.public_joins if join.alias == alias)

    def owner(self, node: exp.Expr) -> PrivateRelation | None:
        """Returns the private relation of a column, None for a public column and for other expressions."""
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
        """Returns the link of a column, None without a link. Equal values in columns with one link prove one unit."""
        relation = self.owner(node)
        return None if relation is None else relation.link(node.name)

    @cached_property
    def columns(self) -> Mapping[str, RelationColumn]:
        """Returns the columns of every relation, public ones included, by their SQL."""
        named = [(relation.alias, relation.columns) for relation in self.relations]
        named += [(join.alias, join.columns) for join in self.public_joins]
        row_columns = (
            RelationColumn(alias, column.name, column.type_name) for alias, columns in named for column in columns
        )
        return {column.quoted_name: column for column in row_columns}

    @cached_property
    def types(self) -> Mapping[str, str]:
        return {sql: column.type_name for sql, column in self.columns.items()}


def equal_columns(condition: exp.Expr, left: RowSource, right: RowSource) -> Pair | None:
    """Returns the columns of two sides that a condition equates, None for other conditions."""
    node = condition.unnest()
    if not isinstance(node, exp.EQ):
        return None
    sides = (node.left.unnest(), node.right.unnest())
    for our_side, their_side in (sides, sides[::-1]):
        ours, theirs = left.owner(our_side), right.owner(their_side)
        if ours is not None and theirs is not None:
            return (ours, our_side.name), (theirs, their_side.name)
    return None


def require_one_unit(sources: Sequence[RowSource], places: Sequence[exp.Expr], what: str, accepted: str) -> None:
    """Refuses sources of different units. Refuses PRIVACY UNIT ROW with the words of `what` and `accepted`."""
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
    """Refuses joins that could multiply a few rows of a unit so much that these rows decide which query fails."""
    last = source.joins[-1]
    joined = isinstance(last, PrivateJoin) and last.source.private_joins and len(source.private_joins) > 1
    if joined and source.multiplies(len(source.joins) - 1):
        raise refusal(
            place,
            "rows of a unit would be joined each with each row of a join",
            "its tables one after the other, JOIN a ON .. JOIN b ON ..; or a join by a PRIMARY KEY or UNIQUE column",
        )
    power, _ = source.repetition
    if power > MOST_POWER:
        raise refusal(
            place,
            f"each row of a unit would be joined with each, {power} tables at a time",
            f"at most {MOST_POWER} such tables; joins by a PRIMARY KEY or UNIQUE column of one side, SEMI JOIN",
        )
    if source.join_factor > MOST_FOUND:
        raise refusal(
            place,
            "rows of a unit would be joined each with each, in joins inside of joins",
            "fewer such joins; joins by a PRIMARY KEY or UNIQUE column of one side",
        )
    most = MOST_COPIES if power == 1 else min(MOST_COPIES_OF_MANY, MOST_FOUND // source.join_factor)
    if source.copies > most:
        raise refusal(
            place,
            f"one row may be multiplied {source.copies} times by the joins",
            f"joins on keys that repeat less, {most} times in all",
        )


def require_free_names(names: Iterable[str], place: exp.Expr) -> None:
    """Refuses column names that are reserved for the columns that dpduck adds to a statement."""
    taken = next((name for name in names if is_reserved(name)), None)
    if taken is not None:
        raise refusal(place, f"{taken!r} is a name of dpduck's own", "another name for the column")


def is_reserved(name: str) -> bool:
    """Tells whether a name begins with dpduck_ and is no name that dpduck gives to a column (dpduck_0, ..)."""
    rest = fold(name).removeprefix("dpduck_")
    is_added = rest.isdigit() or fold(name) in (UNIT_COLUMN, PERIOD_COLUMN, LOOKED_UP)
    return rest != fold(name) and not is_added


def of_relation(relation: PrivateRelation) -> RowSource:
    """Returns the row source of one relation alone."""
    columns = tuple((column.name, base_column(relation.alias, column.name)) for column in relation.columns)
    return RowSource(relation, (), Scope((Relation("", columns),)), (), choices_of(relation))


def choices_of(relation: PrivateRelation) -> tuple[tuple[Expression, ...], ...]:
    """Returns the one choice of the unit for a relation's rows, () if each row is a unit."""
    return () if relation.unit is None else ((relation.unit,),)
