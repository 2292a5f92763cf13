"""Public facts that statements are checked against, never a private row: schemas, policies and public tables.

A request keeps the facts that it relies on (RequestRows).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Protocol

from dpduck.kernel.columns.expressions import Expression
from dpduck.kernel.columns.expressions import RelationColumn as RowColumn
from dpduck.kernel.relations import Source
from dpduck.kernel.units import person_of
from dpduck.language.text.names import TableName
from dpduck.values.domain import Domain
from dpduck.values.periods import PeriodColumn
from dpduck.values.privacy import Budget, PrivacyUnit
from dpduck.values.quoting import fold


@dataclass(frozen=True)
class CatalogColumn:
    """Column of a table as the catalog shows it."""

    name: str
    type_name: str


@dataclass(frozen=True)
class ImageInput:
    """Column that an expression reads, with the type and texts of its public labels."""

    alias: str  # of the column's table
    name: str
    type_name: str
    labels: tuple[str | None, ...]


@dataclass(frozen=True)
class Image:
    """Expression evaluated over every combination of some public domains."""

    type_name: str
    labels: tuple[str | None, ...]  # distinct values in order, as text, None for NULL
    codes: tuple[int, ...]  # the position in `labels` of each combination's value, row-major


class PublicFacts(Protocol):
    """Source of public facts: catalogs, policies, declared public tables and a sandbox without data."""

    def resolve(self, name: TableName) -> TableName | None:
        """Returns the three-part name of a table or view, None if there is no such table."""

    def engine_of(self, name: TableName) -> str | None:
        """Returns the engine that a missing table lies in, by the store's records of tables that were attached once."""

    def known_names(self) -> tuple[str, ...]:
        """Lists the table names that the asking user may know: tables with a policy, and public tables."""

    def is_view(self, table: TableName) -> bool:
        """Tells whether a resolved name is a view."""

    def columns(self, table: TableName) -> tuple[CatalogColumn, ...]:
        """Returns the columns of a resolved table."""

    def policy(self, table: TableName) -> Policy | None:
        """Returns the policy in force on a resolved table."""

    def is_public(self, table: TableName) -> bool:
        """Tells whether the owner has declared a resolved table public."""

    def public_digest(self, table: TableName) -> str:
        """Returns a digest of a declared public table's content."""

    def public_values(self, table: TableName, column: str) -> tuple[str | None, ...]:
        """Returns the distinct values of a public column in order, as text. If NULL is among them, None comes last."""

    def multiplicity(self, table: TableName, columns: Sequence[str], distinct: Sequence[str] = ()) -> int:
        """Returns the most rows of a public table that share one non-NULL value of these columns, else 0.

        distinct: if given, the distinct combinations of these columns are counted in place of rows.
        """

    def unique_keys(self, table: TableName) -> tuple[tuple[str, ...], ...]:
        """Returns the columns of each PRIMARY KEY and UNIQUE constraint of a resolved table, the primary key first."""

    def bind(self, select_sql: str, tables: Sequence[TableName]) -> tuple[CatalogColumn, ...]:
        """Returns the columns of a SELECT, bound over empty copies of the tables. Refuses SQL that does not bind."""

    def bind_rows(self, row_sql: str, once_sql: str, tables: Sequence[TableName]) -> None:
        """Binds row_sql over empty copies of the tables, and runs once_sql over one row of NULLs in each copy.

        Raises Refusal if DuckDB complains, or if DuckDB's parse of row_sql has a node or function that is not allowed.
        """

    def has_collations(self, table: TableName) -> bool:
        """Tells whether a column of a resolved table has a COLLATION, by which different texts may be equal."""

    def numbers_rows(self, table: TableName) -> bool:
        """Tells whether rowid identifies the rows of a resolved table. In PostgreSQL rowid is NULL in each row."""

    def image(self, expression_sql: str, columns: Sequence[ImageInput]) -> Image:
        """Evaluates an expression over the public domains of the columns that it uses."""

    def list_shadows(self) -> frozenset[str]:
        """Lists the built-in functions that a user's macro or function hides."""


@dataclass(frozen=True)
class Clamp:
    """Bounds of a summed column, and the step to which its values are rounded. All are decimal texts."""

    column: str
    low: str
    high: str
    step: str


@dataclass(frozen=True)
class Policy:
    """Policy of one table. A release's digest has its revision and epoch."""

    table: TableName
    unit: PrivacyUnit
    budget: Budget
    domains: tuple[tuple[str, Domain], ...]
    clamps: tuple[Clamp, ...]
    expect_rows: int | None
    max_epsilon: Fraction | None  # the highest price of one statement
    revision: int  # a number that grows with each change of the policy
    epoch: int  # a number that only NEW EPOCH changes
    min_epsilon: Fraction | None = None  # the lowest price of one statement

    def domain(self, column: str) -> Domain | None:
        """Returns the domain of a column. Names are compared without case, as in DuckDB."""
        return next((domain for name, domain in self.domains if fold(name) == fold(column)), None)

    def clamp(self, column: str) -> Clamp | None:
        """Returns the clamp of a column. Names are compared as in `domain`."""
        return next((clamp for clamp in self.clamps if fold(clamp.column) == fold(column)), None)


@dataclass(frozen=True)
class PrivateTable:
    """Private table of a request, with its policy's revision and epoch."""

    table: TableName
    revision: int
    epoch: int
    unique: tuple[str, ...] = ()  # the columns with a UNIQUE constraint of their own
    hidden: bool = False  # whether the table is read only for the privacy unit of another table's rows

    def and_also(self, other: PrivateTable) -> PrivateTable:
        """Merges two records of one table. The table is hidden only if both records say so."""
        unique = tuple(dict.fromkeys((*self.unique, *other.unique)))
        return replace(self, unique=unique, hidden=self.hidden and other.hidden)


@dataclass(frozen=True)
class SourceColumn:
    """Column from which grouping keys are computed: its SQL over the rows, and its public domain."""

    sql: str
    domain: Domain


@dataclass(frozen=True)
class RequestRows:
    """Rows that a request reads, the unit of each row, and the public facts behind both. All SQL is checked.

    shapes: the columns of each table, and whether a text has a COLLATION. They prove that conditions cannot raise.
    """

    table: TableName
    revision: int
    epoch: int
    from_sql: str
    filters: tuple[str, ...]
    unit_key: str
    max_rows: int
    unit_bound: int  # the most rows of one privacy unit that an answer counts
    content_sql: tuple[str, ...]  # columns that tell a unit's rows apart
    public_digests: tuple[tuple[TableName, str], ...]
    reads: tuple[PrivateTable, ...]  # every private table that is read, with the keys that the request relies on
    shapes: tuple[tuple[TableName, tuple[CatalogColumn, ...], bool], ...]
    source: Source  # FROM with its joins as a kernel node, without the filters
    periods: PeriodColumn | None = None  # for units by period, the column of a row's period and the periods read
    cell_key: tuple[str, ...] = ()  # a UNIQUE key that lets a unit have at most one row in a cell, () for none
    unit: Expression | None = None  # the privacy unit of a row, None for PRIVACY UNIT ROW
    columns: Mapping[str, RowColumn] = field(default_factory=dict, compare=False, repr=False)

    @property
    def unit_sql(self) -> str | None:
        """Returns the SQL of the privacy unit of a row without its period, None for PRIVACY UNIT ROW."""
        unit = person_of(self.unit)
        return None if unit is None else unit.sql

    @property
    def unit_text(self) -> str:
        """Describes the privacy unit, its most counted rows and, for units by period, the charged periods."""
        unit = "row" if self.unit_sql is None else f"{self.unit_key}, at most {self.max_rows} rows"
        if self.periods is None:
            return unit
        unit = self.unit_key if self.unit_sql is None else f"{unit} of each {self.periods.periods.word.lower()}"
        return f"{unit}, charged {self.periods.periods}"
