"""Turns the files of a public source into the file that the pictures read: `python -m benchmarks.figures.prepare`.

docs/papers.md says where each source is. Examples, with the folder of the data last:

    python -m benchmarks.figures.prepare adult adult.data --to DIR
    python -m benchmarks.figures.prepare nltcs nltcs.train.data nltcs.valid.data nltcs.test.data --to DIR
    python -m benchmarks.figures.prepare mildew mildew_from_r.csv --to DIR
    python -m benchmarks.figures.prepare dpbench dpcomp_core/datafiles/1D/*.npy --to DIR
    python -m benchmarks.figures.prepare counties table1.csv --to DIR
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import duckdb
import numpy as np

ADULT = (
    "age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation", "relationship", "race",
    "sex", "capital_gain", "capital_loss", "hours_per_week", "native_country", "salary",
)  # fmt: skip


def texts(sources: Sequence[Path]) -> str:
    """A list of files in SQL."""
    return "[" + ", ".join("'" + str(source).replace("'", "''") + "'" for source in sources) + "]"


def copied(query: str, to: Path) -> int:
    """Writes the rows of a query. Returns their number."""
    kind = "CSV, HEADER" if to.suffix == ".csv" else "PARQUET"
    rows = duckdb.execute(f"COPY ({query}) TO '{to}' (FORMAT {kind})").fetchone()
    return int(rows[0]) if rows else 0


def adult(sources: Sequence[Path], to: Path) -> int:
    """UCI's adult.data: 15 columns without a header. `?` stays a value."""
    columns = ", ".join(f"trim(column{place:02}) AS {name}" for place, name in enumerate(ADULT))
    source = f"read_csv({texts(sources)}, header = false, all_varchar = true, delim = ',', null_padding = true)"
    return copied(f"SELECT {columns} FROM {source} WHERE column14 IS NOT NULL", to / "adult.parquet")


def nltcs(sources: Sequence[Path], to: Path) -> int:
    """16 columns of 0 and 1 without a header, in one file or in several."""
    columns = ", ".join(f"column{place:02}::UTINYINT AS y{place + 1}" for place in range(16))
    return copied(f"SELECT {columns} FROM read_csv({texts(sources)}, header = false)", to / "nltcs.parquet")


def contingency(name: str) -> Callable[[Sequence[Path], Path], int]:
    """R's file of a table: one column for each attribute, then Freq, which is called n here."""

    def prepared(sources: Sequence[Path], to: Path) -> int:
        source = f"read_csv({texts(sources)}, header = true)"
        return copied(f"SELECT * RENAME (Freq AS n) FROM {source}", to / f"{name}.csv")

    return prepared


def dpbench(sources: Sequence[Path], to: Path) -> int:
    """Histograms as arrays of numpy, named as their files are."""
    lines = []
    for source in sources:
        counts = np.load(source).ravel()
        name = source.name.removesuffix(".npy").removesuffix(f".n{len(counts)}")
        lines.append(f"SELECT '{name}' AS dataset, unnest(range({len(counts)}))::INTEGER AS bin, "
                     f"unnest({counts.astype(np.int64).tolist()})::BIGINT AS n")  # fmt: skip
    return copied(" UNION ALL ".join(lines), to / "dpbench_1d.parquet")


def counties(sources: Sequence[Path], to: Path) -> int:
    """Table 1 of the Census's commuting flows, saved as CSV: codes in columns 1, 2, 5 and 6, workers in column 9.

    Lines that are no flow inside the country are left out: headers, notes, and places of work abroad.
    """
    names = ", ".join(f"'c{place}': 'VARCHAR'" for place in range(1, 11))
    source = (
        f"read_csv({texts(sources)}, header = false, auto_detect = false, delim = ',', quote = '\"', escape = '\"', "
        f"null_padding = true, columns = {{{names}}})"
    )
    workers = "try_cast(replace(c9, ',', '') AS INTEGER)"
    query = (
        "SELECT lpad(c1, 2, '0') || lpad(c2, 3, '0') AS home_county, "
        "right(lpad(c5, 3, '0'), 2) || lpad(c6, 3, '0') AS work_county, "
        f"{workers} AS workers FROM {source} WHERE try_cast(c1 AS INTEGER) IS NOT NULL "
        f"AND try_cast(c5 AS INTEGER) < 100 AND {workers} IS NOT NULL"
    )
    return copied(query, to / "od_us_counties.parquet")


SOURCES: Mapping[str, Callable[[Sequence[Path], Path], int]] = {
    "adult": adult, "nltcs": nltcs, "dpbench": dpbench, "counties": counties,
    **{name: contingency(name) for name in ("mildew", "czech", "rochdale")},
}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=sorted(SOURCES))
    parser.add_argument("sources", nargs="+", type=Path)
    parser.add_argument("--to", type=Path, required=True, help="the folder of the data")
    options = parser.parse_args(arguments)
    options.to.mkdir(parents=True, exist_ok=True)
    print(f"{options.name}: {SOURCES[options.name](options.sources, options.to):,} rows in {options.to}")


if __name__ == "__main__":
    main()
