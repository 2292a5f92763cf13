"""Margins of one vector of cells, as independent observations with the same information.

Best linear unbiased estimates of several margins repeat one another: a margin of a table is known from the table, too.
If each margin were fitted with its own variance, their common information would count several times.

The information about a table splits into the components of analysis of variance, one for each set B of axes. A margin
over C has the components of all B inside of C. A family of margins that is closed under intersection has one component
variance for each margin. A component is known as well as the smallest margin over it.

So the variances of the margins give those of the components, from the smallest margin on. The component variances give
the precisions of independent observations, from the largest margin on. Where only margins were measured, the precisions
are those of the measurements.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Members = tuple[int, ...]

ROUNDING = 1e-6
"""A precision below this part of its component's precision is rounding."""


def closed(families: Iterable[Members], most: int) -> set[Members] | None:
    """Returns sets with all their intersections, or None where there are more than `most`."""
    found = set(families)
    pending = list(found)
    while pending and len(found) <= most:
        own = set(pending.pop())
        met = {tuple(sorted(own.intersection(other))) for other in found} - found
        found |= met
        pending += met
    return found if len(found) <= most else None


def independent_precisions(cells: Mapping[Members, int], variances: Mapping[Members, float]) -> dict[Members, float]:
    """Returns the precision of a cell of each margin. It is 0 for a margin that larger ones know as well.

    cells: the number of cells of each margin, in a family that is closed under intersection.
    variances: the mean variance over the cells of each margin.
    """
    upwards = sorted(cells, key=lambda one: (len(one), one))
    dimensions: dict[Members, int] = {}
    components: dict[Members, float] = {}
    for one in upwards:
        below = [other for other in dimensions if set(other) < set(one)]
        dimensions[one] = cells[one] - sum(dimensions[other] for other in below)
        whole = sum(dimensions[other] * components[other] * cells[other] / cells[one] for other in below)
        rest = cells[one] * variances[one] - whole
        components[one] = max(rest / dimensions[one], ROUNDING * variances[one]) if dimensions[one] > 0 else 0.0
    precisions: dict[Members, float] = {}
    for one in reversed(upwards):
        known = 1 / components[one] if components[one] else 0.0
        above = sum(precisions[other] * cells[one] / cells[other] for other in precisions if set(one) < set(other))
        precisions[one] = known - above if known - above > ROUNDING * known else 0.0
    return precisions
