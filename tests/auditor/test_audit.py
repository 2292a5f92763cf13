"""dpduck audit: bounds that hold, neighbours that are made from policies alone, a search that is guided, a report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
import pytest
from click.testing import CliRunner

import dpduck
from dpduck.auditor.audit import ALONE, Settings, audit
from dpduck.auditor.bounds import Claim, bounds
from dpduck.auditor.neighbours import CROWDED, EDGES, KINDS, SPREAD, Neighbours, neighbours, roomy
from dpduck.auditor.search import StatementSearch
from dpduck.auditor.statements import list_parts as what_can_be_asked
from dpduck.auditor.statements import own_statements
from dpduck.commands.command_line import main
from dpduck.kernel.noise.draw import draw
from dpduck.kernel.noise.entropy import operating_system_entropy
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.rows import reader
from dpduck.mechanisms.registry import MECHANISMS, of_statements
from tests.auditor.planted import COUNT, shop

RUNS = 4000


@pytest.fixture(scope="module")
def pair() -> Iterator[Neighbours]:
    with shop() as source, neighbours(source) as found:
        yield found


def noisy(kind: NoiseKind, parameter: int, moved: int, runs: int = RUNS) -> np.ndarray:
    """A number that is 0 or 1 with noise, beside a number of noise alone."""
    drawn = draw(Noise(kind, Fraction(parameter)), 2 * runs, operating_system_entropy()).reshape(runs, 2)
    return drawn.astype(np.float64) + np.array([moved, 0])


@pytest.mark.parametrize(("parameter", "broken"), [(4, False), (2, True)])
def test_bounds_of_laplace_noise(parameter: int, broken: bool) -> None:
    """A shift of 4 at epsilon = 1: the right noise passes, half of its scale is found. False alarm: 1e-9."""
    both = noisy(NoiseKind.LAPLACE, parameter, 0), noisy(NoiseKind.LAPLACE, parameter, 4)
    (epsilon, _) = bounds(both, Claim(1.0, 0.5, 0.0), 1e-9)
    assert epsilon.broken is broken, epsilon
    assert 0.3 < epsilon.seen < 4 / parameter and 1 < epsilon.found < 2


@pytest.mark.parametrize(("parameter", "broken"), [(4, False), (1, True)])
def test_bounds_of_gaussian_noise(parameter: int, broken: bool) -> None:
    """A shift of 2 at rho = 1/2: the Rényi divergence of an event holds, half of sigma is found. False alarm: 1e-9."""
    both = noisy(NoiseKind.GAUSSIAN, parameter, 0), noisy(NoiseKind.GAUSSIAN, parameter, 2)
    (rho,) = bounds(both, Claim(None, 0.5, 0.0), 1e-9)
    assert rho.measure == "rho" and rho.broken is broken, rho
    assert rho.seen <= 2 / parameter


def test_power_is_what_it_says() -> None:
    """A loss of `found` is seen above the charge in at least 14 of 20 audits, where 19 are expected."""
    first = bounds((noisy(NoiseKind.LAPLACE, 8, 0), noisy(NoiseKind.LAPLACE, 8, 8)), Claim(1.0, 0.5, 0.0), 1e-9)
    shift = round(8 * first[0].found)
    times = 0
    for _ in range(20):
        both = noisy(NoiseKind.LAPLACE, 8, 0), noisy(NoiseKind.LAPLACE, 8, shift)
        times += bounds(both, Claim(1.0, 0.5, 0.0), 1e-9)[0].broken
    assert times >= 14


def test_neighbours_differ_in_one_unit_and_hold_no_private_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twins come from the policy, without a look at private rows, and differ in one unit."""
    with shop() as source:
        source.execute("UPDATE visits SET drug = 'private', age = 99")
        monkeypatch.setattr(reader, "begin", lambda cursor: pytest.fail("a private row is read"))
        for kind in KINDS:
            with neighbours(source, kind) as found:
                first, second = (
                    connection.execute(
                        "SELECT count(*), count(DISTINCT patient), count(*) FILTER (WHERE drug = 'private') FROM visits"
                    ).fetchall()[0]
                    for connection in found.both
                )
                assert (second[0] - first[0], second[1] - first[1], first[2], second[2]) == (12, 1, 0, 0)
                rest = "SELECT * FROM visits WHERE patient < 9000000 ORDER BY ALL"
                assert found.both[0].execute(rest).fetchall() == found.both[1].execute(rest).fetchall()


PARTS = {
    "household INTEGER, part BOOLEAN": "",
    "household VARCHAR, part TINYINT": "",
    "household UUID, part ENUM('a', 'b')": "",
    "household DATE, part INTEGER": ", DOMAIN part IN (1, 2)",
    "household BOOLEAN, part ENUM('a', 'b')": ", DOMAIN part ENUM",
}


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("columns", PARTS)
def test_a_unit_of_several_columns_is_somebody(columns: str, kind: str) -> None:
    """Whatever their types: rows with NULL in a part are nobody's, and no answer would tell of the added unit."""
    with dpduck.connect() as source:
        source.execute(f"CREATE TABLE answers ({columns}, mark INTEGER)")
        unit = "PRIVACY UNIT (household, part) MAX ROWS 2, BUDGET (epsilon = 1)"
        source.execute("FROM dp(?)", [f"CREATE PRIVACY POLICY ON answers ({unit}{PARTS[columns]})"]).fetchall()
        with neighbours(source, kind) as found:
            units, both = "SELECT household, part, count(*) FROM answers GROUP BY ALL", found.both
            first, second = (set(connection.execute(units).fetchall()) for connection in both)
            assert not any(None in one for one in second)
            assert first < second and [one[2] for one in second - first] == [6]
            outside = "SELECT count(*) FROM answers WHERE CAST(part AS VARCHAR) NOT IN ('1', '2')"
            assert "IN (1" not in PARTS[columns] or both[1].execute(outside).fetchall() == [(0,)]


@pytest.mark.parametrize("type_name", ["INTEGER", "SMALLINT", "BOOLEAN", "ENUM('a', 'b', 'c')", "VARCHAR", "DATE"])
def test_a_unit_of_any_type_is_somebody(type_name: str) -> None:
    """A number that its type cannot hold would be NULL, which is nobody."""
    with dpduck.connect() as source:
        source.execute(f"CREATE TABLE answers (who {type_name}, mark INTEGER)")
        unit = "PRIVACY UNIT who MAX ROWS 2, BUDGET (epsilon = 1)"
        source.execute("FROM dp(?)", [f"CREATE PRIVACY POLICY ON answers ({unit})"]).fetchall()
        with neighbours(source) as found:
            units = "SELECT who, count(*) FROM answers WHERE who IS NOT NULL GROUP BY ALL"
            first, second = (set(connection.execute(units).fetchall()) for connection in found.both)
            assert first < second and [one[1] for one in second - first] == [6]


def test_budgets_of_twins_are_roomy_and_of_the_same_kind() -> None:
    """Pure stays pure, delta stays delta, rho stays rho, by period and for life."""
    lines = "    BUDGET (epsilon = 1, delta = 1e-6) PER MONTH,\n    LIFETIME (rho = 3),\n    BUDGET (epsilon = 1)"
    assert roomy(lines).split("\n") == [
        "    BUDGET (epsilon = 1000000, delta = 0.0099, delta_keys = 0.0098) PER MONTH,",
        "    LIFETIME (rho = 1000000),",
        "    BUDGET (epsilon = 1000000)",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["patient MAX ROWS 4", "ROW"])
def test_there_are_own_statements_of_every_mechanism(unit: str) -> None:
    """Every mechanism of the registry, and known answers, are asked by the auditor's own statements, and planned."""
    with shop(unit=unit) as source, neighbours(source) as found:
        (tables,) = what_can_be_asked(found, "1")
        cases = list(own_statements(tables))
        without = {"norms"} if unit == "ROW" else set()  # a row has a norm of 1
        known = {one.name for one in (*MECHANISMS, *of_statements())} | {"known answers"}
        assert {one.mechanism for one in cases} == known - without
        for case in cases:
            explained = found.both[0].execute("SELECT 1 FROM dp_explain($1)", [case.text.replace("{tag}", "x")])
            assert explained.fetchall(), case


@pytest.mark.slow
def test_the_search_covers_and_repeats(pair: Neighbours) -> None:
    """The same seed gives the same statements. Most are accepted, and many parts are within sixty."""
    tables = what_can_be_asked(pair, "1")
    texts = []
    for _ in range(2):
        search = StatementSearch(tables, "a seed")
        texts.append([search.statement()[0] for _ in range(60)])
    assert texts[0] == texts[1] and len(set(texts[0])) > 55
    accepted = 0
    for text in texts[0][:12]:
        try:
            accepted += bool(pair.both[0].execute("SELECT 1 FROM dp_explain($1)", [text]).fetchall())
        except duckdb.Error:
            continue
    assert accepted >= 6
    assert len(search.tried) > 60


def test_norms_are_audited_with_units_about_them() -> None:
    """Beside all rows in one cell and in several: one row, which a norm of 1 leaves alone, and two, which it weighs."""
    with shop() as source:
        statement = (
            "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (rho = 0.5, max_norm_contributed = 1) sex, count(*) AS n "
            "FROM visits GROUP BY sex"
        )
        found = list(audit(source, [statement], Settings(seconds=0.1)))
        assert [one.kind for one in found] == [CROWDED, SPREAD, *EDGES, ALONE]
        assert not any(one.broken or one.refused for one in found)
        for rows, kind in enumerate(EDGES, start=1):
            with neighbours(source, kind) as pair:
                sizes = [one.execute("SELECT count(*) FROM visits").fetchall()[0][0] for one in pair.both]
                cells = pair.both[1].execute("SELECT DISTINCT sex FROM visits WHERE patient > 9000000").fetchall()
                assert sizes[1] - sizes[0] == rows and len(cells) == 1


@pytest.mark.slow
def test_the_command_reports_in_eighty_columns(tmp_path: Path) -> None:
    """A statement is audited by the command: charged, seen, found. Nothing is charged to the database itself."""
    path = tmp_path / "shop.duckdb"
    with dpduck.connect(path) as con, shop() as source:
        con.execute("CREATE TABLE visits (patient INTEGER, sex INTEGER)")
        ddl = source.execute("SELECT ddl FROM dp_policies()").fetchall()[0][0]
        kept = [line for line in ddl.split("\n") if not any(word in line for word in ("ward", "age", "charge"))]
        con.execute("FROM dp($1)", ["\n".join(kept).replace("IN (0, 1),", "IN (0, 1)")]).fetchall()
    statement = COUNT.replace(", refresh = '{tag}'", "")
    done = CliRunner().invoke(main, ["audit", str(path), statement, "--seconds", "0.3"])
    assert done.exit_code == 0, done.output
    assert all(len(line) <= 80 for line in done.output.splitlines()), done.output
    assert done.output.count("holds") == 5 and "none tells more than it is charged" in " ".join(done.output.split())
    said = CliRunner().invoke(main, ["audit", str(path), statement, "--seconds", "0.1", "--format", "json"])
    found = [json.loads(line) for line in said.output.splitlines()]
    assert [one["kind"] for one in found] == [CROWDED, SPREAD, ALONE]
    assert found[0]["bounds"][0]["measure"] == "epsilon" and not found[0]["broken"]
    with dpduck.connect(path) as con:
        assert con.execute("SELECT count(*) FROM dp_ledger() WHERE rho > 0").fetchall() == [(0,)]


@pytest.mark.audit
@pytest.mark.parametrize("budget", ["epsilon = 10", "epsilon = 10, delta = 1e-3, delta_keys = 5e-4", "rho = 1"])
def test_nothing_is_found_in_any_mechanism(budget: str) -> None:
    """Own statements of every mechanism, and a search of forty seconds with a fresh seed. False alarm: 1e-9 each."""
    seed = operating_system_entropy().bytes(4).hex()
    print("seed of the search:", seed)  # noqa: T201
    with shop(budget) as source:
        found = list(audit(source, [], Settings(seconds=3, search=40, seed=seed)))
    assert len(found) > 20
    assert [one for one in found if one.broken] == [], seed
