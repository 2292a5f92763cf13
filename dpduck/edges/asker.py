"""Who asks: the data owner, or a principal with a share of the budget."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from dpduck.errors import PermissionRefusal
from dpduck.frontend.names import fold
from dpduck.privacy import Budget, Charge

LEAST_EPSILON = 10_000
"""Parts of a budget in epsilon: a principal's new release costs one at least. LEAST_RHO: of a budget in rho."""

LEAST_RHO = 1_000_000


@dataclass(frozen=True)
class Asker:
    """Who asks. share: of a budget, for principals of a server; None for no limit but the budget.

    tables: the private tables that may be asked about, each as a name or with its schema and database; None for all.
    """

    name: str
    owner: bool
    share: Fraction | None = None
    tables: tuple[str, ...] | None = None

    def require_tables(self, tables: Iterable[object]) -> None:
        """PermissionRefusal for the first of these tables that is not this asker's to ask about."""
        for table in tables:
            self.require_table(str(table))

    def require_price(self, charge: Charge, budget: Budget | None) -> None:
        """Refuses a principal's price that is next to nothing: each bit of an answer's failure would cost that."""
        if self.owner or budget is None:
            return
        if budget.pure and budget.epsilon is not None and charge.epsilon is not None:
            least, price, word = budget.epsilon / LEAST_EPSILON, charge.epsilon, "epsilon"
        else:
            least, price, word = (budget.rho or Fraction(0)) / LEAST_RHO, charge.rho, "rho"
        if price < least:
            raise PermissionRefusal(
                f"a principal's statement costs at least {word} = {float(least):g}, and this one {float(price):g}",
                accepted="a larger epsilon",
            )

    def require_table(self, table: str) -> None:
        """PermissionRefusal for a private table, named in full, that is not this asker's to ask about.

        >>> Asker("alice", owner=False, tables=("visits",)).require_table("clinic.main.visits")
        """
        if not self.may_ask(table):
            accepted, name = ", ".join(self.tables or ()) or "no table", fold(table).split(".")[-1]
            raise PermissionRefusal(f"{self.name} may not ask about {name!r}", accepted=accepted)

    def may_ask(self, table: str) -> bool:
        """Whether a private table, named in full, is this asker's to ask about."""
        parts = fold(table).split(".")
        named = [fold(name).split(".") for name in self.tables or ()]
        return self.tables is None or any(parts[-len(allowed) :] == allowed for allowed in named)
