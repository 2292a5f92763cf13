"""An owner's policy once it has been checked: what is public about a table and what is protected."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from dpduck.domain import Domain
from dpduck.frontend.names import TableName, fold
from dpduck.privacy import Budget, PrivacyUnit


@dataclass(frozen=True)
class Clamp:
    """Bounds of a summed column, and the step that makes its sums integers; decimal texts."""

    column: str
    low: str
    high: str
    step: str


@dataclass(frozen=True)
class Policy:
    """The policy of one table.

    revision: counts every change of the policy. epoch: moves only by NEW EPOCH; both are part of a release's key.
    max_epsilon, min_epsilon: what one statement may cost at most, and must cost at least.
    """

    table: TableName
    unit: PrivacyUnit
    budget: Budget
    domains: tuple[tuple[str, Domain], ...]
    clamps: tuple[Clamp, ...]
    expect_rows: int | None
    max_epsilon: Fraction | None
    revision: int
    epoch: int
    min_epsilon: Fraction | None = None

    def domain(self, column: str) -> Domain | None:
        """The domain of a column, by DuckDB's case-insensitive names."""
        return next((domain for name, domain in self.domains if fold(name) == fold(column)), None)

    def clamp(self, column: str) -> Clamp | None:
        """The clamp of a column, by the same names."""
        return next((clamp for clamp in self.clamps if fold(clamp.column) == fold(column)), None)


@dataclass(frozen=True)
class PrivateTable:
    """A private table as a request reads it: its policy's revision and epoch, and columns each taken for a key.

    hidden: whether it is read for nothing but the privacy unit of another table's rows.
    """

    table: TableName
    revision: int
    epoch: int
    unique: tuple[str, ...] = ()
    hidden: bool = False

    def and_also(self, other: PrivateTable) -> PrivateTable:
        """Both readings of one table as one."""
        unique = tuple(dict.fromkeys((*self.unique, *other.unique)))
        return replace(self, unique=unique, hidden=self.hidden and other.hidden)


@dataclass(frozen=True)
class SourceColumn:
    """A column of the row source that keys depend on, with its public domain."""

    sql: str
    domain: Domain
