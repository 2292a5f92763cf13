"""Private relations: tables under a policy, the unit of their rows, and columns that link rows of one unit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import count

from sqlglot import exp

from dpduck.kernel.columns.expressions import Expression
from dpduck.kernel.columns.expressions import RelationColumn as RowColumn
from dpduck.kernel.relations import NUMBER_TYPE, PERIOD_COLUMN, UNIT_COLUMN, Stored, Union, Units
from dpduck.kernel.units import InPeriod, Numbered, Referenced, ReferenceStep, UnitTuple, person_of
from dpduck.language.rows.common_tables import CommonTables
from dpduck.language.rows.facts import CatalogColumn, Policy, PrivateTable, PublicFacts
from dpduck.language.text.names import TableName, require_plain_names
from dpduck.language.text.positions import refusal
from dpduck.values.domain import Domain
from dpduck.values.errors import Refusal
from dpduck.values.quoting import fold
from dpduck.values.sqltypes import sql_type

PRIVATE_ALIAS = "r0"  # alias of the first private relation of a statement
CLOSE = 0.75  # least similarity (difflib's ratio, from 0 to 1) of a table's name that a refusal suggests
KNOWN_TABLE = "a table with a policy, or a declared public one"


@dataclass(frozen=True)
class RowReading:
    """Context of one reading of a statement: public facts, visible CTEs, and numbers for aliases."""

    facts: PublicFacts
    common: CommonTables
    private: Iterator[int] = field(default_factory=count)
    public: Iterator[int] = field(default_factory=lambda: count(1))


@dataclass(frozen=True)
class PrivateRelation:
    """Private rows in FROM: a table, or a subquery that the kernel has a node for."""

    node: Stored | Union | Units
    table: TableName
    sql: str  # the SQL before AS
    policy: Policy  # with domains and clamps for these columns. A union merges the policies of its tables
    columns: tuple[CatalogColumn, ...]
    unit: Expression | None  # the privacy unit of a row, with its period if there is one; None for PRIVACY UNIT ROW
    links: tuple[tuple[str, str], ...]  # each lower-case column with its link. Equal values of one link prove one unit
    row_key: tuple[str, ...]  # columns that tell rows apart. They decide which of too many rows of a unit are counted
    reads: tuple[PrivateTable, ...]
    keys: tuple[tuple[str, ...], ...] = ()  # the columns of each PRIMARY KEY and UNIQUE constraint of a stored table

    @property
    def alias(self) -> str:
        return self.node.alias

    @property
    def subquery_node(self) -> Union | Units | None:
        """Returns the node of a subquery, None for a stored table."""
        return None if isinstance(self.node, Stored) else self.node

    @property
    def number(self) -> Numbered | None:
        """Returns the number of a stored row's period. None for a subquery, or if units have no periods."""
        period, moment = self.policy.unit.period, self.node.moment if isinstance(self.node, Stored) else None
        return None if period is None or moment is None else Numbered(moment, period.word)

    @property
    def person(self) -> Expression | None:
        """Returns the privacy unit of a row without its period."""
        return person_of(self.unit)

    @property
    def unit_column(self) -> str | None:
        """Returns the name of the only column that holds the unit, None if there is no such column."""
        return self.person.name if isinstance(self.person, RowColumn) else None

    def link(self, column: str) -> str | None:
        """Returns the link of a column, None without a link. Equal values in columns with one link prove one unit."""
        return next((link for name, link in self.links if name == fold(column)), None)

    def type_of(self, column: str) -> str:
        """Returns DuckDB's type of a column, "" for an unknown column."""
        return next((item.type_name for item in self.columns if fold(item.name) == fold(column)), "")

    def is_key(self, column: str) -> bool:
        """Tells whether DuckDB keeps the values of a stored table's column unique."""
        own = (key for read in self.reads if read.table == self.table and not read.hidden for key in read.unique)
        return self.subquery_node is None and fold(column) in map(fold, own)

    def domain(self, column: str) -> Domain | None:
        """Returns the public domain of a column. Refuses a column that has changed to a type that may not convert."""
        domain = self.policy.domain(column)
        now = self.type_of(column)
        if domain is not None and now != domain.type_name and not sql_type(now).converts:
            raise Refusal(
                f"{column!r} is {sql_type(now).word or 'gone'}, and its DOMAIN is of {domain.type_name}",
                accepted="the type that the column had, or its DOMAIN declared anew",
            )
        return domain


def table_name(node: exp.Table) -> TableName:
    """Returns the name of a table as written."""
    return TableName(tuple(part.name for part in node.parts))


def meant(name: TableName, facts: PublicFacts) -> str:
    """Suggests a table that the user may know, for a name without a schema. Returns "" if no name is near."""
    near = get_close_matches(fold(name.table), list(map(fold, facts.known_names())), n=1, cutoff=CLOSE)
    match = next((table for table in facts.known_names() if near and fold(table) == near[0]), "")
    unlike = fold(match) != fold(name.table)  # a table with a policy may have been dropped
    return f"{match} (did you mean that?), or " if match and unlike and len(name.parts) == 1 else ""


def require_no_engine(name: TableName, facts: PublicFacts) -> None:
    """Refuses a missing table that lies in an engine, and says how the engine is attached."""
    engine = facts.engine_of(name)
    if engine is not None:
        raise Refusal(
            f"{name} lies in the engine {engine!r}, which is not attached",
            accepted=f"--engine {engine}=sc://host:15002 of dpduck sql and dpduck serve, or "
            f"dpduck.attach_spark(con, 'sc://host:15002', name={engine!r}, tables=[..])",
        )


def read_private_table(node: exp.Table, reading: RowReading) -> PrivateRelation:
    """Reads a table with a policy. Refuses other tables."""
    facts, name = reading.facts, table_name(node)
    resolved = facts.resolve(name)
    if resolved is None:
        require_no_engine(name, facts)
        raise refusal(node, f"there is no table {str(name)!r}", meant(name, facts) + KNOWN_TABLE)
    policy = facts.policy(resolved)
    if policy is None:
        kind = "view" if facts.is_view(resolved) else "table"
        raise refusal(
            node,
            f"the {kind} {str(name)!r} has no privacy policy, so nothing is answered from it"
            + _namesake(resolved, facts),
            "a table with a policy (CREATE PRIVACY POLICY ON ..), or DECLARE PUBLIC TABLE if it is public",
        )
    try:
        return relation_of(resolved, policy, reading)
    except Refusal as error:
        raise refusal(node, error.what, error.accepted) from None


def _namesake(table: TableName, facts: PublicFacts) -> str:
    """Returns a hint if the store knows this name in another database, as after a rename of the file. Else ""."""
    if facts.is_view(table) or fold(table.table) not in map(fold, facts.known_names()):
        return ""
    return ": the store knows a table of this name in another database or schema, as where a file was renamed"


def relation_of(resolved: TableName, policy: Policy, reading: RowReading) -> PrivateRelation:
    """Returns the relation for a table and its policy. Refuses a policy if a reference no longer leads to a unit."""
    facts = reading.facts
    require_plain_names(*resolved.parts, policy.unit.column or "")
    columns, keys = facts.columns(resolved), facts.unique_keys(resolved)
    own_keys, alias = tuple(key[0] for key in keys if len(key) == 1), f"r{next(reading.private)}"
    unit, parents = _unit_of(alias, policy, facts)
    number = _number(alias, resolved, policy, facts)
    moment = None if number is None else number.column
    return PrivateRelation(
        Stored(resolved.sql, alias, numbers_rows(resolved, columns, facts), moment=moment),
        resolved,
        resolved.sql,
        policy,
        columns,
        unit if unit is None or number is None else InPeriod(unit, number),
        _links(policy, own_keys),
        keys[0] if keys else tuple(column.name for column in columns),
        (PrivateTable(resolved, policy.revision, policy.epoch, own_keys), *parents),
        keys,
    )


def unit_beside(alias: str, type_name: str, policy: Policy) -> Expression:
    """Returns the unit column of a subquery's rows, with the period's number if units are by period."""
    unit = RowColumn(alias, UNIT_COLUMN, type_name)
    return unit if policy.unit.period is None else InPeriod(unit, RowColumn(alias, PERIOD_COLUMN, NUMBER_TYPE))


def numbers_rows(table: TableName, columns: Sequence[CatalogColumn], facts: PublicFacts) -> bool:
    """Tells whether rowid numbers the rows, and no column is named rowid or has one of dpduck's own names."""
    hidden = any(fold(column.name) == "rowid" or fold(column.name).startswith("dpduck_") for column in columns)
    return not hidden and facts.numbers_rows(table)


def _links(policy: Policy, own_keys: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Returns the linked columns of a table: its unit or its reference to a parent, and its keys of one column."""
    links = [(fold(column), f"{policy.table}.{column}") for column in own_keys if "." not in column]
    reference = policy.unit.reference
    if reference is not None:
        links.insert(0, (fold(reference.column), f"{TableName(reference.parent)}.{reference.parent_column}"))
    elif policy.unit.column:
        links.insert(0, (fold(policy.unit.column), policy.unit.key))
    return tuple(links)


def _unit_of(alias: str, policy: Policy, facts: PublicFacts) -> tuple[Expression | None, list[PrivateTable]]:
    """Returns the unit of a row, and the tables on the way of its references to the unit, the nearest first."""
    steps, parents, current, own = list[ReferenceStep](), list[PrivateTable](), policy, alias
    first = None
    while current.unit.reference is not None:
        reference = current.unit.reference
        table = TableName(reference.parent)
        require_plain_names(reference.column, *reference.parent, reference.parent_column)
        target = facts.policy(table)
        if target is None or target.unit.key != policy.unit.key or any(table == parent.table for parent in parents):
            raise Refusal(
                f"the policy of {table} no longer names the privacy unit of these rows",
                accepted=f"the policy of {policy.table} declared anew, after that of {table}",
            )
        require_key(table, reference.parent_column, facts)
        require_plain_reference(current.table, reference.column, table, reference.parent_column, facts)
        start = _column(own, current.table, reference.column, facts)
        if steps:
            steps[-1] = replace(steps[-1], reference=start)
        own, first, current = f"{alias}_{len(steps) + 1}", first or start, target
        steps.append(ReferenceStep(table.sql, _column(own, table, reference.parent_column, facts)))
        parents.append(PrivateTable(table, target.revision, target.epoch, (reference.parent_column,), hidden=True))
    if parents and not current.unit.own_columns:
        raise Refusal(
            f"the policy of {current.table} protects single rows", accepted="PRIVACY UNIT column in that policy"
        )
    unit = _own_unit(own, current, facts)
    return (unit if first is None or unit is None else Referenced(first, tuple(steps), unit)), parents


def _own_unit(alias: str, policy: Policy, facts: PublicFacts) -> RowColumn | UnitTuple | None:
    """Returns the unit that a table holds in its own columns, None if each row is a unit."""
    if policy.unit.column:
        require_plain_unit(policy.table, policy.unit.column, facts)
        return _column(alias, policy.table, policy.unit.column, facts)
    parts = require_joint_columns(policy.table, policy.unit.columns, facts)
    return UnitTuple(tuple(RowColumn(alias, part.name, part.type_name) for part in parts)) if parts else None


def _column(alias: str, table: TableName, name: str, facts: PublicFacts) -> RowColumn:
    return RowColumn(alias, name, _type_of(table, name, facts))


def _type_of(table: TableName, name: str, facts: PublicFacts) -> str:
    return next((item.type_name for item in facts.columns(table) if fold(item.name) == fold(name)), "")


def require_key(table: TableName, column: str, facts: PublicFacts) -> None:
    """Refuses a parent with a COLLATION or a key that may repeat: a row of another unit could claim the same key."""
    if (column,) not in facts.unique_keys(table):
        raise Refusal(
            f"{table}.{column} is not a key: rows of two units could share one value",
            accepted=f"a PRIMARY KEY or UNIQUE constraint on {column} alone (ALTER TABLE .. ADD PRIMARY KEY), or a "
            "column with the unit itself",
        )
    if facts.has_collations(table):
        raise Refusal("a COLLATION makes keys equal that are different texts", accepted=f"{table} without COLLATE")


def require_plain_unit(table: TableName, column: str, facts: PublicFacts) -> None:
    """Refuses a unit of a type in which different values are equal, or in which one unit may count as several.

    Also refuses texts under a COLLATION: rows of several units would be bounded as the rows of one unit.
    """
    type_name = _type_of(table, column, facts)
    if type_name and not sql_type(type_name).is_unit:
        raise Refusal(
            f"{column!r} is {sql_type(type_name).word}, of which equal values may be grouped apart: no privacy unit",
            accepted="a unit of whole or decimal numbers, VARCHAR, UUID, dates, times, BOOLEAN, ENUM or BLOB",
        )
    if type_name == "VARCHAR" and facts.has_collations(table):
        raise Refusal(
            "a COLLATION makes privacy units equal that are different texts", accepted=f"{table} without COLLATE"
        )


def _number(alias: str, table: TableName, policy: Policy, facts: PublicFacts) -> Numbered | None:
    """Returns the number of a row's period. Refuses a table if the column of PER, or of the unit, no longer fits."""
    period = policy.unit.period
    if period is None:
        return None
    column = next((item for item in facts.columns(table) if fold(item.name) == fold(period.column)), None)
    kind = sql_type("" if column is None else column.type_name)
    if column is None or not kind.is_moment:
        raise Refusal(
            f"{period.column!r} is {kind.word or 'gone'}, and no longer says of which {period.word.lower()} a row is",
            accepted="the column that PER .. OF names as a DATE or TIMESTAMP",
        )
    unit = policy.unit.column
    if unit and not sql_type(_type_of(table, unit, facts)).is_unit_part:
        raise Refusal(f"{unit!r} is no longer told apart by {period.word.lower()}", accepted="the type that it had")
    return Numbered(RowColumn(alias, column.name, column.type_name), period.word)


def require_joint_columns(table: TableName, names: Sequence[str], facts: PublicFacts) -> tuple[CatalogColumn, ...]:
    """Returns the columns that together identify a unit. Refuses types in which two values may have one text."""
    stored, columns = {fold(item.name): item for item in facts.columns(table)}, list[CatalogColumn]()
    for name in names:
        column = stored.get(fold(name))
        if column is None or not sql_type(column.type_name).has_one_form:
            kind = "gone" if column is None else sql_type(column.type_name).word
            raise Refusal(
                f"{name!r} is {kind}, and no part of a privacy unit of several columns",
                accepted="columns of whole numbers, VARCHAR, UUID, DATE, BOOLEAN or ENUM: PRIVACY UNIT (household, "
                "survey) MAX ROWS 4",
            )
        require_plain_unit(table, name, facts)
        columns.append(column)
    return tuple(columns)


def require_plain_reference(
    table: TableName, column: str, parent: TableName, parent_column: str, facts: PublicFacts
) -> None:
    """Refuses a reference that could equal two keys, so that its row would have two units, or that may not compare."""
    types = [_type_of(holder, name, facts) for holder, name in ((table, column), (parent, parent_column))]
    if not all(types) or not comparable(*types) or facts.has_collations(table):
        raise Refusal(
            f"{table}.{column} does not compare with {parent}.{parent_column} as keys do",
            accepted="a reference of the key's type, in a table without COLLATE",
        )


def comparable(first: str, second: str) -> bool:
    """Tells whether values of two types compare as keys do, without a cast that could fail."""
    left, right = sql_type(first), sql_type(second)
    return (left == right and left.is_key) or (left.is_integer and right.is_integer)
