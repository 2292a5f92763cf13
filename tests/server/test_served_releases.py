"""Every kind of release in the public database, and the macros that read them by name, through the gate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dpduck.database.macros import list_macro_names
from dpduck.server import syntax
from dpduck.server.flight.listener import FlightListener
from dpduck.server.limits import Limits
from dpduck.server.local_vault import LocalVault
from dpduck.server.principals import Principal
from dpduck.store.cursors import Caller
from dpduck.values.errors import DpduckError
from tests.server.served import Served, ask, count, open_served

POLICY = """CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 4, BUDGET (epsilon = 40, delta = 1e-5),
    DOMAIN sex IN (0, 1), DOMAIN age RANGE 0 TO 100 STEP 10, DOMAIN ward FROM wards.name, EXPECT ROWS 1000)"""
MADE = (
    "CREATE PRIVATE PROJECTION codes OPTIONS (epsilon = 1, delta = 1e-6, sparsity = 8, queries = 100) "
    "AS SELECT ward FROM visits",
    "CREATE PRIVATE VIEW summed OPTIONS (epsilon = 1, summary = 'filter', theta = 2) AS "
    "SELECT ward, age, count(*) AS n FROM visits GROUP BY ward, age",
    "CREATE PRIVATE TABLE synth OPTIONS (epsilon = 1, mechanism = 'mwem', rows = 100) AS "
    "SELECT sex, age, ward FROM visits WORKLOAD MARGINALS (2)",
)
QUESTION = "WITH q AS (SELECT 'w1' AS key, 1 AS weight, 1 AS query)"


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory, state_directory: Path) -> Iterator[Served]:
    opened = open_served(tmp_path_factory.mktemp("releases"), policy=POLICY)
    for statement in MADE:
        opened.rows("bob", ask(statement))
    yield opened
    opened.service.close()


@pytest.mark.slow
def test_every_kind_of_release_is_read(released: Served) -> None:
    """Projections, summaries and synthetic tables are tables of the public database, for everybody who may read."""
    for table in ("codes", "codes_seed", "summed", "synth"):
        assert released.rows("carol", f"SELECT count(*) >= 0 FROM {table}") == [(True,)], table
    assert released.rows("carol", "SELECT dp_sum_stderr(n_variance) >= 0 FROM summed") == [(True,)]


def test_macros_over_names(released: Served) -> None:
    """dp_project, dp_project_all and dp_decode read a common table expression, and nothing is charged."""
    before = released.spent()
    assert len(released.rows("carol", f"{QUESTION} FROM dp_project('codes', 'q')")) == 1
    assert len(released.rows("carol", f"{QUESTION} SELECT query, answer FROM dp_project_all('Codes', 'Q')")) == 1
    assert len(released.rows("carol", f"{QUESTION} SELECT query, answer FROM dp_decode('codes', 'q', 'q')")) == 1
    assert released.spent() == before
    assert set(list_macro_names()) - {"dp_released"} == syntax.SHIPPED_MACROS | (
        syntax.TABLE_MACROS.keys() - {syntax.MARGIN}
    )


def test_questions_through_the_gate(released: Served) -> None:
    """dp_ask: lists, weights, tuples, and selections from public tables alone. Equal questions are free."""
    for name, on in (("by_ward", "ward"), ("pairs", "ward, sex")):
        price = "epsilon = 1, delta = 1e-6, queries = 20"
        released.rows("bob", ask(f"CREATE PRIVATE HISTOGRAM {name} OPTIONS ({price}) ON visits ({on})"))
    before = released.spent()
    (listed,) = released.rows("bob", "SELECT answer, margin FROM dp_ask('by_ward', ['w1', 'w2'])")
    selected = "FROM dp_ask('by_ward', $k$ ward IN (SELECT name FROM wards WHERE name IN ('w1', 'w2')) $k$)"
    assert released.rows("bob", f"SELECT answer, margin {selected}") == [listed]
    assert len(released.rows("bob", "FROM dp_ask('pairs', [('w1', 0), ('w2', 1)], weights := [0.5, 1])")) == 1
    assert released.spent() == before
    raw = released.refused("bob", "FROM dp_ask('by_ward', 'ward IN (SELECT ward FROM visits)')")
    assert "'visits' is no declared public table; accepted: " in raw
    computed = released.refused("bob", "FROM dp_ask('by_ward', (SELECT list(ward) FROM summed))")
    assert computed == "an argument of dp_ask is no constant; accepted: texts and numbers"
    foreign = released.refused("carol", "FROM dp_ask('by_ward', ['w1'])")
    assert foreign == "the histogram 'by_ward' belongs to somebody else; accepted: one of dp_sessions()"


def test_questions_over_flight_sql(released: Served) -> None:
    """A driver looks for the columns of dp_ask first: that uses no question up, and is refused to whom asking is."""
    adbc = pytest.importorskip("adbc_driver_flightsql.dbapi", reason="the ADBC driver for Flight SQL is not installed")
    price = "epsilon = 1, delta = 1e-6, sparsity = 1, queries = 20"
    released.rows("bob", ask(f"CREATE PRIVATE SESSION about OPTIONS ({price}) ON visits (ward)"))
    answered = "SELECT answered FROM dp_sessions() WHERE name = 'about'"
    question = "SELECT answer, updates_left FROM dp_ask('about', ['w1'])"
    bob, carol = released.service.book.find("bob"), released.service.book.find("carol")
    before = released.spent()
    with pytest.raises(DpduckError, match="the session 'about' belongs to somebody else; accepted: "):
        released.service.gate.probe(carol, question)
    opened = FlightListener("localhost:0", released.service, Limits())
    try:
        given = {"username": bob.name, "password": released.tokens["bob"]}
        address = opened.address.replace("grpc+tcp", "grpc")
        with adbc.connect(address, db_kwargs=given, autocommit=True) as connection, connection.cursor() as cursor:
            assert cursor.adbc_execute_schema(question).names == ["answer", "updates_left"]
            cursor.adbc_prepare(question)
            assert released.rows("bob", answered) == [(0,)]
            cursor.execute(question)
            assert cursor.fetchall() == released.rows("bob", question)
            cursor.execute(answered)
            assert cursor.fetchall() == [(1,)]
    finally:
        opened.close()
    assert released.spent() == before


CALLS = {
    "dp_decode": f"{QUESTION} FROM dp_decode('codes', 'q', '{{}}')",
    "dp_project": f"{QUESTION} FROM dp_project('{{}}', 'q')",
    "dp_project_all": f"{QUESTION} FROM dp_project_all('codes', '{{}}')",
    "dp_sketch_point": "FROM dp_sketch_point('{}', ['w1'])",
}


@pytest.mark.parametrize("macro", list(CALLS))
def test_names_are_names_of_released_tables(released: Served, macro: str) -> None:
    """Anything else in the place of a name is refused, and the refusal says whether name or form was wrong."""
    for unknown in ("duckdb_settings", "visits"):
        told = released.refused("bob", CALLS[macro].format(unknown))
        assert told == f"there is no private view '{unknown}'; accepted: a name of dp_releases()"
    for bad in ("listing.main.tables", '"codes"', "answers.main.x", "", "codes; SELECT 1"):
        told = released.refused("bob", CALLS[macro].format(bad))
        assert told.startswith(f"these are no arguments of {macro}; accepted: {macro}('name_of_"), bad


def test_arguments_of_macros_over_names(released: Served) -> None:
    """A name of the statement's own, a named argument, NULL, a subquery, another schema, the inner macro by itself."""
    for call, reason in (
        ("dp_project('q', 'q')", "there is no private view 'q'; accepted: a name of dp_releases()"),
        ("dp_project('codes', question := 'q')", "these are no arguments of dp_project; accepted: dp_project("),
        ("dp_project('codes', NULL)", "these are no arguments of dp_project; accepted: dp_project("),
        ("dp_project('codes', (SELECT 'q'))", "an argument of dp_project is no constant; accepted: texts and numbers"),
        ("main.dp_project('codes', 'q')", "the table function 'dp_project' is not served; accepted: "),
    ):
        assert released.refused("bob", f"{QUESTION} FROM {call}").startswith(reason), call
    inner = released.refused("bob", "SELECT dp_released('visits')")
    assert inner.startswith("the function 'dp_released' is not on the list; accepted: ")


def test_a_known_answer_needs_no_work(tmp_path: Path, own_state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once given, an answer is found without a place and without looking. Whatever may change it is looked at again."""
    opened = open_served(tmp_path)
    vault = opened.service.vault
    assert isinstance(vault, LocalVault)
    looked: list[str] = []
    run = vault._database.run

    def counted(text: str, caller: Caller) -> str:
        looked.append(caller.name)
        return run(text, caller)

    monkeypatch.setattr(vault._database, "run", counted)
    monkeypatch.setattr(vault._database._copies, "write", lambda name, values_sql: None)  # as if its values were many
    try:
        first = opened.rows("bob", count("ward", "0.01"))
        with vault._places.place("bob", 60):
            for _ in range(3):
                assert opened.rows("bob", count("ward", "0.01")) == first
        assert looked == ["bob"]
        assert opened.rows("alice", count("ward", "0.01")) == first and looked == ["bob", "alice"], "she may not ask"
        for number in range(70):  # more than copies are kept: the copy that was read goes, the store has the answer
            vault._database._copies.add(f"release_{1000 + number}", "(SELECT 1)", 1)
        assert opened.rows("bob", count("ward", "0.01")) == first and len(looked) == 3
        assert opened.rows("bob", count("ward", "0.01")) == first and len(looked) == 3
        vault.owner("run", "ALTER PRIVACY POLICY ON visits NEW EPOCH")
        assert opened.rows("bob", count("ward", "0.01")) != first, "six counts, noise of scale 400: equal once in 1e19"
        view = "CREATE PRIVATE VIEW again OPTIONS (epsilon = 0.01) AS SELECT count(*) AS n FROM visits"
        for statement in (view, "DROP PRIVATE VIEW again", view):
            opened.rows("bob", ask(statement))
        assert len(opened.rows("bob", "FROM again")) == 1
        opened.service.book.revoke("bob")
        with pytest.raises(DpduckError, match="revoked"):
            opened.service.gate.admit(Principal("bob", None, None, ""), count("ward", "0.01"))
    finally:
        opened.service.close()
