"""dp and its kin as table functions of the stock shell, as `dpduck principal add --shell` writes them, and by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner

from dpduck.commands.command_line import main
from dpduck.publish.extensions import extension_file
from tests.server.served import make_clinic
from tests.server.shell import EXTENSIONS, Server, needs_quack, serving, shell
from tests.server.statement_lists import statements
from tests.server.test_bare_attacks import ONLY_BARE
from tests.support.clinics import by

pytestmark = [needs_quack, pytest.mark.slow]
SELECT = by("ward", "0.1")
BROKEN = ("') UNION ALL FROM ages --", "x') --", "$ask$", "\\'", "'''", "$$", "'); ALTER PRIVACY POLICY ON visits --")
"""Texts that would end a quoted text, if a macro did not double its quotes."""


@dataclass
class Attached:
    """A server, and a principal's file."""

    server: Server
    file: str
    database: Path

    def says(self, script: str, *arguments: str) -> tuple[str, str]:
        """Returns the shell's answer to a script after the principal's file."""
        return shell(self.file + script, *arguments)

    def charges(self) -> int:
        return int(self.says("SELECT count(*) FROM dp_ledger();")[0].splitlines()[-1])


@pytest.fixture(scope="module")
def attached(tmp_path_factory: pytest.TempPathFactory, state_directory: Path) -> Iterator[Attached]:
    folder = tmp_path_factory.mktemp("macros")
    database = make_clinic(folder)
    with serving(database) as server:
        words = [
            "principal",
            "add",
            str(database),
            "alice",
            "--share",
            "1/2",
            "--shell",
            str(folder / "alice.sql"),
            "--address",
        ]
        assert CliRunner().invoke(main, [*words, server.address]).exit_code == 0
        text = (folder / "alice.sql").read_text(encoding="utf-8")
        for name in EXTENSIONS:  # from files, where nothing can be downloaded
            text = text.replace(f"LOAD {name};", f"LOAD '{extension_file(name, '')}';")
        yield Attached(server, f".mode csv\n.headers off\n{text}", database)


def test_every_macro_answers(attached: Attached) -> None:
    """A question with quotes and dollars in its text, the free functions, and a table made of an answer."""
    asked = f"FROM dp($$ {SELECT} $$)"
    out, err = attached.says(
        f"CREATE TABLE mine AS {asked}; SELECT count(*), sum(n) > 0 FROM mine;\n"
        f"SELECT count(*) FROM dp($$ SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.1) ward, count(*) AS n "
        f"FROM visits WHERE ward <> 'w1' GROUP BY ward $$);\n"
        f"SELECT count(*) > 1 FROM dp_explain($$ {SELECT} $$); SELECT cells FROM dp_errors($$ {SELECT} $$);\n"
        f"SELECT count(*) FROM dp_plan($$ {SELECT}; {SELECT} $$); SELECT count(*) FROM dp_columns('visits');\n"
        f"SELECT name, kind FROM dp_tables() ORDER BY name; SELECT share FROM dp_budget();\n"
        f"SELECT count(*) FROM dp_policies(); SELECT count(*) > 1 FROM dp_releases();\n"
        f"SELECT count(*) FROM dp_ledger();\n"
        f"SELECT stderr > 0 FROM dp_known('SELECT count(*) FROM visits', 0.9);\n"
    )
    assert err == ""
    lines = [line for line in out.splitlines() if line not in ("true", "Success")]
    kinds = ["ages,private view", "visits,private table", "ward_cube,private view", "wards,public table"]
    assert lines == ["6,true", "5", "6", "3", "4", *kinds, "0.5", "1", "2"]
    assert out.splitlines().count("true") == 4  # one of them is for the secret


def test_a_bare_statement_is_passed_as_it_is(attached: Attached) -> None:
    """What CONNECT of a later DuckDB would send: the client's text alone, here by clinic.query."""
    out, err = attached.says(f"SELECT count(*) FROM clinic.query($$ -- by ward\n {SELECT}; $$);\n")
    assert (out.splitlines()[-1], err) == ("6", "")
    made = "CREATE PRIVATE VIEW passed OPTIONS (epsilon = 0.1) AS SELECT sex, count(*) AS n FROM visits GROUP BY sex"
    out, err = attached.says(f"FROM clinic.query('{made}'); SELECT count(*) FROM clinic.query('FROM passed');\n")
    assert (out.splitlines()[-1], err) == ("2", "")
    _, err = attached.says("FROM clinic.query('ALTER PRIVACY POLICY ON visits NEW EPOCH');")
    assert "this statement is the data owner's" in err


def test_looking_around_charges_nothing(attached: Attached) -> None:
    """ATTACH, listings, DESCRIBE, prices and the plan of a scan. Making the macros asks the server nothing."""
    before = attached.charges()
    _, err = attached.says(
        f"SHOW TABLES; SHOW ALL TABLES; DESCRIBE clinic.ages; EXPLAIN FROM clinic.ages;\n"
        f"DESCRIBE FROM dp_explain($$ {by('age', '0.2')} $$); EXPLAIN FROM dp_plan($$ {by('age', '0.2')} $$);\n"
        f"FROM clinic.query($$ EXPLAIN {by('age', '0.2')} $$); FROM clinic.query('SHOW ALL TABLES');\n"
        f"PREPARE later AS FROM dp($1); SELECT * FROM information_schema.tables;\n"
    )
    assert err == ""
    assert attached.charges() == before


def test_a_client_lists_its_tables_without_a_question(attached: Attached) -> None:
    """Quack 1.5.5 asks two things at ATTACH, and none when a client lists tables: the server cannot answer.

    So SHOW TABLES is empty, although the names of the attached views are known, and dp_tables takes its place.
    """
    log = attached.database.with_name("clinic_private_audit.jsonl")
    before = len(log.read_text(encoding="utf-8").splitlines())
    listings = (
        "SHOW TABLES; SHOW ALL TABLES; USE clinic; SHOW TABLES; SHOW ALL TABLES; SELECT table_name FROM "
        "information_schema.tables; SELECT table_name FROM information_schema.columns; SELECT table_name FROM "
        "duckdb_tables(); SHOW TABLES FROM clinic;"
    )
    out, err = attached.says(f".print ====\n{listings}")
    assert (out.partition("====\n")[2], err) == ("", "")
    notes = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()[before:]]
    asked = [note["statement"].split() for note in notes if note["event"] == "answered"]
    assert [words[words.index("FROM") + 1] for words in asked] == ["information_schema.schemata", "duckdb_tables()"]


def test_what_duckdb_binds_it_asks(attached: Attached) -> None:
    """Quack sends a statement as it binds it. So EXPLAIN of a question charges it, once: the answer is then free."""
    asked, before = f"FROM dp($$ {by('sex', '0.15')} $$);", attached.charges()
    assert attached.says(f"EXPLAIN {asked}")[1] == ""
    assert attached.says(f"DESCRIBE {asked} {asked}")[1] == ""
    assert attached.charges() == before + 1


def test_attacks_through_the_macros_are_refused(attached: Attached) -> None:
    """All bare attacks and every third other one, as arguments of the macros and as texts of clinic.query."""
    before = attached.charges()
    texts = [text for text in [*statements("bare.sql"), *statements("attacks.sql")[::3]] if "\x00" not in text]
    with duckdb.connect(config={"threads": 1}) as con:
        con.execute(attached.file.split("\n", 2)[2])
        forms = [("FROM clinic.query($1)", text) for text in texts]
        forms += [("FROM dp($1)", text) for text in [*texts, *BROKEN] if ONLY_BARE not in text]
        for form, text in forms:
            with pytest.raises(duckdb.Error) as caught:
                pytest.fail(f"{form} of {text} answered {con.execute(form, [text]).fetchmany(3)}")
            assert "accepted: " in str(caught.value), (form, text)
    assert attached.charges() == before
