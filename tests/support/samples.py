"""Random parts of the suite, by a seed that is printed."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence


def by_function(names: Sequence[str]) -> dict[str, list[str]]:
    """Groups tests by their functions, both in order of names."""
    functions = defaultdict(list)
    for name in sorted(names):
        functions[name.partition("[")[0]].append(name)
    return functions


def of_functions(names: Sequence[str], part: int, seed: int) -> set[str]:
    """Returns one of every `part` functions, at random, with all values of each.

    >>> len(of_functions(["a.py::one[1]", "a.py::one[2]", "a.py::two[1]", "a.py::two[2]"], 2, 7))
    2
    """
    functions, chance = by_function(names), random.Random(seed)  # noqa: S311
    chosen = chance.sample(list(functions), -(-len(functions) // part))
    return {name for function in chosen for name in functions[function]}


def of_values(names: Sequence[str], part: int, seed: int) -> set[str]:
    """Returns one of every `part` values of each function, at random.

    >>> len(of_values(["a.py::one[1]", "a.py::one[2]", "a.py::one[3]", "a.py::two"], 3, 7))
    2
    """
    chance = random.Random(seed)  # noqa: S311
    return {name for found in by_function(names).values() for name in chance.sample(found, -(-len(found) // part))}


def one_of_each(names: Sequence[str], part: int, seed: int) -> set[str]:
    """Returns one of every `part` functions, at random, each with one value.

    >>> len(one_of_each(["a.py::one[1]", "a.py::one[2]", "a.py::two[1]", "a.py::two[2]"], 2, 7))
    1
    """
    return of_values(sorted(of_functions(names, part, seed)), len(names) + 1, seed)
