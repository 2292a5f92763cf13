"""The privacy unit of a row: a column, several columns, the first of several units, or a unit behind references.

A unit by periods is such a unit together with the number of the row's period (columns/periods.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from dpduck.kernel.columns.comparisons import RowCondition
from dpduck.kernel.columns.expressions import Expression, Names, Own, RelationColumn, require
from dpduck.kernel.columns.periods import pair_sql, period_number_sql
from dpduck.kernel.columns.stored import LONGEST_JOINED, fits_sql, shorten_sql
from dpduck.values.periods import WORDS
from dpduck.values.quoting import quote_identifier
from dpduck.values.sqltypes import sql_type


@dataclass(frozen=True)
class UnitTuple(Expression):
    """Privacy unit of several columns, as one text. Different units have different texts, unless SHA-256 collides.

    Equal values of these columns have equal texts. First come the columns that cannot contain a slash, each followed by
    a slash. Then come the other columns, shortened, each after its number of bytes and a colon. If two such texts are
    equal, their parts before the first slash are equal, and so on for each slash. Then the first numbers of bytes are
    equal, and so are the parts that follow them. The text is NULL if a part is NULL or too long.
    """

    parts: tuple[RelationColumn, ...]

    def __post_init__(self) -> None:
        require(bool(self.parts) and all(sql_type(part.type_name).has_one_form for part in self.parts))

    def write(self, names: Names) -> str:
        listed = [(names(part), part.type_name) for part in self.parts]
        texts = [(name if kind == "VARCHAR" else f"CAST({name} AS VARCHAR)", kind) for name, kind in listed]
        ended = [f"{text} || '/'" for text, kind in texts if not sql_type(kind).has_any_letters]
        short = [shorten_sql(text, "VARCHAR") for text, kind in texts if sql_type(kind).has_any_letters]
        netstrings = [f"CAST(strlen({text}) AS VARCHAR) || ':' || {text}" for text in short]
        fits = " AND ".join(f"strlen({name}) <= {LONGEST_JOINED}" for name, kind in listed if kind == "VARCHAR")
        return f"CASE WHEN {fits or 'TRUE'} THEN {' || '.join((*ended, *netstrings))} END"


@dataclass(frozen=True)
class FirstOf(Expression):
    """The first of several units that is not NULL: the privacy unit of a row of a FULL JOIN."""

    choices: tuple[Expression, ...]

    def __post_init__(self) -> None:
        require(bool(self.choices) and all(choice.plain for choice in self.choices))

    def write(self, names: Names) -> str:
        return f"coalesce({', '.join(choice.write(names) for choice in self.choices)})"


@dataclass(frozen=True)
class ReferenceStep:
    """Table that a reference leads to, at its column `key`. reference: its own reference, None if it holds the unit."""

    table: str
    key: RelationColumn
    reference: RelationColumn | None = None


@dataclass(frozen=True)
class Referenced(Expression):
    """Privacy unit that rows find by references along `steps`. A row finds one unit or none, since keys are unique."""

    reference: RelationColumn
    steps: tuple[ReferenceStep, ...]
    unit: RelationColumn | UnitTuple

    @property
    def columns(self) -> tuple[RelationColumn, ...]:
        return (self.reference,)

    def write(self, names: Names) -> str:
        return self.unit.write(names)


@dataclass(frozen=True)
class Numbered(Expression):
    """Number of the period in which a stored moment lies, NULL if it lies in no period."""

    column: RelationColumn
    word: str

    def __post_init__(self) -> None:
        require(sql_type(self.column.type_name).is_moment and self.word in WORDS)

    def write(self, names: Names) -> str:
        return period_number_sql(names(self.column), self.column.type_name, self.word)


@dataclass(frozen=True)
class InPeriod(Expression):
    """Privacy unit by periods, as one value: the unit for all periods, and the period. NULL if a row lacks either."""

    unit: Expression
    number: Expression

    def __post_init__(self) -> None:
        require(not isinstance(self.unit, InPeriod))

    def write(self, names: Names) -> str:
        return pair_sql(self.unit.write(names), self.number.write(names))


@dataclass(frozen=True)
class SamePeriod(RowCondition):
    """Equality of the numbers of two rows' periods, in the ON of a join between private rows with units by periods."""

    ours: Expression
    theirs: Expression

    def write(self, names: Names) -> str:
        return f"{self.ours.write(names)} = {self.theirs.write(names)}"


def person_of(unit: Expression | None) -> Expression | None:
    """Returns a unit without its period."""
    return unit.unit if isinstance(unit, InPeriod) else unit


def period_of(unit: Expression | None) -> Expression | None:
    """Returns the number of a unit's period, None for a unit without periods."""
    return unit.number if isinstance(unit, InPeriod) else None


def first_of(units: tuple[Expression, ...]) -> Expression:
    """Returns the first of several units that is not NULL. By periods, person and number are both such firsts."""
    if len(units) == 1:
        return units[0]
    if all(isinstance(unit, InPeriod) for unit in units):
        pairs = [(unit.unit, unit.number) for unit in units if isinstance(unit, InPeriod)]
        persons, numbers = zip(*pairs, strict=True)
        return InPeriod(FirstOf(persons), FirstOf(numbers))
    return FirstOf(units)


def held_in(unit: Expression) -> Expression:
    """Returns a unit without its period, as columns of the rows after the tables of its references are joined."""
    person = person_of(unit) or unit
    return person.unit if isinstance(person, Referenced) else person


def parts_of(unit: Expression) -> list[Expression]:
    """Lists the expressions that are equal in all rows of one unit: the person, and any period's number."""
    number = period_of(unit)
    return [held_in(unit), *([] if number is None else [number])]


def unit_type(unit: Expression | None) -> str:
    """Returns DuckDB's type of a unit without its period, "" if each row is a unit."""
    if isinstance(unit, InPeriod):
        return unit_type(unit.unit)
    if isinstance(unit, Referenced):
        return unit_type(unit.unit)
    if isinstance(unit, FirstOf):
        return unit_type(unit.choices[0])
    if isinstance(unit, UnitTuple):
        return "VARCHAR"
    return unit.type_name if isinstance(unit, RelationColumn | Own) else ""


ROWS, REFERENCE = "dpduck_rows", "dpduck_reference"
"""Name of the rows that look up their unit, and of their column with the first reference."""


def lookup_sql(unit: Referenced) -> str:
    """Writes the joins from ROWS along their references to the unit. Long texts of the joined tables are shortened."""
    parts, reference = list[str](), f"{quote_identifier(ROWS)}.{quote_identifier(REFERENCE)}"
    for step in unit.steps:
        last = step.reference is None
        columns = unit.unit.columns if step.reference is None else (step.reference,)
        alias = quote_identifier(step.key.relation)
        parts.append(f"JOIN {_short_sql(step, columns, last)} AS {alias} ON {reference} = {step.key.sql}")
        reference = "" if step.reference is None else step.reference.sql
    return " ".join(parts)


def _short_sql(step: ReferenceStep, columns: tuple[RelationColumn, ...], last: bool) -> str:
    """Writes a step's table: its key, and its shortened unit or next reference. Drops rows with too long a value."""
    listed, read, changed = [quote_identifier(step.key.name)], [step.key], False
    for column in columns:
        name = quote_identifier(column.name)
        value = shorten_sql(name, column.type_name) if last else name
        changed |= value != name
        if step.key.name.lower() != column.name.lower():
            listed.append(name if value == name else f"{value} AS {name}")
            read += [] if last and len(columns) == 1 else [column]
    short = (fits_sql(quote_identifier(column.name), column.type_name, LONGEST_JOINED) for column in read)
    where = " AND ".join(condition for condition in short if condition)
    if not where and not changed:
        return step.table
    return f"(SELECT {', '.join(listed)} FROM {step.table}{f' WHERE {where}' if where else ''})"
