"""The privacy unit of a row: a column, several columns together, the first of several, or one found by references.

By periods it is such a unit with the number of the row's period (columns/periods.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from dpduck.kernel.columns.expressions import Column, Condition, Expression, Names, Own, require
from dpduck.kernel.columns.periods import numbered_sql, paired_sql
from dpduck.kernel.columns.stored import LONGEST_JOINED, fits_sql, shortened_sql
from dpduck.values.periods import WORDS
from dpduck.values.quoting import quote_identifier
from dpduck.values.sqltypes import sql_type


@dataclass(frozen=True)
class Together(Expression):
    """A privacy unit that several columns hold together, as a text: equal for equal units, and for no others.

    Equal values of these columns have equal texts. First stand columns with texts that hold no slash, each with one
    behind it. Then stand the others, made short since DuckDB may hold them for all rows, each behind the number of its
    bytes and a colon. Where two such texts are equal, so are the parts before the first slash, and so on. Then the
    first numbers are equal, the parts that are as long as they say, and so on. NULL where a part is NULL, or too long.
    """

    parts: tuple[Column, ...]

    def __post_init__(self) -> None:
        require(bool(self.parts) and all(sql_type(one.type_name).has_one_form for one in self.parts))

    def write(self, names: Names) -> str:
        listed = [(names(one), one.type_name) for one in self.parts]
        texts = [(name if kind == "VARCHAR" else f"CAST({name} AS VARCHAR)", kind) for name, kind in listed]
        ended = [f"{text} || '/'" for text, kind in texts if not sql_type(kind).has_any_letters]
        short = [shortened_sql(text, "VARCHAR") for text, kind in texts if sql_type(kind).has_any_letters]
        told = [f"CAST(strlen({text}) AS VARCHAR) || ':' || {text}" for text in short]
        fits = " AND ".join(f"strlen({name}) <= {LONGEST_JOINED}" for name, kind in listed if kind == "VARCHAR")
        return f"CASE WHEN {fits or 'TRUE'} THEN {' || '.join((*ended, *told))} END"


@dataclass(frozen=True)
class FirstOf(Expression):
    """The first of several units that is not NULL: the privacy unit of a row of a FULL JOIN."""

    choices: tuple[Expression, ...]

    def __post_init__(self) -> None:
        require(bool(self.choices) and all(one.plain for one in self.choices))

    def write(self, names: Names) -> str:
        return f"coalesce({', '.join(one.write(names) for one in self.choices)})"


@dataclass(frozen=True)
class Step:
    """A table that a reference leads to. table: its name in SQL. key: its column that the reference equals.

    reference: of the table, to the next one; None where it holds the unit.
    """

    table: str
    key: Column
    reference: Column | None = None


@dataclass(frozen=True)
class Referenced(Expression):
    """The privacy unit of rows that find it by references. A row finds one unit, or is nobody's: each key is one.

    reference: the first one, a column of the rows. steps: the tables that references lead to. unit: of the last one.
    """

    reference: Column
    steps: tuple[Step, ...]
    unit: Column | Together

    @property
    def columns(self) -> tuple[Column, ...]:
        return (self.reference,)

    def write(self, names: Names) -> str:
        return self.unit.write(names)


# By periods.


@dataclass(frozen=True)
class Numbered(Expression):
    """The number of the period in which a stored moment lies, NULL where it lies in none."""

    column: Column
    word: str

    def __post_init__(self) -> None:
        require(sql_type(self.column.type_name).is_moment and self.word in WORDS)

    def write(self, names: Names) -> str:
        return numbered_sql(names(self.column), self.column.type_name, self.word)


@dataclass(frozen=True)
class InPeriod(Expression):
    """A privacy unit by periods. unit: of all periods together. number: of the row's period.

    It is one value for both. It is NULL for a row of no period, and for a row of nobody.
    """

    unit: Expression
    number: Expression

    def __post_init__(self) -> None:
        require(not isinstance(self.unit, InPeriod))

    def write(self, names: Names) -> str:
        return paired_sql(self.unit.write(names), self.number.write(names))


@dataclass(frozen=True)
class SamePeriod(Condition):
    """An equality of the numbers of two rows' periods: what a join of private rows by periods has in its ON."""

    ours: Expression
    theirs: Expression

    def write(self, names: Names) -> str:
        return f"{self.ours.write(names)} = {self.theirs.write(names)}"


def person_of(unit: Expression | None) -> Expression | None:
    """Returns a unit without its period."""
    return unit.unit if isinstance(unit, InPeriod) else unit


def period_of(unit: Expression | None) -> Expression | None:
    """Returns the number of a unit's period, None of other units."""
    return unit.number if isinstance(unit, InPeriod) else None


def first_of(units: tuple[Expression, ...]) -> Expression:
    """Returns the first of several units that is not NULL. By periods it is of the first row's person and period."""
    if len(units) == 1:
        return units[0]
    if all(isinstance(one, InPeriod) for one in units):
        pairs = [(one.unit, one.number) for one in units if isinstance(one, InPeriod)]
        persons, numbers = zip(*pairs, strict=True)
        return InPeriod(FirstOf(persons), FirstOf(numbers))
    return FirstOf(units)


def held_in(unit: Expression) -> Expression:
    """Returns a unit without its period, as a table of its level holds it once references are joined."""
    person = person_of(unit) or unit
    return person.unit if isinstance(person, Referenced) else person


def parts_of(unit: Expression) -> list[Expression]:
    """Lists what rows of one unit have in common: what tells the person, and by periods the number of the period."""
    number = period_of(unit)
    return [held_in(unit), *([] if number is None else [number])]


def unit_type(unit: Expression | None) -> str:
    """Returns DuckDB's type of a unit without its period, "" for rows that are units."""
    if isinstance(unit, InPeriod):
        return unit_type(unit.unit)
    if isinstance(unit, Referenced):
        return unit_type(unit.unit)
    if isinstance(unit, FirstOf):
        return unit_type(unit.choices[0])
    if isinstance(unit, Together):
        return "VARCHAR"
    return unit.type_name if isinstance(unit, Column | Own) else ""


# How rows that are filtered and narrowed find their unit.

ROWS, REFERENCE = "dpduck_rows", "dpduck_reference"
"""The name of these rows, and of their column that holds the first reference."""


def lookup_sql(unit: Referenced) -> str:
    """Writes the joins of ROWS by their REFERENCE, with few bytes of each parent."""
    parts, reference = list[str](), f"{quote_identifier(ROWS)}.{quote_identifier(REFERENCE)}"
    for step in unit.steps:
        last = step.reference is None
        found = unit.unit.columns if step.reference is None else (step.reference,)
        alias = quote_identifier(step.key.relation)
        parts.append(f"JOIN {_short_sql(step, found, last)} AS {alias} ON {reference} = {step.key.sql}")
        reference = "" if step.reference is None else step.reference.sql
    return " ".join(parts)


def _short_sql(step: Step, found: tuple[Column, ...], last: bool) -> str:
    """Writes a parent's key, and what the key finds: its unit in few bytes, of parts that fit, or a reference."""
    listed, read, changed = [quote_identifier(step.key.name)], [step.key], False
    for column in found:
        name = quote_identifier(column.name)
        made = shortened_sql(name, column.type_name) if last else name
        changed |= made != name
        if step.key.name.lower() != column.name.lower():
            listed.append(name if made == name else f"{made} AS {name}")
            read += [] if last and len(found) == 1 else [column]
    short = (fits_sql(quote_identifier(column.name), column.type_name, LONGEST_JOINED) for column in read)
    where = " AND ".join(condition for condition in short if condition)
    if not where and not changed:
        return step.table
    return f"(SELECT {', '.join(listed)} FROM {step.table}{f' WHERE {where}' if where else ''})"
