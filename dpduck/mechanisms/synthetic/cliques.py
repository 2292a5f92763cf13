"""Cliques that contain given sets of attributes, and the cells of their tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from dpduck.language.select.impossible_cells import ImpossibleCells
from dpduck.mechanisms.synthetic.junction import Members, eliminate

LARGEST_TABLE = 1 << 24


def kept_zeros(
    sizes: Sequence[int], sets: Sequence[Members], zeros: Iterable[ImpossibleCells], most: int
) -> tuple[ImpossibleCells, ...]:
    """Returns the `zeros` (impossible cells) that a fit to `sets` can include in tables of `most` cells in all."""
    chosen: list[ImpossibleCells] = []
    for zero in zeros:
        if cells_for_fit(sizes, [*sets, *(other.members for other in chosen), zero.members]) <= most:
            chosen.append(zero)
    return tuple(chosen)


def cliques_of(sizes: Sequence[int], sets: Sequence[Members]) -> tuple[Members, ...]:
    """Returns cliques that contain these sets and all attributes. Connected cliques are merged if that adds no cell."""
    result: list[Members] = []
    cliques = eliminate(tuple(sizes), frozenset(sets)).cliques()
    for group in attribute_groups(len(sizes), sets):
        inside = [clique for clique in cliques if group.issuperset(clique)]
        joint = prod(sizes[attribute] for attribute in group)
        cells = sum(prod(sizes[attribute] for attribute in clique) for clique in inside)
        result += [tuple(sorted(group))] if joint <= cells else inside
    return tuple(result)


def cells_of(sizes: Sequence[int], cliques: Iterable[Members]) -> int:
    """Counts the cells of the tables over all cliques."""
    return sum(prod(sizes[attribute] for attribute in clique) for clique in cliques)


def cells_for_fit(sizes: Sequence[int], marginals: Sequence[Members]) -> int:
    """Counts the cells of the tables in a fit to the marginals."""
    return cells_of(sizes, cliques_of(sizes, marginals))


def attribute_groups(attributes: int, marginals: Sequence[tuple[int, ...]]) -> list[set[int]]:
    """Returns the groups of attributes that marginals connect."""
    groups = [{attribute} for attribute in range(attributes)]
    for marginal in marginals:
        touched = [group for group in groups if group & set(marginal)]
        if len(touched) > 1:
            groups = [group for group in groups if group not in touched] + [set().union(*touched)]
    return groups
