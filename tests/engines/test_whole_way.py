"""A clinic with its visits in an engine, from its policy to a view that a server's principal reads."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import dpduck
from dpduck.kernel.ledger.secrets import SecretsFile
from dpduck.server.local_vault import LocalVault
from dpduck.server.principals import PrincipalBook
from tests.engines.corpus import rows
from tests.support.engine_servers import Server

POLICY = """CREATE PRIVACY POLICY ON lake.db.{} (PRIVACY UNIT patient_id MAX ROWS 2, BUDGET (epsilon = 10),
    DOMAIN sex IN ('F', 'M'), DOMAIN age RANGE 0 TO 100 STEP 20, EXPECT ROWS 3000)"""
ASK = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = {}) sex, count(*) AS n FROM lake.db.{} GROUP BY sex"
VIEW = """CREATE PRIVATE VIEW by_age OPTIONS (epsilon = 1) AS
    SELECT sex, age, count(*) AS n FROM lake.db.{} GROUP BY CUBE (sex, age)"""


@pytest.mark.slow
def test_from_a_policy_to_a_principal(server: Server, tmp_path: Path) -> None:
    """Policy, check, price, answer, view, and again without a charge. Then the same through a vault, by address."""
    if not server.address:
        pytest.skip("a session of this process has no address")
    there, path = server.put("clinic", rows(1000)), tmp_path / "clinic.duckdb"
    with dpduck.connect(path) as con:
        assert dpduck.attach_spark(con, server.address, name="lake", tables=[there]) == ["lake.db.clinic"]
        con.execute("FROM dp(?)", [POLICY.format("clinic")]).fetchall()
        assert con.execute("SELECT value FROM dp_check('lake.db.clinic') WHERE finding = 'rows'").fetchone() == (
            1000.0,
        )
        with pytest.raises(duckdb.Error, match="lies in the engine 'lake'"):
            con.execute("SELECT count(*) FROM lake.db.clinic")
        con.register("laid", rows(1000))
        con.execute("CREATE TABLE here AS FROM laid")
        con.execute("FROM dp(?)", [POLICY.replace("lake.db.{}", "here")]).fetchall()
        found = [con.execute("FROM dp_check(?)", [name]).fetchall() for name in ("lake.db.clinic", "here")]
        assert found[0] == found[1], "the same facts, there and here, of rows without a unit, too"
        explained = con.execute("SELECT epsilon FROM dp_explain(?) WHERE chosen", [ASK.format(1, "clinic")])
        assert explained.fetchone() == (1.0,)
        answer = con.execute("FROM dp(?)", [ASK.format(1, "clinic")]).fetchall()
        assert con.execute("FROM dp(?)", [ASK.format(1, "clinic")]).fetchall() == answer
        con.execute("FROM dp(?)", [VIEW.format("clinic")]).fetchall()
        assert con.execute("SELECT count(*) FROM private.by_age").fetchone() == (18,)
        assert con.execute("SELECT spent FROM dp_budget() WHERE table_name = 'clinic'").fetchone() == (2.0,)
    secrets = SecretsFile.open(tmp_path / "clinic_private_secrets", create=False)
    PrincipalBook(secrets).add("alice")
    with pytest.raises(dpduck.Refusal, match="knows no table of 'pond'"):
        LocalVault(path, engines=("pond=sc://127.0.0.1:1",))
    vault = LocalVault(path, engines=(f"lake={server.address}",))
    try:
        new = vault.ask("alice", "run", ASK.format(2, "clinic"), 60.0)
        assert new.refused is None and new.charged is not None and new.key is not None
        assert vault.rows("alice", new.key, 100, 1 << 20).table.num_rows == 2
        plain = vault.ask("alice", "check", "lake.db.clinic", 60.0)
        assert plain.refused is not None
    finally:
        vault.close()


def test_without_the_engine_the_store_knows_that_there_was_one(server: Server, tmp_path: Path) -> None:
    """A table of the same name in a DuckDB that is attached later is not taken for the engine's."""
    there, path = server.put("later", rows(100)), tmp_path / "later.duckdb"
    with dpduck.connect(path) as con:
        dpduck.attach_spark(con, server.session, name="lake", tables=[there])
        con.execute("FROM dp(?)", [POLICY.format("later")]).fetchall()
    with dpduck.connect(path) as con:
        con.execute("ATTACH ':memory:' AS lake; CREATE SCHEMA lake.db")
        con.execute("CREATE TABLE lake.db.later AS SELECT 1::BIGINT AS patient_id, 'F' AS sex, 1::INTEGER AS age")
        with pytest.raises(duckdb.Error, match="the engine 'lake' is not attached"):
            con.execute("FROM dp(?)", [ASK.format(1, "later")]).fetchall()
