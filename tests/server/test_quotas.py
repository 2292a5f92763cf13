"""Nobody takes what is others': views, releases, results and room, each principal a share."""

from __future__ import annotations

import resource
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from dpduck.publish.extensions import load_extension
from dpduck.server.answer_index import YOUNG, AnswerIndex, Size
from dpduck.server.gate import open_service
from dpduck.server.limits import Limits, Quota, TimeGrid, parse_size
from dpduck.server.local_vault import LocalVault
from dpduck.server.quack import QuackListener
from dpduck.server.runner_process import pack, unpack
from dpduck.server.vault_process import TOO_MUCH, Crew, answer_all
from dpduck.values.errors import DpduckError, Refusal
from tests.server.served import NoAudit, Served, add_principals, ask, count, make_clinic, open_served
from tests.server.shell import EXTENSIONS, eventually, needs_quack
from tests.server.test_runners import JOIN
from tests.support.ports import free_port

WIDE = """CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 4, BUDGET (epsilon = 10),
    DOMAIN sex IN (0, 1), DOMAIN age RANGE 0 TO 200000 STEP 1, DOMAIN ward FROM wards.name)"""
COUNT = "AS SELECT {column}, count(*) AS n FROM visits GROUP BY {column}"
CUBED = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.001) count(*) AS n FROM visits GROUP BY CUBE ({})"
BIG = "CREATE PRIVATE VIEW big{0} OPTIONS (epsilon = 0.001, refresh = '{0}') " + COUNT.format(column="age")
SMALL = "CREATE PRIVATE VIEW small{0} OPTIONS (epsilon = 0.01) " + COUNT.format(column="{0}")


@pytest.mark.slow
def test_views_of_one_leave_room_for_others(tmp_path: Path, own_state: Path) -> None:
    """Large views at a small price: refused before the charge, others make theirs and join, and it starts again."""
    limits = Limits(seconds=60, rows=1_000_000, memory=parse_size("96MB"), views_each=5)
    opened = open_served(tmp_path, limits, WIDE)
    try:
        made = 0
        for number in range(6):
            try:
                opened.rows("bob", ask(BIG.format(number)))
                made += 1
            except DpduckError as error:
                assert "bytes already; accepted: at most 5 of 12000000 bytes; DROP PRIVATE VIEW makes room" in str(
                    error
                )
        assert made == 3, "each has 4.8 MB"
        told = opened.refused("bob", f"/* a remark */ {ask('/* of mine */ ' + BIG.format(9))}")
        assert told.startswith("bob has 3 private views of ")
        assert opened.rows("alice", ask(SMALL.format("sex"))) == [("private.smallsex is ready",)]
        joined = "SELECT count(*) FROM smallsex AS a JOIN ward_cube AS b ON a.sex = b.sex"
        assert opened.rows("alice", joined) == [(14,)]
        assert opened.rows("bob", count("ward", "0.01"))
        opened.rows("bob", ask("DROP PRIVATE VIEW big0"))
        assert opened.rows("bob", ask(SMALL.format("ward"))) == [("private.smallward is ready",)]
    finally:
        opened.service.close()
    service = open_service(
        opened.database, None, NoAudit(), Limits(memory=parse_size("24MB")), vault=LocalVault(opened.database)
    )
    try:
        bob = service.book.find("bob")
        assert service.gate.left_out() == ["big2"], "the owner's come first, then older ones"
        with pytest.raises(
            Refusal, match="'big2' was left out: the server has no room for more private views; accepted: "
        ):
            service.gate.admit(bob, "FROM big2")
        with pytest.raises(Refusal, match="accepted: "):
            service.gate.admit(bob, ask(SMALL.format("ward").replace("smallward", "another")))
        service.gate.admit(bob, ask("DROP PRIVATE VIEW big1"))
        assert service.gate.left_out() == [] and service.gate.admit(bob, "FROM big2") == "FROM memory.main.big2"
    finally:
        service.close()


def test_the_number_of_views_is_bounded(tmp_path: Path, own_state: Path) -> None:
    """Views cost nothing where their release is there already: so there are so many, and a dropped one makes room."""
    opened = open_served(tmp_path, Limits(views_each=1))
    try:
        opened.rows("bob", ask(SMALL.format("sex")))
        again = SMALL.format("sex").replace("smallsex", "again")
        for disguise in ("", "{##}", "/*/**/", "{# x #} "):
            assert "at most 1 of" in opened.refused("bob", ask(disguise + again))
        assert opened.rows("alice", ask(again)) == [("private.again is ready",)]
        opened.rows("bob", ask("DROP PRIVATE VIEW smallsex"))
        opened.rows("bob", ask(again.replace("again", "third")))
    finally:
        opened.service.close()


def test_a_type_without_a_table_removes_nothing(tmp_path: Path, own_state: Path) -> None:
    """A result that no table can keep is refused, and the old answers of others stay. So is room made for others."""
    opened = open_served(tmp_path)
    try:
        held = opened.sql("alice", JOIN)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("dpduck.server.answer_index.YOUNG", 0.0)
            if duckdb.__version__.startswith("1."):
                assert "CAST(.. AS VARCHAR)" in opened.refused("bob", "SELECT row(1, 2)")
            else:  # 2.0 keeps members without names
                assert opened.rows("bob", "SELECT row(1, 2)")
        with opened.service.public.cursor() as cursor:
            assert cursor.execute(held).fetchall()
    finally:
        opened.service.close()


@pytest.mark.parametrize(("quota", "what"), [(Quota(releases=2), "2 releases"), (Quota(rows=8), "8 rows")])
def test_releases_of_one_are_bounded(tmp_path: Path, own_state: Path, quota: Quota, what: str) -> None:
    """The store grows by paid releases, however small: at so many releases or rows nothing new is charged."""
    opened = open_served(tmp_path, quota=quota)
    try:
        first = opened.rows("bob", count("ward", "0.001"))
        opened.rows("bob", count("sex", "0.001"))
        assert opened.refused("bob", count("age", "0.001")).startswith(f"bob keeps {what} in the store already")
        assert opened.rows("bob", count("ward", "0.001")) == first, "what was asked before is answered"
        assert opened.rows("alice", count("sex", "0.002"))
    finally:
        opened.service.close()


def test_no_release_overshoots_what_is_kept(tmp_path: Path, own_state: Path) -> None:
    """A release without room is refused before its charge, also beside unstored ones. A view has no more rows."""
    opened = open_served(tmp_path, quota=Quota(rows=20))
    try:
        assert len(opened.rows("bob", count("ward", "0.001"))) == 6
        told = opened.refused("bob", ask(CUBED.format("sex, ward")))
        assert told.startswith("bob keeps 6 rows in the store already, and this is 21 more; accepted: at most 20")
        table = "CREATE PRIVATE TABLE made OPTIONS (epsilon = 0.01, mechanism = 'mwem', rows = 15) AS SELECT sex, ward "
        told = opened.refused("bob", ask(f"{table} FROM visits WORKLOAD MARGINALS (1)"))
        assert told.startswith("15 rows have no room in the store; accepted: at most 14")
        view = BIG.replace("0.001", "0.002")
        assert "and this is 20 more" in opened.refused("bob", ask(view.format(1))), "its answers and the view"
        assert opened.rows("bob", ask(view.replace("age", "ward").format(2))) == [("private.big2 is ready",)]
        assert opened.rows("bob", count("sex", "0.001"))
        assert opened.refused("bob", count("age", "0.001")).startswith("bob keeps 20 rows in the store already")
        assert opened.rows("alice", ask(CUBED.format("sex")))
    finally:
        opened.service.close()


def test_long_texts_have_a_bound_of_their_own(served: Served) -> None:
    """Long labels of computed keys make few rows large: such a table is refused before it costs anything."""
    vault = served.service.vault
    assert isinstance(vault, LocalVault)
    vault._most_characters = 1_000
    try:
        spent = served.rows("bob", "SELECT spent FROM dp_budget()")
        long = (
            "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.002) "
            f"CASE WHEN sex = 0 THEN '{'x' * 600}' ELSE 'y' END AS k, count(*) AS n FROM visits GROUP BY k"
        )
        told = served.refused("bob", ask(long))
        assert "rows with texts of up to 600 characters each are too much at once; accepted: at most 1 rows" in told
        told = served.refused("bob", ask("CREATE PRIVATE TABLE drawn AS SAMPLE 5000 FROM ward_cube"))
        assert told.startswith("5000 rows with texts of up to ")
        assert served.rows("bob", "SELECT spent FROM dp_budget()") == spent
        assert served.rows("bob", ask("CREATE PRIVATE TABLE drawn AS SAMPLE 10 FROM ward_cube"))
        grown = f"replace('{'y' * 100}', 'y', '{'z' * 100}')"
        view = "CREATE PRIVATE VIEW grown OPTIONS (epsilon = 0.001) AS SELECT ward, {} AS n FROM visits GROUP BY ward"
        with pytest.raises(DpduckError, match="the texts of 'grown' are too long; the answers are kept"):
            served.rows("bob", ask(view.format(f"{grown} || CAST(count(*) AS VARCHAR)")))
        assert served.rows("bob", ask(view.format("count(*)"))) == [("private.grown is ready",)]
    finally:
        vault._most_characters = None


def test_releases_that_are_not_stored_yet_count(tmp_path: Path, own_state: Path) -> None:
    """A release that waits for its point of the grid has its room already: asking at once passes no bound."""
    asleep, awake = threading.Event(), threading.Event()

    def sleep(_seconds: float) -> None:
        asleep.set()
        assert awake.wait(600)

    opened = open_served(tmp_path, quota=Quota(releases=1), grid=TimeGrid(64.0, sleep=sleep))
    try:
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(opened.rows, "bob", count("ward", "0.001"))
            assert asleep.wait(600)
            told = opened.refused("bob", count("sex", "0.001"))
            awake.set()
            assert told.startswith("bob keeps 1 releases in the store already") and len(first.result()) == 6
        assert opened.rows("alice", count("sex", "0.001"))
    finally:
        awake.set()
        opened.service.close()


def test_a_select_around_released_answers_has_a_size(served: Served) -> None:
    """Few rows may have long texts: the shared vault stores no more of these than fit a result."""
    vault = served.service.vault
    assert isinstance(vault, LocalVault)
    vault._statements["long"] = "SELECT repeat('y', 90000) AS n FROM range(100000)"
    before = pa.total_allocated_bytes()
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(Refusal, match="the result is too large"):
        vault.rows("bob", "long", 10**6, 10**7)
    assert pa.total_allocated_bytes() - before < 2**30
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - most
    assert grown * (1 if sys.platform == "darwin" else 1024) < 2**31, "DuckDB computes 6 GB ahead if it may"


def test_a_message_that_no_thread_is_left_for_ends_nobody(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all threads are at work, or one has no memory left, a message is refused, and those after are answered."""
    here, there = Pipe()
    vault, going, views = served.service.vault, threading.Event(), served.service.vault.views
    calls = iter([lambda: going.wait(60), _no_memory])

    def slow_then_broken() -> dict[str, str]:
        next(calls, bool)()
        return views()

    monkeypatch.setattr(vault, "views", slow_then_broken)
    answering = threading.Thread(target=answer_all, args=(there, vault, lambda: None, Crew(1)))
    answering.start()
    answers = {}
    for number in (1, 2):
        here.send_bytes(pack({"id": number, "do": "views", "with": []}))
    answers[2] = unpack(here.recv_bytes())[0]
    going.set()
    answers[1] = unpack(here.recv_bytes())[0]
    for number in (3, 4):
        time.sleep(0.2)  # until the thread that answered is free again
        here.send_bytes(pack({"id": number, "do": "views", "with": []}))
        answers[number] = unpack(here.recv_bytes())[0]
    here.close()
    answering.join(30)
    assert answers[2] == {"id": 2, "error": TOO_MUCH} and "views" in answers[1]
    assert "error" in answers[3] and "views" in answers[4]
    assert not answering.is_alive()


def test_a_vault_whose_duckdb_is_gone_ends(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """If its DuckDB answers nobody after an error, the process ends, and the next one starts anew."""
    here, there = Pipe()
    vault, ended = served.service.vault, list[int]()
    assert isinstance(vault, LocalVault) and vault.alive()
    monkeypatch.setattr("dpduck.server.vault_process.os._exit", ended.append)
    answering = threading.Thread(target=answer_all, args=(there, vault, lambda: None, Crew(1)))
    answering.start()
    failing = pack({"id": 1, "do": "rows", "with": ["bob", "no key", 1, 1]})
    here.send_bytes(failing)
    assert "error" in unpack(here.recv_bytes())[0] and not ended
    gone = duckdb.connect()
    monkeypatch.setattr(vault, "_connection", gone)
    monkeypatch.setattr(vault, "alive", lambda: False)
    here.send_bytes(failing)
    assert "error" in unpack(here.recv_bytes())[0]
    here.close()
    answering.join(30)
    assert ended == [1]


def test_an_instance_that_is_gone_is_noticed(tmp_path: Path) -> None:
    """DuckDB 1.5 ends where a window looks to the end of a BIGINT, which no statement may."""
    found = LocalVault.__new__(LocalVault)
    found._connection = duckdb.connect()
    assert found.alive()
    with suppress(duckdb.Error):
        found._connection.execute(
            "SELECT lag(n > 5, -9223372036854775807 - 1) OVER () FROM range(9) AS r(n)"
        ).fetchall()
    try:
        found._connection.execute("SELECT 1")
    except duckdb.FatalException:
        assert not found.alive()
    else:
        assert found.alive()  # a DuckDB that has mended it


def _no_memory() -> None:
    raise MemoryError


def test_a_select_around_released_answers_has_a_clock(served: Served) -> None:
    """A SELECT or a view that would run for hours is refused, in a line that says that the answers are stored."""
    vault, heavy = served.service.vault, "SELECT sum(hash(a.range)) AS n FROM range(3000000000000) AS a"
    assert isinstance(vault, LocalVault)
    database, seconds = vault._database, vault._seconds
    served.rows("bob", count("sex", "0.003"))
    try:
        vault._seconds, vault._statements["slow"] = 0.3, heavy
        with pytest.raises(Refusal, match="the SELECT takes too long over the released answers, which are kept"):
            vault.rows("bob", "slow", 10, 2**20)
        database.limit_selects(0.3)
        slow = replace(database._releases.all()[0][0], name="slow", kind="view")
        with pytest.raises(duckdb.InterruptException):
            database._releases.put_views([(slow, heavy)], False)
        assert not database._releases.is_taken("slow")
    finally:
        vault._seconds = seconds
        database.limit_selects(seconds)


@pytest.mark.slow
@needs_quack
def test_connections_that_are_forgotten_are_ended(tmp_path: Path, own_state: Path) -> None:
    """Clients that never say that they are gone: of each principal so many stay, in DuckDB's own list too."""
    limits = Limits(sessions_each=4, seconds=5)
    database = make_clinic(tmp_path)
    tokens = add_principals(database)
    listener = QuackListener(f"quack:localhost:{free_port()}", NoAudit(), limits)
    service = open_service(database, None, NoAudit(), limits, prepare=listener.prepare)
    try:
        listener.open(service.public, service.gate, service.book)
        clients = [attached(listener.address, tokens[name]) for name in ("bob", *["alice"] * 9)]

        def connected() -> int:
            with service.public.cursor() as cursor:
                return len(cursor.execute("FROM quack_active_connections()").fetchall())

        assert eventually(lambda: connected() == 5), connected()
        assert clients[0].execute("FROM clinic.query('SELECT count(*) FROM ages')").fetchall() == [(10,)]
        assert clients[-1].execute("FROM clinic.query('SELECT count(*) FROM ages')").fetchall() == [(10,)]
        with pytest.raises(duckdb.Error, match=r"nvalid connection|not known any longer"):
            clients[1].execute("FROM clinic.query('SELECT count(*) FROM ages')")
        busy = [attached(listener.address, tokens["alice"]) for _ in range(3)]
        with ThreadPoolExecutor(3) as pool:
            at_work = [pool.submit(busied, client) for client in busy]
            time.sleep(0.5)
            clients += [attached(listener.address, tokens["alice"]) for _ in range(6)]
            assert all(word in ("answered", "ended") for word in (each.result() for each in at_work))
        assert clients[0].execute("FROM clinic.query('SELECT count(*) FROM ages')").fetchall() == [(10,)]
        for client in [*clients, *busy]:
            client.close()
        listener.close()
    finally:
        service.close()


def busied(client: duckdb.DuckDBPyConnection) -> str:
    """Returns the outcome of a statement that takes its two seconds, on a connection that is ended meanwhile."""
    try:
        client.execute("FROM clinic.query('SELECT sum(hash(a.range)) FROM range(3000000000) AS a')")
    except duckdb.Error:
        return "ended"
    return "answered"


def attached(address: str, token: str) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"threads": 1})
    for name in EXTENSIONS:
        load_extension(connection, name, "")
    connection.execute(f"ATTACH '{address}' AS clinic (TOKEN '{token}')")
    return connection


@pytest.mark.slow
def test_results_that_are_kept_are_ones_own(tmp_path: Path, own_state: Path) -> None:
    """Wide results of one go by bytes, that principal's oldest first. Others' joins find room."""
    opened = open_served(tmp_path, Limits(seconds=60, memory=parse_size("64MB")))
    try:
        columns = ", ".join(f"hash(a.range + {number}) AS c{number}" for number in range(30))
        for rows in range(10_000, 10_012):
            opened.sql("alice", f"SELECT {columns} FROM range({rows}) AS a")
            assert opened.rows("bob", JOIN) == [(10,)]
        assert "the result is too large; accepted: at most 4000000 bytes" in opened.refused(
            "alice", f"SELECT {columns} FROM range(30000) AS a"
        )
    finally:
        opened.service.close()


def test_what_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A principal's own oldest goes first. Of others only old ones go, and only where all together are too many."""
    limits = Limits(kept=4, kept_each=2)
    kept, one = AnswerIndex(limits), Size(1, 1, 1)
    for key in ("a1", "a2"):
        assert kept.room_for("alice", one) == []
        kept.enter("alice", key, one)
    assert kept.touch("a1") and not kept.touch("b1")
    assert kept.room_for("alice", one) == ["a2"], "the longest unused of her own"
    kept.enter("alice", "a3", one)
    for key in ("b1", "b2"):
        assert kept.room_for("bob", one) == []
        kept.enter("bob", key, one)
    assert kept.room_for("carol", one) == [], "young answers of others stay"
    now = time.monotonic()
    monkeypatch.setattr("dpduck.server.answer_index.time.monotonic", lambda: now + 2 * YOUNG)
    assert kept.room_for("carol", one) == ["a1"]
    assert kept.unread() == ["a3", "b1", "b2"]


def test_duckdb_has_half_of_a_vaults_memory(tmp_path: Path, own_state: Path) -> None:
    """What its allocator keeps counts against the same limit: the system refused before DuckDB spilled."""
    vault = LocalVault(make_clinic(tmp_path), memory=2 << 30)
    found = vault._connection.execute("SELECT current_setting('memory_limit')").fetchone()
    vault.close()
    assert found == ("1.0 GiB",)
