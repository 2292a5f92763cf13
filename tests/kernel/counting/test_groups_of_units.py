"""A unit keeps its rows in its first C cells. Its own rows and the key alone decide which cells these are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import duckdb
import numpy as np
import pytest
from numpy.typing import NDArray

from dpduck.kernel.contributions import Contribution
from dpduck.kernel.counting.contribution_sql import tables_from
from dpduck.kernel.counting.jobs import Attribute, CountingJob
from dpduck.kernel.rows.bounding import KEY, UNIT, UNIT_HASH, Crowds, unit_hash_sql
from dpduck.kernel.stage import cut_sql, stage_sql
from dpduck.values.domain import ValueDomain
from dpduck.values.errors import InternalError
from tests.support.nodes import adds, counts, key

CELLS, MOST, GROUPS = 12, 20, 3
ROWS = adds("")
PERSONS = adds("", "sum", per_group="sum")
CODES = ("CAST(dpduck_cell_0 AS BIGINT)",)
Row = tuple[int | None, int]
"""A unit and a cell."""


def drawn_rows(seed: int = 3, units: int = 40) -> list[Row]:
    """Units with one to forty rows, in few cells or in many, and rows without a unit."""
    drawn, rows = np.random.default_rng(seed), list[Row]()
    for unit in range(units):
        cells = int(drawn.choice([1, GROUPS, GROUPS + 1, CELLS]))
        size = int(drawn.integers(1, 2 * MOST))
        rows += [(None if unit == 5 else unit, int(drawn.integers(0, cells))) for _ in range(size)]
    return rows


def table_of(
    rows: Sequence[Row], one: Contribution, *, groups: int = GROUPS, threads: int = 2, listed: bool = False,
    parts: int = 1, most: int = MOST,
) -> NDArray[np.int64]:  # fmt: skip
    """Returns the exact table by cell, as the stage computes it.

    listed: whether units with more rows than groups are known before. parts: into how many parts rows are cut first.
    """
    with duckdb.connect(config={"threads": threads}) as connection:
        connection.execute("CREATE TABLE r (dpduck_unit BIGINT, dpduck_cell_0 BIGINT, dpduck_order UBIGINT, p BIGINT)")
        columns = [list(column) for column in zip(*rows, strict=True)] or [[], []]
        connection.execute(
            f"INSERT INTO r SELECT u, c, hash(u, c), row_number() OVER () % {parts} "
            "FROM (SELECT unnest($1) AS u, unnest($2) AS c)",
            columns,
        )
        cells, source, crowds = {"dpduck_cell_0": CELLS}, "SELECT * EXCLUDE (p) FROM r", None
        if parts > 1:
            pieces = [
                cut_sql(f"{source} WHERE p = {part}", cells, [one], most, groups, CODES)[1] for part in range(parts)
            ]
            source = " UNION ALL ".join(f"(FROM ({piece}))" for piece in pieces)
        if listed:
            connection.execute(
                f"CREATE TABLE many AS SELECT {unit_hash_sql(UNIT)} AS {UNIT_HASH} FROM r GROUP BY {UNIT} "
                f"HAVING count(*) > {min(groups, most)}"
            )
            theirs = f"{source} SEMI JOIN many ON {unit_hash_sql(UNIT)} = {UNIT_HASH}"
            crowds = Crowds("many", theirs)
        sql = stage_sql(source, cells, [one], most, groups, crowds=crowds, codes=CODES)
        found = list(connection.execute(sql, {KEY: 7} if groups < most else {}).fetchnumpy().values())
    table = np.zeros(CELLS, np.int64)
    (table[np.asarray(found[0], np.int64)],) = tables_from([one], found[1:])
    return table


@pytest.mark.parametrize("one", [ROWS, PERSONS], ids=["rows", "persons"])
@pytest.mark.parametrize("threads", [1, 2, 8])
def test_no_unit_changes_the_groups_of_another(one: Contribution, threads: int) -> None:
    """The table is the sum of the tables of each unit alone, in any order of rows and with any number of threads."""
    rows = drawn_rows()
    alone = [table_of([row for row in rows if row[0] == unit], one) for unit in range(40)]
    order = np.random.default_rng(threads).permutation(len(rows))
    together = table_of([rows[place] for place in order], one, threads=threads)
    assert together.tolist() == np.sum(alone, axis=0).tolist()


def test_a_unit_is_in_so_many_groups_whole_or_up_to_its_rows() -> None:
    """A unit keeps all rows of C groups, or MAX ROWS rows, and every row where it has no more groups."""
    rows, whole = drawn_rows(), 0
    for unit in range(40):
        own = [row for row in rows if row[0] == unit]
        table, before = table_of(own, ROWS), np.bincount([cell for _, cell in own], minlength=CELLS)
        kept, most = np.flatnonzero(table), min(GROUPS, int(np.count_nonzero(before)))
        assert len(kept) <= most and table.sum() <= MOST and (table <= before).all()
        chosen = before[np.flatnonzero(table_of(own, ROWS, most=1000))]
        assert len(chosen) == most and table.sum() == min(MOST, chosen.sum())
        assert table_of(own, PERSONS).sum() == len(kept)
        whole += int(most == GROUPS)
    assert whole > 20


@pytest.mark.parametrize("one", [ROWS, PERSONS], ids=["rows", "persons"])
def test_every_way_to_count_keeps_the_same_groups(one: Contribution) -> None:
    """Which rows are kept is the same for units known to have many rows, and for rows that come in parts."""
    rows = drawn_rows(4)
    expected = table_of(rows, one).tolist()
    assert table_of(rows, one, listed=True).tolist() == expected
    assert table_of(rows, one, parts=3).tolist() == expected
    assert table_of(rows, one, groups=MOST).tolist() == table_of(rows, one, groups=CELLS + MOST).tolist()


def job(groups: int, codes: Sequence[int] = (0, 1, 2), unit: str | None = "t.u") -> CountingJob:
    """Persons and rows by a key of three values."""
    values = key("t.k", ValueDomain("INTEGER", ("1", "2", "3")))
    attributes = (Attribute((0,), np.array(codes, np.int64), max(codes) + 1),)
    return counts("t", (), unit, MOST, ("t.k",), (values,), attributes, (PERSONS, ROWS), groups=groups)


def test_the_bounds_of_a_job_go_by_its_groups() -> None:
    """Two groups bound the count of persons by 2, in L1 and in squares. Rows may all lie in one group."""
    made = job(2)
    assert (made.unit_bounds, made.cell_bounds, made.squares_bounds) == ((2, 20), (1, 20), (2, 400))
    assert job(9).unit_bounds == job(0).unit_bounds == (3, 20)


def test_groups_of_merged_keys_and_of_no_unit_are_no_job() -> None:
    """Keys that merge values are refused, as they have other groups than are counted. So are rows without a unit."""
    for codes, unit in (((0, 0, 1), "t.u"), ((0, 1, 2), None)):
        with pytest.raises(InternalError, match="groups of no units, or of keys that merge values"):
            job(2, codes, unit)
    with pytest.raises(InternalError, match="groups of no units, or of keys that merge values"):
        replace(job(2), keys=(), attributes=())
