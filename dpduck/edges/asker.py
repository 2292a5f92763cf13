"""Who asks: the data owner, or a principal with a share of the budget."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Asker:
    """Who asks. share: of a budget, for principals of a server; None for no limit but the budget."""

    name: str
    owner: bool
    share: Fraction | None = None
