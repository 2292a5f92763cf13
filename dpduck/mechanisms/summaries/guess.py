"""Guess of an unknown sparse table from public facts: the number of rows (EXPECT ROWS), and of possible cells."""

from __future__ import annotations

from dataclasses import dataclass

STEP = 4
"""A stratum has 1/STEP as many cells as the stratum before, and each cell has STEP times as many rows."""


@dataclass(frozen=True)
class Stratum:
    """Set of `cells` cells with `rows` rows each."""

    cells: float
    rows: float


def guess_table(expect_rows: int | None, cells: int) -> tuple[Stratum, ...]:
    """Guesses the occupied cells in strata with equally many rows, as long as the last stratum has a cell.

    >>> [(round(stratum.cells), round(stratum.rows)) for stratum in guess_table(3_000, 10**9)]
    [(600, 1), (150, 4), (38, 16), (9, 64), (2, 256)]
    """
    if not expect_rows:
        return ()
    strata = 1
    while _smallest_cells(expect_rows, cells, strata + 1) >= STEP**strata:
        strata += 1
    first = _smallest_cells(expect_rows, cells, strata)
    rows = expect_rows / strata / first
    return tuple(Stratum(first / STEP**level, rows * STEP**level) for level in range(strata))


def _smallest_cells(expect_rows: int, cells: int, strata: int) -> float:
    """Returns the cells of the first of `strata` strata: one for each row, or fewer if all strata must fit `cells`."""
    of_first = (1 - STEP**-strata) / (1 - 1 / STEP)
    return float(min(expect_rows / strata, cells / of_first))
