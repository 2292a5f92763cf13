"""What travels with a private view beside its price: whose rows it is about, and which of them it leaves out."""

from __future__ import annotations

from dpduck.domain import Domain, RangeDomain
from dpduck.frontend.request import Request


def _leaves_out(domain: Domain) -> bool:
    """Whether values that are not NULL can be outside."""
    return not domain.with_edges if isinstance(domain, RangeDomain) else domain.other is None


def scope_of(request: Request) -> str:
    """The privacy unit, MAX ROWS and the domains of a release in one line, from public facts alone.

    A view is published, and the column that tells whose rows are whose is not: the unit goes without its name.
    """
    unit = "a row" if request.unit_sql is None else f"all rows of one owner, at most {request.max_rows} counted"
    keys = []
    for key in request.keys:
        domains = [request.sources[position].domain for position in key.sources]
        without = [one for one in domains if not one.with_null]
        others = [one for one in domains if _leaves_out(one)]
        left = [word for word, missing in (("NULL", without), ("other values", others)) if missing]
        size = "selected values" if not key.labels else f"{len(key.labels)} values"
        keys.append(f"{key.name} ({', without '.join([size, *([' and '.join(left)] if left else [])])})")
    return f"privacy unit {unit}" + (f"; by {', '.join(keys)}" if keys else "")
