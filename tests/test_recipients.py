"""The page for who receives the numbers: its statements run, and its figures follow from the counts that it shows."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner

import dpduck
from dpduck.commands.command_line import main

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "recipients.md").read_text(encoding="utf-8")
READ, MADE = PAGE.split("## How the file was made")
BLOCK = re.compile(r"```sql\n(.*?)```\n\n((?:\|[^\n]*\n)+)", re.DOTALL)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file, made by the commands of the page."""
    folder = tmp_path_factory.mktemp("recipients")
    (block,) = re.findall(r"```sql\n(.*?)```", MADE, re.DOTALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("DPDUCK_STATE_DIR", str(folder / "state"))
        with dpduck.connect("clinic.duckdb") as con:
            for statement in re.split(r";\s*\n", block):
                con.execute(statement)
        (command,) = re.findall(r"```sh\n(.*?)\n```", MADE, re.DOTALL)
        done = CliRunner().invoke(main, command.split()[1:])
    assert done.exit_code == 0, done.output
    return folder / "published.duckdb"


def shown(value: object) -> str:
    """A cell of a table of the page."""
    if value is None:
        return "NULL"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def rows_of(table: str) -> list[list[str]]:
    head, _, *rows = [[cell.strip() for cell in line.strip().strip("|").split(" | ")] for line in table.splitlines()]
    return [head, *rows]


def answer(con: duckdb.DuckDBPyConnection, statement: str) -> list[list[str]]:
    found = con.execute(statement)
    heads = [column[0] for column in found.description or []]
    return [heads, *([shown(value) for value in row] for row in found.fetchall())]


def test_every_statement_reads_the_file(published: Path) -> None:
    """Each statement runs on the published file as any DuckDB opens it, with the columns and rows of the page."""
    blocks = BLOCK.findall(READ)
    assert len(blocks) == 9 == READ.count("```sql")
    with duckdb.connect(str(published), read_only=True) as reader:
        for statement, table in blocks:
            found, printed = answer(reader, statement), rows_of(table)
            assert found[0] == printed[0] and len(found) == len(printed), statement


def with_the_counts_of_the_page(published: Path) -> duckdb.DuckDBPyConnection:
    """A copy of the file with the counts that the page shows, and everything else as it was released."""
    con = duckdb.connect()
    con.execute(f"ATTACH '{published}' AS released (READ_ONLY)")
    con.execute("COPY FROM DATABASE released TO memory")
    con.execute("DETACH released")
    _, *rows = rows_of(BLOCK.findall(READ)[0][1])
    for ward, sex, n, *_, level in rows:
        keys = [None if key == "NULL" else key for key in (ward, sex)]
        con.execute(
            "UPDATE visits_by_ward SET n_low = n_low + $4 - n, n_high = n_high + $4 - n, n = $4 "
            "WHERE ward IS NOT DISTINCT FROM $1 AND sex IS NOT DISTINCT FROM $2 AND grouping_level = $3",
            [*keys, level, float(n)],
        )
    return con


def test_figures_follow_from_the_counts(published: Path) -> None:
    """Standard errors, intervals, totals and differences are those of the counts that the page shows.

    Counts by age are not shown. Their sums move by noise alone, so that the widths of their intervals are compared.
    """
    con = with_the_counts_of_the_page(published)
    for statement, table in BLOCK.findall(READ):
        found, printed = answer(con, statement), rows_of(table)
        if "duckdb_tables" in statement:
            continue  # comments are not copied: the next test reads those of the file
        if "visits_by_age" not in statement:
            assert found == printed, statement
        elif "sum_over_ages" in statement:
            assert found[1][1] == printed[1][1]
        else:
            (estimate, stderr, low, high), fresh = map(float, printed[1]), [float(cell) for cell in found[1]]
            assert stderr == fresh[1], statement
            assert high - low == pytest.approx(fresh[3] - fresh[2], abs=0.2)
            assert estimate == pytest.approx((low + high) / 2, abs=0.06)
    con.close()


def test_the_promise_is_in_the_file(published: Path) -> None:
    """The comment that the page shows is the file's."""
    statement, table = BLOCK.findall(READ)[-1]
    with duckdb.connect(str(published), read_only=True) as reader:
        assert answer(reader, statement) == rows_of(table)


def test_the_difference_of_two_views_is_as_the_page_says(published: Path) -> None:
    """The page states two standard errors, and that of the difference."""
    with duckdb.connect(str(published), read_only=True) as reader:
        ((ages,),) = reader.execute("SELECT sqrt(sum(n_stderr * n_stderr)) FROM visits_by_age").fetchall()
        ((total,),) = reader.execute("SELECT n_stderr FROM visits_by_ward WHERE grouping_level = '()'").fetchall()
    words, both = " ".join(READ.split()), (ages**2 + total**2) ** 0.5
    assert f"standard errors are {ages:.1f} and {total:.1f}, and that of the difference is {both:.1f}." in words
    ((summed, wards),) = re.findall(r"sum_over_ages \| total_of_wards \|\n[^\n]*\n\| (\d+) \| (\d+) \|", READ)
    assert f"Here they differ by {abs(int(summed) - int(wards))}." in words
