"""Frozen values of privacy: the unit that is protected, budgets, and charges. All amounts are exact rationals."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dpduck.values.periods import Period

ZERO = Fraction(0)


@dataclass(frozen=True)
class Reference:
    """Foreign key that leads from a row to its unit: `column` equals `parent_column`, a key of the table `parent`.

    The row has the unit of its parent row, by the parent's own policy.
    """

    column: str
    parent: tuple[str, ...]  # the three parts of the table's name
    parent_column: str


@dataclass(frozen=True)
class PrivacyUnit:
    """Unit that is protected: all rows that share one value of a column, or a single row.

    column: the column of this table that holds the unit, None for PRIVACY UNIT ROW. With a reference or several columns
        it is "", which is no column: code that does not expect this fails, and does not protect the wrong unit.
    """

    key: str  # name of the unit ("main.patients.id", or "main.visits.ROW"). Tables with the same key share one budget
    column: str | None
    max_rows: int  # m, the most rows of one unit that an answer can see, 1 for rows
    reference: Reference | None = None
    period: Period | None = None  # if given, a unit is the rows of one value in one period. The key has its word
    columns: tuple[str, ...] = ()  # the columns of this table that hold the unit together, if there are several

    @property
    def own_columns(self) -> tuple[str, ...]:
        """Returns the columns of this table that hold the unit or lead to it, none for PRIVACY UNIT ROW."""
        if self.reference is not None:
            return (self.reference.column,)
        return self.columns or ((self.column,) if self.column else ())


@dataclass(frozen=True)
class Budget:
    """Amounts that an owner is willing to spend on one privacy unit.

    Pure: epsilon alone. Approximate: epsilon and delta, converted to rho, with delta_keys reserved for key selection.
    zCDP: rho alone. The ledger adds up either `epsilon` or `rho` (see `pure`).
    """

    epsilon: Fraction | None
    delta: Fraction
    delta_keys: Fraction
    rho: Fraction | None
    lifetime: Budget | None = None  # for a unit by periods, the most that all periods together may cost a person

    @property
    def pure(self) -> bool:
        """Tells whether the ledger adds up epsilons. Otherwise it adds up rhos."""
        return self.rho is None


@dataclass(frozen=True)
class Charge:
    """Price of one release: pure epsilon, or rho with a delta for selected keys.

    epsilon is None for a Gaussian release. rho is always set (a pure release costs at most epsilon^2 / 2).

    >>> Charge.pure(Fraction(1, 2)).rho
    Fraction(1, 8)
    """

    epsilon: Fraction | None
    rho: Fraction
    delta: Fraction = ZERO

    @classmethod
    def pure(cls, epsilon: Fraction) -> Charge:
        """Prices epsilon-differential privacy, which is epsilon^2/2 zCDP (Bun and Steinke 2016, Proposition 1.4)."""
        return cls(epsilon=epsilon, rho=epsilon * epsilon / 2)

    @classmethod
    def zcdp(cls, rho: Fraction, delta: Fraction = ZERO) -> Charge:
        return cls(epsilon=None, rho=rho, delta=delta)


NOTHING = Charge(epsilon=ZERO, rho=ZERO)


def add_charges(charge: Charge, other: Charge) -> Charge:
    """Adds two charges. The sum has no pure epsilon unless both have one."""
    epsilon = None if charge.epsilon is None or other.epsilon is None else charge.epsilon + other.epsilon
    return Charge(epsilon=epsilon, rho=charge.rho + other.rho, delta=charge.delta + other.delta)


def missing_from(own: Charge, other: Charge) -> Charge:
    """Returns the charge to add to `own`, so that no amount is below that of `other`."""
    epsilon: Fraction | None = max(ZERO, (other.epsilon or ZERO) - (own.epsilon or ZERO))
    if other.epsilon is None and own.epsilon is not None:
        epsilon = None
    return Charge(epsilon=epsilon, rho=max(ZERO, other.rho - own.rho), delta=max(ZERO, other.delta - own.delta))
