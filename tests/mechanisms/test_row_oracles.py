"""No row decides whether a statement fails: each statement that once told a bit, on both of two neighbours.

The neighbours differ in one bit of one row. A failure after the charge, an answer, a refusal: both say the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from dpduck.kernel.counting.hidden import ExactCounts
from dpduck.kernel.noise.entropy import Entropy
from dpduck.kernel.queries.tables import Table
from dpduck.kernel.worker.added_calls import with_results_of_their_own, with_whole_conditions
from dpduck.kernel.worker.worker import BATCH
from dpduck.kernel.worker.workers import WorkerProgram, Workers
from tests.kernel.worker.test_try_results import tree, unsafe
from tests.mechanisms.neighbours import FALSE_CAST, HER, PATIENT, ROW, Neighbours, open_neighbours


@pytest.fixture(scope="module", params=["as they are", "prepared"])
def patients(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Neighbours]:
    """Neighbours where a unit is a patient, as they are and prepared."""
    yield from open_neighbours(PATIENT, tmp_path_factory.mktemp("state"), request.param == "prepared")


@pytest.fixture(scope="module")
def patients_as_they_are(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neighbours]:
    """Neighbours with lists and arrays, which cannot be prepared."""
    yield from open_neighbours(PATIENT, tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="module")
def single_rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neighbours]:
    """Neighbours where a unit is a row."""
    yield from open_neighbours(ROW, tmp_path_factory.mktemp("state"))


LONG_IN = f"{FALSE_CAST} IN (1, 2, 3, 4, 5)"
TWICE = f"{FALSE_CAST} > 1 OR {FALSE_CAST} < 0"
MOVED = {
    "a list of five": f"count(*) FROM visits WHERE {LONG_IN}",
    "not in a list of five": f"count(*) FROM visits WHERE NOT {LONG_IN}",
    "a list inside CASE": f"count(*) FROM visits WHERE CASE WHEN {LONG_IN} THEN ward > 0 ELSE ward > 1 END",
    "a list in FILTER": f"count(*) FILTER (WHERE {LONG_IN}) FROM visits",
    "a list in a sum": f"sum(CASE WHEN {LONG_IN} THEN 1 ELSE 0 END) FROM visits",
    "a list of texts": f"count(*) FROM visits WHERE CAST({FALSE_CAST} AS VARCHAR) IN ('1', '2', '3', '4', '5', '6')",
    "tuples in a list": f"count(*) FROM visits WHERE ({FALSE_CAST}, ward) IN ((1, 0), (1, 1), (1, 2), (2, 0), (3, 1))",
    "a list in a count per unit": "n, count(*) FROM (SELECT id, "
    f"count(CASE WHEN {LONG_IN} THEN 1 END) AS n FROM visits GROUP BY id) GROUP BY n",
    "a list in a branch": f"count(*) FROM (SELECT ward FROM visits WHERE {LONG_IN} UNION ALL SELECT ward FROM visits)",
    "a list in a join of patients": f"count(*) FROM visits a JOIN visits b ON a.id = b.id AND a.{LONG_IN}".replace(
        f"a.{LONG_IN}", LONG_IN.replace("name", "a.name").replace("hiv", "a.hiv")
    ),
}
LATE = "date_trunc('hour', CASE WHEN ward = 1 THEN DATE '300000-01-01' ELSE born END) IS NOT NULL"
STATISTICS = {
    condition: f"count(*) FROM visits WHERE {condition} AND {LATE}"
    for condition in ("salary > 5000", "salary > 999999", "salary < 0", "salary = 1000000", "id = 1000000 AND hiv")
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", MOVED)
def test_what_is_written_in_try_stays_in_try(patients: Neighbours, name: str) -> None:
    """An expression that cannot be computed for one row is NULL there, wherever the optimizer would compute it."""
    assert patients.outcomes(MOVED[name]) == ("answered", "answered")


@pytest.mark.parametrize("condition", STATISTICS)
def test_statistics_decide_nothing(patients: Neighbours, condition: str) -> None:
    """The least and largest value of a column never decide whether DuckDB's planner raises."""
    assert patients.outcomes(STATISTICS[condition]) == ("answered", "answered")


def test_passes_that_are_on_again_are_switched_off(open_pair: Neighbours) -> None:
    """If somebody resets the optimizer's setting, the next count sets it again."""
    for connection in open_pair.both:
        connection.execute("RESET disabled_optimizers")
    assert open_pair.outcomes(MOVED["a list of five"]) == ("answered", "answered")


def test_a_locked_configuration_with_passes_on_is_refused(open_pair: Neighbours) -> None:
    """Nothing is counted, and nothing charged, where the passes cannot be switched off."""
    for connection in open_pair.both:
        connection.execute("RESET disabled_optimizers")
        connection.execute("SET lock_configuration = true")
    first, second = open_pair.outcomes(MOVED["a list of five"])
    assert first == second
    assert "accepted: dpduck.load before SET lock_configuration" in first
    charges = "SELECT count(*) FROM dp_ledger() WHERE rho > 0"
    assert [connection.execute(charges).fetchall() for connection in open_pair.both] == [[(0,)], [(0,)]]


@pytest.fixture
def open_pair() -> Iterator[Neighbours]:
    """Neighbours of this test alone."""
    made = Neighbours(PATIENT)
    yield made
    made.close()


ENDS = r"CASE WHEN {her} THEN name END {match} '{pattern}' ESCAPE '{escape}'"
ESCAPES = [("%\\", "\\"), ("%", "%"), ("a!!!", "!"), ("\\", "\\"), ("alice", "é"), ("_%_", "_")]


@pytest.mark.sampled
@pytest.mark.parametrize("match", ["LIKE", "NOT LIKE", "ILIKE", "NOT ILIKE", "SIMILAR TO"])
@pytest.mark.parametrize(("pattern", "escape"), ESCAPES)
def test_patterns_that_end_in_their_escape_are_refused(
    patients: Neighbours, match: str, pattern: str, escape: str
) -> None:
    """For each text that reaches the end of such a pattern, DuckDB raises an error that TRY does not catch."""
    condition = ENDS.format(her=HER, match=match, pattern=pattern, escape=escape)
    first, second = patients.outcomes(f"count(*) FROM visits WHERE {condition}")
    assert first == second
    assert "accepted: " in first


@pytest.mark.slow
def test_patterns_with_something_behind_their_escape_are_answered(patients: Neighbours) -> None:
    """An escape before a wildcard, or before itself, works as usual."""
    for pattern, escape in (("%\\%", "\\"), ("a!!", "!"), ("!_!%%", "!"), ("", "!"), ("%%%_", "%")):
        condition = ENDS.format(her=HER, match="LIKE", pattern=pattern, escape=escape)
        assert patients.outcomes(f"count(*) FROM visits WHERE {condition}") == ("answered", "answered")


FILLED = f"coalesce(CASE WHEN {HER} THEN CAST(name AS BOOLEAN) END, hiv)"
FILLED_TEXT = f"coalesce(CASE WHEN {HER} THEN CAST(CAST(name AS INTEGER) AS VARCHAR) END, name)"
OVER_COALESCE = (
    f"count(*) FROM visits WHERE {FILLED}",
    f"count(*) FILTER (WHERE {FILLED}) FROM visits",
    f"sum(coalesce(CASE WHEN {HER} THEN CAST(name AS INTEGER) END, ward), contribution_bounds_per_row => (0, 2)) "
    "FROM visits",
    f"count(*) FROM visits JOIN pub ON coalesce(CASE WHEN {HER} THEN CAST(name AS INTEGER) END, id) = pub.k",
    f"n, count(*) FROM (SELECT id, count(CASE WHEN {FILLED} THEN 1 END) AS n FROM visits GROUP BY id) GROUP BY n",
    f"k, count(*) FROM (SELECT {FILLED_TEXT} AS k FROM visits) GROUP BY k",
)


@pytest.mark.sampled
@pytest.mark.parametrize("select", OVER_COALESCE)
def test_coalesce_never_writes_into_the_result_of_try(
    patients: Neighbours, monkeypatch: pytest.MonkeyPatch, select: str
) -> None:
    """SQL over rows has no COALESCE under TRY: there a row that raises makes DuckDB overwrite the result."""
    run: list[str] = []
    monkeypatch.setattr("dpduck.kernel.worker.program.with_results_of_their_own", lambda sql: seen(run, sql))
    more = {"k": ", delta = 1e-7, group_selection_strategy = LAPLACE_THRESHOLD", "s": ", refresh = 'a'"}
    assert patients.outcomes(select, more.get(select[0], "")) == ("answered", "answered")
    assert any("coalesce" in sql for sql in run)
    assert not any(unsafe(tree(sql)) for sql in run)


def seen(run: list[str], sql: str) -> str:
    found = with_results_of_their_own(sql)
    run.append(f"SELECT {found}")
    return found


NO_DATE = f"CASE WHEN {HER} THEN week(INTERVAL 1 DAY) END"
BRANCH = f"SELECT ward FROM visits WHERE CASE WHEN {HER} THEN week(INTERVAL 1 DAY) > 0 ELSE true END"
PER_UNIT = "n, count(*) FROM (SELECT id, {count} AS n FROM {rows} GROUP BY id) GROUP BY n"
HIDDEN = {
    "counted twice per unit": PER_UNIT.format(count=f"count(CASE WHEN {TWICE} THEN 1 END)", rows="visits"),
    "two counts with a common part": "n, m, count(*) FROM (SELECT id, "
    f"count(CASE WHEN {FALSE_CAST} > 1 THEN 1 END) AS n, count(CASE WHEN {FALSE_CAST} < 0 THEN 1 END) AS m "
    "FROM visits GROUP BY id) GROUP BY n, m",
    "counted per unit": PER_UNIT.format(count=f"count({NO_DATE})", rows="visits"),
    "counted per unit of a union": PER_UNIT.format(
        count="count(*)", rows=f"({BRANCH} UNION ALL SELECT ward FROM visits)".replace("ward FROM", "id FROM")
    ),
    "a branch of a branch": "ward, count(*) FROM (SELECT ward FROM "
    f"({BRANCH} UNION ALL SELECT ward FROM visits) UNION ALL SELECT ward FROM visits) AS u GROUP BY ward",
    "a branch that is joined": f"count(*) FROM visits JOIN ({BRANCH.replace('ward FROM', 'id FROM')} UNION ALL "
    "SELECT id FROM visits) AS u ON visits.id = u.id",
    "a branch that is joined in a branch": "count(*) FROM (SELECT a.id FROM visits a JOIN "
    f"({BRANCH.replace('ward FROM', 'id FROM')} UNION ALL SELECT id FROM visits) AS u ON a.id = u.id "
    "UNION ALL SELECT id FROM visits)",
    "an item of a branch": f"count(*) FROM (SELECT id FROM (SELECT id, {NO_DATE} AS w FROM visits) WHERE w > 0 "
    "UNION ALL SELECT id FROM visits)",
    "a constant of a branch": "count(*) FROM (SELECT id FROM visits WHERE CAST('x' AS INTEGER) = ward "
    "UNION ALL SELECT id FROM (SELECT id FROM visits WHERE CAST('y' AS INTEGER) = ward UNION ALL "
    "SELECT id FROM visits))",
}


@pytest.mark.parametrize("name", HIDDEN)
def test_every_expression_is_checked_wherever_it_is_written(patients: Neighbours, name: str) -> None:
    """Arguments of counts per unit, and conditions of branches of branches, meet the rules that all others meet."""
    first, second = patients.outcomes(HIDDEN[name])
    assert first == second
    assert first == "answered" or "accepted: " in first
    assert (first == "answered") == (name in ("counted twice per unit", "two counts with a common part"))


UNSIGNED = {
    "a column of a joined table": f"u, count(*) FROM visits LEFT JOIN pub ON nullif(id, id) = pub.k WHERE {HER} "
    "GROUP BY pub.u".replace("u, count", "pub.u, count"),
    "a column with NULL in its domain": f"u, count(*) FROM visits WHERE nullif(u, u) IS NULL AND {HER} GROUP BY u",
    "with a NULL among the rows": "u, count(*) FROM visits WHERE u = 1 OR (u IS NULL AND hiv) GROUP BY u",
    "values present": "count(DISTINCT u) FROM visits WHERE u = 1 OR (u IS NULL AND hiv)",
}


@pytest.mark.parametrize("name", UNSIGNED)
def test_no_row_decides_the_type_of_counts(single_rows: Neighbours, name: str) -> None:
    """Keys are 64-bit integers with sign, whether a NULL is among the rows or none."""
    assert single_rows.outcomes(UNSIGNED[name]) == ("answered", "answered")


ODD = {
    "ICU": f"count(*) FROM visits WHERE date_diff('hour', DATE '290309-12-22 (BC)', CASE WHEN {HER} THEN seen END) > 0",
    "ICU of a part": f"count(*) FROM visits WHERE date_part('year', CASE WHEN {HER} THEN seen END) > 0",
    "ICU in a cast": f"count(*) FROM visits WHERE CAST(CASE WHEN {HER} THEN seen END AS DATE) > '2020-01-01'",
    "CASE over an array": f"count(*) FROM visits WHERE CASE WHEN {HER} THEN emb ELSE emb END = emb",
    "an array that is compared": f"count(*) FROM visits WHERE {HER} AND emb = emb",
    "coalesce over an array": f"count(*) FROM visits WHERE coalesce(CASE WHEN {HER} THEN emb END, emb) = emb",
    "a list": f"count(*) FROM visits WHERE greatest(notes, CASE WHEN {HER} THEN notes END) = notes",
    "a public column": f"count(*) FROM visits JOIN pub ON visits.id = pub.k "
    f"WHERE CASE WHEN {HER} THEN pub.emb ELSE pub.emb END = pub.emb",
    "a cast for a join": "count(*) FROM visits JOIN pub ON visits.seen = pub.day",
    "a cast of a public key": "count(*) FROM visits JOIN pub ON visits.born = pub.seen",
    "in a count per unit": PER_UNIT.format(count=f"count(CASE WHEN {HER} THEN emb ELSE emb END)", rows="visits"),
    "in a branch": f"count(*) FROM (SELECT id FROM visits WHERE CASE WHEN {HER} THEN emb ELSE emb END = emb "
    "UNION ALL SELECT id FROM visits)",
    "in a join": "count(*) FROM visits a JOIN visits b "
    "ON a.id = b.id AND CASE WHEN a.hiv THEN a.emb ELSE b.emb END = b.emb",
    "a number": "sum(seen, contribution_bounds_per_row => (0, 10)) FROM visits",
    "a condition": "count(*) FROM visits WHERE seen",
    "a condition of a count": "count(*) FILTER (WHERE emb) FROM visits",
    "in a median": f"median(date_part('year', CASE WHEN {HER} THEN seen END), "
    "contribution_bounds_per_row => (0, 3000)) FROM visits",
}
AS_THEY_STAND = (
    "count(*) FROM visits WHERE seen IS NOT NULL AND (emb) IS NULL AND notes IS NOT NULL",
    "count(seen), count(emb) FILTER (WHERE hiv) FROM visits",
    PER_UNIT.format(count="count(emb)", rows="visits"),
    "count(*) FROM visits JOIN pub ON visits.seen = pub.seen",
    "count(*) FROM visits a JOIN visits b ON a.id = b.id AND a.seen = b.seen",
)


@pytest.mark.parametrize("name", ODD)
def test_nothing_is_computed_with_odd_types(patients_as_they_are: Neighbours, name: str) -> None:
    """Expressions over columns of types for which DuckDB raises what TRY does not catch are refused."""
    first, second = patients_as_they_are.outcomes(ODD[name])
    assert first == second
    assert "an expression over" in first


@pytest.mark.parametrize("select", AS_THEY_STAND)
def test_columns_of_any_type_as_they_stand(patients_as_they_are: Neighbours, select: str) -> None:
    """IS NULL, count(column) and keys of joins compute nothing."""
    assert patients_as_they_are.outcomes(select) == ("answered", "answered")


A = "a" * 1000
COSTLY = {
    "a text of literals that is multiplied": f"count(*) FROM visits WHERE CASE WHEN {HER} THEN "
    f"strlen(replace(replace('{A}', 'a', '{A.replace('a', 'b')}'), 'b', '{'c' * 400}')) > 5 END",
    "a pattern that backtracks": f"count(*) FROM (SELECT CASE WHEN {HER} THEN '{A * 2}' ELSE 'b' END AS t FROM visits) "
    "WHERE t ILIKE '%a%a%a_c'",
    "a long expression over a long literal": "count(*) FROM visits WHERE "
    f"regexp_matches(CASE WHEN {HER} THEN '{A * 20}' END, '{'a*' * 400}b')",
}


@pytest.mark.parametrize("name", COSTLY)
def test_what_would_make_one_row_costly_is_refused(patients: Neighbours, name: str) -> None:
    """Neither memory nor time tells whether one row took a branch: expressions that could cost much are refused."""
    first, second = patients.outcomes(COSTLY[name])
    assert first == second
    assert "accepted: " in first


def test_the_bound_of_counts_is_that_of_the_noise(single_rows: Neighbours, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a join makes three rows of one, trusted code knows of three as the noise does: neither more nor less."""
    found: list[tuple[int, int]] = []

    right = Table.draw_together

    def drawn(table: Table, counts: ExactCounts, asks: Any, entropy: Entropy) -> object:
        found.extend((counts._unit_bounds[number], asks[0].scan.l1) for number in asks[0].scan.tables)
        return right(table, counts, asks, entropy)

    monkeypatch.setattr(Table, "draw_together", drawn)
    select = "count(*), sum(ward, contribution_bounds_per_row => (0, 2)) FROM visits JOIN pub ON visits.one = pub.one"
    assert single_rows.outcomes(select, ", refresh = 'a'") == ("answered", "answered")
    assert found
    assert all(counted == noised and counted % 3 == 0 for counted, noised in found)


@pytest.mark.slow
@pytest.mark.parametrize("word", ["AND", "OR"])
def test_a_row_that_raises_changes_no_order_of_conditions(word: str) -> None:
    """DuckDB adapts the order of AND and OR in a CASE to the rows it saw. One that raises under TRY counts as many."""
    guard = "age = 97 AND" if word == "AND" else "age < 97 OR"
    start = "CASE WHEN age < 200 THEN 9223372036854775807 ELSE 1 END"
    value = f"CASE WHEN {guard} substring(note, {start}, 1) = 'q' "
    program = WorkerProgram(
        with_whole_conditions(f"SELECT (try({value}THEN FALSE ELSE TRUE END)) AS y FROM {BATCH}"),
        pa.schema([pa.field("y", pa.bool_())]),
    )
    workers = Workers()
    ages = [20 + number % 60 for number in range(20000)]
    answers = []
    for first in ([], [97]):
        batch = pa.table(
            {"age": pa.array([*first, *ages], pa.int32()), "note": pa.array(["flu"] * (len(first) + 20000))}
        )
        with workers.runner(program) as runner:
            answers.append(runner.compute(batch).column("y").to_pylist()[len(first) :])
    workers.close()
    assert answers[0] == answers[1]
