"""What travels with a private view beside its price: whose rows it is about, which it leaves out, how far it is off."""

from __future__ import annotations

from dpduck.domain import Domain, RangeDomain
from dpduck.edges.release_store import StoredRelease
from dpduck.frontend.analyse import Analysis
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


def errors_of(analysis: Analysis, release: StoredRelease) -> str:
    """The standard errors of the answers that a view shows, so that they are with it whatever its author selected.

    Of counts and sums; where it depends on the answer, or where options move answers after the noise, dp_stderr has it.
    """
    request, said = analysis.request, []
    if request.summary is not None or request.treatment.moves:
        return ""  # a summary's rows carry their own
    for name, number in analysis.shown:
        errors = [law.stderr for law in release.laws[number]] if number < len(release.laws) else []
        if errors and not request.aggregates[number].curved:
            low, high = f"{min(errors):.4g}", f"{max(errors):.4g}"
            said.append(f"{name} {low}" if low == high else f"{name} {low} to {high}")
    return f"standard error of {', '.join(said)}" if said else ""
