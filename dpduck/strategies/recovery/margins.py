"""Margins of one vector of cells, as independent observations with the same information.

Best linear unbiased estimates of several margins repeat one another: a table determines its margins, too. If each
margin were fitted with its own variance, their common information would count several times.

The information about a table splits into the components of analysis of variance, one for each set B of axes. A margin
over C has the components of all B inside of C. A family of margins that is closed under intersection has one component
variance for each margin. The smallest margin over a component determines its precision.

So the variances of the margins give those of the components, from the smallest margin on. The component variances give
the precisions of independent observations, from the largest margin on. If only margins were measured, the precisions
are those of the measurements.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Members = tuple[int, ...]

ROUNDING = 1e-6
"""A precision below this part of its component's precision is rounding."""


def close_under_intersection(families: Iterable[Members], most: int) -> set[Members] | None:
    """Returns sets with all their intersections, or None if there are more than `most`."""
    family = set(families)
    pending = list(family)
    while pending and len(family) <= most:
        own = set(pending.pop())
        met = {tuple(sorted(own.intersection(other))) for other in family} - family
        family |= met
        pending += met
    return family if len(family) <= most else None


def independent_precisions(cells: Mapping[Members, int], variances: Mapping[Members, float]) -> dict[Members, float]:
    """Returns the precision of a cell of each margin. It is 0 for a margin that larger margins determine equally well.

    cells: the number of cells of each margin, in a family that is closed under intersection. variances: the mean
    variance over the cells of each margin.
    """
    upwards = sorted(cells, key=lambda axes: (len(axes), axes))
    dimensions: dict[Members, int] = {}
    components: dict[Members, float] = {}
    for axes in upwards:
        below = [other for other in dimensions if set(other) < set(axes)]
        dimensions[axes] = cells[axes] - sum(dimensions[other] for other in below)
        whole = sum(dimensions[other] * components[other] * cells[other] / cells[axes] for other in below)
        rest = cells[axes] * variances[axes] - whole
        components[axes] = max(rest / dimensions[axes], ROUNDING * variances[axes]) if dimensions[axes] > 0 else 0.0
    precisions: dict[Members, float] = {}
    for axes in reversed(upwards):
        precision = 1 / components[axes] if components[axes] else 0.0
        above = sum(precisions[other] * cells[axes] / cells[other] for other in precisions if set(axes) < set(other))
        precisions[axes] = precision - above if precision - above > ROUNDING * precision else 0.0
    return precisions
