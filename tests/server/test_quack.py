"""The stock shell against a served clinic, each a process of its own."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dpduck.kernel.ledger.secrets import SecretsFile
from dpduck.server.principals import PrincipalBook
from tests.server.served import add_principals, ask, count, make_clinic
from tests.server.shell import Server, attach, needs_quack, serving, shell
from tests.support.clinics import by

pytestmark = needs_quack


@dataclass
class Clinic:
    """A served clinic with its tokens."""

    database: Path
    server: Server
    tokens: dict[str, str]

    def shell(self, who: str, *statements: str) -> tuple[str, str]:
        return shell(attach(self.server.address, self.tokens[who]) + ";\n".join(statements) + ";\n")

    def rows(self, who: str, *statements: str) -> list[str]:
        """The lines of the last answer, with a heading."""
        out, err = self.shell(who, *statements)
        assert err == "", err
        return out.splitlines()


def query(text: str) -> str:
    return f"FROM clinic.query($outer$ {text} $outer$)"


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory, state_directory: Path) -> Iterator[Clinic]:
    database = make_clinic(tmp_path_factory.mktemp("quack"))
    tokens = add_principals(database)
    with serving(database) as server:
        yield Clinic(database, server, tokens)


@pytest.mark.slow
def test_private_views_are_tables_of_the_attached_database(clinic: Clinic) -> None:
    """ATTACH, read, filter, join and aggregate with nothing but the stock shell. The comment states the price paid."""
    assert clinic.rows("carol", "SELECT count(*) AS c, count(ward) AS d FROM clinic.ward_cube") == ["c,d", "21,18"]
    joined = "SELECT count(*) AS c FROM clinic.query('FROM ages') AS a JOIN range(0, 100, 10) AS r(age) USING (age)"
    assert clinic.rows("bob", joined) == ["c", "10"]
    listed = clinic.rows("bob", query("SELECT table_name, comment FROM duckdb_tables() ORDER BY 1"))
    assert listed[1].startswith('ages,"differentially private, epsilon = 1 (pure)')


@pytest.mark.slow
def test_questions_are_asked_through_the_shell(clinic: Clinic) -> None:
    """dp, dp_explain, dp_budget and dp_ledger over clinic.query. The same question twice is one charge."""
    answer = clinic.rows("alice", query(count("ward", "0.25")))
    assert answer[0] == "ward,n" and len(answer) == 7
    assert clinic.rows("bob", query(count("ward", "0.25"))) == answer
    explained = clinic.rows("bob", query(f"SELECT strategy, chosen FROM dp_explain($q$ {by('ward')} $q$)"))
    assert explained[1] == "I,true"
    own = query("SELECT principal, epsilon AS e FROM dp_ledger()")
    assert clinic.rows("alice", own) == ["principal,e", "alice,0.25"]
    assert clinic.rows("bob", query("SELECT count(*) AS c FROM dp_ledger()")) == ["c", "0"]
    assert clinic.rows("bob", query("SELECT budget, spent FROM dp_budget()")) == ["budget,spent", "10.0,2.25"]


def test_a_refusal_is_one_line_in_the_shell(clinic: Clinic) -> None:
    """Refusals of the gate, of dp and of the parser say what, where, and what would be accepted."""
    _, err = clinic.shell("carol", query(count("ward", "0.25")))
    assert "carol may not ask about 'visits'; accepted: wards" in err
    _, err = clinic.shell("alice", query("FROM duckdb_settings()"))
    assert "the table function 'duckdb_settings' is not on the list" in err
    _, err = clinic.shell("alice", query("SELECT 1; SELECT 2"))
    assert "two statements in one text" in err
    _, err = clinic.shell("alice", query(ask("ALTER PRIVACY POLICY ON visits NEW EPOCH")))
    assert "this statement is the data owner's" in err


CHANGES = (
    "INSERT INTO clinic.ages VALUES (1, 2)", "CREATE TABLE clinic.mine AS SELECT 1 AS x", "DROP TABLE clinic.ages",
    "DELETE FROM clinic.ages", "UPDATE clinic.ages SET n = 0", "CREATE VIEW clinic.v AS SELECT 1",
    "CREATE SCHEMA clinic.s", "ALTER TABLE clinic.ages ADD COLUMN x INTEGER",
)  # fmt: skip


@pytest.mark.slow
def test_an_attached_clinic_cannot_be_changed(clinic: Clinic) -> None:
    """Rows and tables of clients are not taken, by whichever message of the protocol they come."""
    tables = query("SELECT list(table_name ORDER BY table_name) AS t FROM duckdb_tables()")
    before = clinic.rows("bob", "FROM clinic.ages")
    errors = "".join(clinic.shell("alice", change)[1] for change in CHANGES)
    assert errors.count("Error") == len(CHANGES), errors
    assert clinic.rows("bob", "FROM clinic.ages") == before
    assert clinic.rows("bob", tables) == ["t", '"[ages, ward_cube]"']


def test_a_forged_token_opens_nothing(clinic: Clinic) -> None:
    """Nobody without a token comes in, and the attempt is noted without the token."""
    path = clinic.database.with_name("clinic_private_audit.jsonl")
    before = path.read_text(encoding="utf-8").count("turned away")
    for token in ("dpduck_", "' OR true --", "x" * 5_000):
        _, err = shell(attach(clinic.server.address, token.replace("'", "''")) + "FROM clinic.ages;")
        assert "Authentication failed" in err
    log = path.read_text(encoding="utf-8")
    assert log.count("turned away") == before + 3 and "OR true" not in log


def test_a_new_view_shows_after_the_cache_of_the_shell_is_cleared(clinic: Clinic) -> None:
    """The shell remembers the tables that it saw at ATTACH. Query sees the new one at once."""
    made = "CREATE PRIVATE VIEW fresh OPTIONS (epsilon = 0.01) AS SELECT sex, count(*) AS n FROM visits GROUP BY sex"
    read, clear = query("SELECT count(*) AS c FROM fresh"), "CALL quack_clear_cache()"
    again, drop = "SELECT count(*) AS d FROM clinic.fresh", query(ask("DROP PRIVATE VIEW fresh"))
    out, err = clinic.shell("alice", query(ask(made)), read, clear, again, drop)
    assert err == "" and "private.fresh is ready" in out
    assert out.splitlines()[2:4] == ["c", "2"] and "d\n2" in out


def test_principals_come_and_go_while_the_server_runs(clinic: Clinic) -> None:
    """A new token works at once. A revoked one opens nothing any more."""
    book = PrincipalBook(SecretsFile.open(clinic.database.with_name("clinic_private_secrets"), create=False))
    script = attach(clinic.server.address, book.add("dave")) + "FROM clinic.ages LIMIT 1;\n"
    assert shell(script)[1] == ""
    book.revoke("dave")
    assert "Authentication failed" in shell(script)[1]
    log = clinic.database.with_name("clinic_private_audit.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(log[-1])["event"] == "turned away"


@pytest.mark.slow
def test_a_server_stops_when_it_is_told(tmp_path: Path, own_state: Path) -> None:
    """Gracefully, with status 0 and nothing on standard error. Its files are free again, and releases stay."""
    database = make_clinic(tmp_path)
    tokens, answers = add_principals(database), []
    for number in (signal.SIGTERM, signal.SIGINT):
        with serving(database) as server:
            spent = query("SELECT count(*) AS c FROM dp_ledger()")
            out, err = shell(f"{attach(server.address, tokens['bob'])}{query(count())};\n{spent};\n")
            assert err == ""
            answers.append(out)
            assert server.stop(number) == 0
            assert server.process.stderr is not None and server.process.stderr.read() == ""
    assert answers[0] == answers[1] and answers[0].endswith("c\n1\n")


@pytest.mark.slow
def test_many_shells_at_once(clinic: Clinic) -> None:
    """Six shells ask and read together: no error, and every question is charged once."""
    failures: list[str] = []

    def use(number: int) -> None:
        epsilon = f"0.00{number % 3 + 1}"
        out, err = clinic.shell("bob", "SELECT count(*) FROM clinic.ages", query(count("sex", epsilon)))
        if err or len(out.splitlines()) != 5:
            failures.append(out + err)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    charged = clinic.rows("bob", query("SELECT count(*) AS c, count(DISTINCT epsilon) AS d FROM dp_ledger()"))
    assert charged == ["c,d", "3,3"]
