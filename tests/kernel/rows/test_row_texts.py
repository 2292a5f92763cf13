"""Texts that a program makes of one row are so few that no row comes near the memory that a row alone may use."""

from __future__ import annotations

import json
import subprocess
import sys

import duckdb
import pyarrow as pa
import pytest
from sqlglot import parse_one

import dpduck
from dpduck.kernel.worker import workers as module
from dpduck.kernel.worker.functions import texts_made
from dpduck.kernel.worker.program import GROWTH, LITERALS, LONGEST_TEXT, Division, Output
from dpduck.kernel.worker.workers import Workers
from dpduck.language.rows.compiled import program_of
from dpduck.language.rows.functions import MAX_BUILT, MAX_GROWTH, check_row_local
from dpduck.language.text.dialect import PrivateDuckDB
from dpduck.values.errors import Refusal
from tests.support.clinics import Clinic
from tests.support.nodes import columns_of

NOTE = '"r0"."note"'
COLUMNS = columns_of({NOTE: "VARCHAR"})
LONG = f"concat({', '.join([NOTE] * GROWTH)})"
"""The longest text that one call may make of a row."""


def heavy(times: int) -> Division:
    """Returns a condition that makes the longest text so many times."""
    return Division({}, (program_of(f"greatest({', '.join([f'length({LONG})'] * times)}) > 0", COLUMNS),))


def kept(division: Division, length: int, beside: int) -> bool | None:
    """Tells whether a worker keeps a row with a text of so many bytes, beside other rows. None: it is left out."""
    rows = ["a" * length] + ["b"] * beside
    workers = Workers()
    try:
        with workers.runner(division.program()) as runner:
            answers = runner.compute(pa.table({"dpduck_x_0": pa.array(rows, pa.large_string())}))
    finally:
        workers.close()
    found: bool | None = answers.column(0)[0].as_py()
    return found


def test_the_rule_is_what_conditions_are_refused_by() -> None:
    """The kernel counts with the limits of growth and literals by which the frontend refuses conditions."""
    assert (GROWTH, LITERALS) == (MAX_GROWTH, MAX_BUILT)


def test_texts_that_are_made_are_counted() -> None:
    """Calls and casts that make a text are counted. Comparisons, numbers and literals are not."""
    assert texts_made("upper(a) || lower(b) = 'x' AND c + 1 < 2 AND a LIKE 'y%'") == 3
    assert texts_made("CASE WHEN a = 'x' THEN CAST(c AS VARCHAR) ELSE strftime(d, '%Y') END") == 2
    assert texts_made("concat('concat(', a)") == 1


@pytest.mark.slow
@pytest.mark.parametrize(("times", "others"), [(30, (0, 2)), (200, (0,))])
def test_a_row_at_its_bound_has_memory_to_spare(
    monkeypatch: pytest.MonkeyPatch, times: int, others: tuple[int, ...]
) -> None:
    """A row with the longest text that a program reads fits 9/16 of the memory, alone and beside others.

    Without a rule for the whole program 200 texts would have 840 MB, and a row of the longest text is left out.
    """
    division = heavy(times)
    longest = division.longest_text
    monkeypatch.setattr(module, "MEMORY", module.MEMORY * 3 // 4)
    monkeypatch.setattr(module, "ROOM", module.ROOM * 9 // 16)
    assert division.longest_text < longest, "less memory shortens what is read; a longer text still has room"
    assert [kept(division, longest, beside) for beside in others] == [True] * len(others)
    assert times == 30 or not kept(division, LONGEST_TEXT, 0)


LIMITED = """
import json, os, resource, sys
from dpduck.kernel.worker.program import LONGEST_TEXT
from dpduck.kernel.worker.workers import DATA, least_room, row_texts
from tests.kernel.rows.test_row_texts import heavy, kept
most = DATA[0] + DATA[1] * os.cpu_count() + (int(sys.argv[1]) << 20)
resource.setrlimit(resource.RLIMIT_DATA, (most, most))
division = heavy(30)
found = [least_room() >> 20, division.longest_text]
if len(sys.argv) > 2:
    found += [kept(division, length, beside) for length in (division.longest_text, LONGEST_TEXT) for beside in (0, 2)]
else:
    division.program()
print(json.dumps(found))
"""


def limited(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs LIMITED in a separate process, since its limit stays."""
    command = [sys.executable, "-c", LIMITED, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA is Linux's")
def test_a_limit_of_the_parent_shortens_what_is_read_of_a_row() -> None:
    """With little memory a row at its bound is still kept, alone and beside others. The longest text is not."""
    least, longest, *outcomes = json.loads(limited("200", "kept").stdout)
    assert (least, outcomes) == (200, [True, True, None, None])
    assert longest < LONGEST_TEXT // 10


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA is Linux's")
def test_a_worker_with_too_little_memory_is_refused() -> None:
    """A worker with too little memory is refused before any row is read, and the message says what to change."""
    assert "more than a worker has memory for" in limited("20").stderr


def test_ordinary_programs_read_whole_texts() -> None:
    """Up to thirty texts made of a row change nothing. More texts shorten what is read."""
    assert heavy(30).longest_text == LONGEST_TEXT
    assert 10_000 > heavy(200).longest_text > 9_000


@pytest.mark.slow
def test_a_statement_that_makes_too_many_texts_is_refused() -> None:
    """The refusal comes before the charge, whatever the rows are."""
    with pytest.raises(Refusal, match="makes 1100 texts of each row"):
        heavy(1100).program()
    with dpduck.connect(":memory:") as connection:
        clinic = Clinic(connection)
        clinic.rows("CREATE TABLE visits (note VARCHAR)")
        clinic.dp("CREATE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 9))")
        half = f"greatest({', '.join(['length(upper(note))'] * 550)})"
        many = f"greatest({half}, {half})"
        asked = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) AS n FROM visits WHERE {many} > 5"
        with pytest.raises(Exception, match="makes 1100 texts of each row"):
            clinic.dp(asked)
        assert clinic.rows("SELECT count(*) FROM dp_ledger() WHERE principal <> 'owner'") == [(0,)]


def test_longer_rows_are_left_out_beside_others_and_alone() -> None:
    """A row beyond the program's bound contributes nothing, whoever is beside it. A row at the bound does."""
    bound = heavy(200).longest_text
    condition = f"greatest({', '.join(['length(upper(note))'] * 200)}) > 0"
    for others in (0, 1000):
        for length, counted in ((bound, 1), (bound + 1, 0)):
            with dpduck.connect(":memory:") as connection:
                clinic = Clinic(connection)
                clinic.rows(f"CREATE TABLE visits AS SELECT repeat('a', {length}) AS note UNION ALL "
                            f"SELECT '' FROM range({others})")  # fmt: skip
                clinic.dp("CREATE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 9000))")
                asked = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 100) count(*) AS n FROM visits WHERE "
                assert clinic.dp(asked + condition) == [(counted,)], "noise is 0 but for one in 10^43"


def test_what_is_looked_up_is_short() -> None:
    """A text that is looked up in public keys is read to 4,096 bytes, since a longer one equals no key."""
    division = Division({"c": Output("VARCHAR", program_of(f"replace({NOTE}, 'a', 'bc')", COLUMNS))}, ())
    workers = Workers()
    try:
        with workers.runner(division.program()) as runner:
            texts = pa.table({"dpduck_x_0": pa.array(["a" * 2048, "a" * 2049, "a" * 65_535], pa.large_string())})
            answers = runner.compute(texts)
    finally:
        workers.close()
    assert answers["c"].to_pylist() == ["bc" * 2048, None, None]


def test_growth_is_counted_in_bytes() -> None:
    """17 characters of four bytes in place of one make a text 68 times as long, which is refused."""
    with dpduck.connect(":memory:") as connection:
        clinic = Clinic(connection)
        clinic.rows("CREATE TABLE visits (note VARCHAR)")
        clinic.dp("CREATE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 9))")
        asked = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) AS n FROM visits WHERE "
        with pytest.raises(Exception, match="more than 64 times as long"):
            clinic.dp(asked + f"length(replace(note, 'a', '{chr(0x1F600) * 17}')) > 5")


QUOTES = "CAST((note, 1) AS VARCHAR)", "CAST((CAST((note, 1) AS VARCHAR), 1) AS VARCHAR)"
TUPLES = (
    f"length({QUOTES[1]}) > 5",
    f"length(CAST(({', '.join(['note'] * 5000)}) AS VARCHAR)) > 5",
    "concat((note, note), note) > 'a'",
    "(note, note) || note > 'a'",
    "coalesce((note, 'a'), (note, 'b')) = (note, 'a')",
    "CASE (note, note) WHEN (note, 'a') THEN TRUE END",
    "(note, note) = note",
    "(note, note) IN ((note, 'a'), note)",
    "((note, note), 1) < (note, 1)",
    "contains((note, note), note)",
    "(note, note) IS NULL",
    "(note, note)",
)
"""Of the second a row of 65,535 bytes was counted beside others or after them, and often not alone."""


@pytest.mark.parametrize("condition", TUPLES)
def test_no_text_is_made_of_a_tuple(condition: str) -> None:
    """A tuple is never made a text, or a text a tuple, since these lengths are not counted. Parts are compared."""
    with pytest.raises(Refusal, match="a tuple is refused where"):
        check_row_local(parse_one(condition, dialect=PrivateDuckDB))


def test_a_quote_becomes_many_characters_in_tuples() -> None:
    """Each cast of a tuple to a text doubles quotes, so it is refused. Comparisons of tuples make no text."""
    with duckdb.connect() as connection:
        lengths = connection.execute(f"SELECT strlen({QUOTES[0]}), strlen({QUOTES[1]}) FROM (SELECT chr(39) AS note)")
        assert lengths.fetchall() == [(9, 20)]
    for condition in ("(note, 1) IN ((note, 2), ('a', 1))", "(note, note) BETWEEN ('a', 'b') AND (note, 'c')"):
        check_row_local(parse_one(condition, dialect=PrivateDuckDB))
        assert texts_made(condition) == 0
