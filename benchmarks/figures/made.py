"""Made-up files with the shape of the papers' data: as many columns, values and rows, and none of the people.

Contingency tables are mixtures of eight kinds of records. Histograms and flows have few occupied cells and long tails.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.papers._datacube_errors import TABLES
from benchmarks.papers._synthetic_data import mixture
from benchmarks.papers.sparse_data import SKEWED

SEED = 2013
ADULT = (9, 16, 7, 15, 6, 5, 2, 2)
"""Values of the eight attributes."""

RECORDS: Mapping[str, tuple[tuple[int, ...], int]] = {
    "mildew": ((2,) * 6, 70),
    "czech": ((2,) * 6, 1841),
    "rochdale": ((2,) * 8, 665),
}
BINS, COUNTIES = 4_096, 3_142


def columns_of(counts: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """The codes of each attribute, one row for each record."""
    places = np.nonzero(counts)
    return [np.repeat(codes, counts[places]) for codes in places]


def rows_of(name: str, sizes: tuple[int, ...], records: int, rng: np.random.Generator) -> pa.Table:
    """Records of a table of the datacubes paper, as texts."""
    columns = columns_of(mixture(sizes, records, rng))
    return pa.table({column: codes.astype(str) for column, codes in zip(TABLES[name], columns, strict=True)})


def contingency(sizes: tuple[int, ...], records: int, rng: np.random.Generator) -> pa.Table:
    """All cells, and the number of records last."""
    counts = mixture(sizes, records, rng)
    places = np.indices(counts.shape).reshape(len(sizes), -1)
    return pa.table({f"a{number}": codes for number, codes in enumerate(places)} | {"n": counts.ravel()})


def histogram_rows(rng: np.random.Generator) -> pa.Table:
    """Four histograms, a tenth of the bins occupied."""
    tables = []
    for name in SKEWED:
        counts = np.zeros(BINS, dtype=np.int64)
        counts[rng.choice(BINS, BINS // 10, replace=False)] = (20 * rng.zipf(1.5, BINS // 10)).clip(20, 50_000)
        tables.append(pa.table({"dataset": [name] * BINS, "bin": np.arange(BINS), "n": counts}))
    return pa.concat_tables(tables)


def flows(counties: int, rng: np.random.Generator) -> pa.Table:
    """Workers by home and work. 1.4 per cent of the pairs are occupied, and all pairs of home equal to work."""
    homes, works = np.divmod(rng.choice(counties**2, int(0.014 * counties**2), replace=False), counties)
    workers = np.minimum(10 * rng.zipf(1.6, len(homes)), 100_000)
    every = np.arange(counties)
    home, work = np.concatenate([homes, every]), np.concatenate([works, every])
    codes = np.array([f"{10_000 + number:05}" for number in every])
    counts = np.concatenate([workers, rng.integers(1_000, 50_000, counties)])
    return pa.table({"home_county": codes[home], "work_county": codes[work], "workers": counts})


def write_made(folder: Path, *, tiny: bool = False) -> None:
    """Writes all files that the pictures need. tiny: with fewer people and counties."""
    rng = np.random.default_rng(SEED)
    share = 20 if tiny else 1
    adult = (3,) * 8 if tiny else ADULT
    parquet = {
        "adult": rows_of("adult", adult, 32_561 // share, rng),
        "nltcs": rows_of("nltcs", (2,) * 16, 21_574 // share, rng),
        "dpbench_1d": histogram_rows(rng),
        "od_us_counties": flows(COUNTIES // share, rng),
    }
    for name, rows in parquet.items():
        pq.write_table(rows, folder / f"{name}.parquet")
    for name, (sizes, records) in RECORDS.items():
        table = contingency(sizes, records, rng)
        duckdb.from_arrow(table).write_csv(str(folder / f"{name}.csv"))
