"""What public facts say about an unknown sparse table: how many rows (EXPECT ROWS), and how many cells there could be.

How many cells are occupied is private, and nobody has said it. Rows are spread by Zipf's law, which favours no size of
cell: as many rows are in cells of about one row as in cells of about four, sixteen, .., up to the largest. Methods that
drop small cells, and methods that sample large ones, are both judged by what they do to such a table.
"""

from __future__ import annotations

from dataclasses import dataclass

STEP = 4
"""From one stratum to the next cells hold STEP times the rows, and there are 1/STEP as many of them."""


@dataclass(frozen=True)
class Stratum:
    """So many cells with so many rows each."""

    cells: float
    rows: float


def guessed_table(expect_rows: int | None, cells: int) -> tuple[Stratum, ...]:
    """The occupied cells: strata of equally many rows, as many of them as leave a whole cell in the last.

    None without EXPECT ROWS. Where there are too few cells for so many small ones, each holds more.

    >>> [(round(stratum.cells), round(stratum.rows)) for stratum in guessed_table(3_000, 10**9)]
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
    """How many cells are in the first stratum of so many: one row in each, or all cells in all of them."""
    of_first = (1 - STEP**-strata) / (1 - 1 / STEP)
    return float(min(expect_rows / strata, cells / of_first))
