"""Independent observations that carry the information of estimated margins of one table.

A table determines its margins, so estimates of several margins share information. If each margin were fitted with its
variance, shared information would count several times. The information splits into ANOVA components, one for each set
of axes. The smallest margin over a component determines the component's precision. So the variances of the margins give
those of the components, smallest margins first. These give the precisions of independent observations, largest margins
first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Members = tuple[int, ...]

ROUNDING = 1e-6
"""A precision below this part of its component's precision is a rounding error and becomes 0."""


def close_under_intersection(families: Iterable[Members], most: int) -> set[Members] | None:
    """Returns some sets of axes and all their intersections, or None if there are more than `most`."""
    family = set(families)
    pending = list(family)
    while pending and len(family) <= most:
        own = set(pending.pop())
        met = {tuple(sorted(own.intersection(other))) for other in family} - family
        family |= met
        pending += met
    return family if len(family) <= most else None


def independent_precisions(cells: Mapping[Members, int], variances: Mapping[Members, float]) -> dict[Members, float]:
    """Returns precisions per cell of independent observations of the margins that tell as much as the estimates.

    The precision is 0 if larger margins determine a margin equally well. cells: the number of cells of each margin, in
    a family that is closed under intersection. variances: the mean over the cells of each estimated margin.
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
