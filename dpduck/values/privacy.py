"""Frozen values of privacy: the unit that is protected, budgets, and charges; all amounts are exact rationals."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dpduck.values.periods import Period

ZERO = Fraction(0)


@dataclass(frozen=True)
class Reference:
    """How a row finds its unit through a parent's row: `column` here equals `parent_column`, a key of `parent`.

    parent: the three parts of the parent table's name; its own policy says whose row it is.
    """

    column: str
    parent: tuple[str, ...]
    parent_column: str


@dataclass(frozen=True)
class PrivacyUnit:
    """Who is protected: all rows that share one value of a column, or a single row.

    key: names the unit across tables ("main.patients.id", or "main.visits.ROW"); tables with one key share one ledger.
    column: the column of this table that holds the unit; None for PRIVACY UNIT ROW; "", which is no column, where
    there is a reference: code that knows of columns alone then fails instead of protecting the wrong thing.
    max_rows: m, the most rows of one unit that an answer can see; 1 for rows.
    period: where it is given, a unit is the rows of one value, or one row, of one period alone; the key says its word.
    columns: of a unit that several columns of this table hold together, these; `column` is "" then, too.
    """

    key: str
    column: str | None
    max_rows: int
    reference: Reference | None = None
    period: Period | None = None
    columns: tuple[str, ...] = ()

    @property
    def own_columns(self) -> tuple[str, ...]:
        """Returns the columns of this table that say whose a row is; none for PRIVACY UNIT ROW."""
        if self.reference is not None:
            return (self.reference.column,)
        return self.columns or ((self.column,) if self.column else ())


@dataclass(frozen=True)
class Budget:
    """What an owner is willing to spend on one privacy unit.

    Pure: epsilon alone. Approximate: epsilon and delta, held as rho with delta_keys kept for key selection.
    zCDP: rho alone. Exactly one of `epsilon` and `rho` is what the ledger adds up (see `pure`).
    lifetime: of a unit by periods, what all periods together may cost whoever has rows in each of them.
    """

    epsilon: Fraction | None
    delta: Fraction
    delta_keys: Fraction
    rho: Fraction | None
    lifetime: Budget | None = None

    @property
    def pure(self) -> bool:
        """True where epsilons add up; False where rho does."""
        return self.rho is None


@dataclass(frozen=True)
class Charge:
    """The price of one release: pure epsilon, or rho with a delta for selected keys.

    epsilon is None for a Gaussian release; rho is always set (a pure release costs epsilon^2 / 2).

    >>> Charge.pure(Fraction(1, 2)).rho
    Fraction(1, 8)
    """

    epsilon: Fraction | None
    rho: Fraction
    delta: Fraction = ZERO

    @classmethod
    def pure(cls, epsilon: Fraction) -> Charge:
        """Epsilon-differential privacy, which is epsilon^2/2 zCDP (Bun and Steinke 2016, Proposition 1.4)."""
        return cls(epsilon=epsilon, rho=epsilon * epsilon / 2)

    @classmethod
    def concentrated(cls, rho: Fraction, delta: Fraction = ZERO) -> Charge:
        """Rho-zCDP, with a delta for keys where some were selected by a threshold."""
        return cls(epsilon=None, rho=rho, delta=delta)
