"""Asks that are declared after the charge, when earlier answers are known. One price was charged for all."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpduck.kernel.price import Ask, Query, pure
from dpduck.values.errors import InternalError
from dpduck.values.privacy import Charge


@dataclass(frozen=True, eq=False)
class Within(Query[None]):
    """Family of asks that may be declared after the charge, depending on earlier answers. `limit` is their total price.

    The door adds up the prices of the members. The family itself has no answer. Prices add up, whatever the earlier
    answers were (docs/privacy.md, "Within"). kinds: classes of the allowed queries. weighed: whether members count the
    family's job with norms and centres that are unknown at the charge. Nothing is counted until these are known.
    """

    limit: Fraction
    pure: bool
    kinds: tuple[type[Query[Any]], ...]
    weighed: bool = False
    has_noise = False
    certified = ("limit", "pure")

    def cost(self, ask: Ask[None]) -> Charge:
        return pure(self.limit) if self.pure else Charge.zcdp(self.limit)

    def allowance(self) -> Fraction:
        return self.limit

    def admit(self, member: Ask[Any]) -> Fraction:
        cost = member.cost
        paid = cost.epsilon if self.pure else cost.rho
        if type(member.query) not in self.kinds or paid is None or cost.delta:
            raise InternalError("an ask beyond its family")
        return paid

    def is_counted_later(self) -> bool:
        return self.weighed
