"""dp_twin: a made-up table from the policy alone, on which accepted statements run and can be priced."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner

import dpduck
from dpduck.commands.command_line import main
from dpduck.database.functions import OWNER, database_of
from dpduck.kernel.rows import reader, scan
from dpduck.values.sqltypes import NAMES, sql_type
from tests.owner.test_policy_text import POLICIES, shop
from tests.support.clinics import Clinic, by, one_line

DOCS = Path(__file__).parents[2] / "docs"
TYPES = (
    *sorted(name for name in NAMES if sql_type(name).is_whole),
    "FLOAT", "DOUBLE", "DECIMAL(9,2)", "VARCHAR", "BOOLEAN", "DATE", "TIME", "TIMESTAMP",
    "TIMESTAMP WITH TIME ZONE", "INTERVAL", "UUID", "BLOB", "ENUM('a', 'b')", "INTEGER[]", "STRUCT(a INTEGER)",
)  # fmt: skip


PAGES = {"sql": 10, "known": 5, "monthly": 8, "choosing": 0, "prepared": 1, "synthetic_data": 7}
"""Pages whose SQL runs from top to bottom, and how many charges their statements make at least."""
MAKES = re.compile(
    r"CREATE TABLE|ALTER|INSERT|FROM dp\(\$\$ *(ALTER|DROP|DECLARE|CREATE( OR REPLACE)? PRIVACY)|FROM dp_check"
)
"""Statements of a page that make tables and policies, or look at the owner's; all others ask."""


def statements_of(page: str, asking: bool) -> list[str]:
    blocks = re.findall(r"```sql\n(.*?)```", (DOCS / f"{page}.md").read_text(encoding="utf-8"), re.DOTALL)
    statements = re.split(r";\s*$", ";\n".join(blocks), flags=re.MULTILINE)
    return [one.strip() for one in statements if one.strip() and (MAKES.match(one.strip()) is None) == asking]


@pytest.mark.sampled
@pytest.mark.parametrize("page", PAGES)
def test_every_accepted_statement_of_the_docs_runs_on_the_twin(page: str, tmp_path: Path) -> None:
    """Every question and view of a page runs unchanged on the twin of its database, which the command creates."""
    real, twin = tmp_path / "real.duckdb", tmp_path / "twin.duckdb"
    with dpduck.connect(real) as connection:
        for statement in statements_of(page, asking=False):
            connection.execute(statement).fetchall()
    done = CliRunner().invoke(main, ["policy", "twin", str(real), "--to", str(twin), "--rows", "500"])
    assert done.exit_code == 0 and "made-up rows" in done.output, done.output
    with dpduck.connect(twin) as connection:
        for statement in statements_of(page, asking=True):
            connection.execute(statement).fetchall()
        assert connection.execute("SELECT count(*) FROM dp_ledger() WHERE rho > 0").fetchall()[0][0] >= PAGES[page]
    with dpduck.connect(real) as connection:
        assert connection.execute("SELECT count(*) FROM dp_ledger() WHERE rho > 0").fetchall() == [(0,)]


def test_it_has_the_columns_and_types_and_lies_in_the_domains() -> None:
    """The twin fits each domain and clamp, and MAX ROWS of each unit. Keys are unique, and references lead to rows."""
    with shop(POLICIES) as connection:
        for table in ("people", "orders", "lines"):
            connection.execute(f"CREATE TABLE twin_{table} AS FROM dp_twin('{table}', 400)")
            described = [connection.execute(f"DESCRIBE {name}").fetchall() for name in (table, f"twin_{table}")]
            assert [row[:2] for row in described[0]] == [row[:2] for row in described[1]]
        facts = connection.execute(
            "SELECT count(DISTINCT order_id), min(paid) >= -1.5 AND max(paid) < 2, min(x) >= 0 AND max(x) < 1, "
            'bool_and("row" IN (1, -2, 30)), count(DISTINCT kind), count(*) - count(fast) > 0, '
            "bool_and(seen >= '2024-01-01' AND seen < '2024-01-02') FROM twin_orders"
        ).fetchall()
        assert facts == [(400, True, True, True, 2, True, True)]
        most = "SELECT max(n) FROM (SELECT count(*) AS n FROM twin_orders GROUP BY customer)"
        assert connection.execute(most).fetchall() == [(4,)]
        found = (
            "SELECT count(*) FROM twin_lines JOIN twin_orders ON of_order = order_id JOIN twin_people ON customer = id"
        )
        assert connection.execute(found).fetchall() == [(400,)]


def test_every_type_has_made_up_values() -> None:
    """A column of any type without a declaration is in the twin, with its type."""
    with dpduck.connect() as connection:
        listed = ", ".join(f"c{place} {name}" for place, name in enumerate(TYPES))
        connection.execute(f"CREATE TABLE t (id INTEGER, {listed})")
        connection.execute(
            "FROM dp('CREATE PRIVACY POLICY ON t (PRIVACY UNIT id MAX ROWS 2, BUDGET (epsilon = 1))')"
        ).fetchall()
        connection.execute("CREATE TABLE twin AS FROM dp_twin('t', 50)")
        same = [connection.execute(f"DESCRIBE {name}").fetchall() for name in ("t", "twin")]
        assert same[0] == same[1]
        filled = connection.execute(
            f"SELECT {', '.join(f'count(c{place})' for place in range(len(TYPES)))} FROM twin"
        ).fetchall()[0]
        assert [name for name, count in zip(TYPES, filled, strict=True) if count < 40] == [
            "BLOB",
            "INTEGER[]",
            "STRUCT(a INTEGER)",
        ]


def test_its_making_reads_nothing(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without reader, scan or rows the SQL of a twin is the same, and names no table."""
    database = database_of(clinic.con)
    assert database is not None
    before = database.about.twin('["visits", 100]', OWNER)
    clinic.con.execute("DELETE FROM visits")
    for module, name in ((reader, "columns"), (scan, "scanned")):
        monkeypatch.setattr(module, name, None, raising=False)
    assert database.about.twin('["visits", 100]', OWNER) == before
    assert "visits" not in before and before.count(" FROM ") == 1 and before.endswith("FROM range(100) AS made_up(i)")
    charges = clinic.charges()
    assert clinic.value("SELECT count(*) FROM dp_twin('visits', 100)") == 100
    assert clinic.charges() == charges


def test_a_batch_is_priced_as_it_will_be_charged(clinic: Clinic) -> None:
    """dp_plan says for each statement, and for all, the price that the ledger then shows. It charges nothing."""
    asked = [by("sex", "0.5"), by("age", "1"), by("sex", "0.5"), by("ward", "2")]
    clinic.dp(by("ward", "2"))
    batch = ";\n".join(asked)
    before = clinic.charges()
    rows = clinic.con.execute("SELECT number, epsilon, remaining, fits, note FROM dp_plan(?)", [batch]).fetchall()
    assert clinic.charges() == before
    assert [row[1] for row in rows] == [0.5, 1.0, 0.0, 0.0, 1.5]
    assert [row[2] for row in rows] == [7.5, 6.5, 6.5, 6.5, 6.5] and all(row[3] for row in rows)
    assert rows[2][4] == "as a statement above: free" and rows[3][4] == "answered already: free"
    for statement in asked:
        clinic.dp(statement)
    assert clinic.value("SELECT remaining FROM dp_budget()") == 6.5


def test_a_batch_that_does_not_fit_says_from_where(clinic: Clinic) -> None:
    """fits is false where the budget has no room. A refused statement costs nothing, as in the ledger."""
    asked = [by("sex", epsilon) for epsilon in ("6", "5", "1")]
    rows = clinic.con.execute("SELECT fits, remaining, note FROM dp_plan(?)", [";".join(asked)]).fetchall()
    assert [row[0] for row in rows] == [True, False, True, False] and "not all of it fits" in rows[-1][2]
    assert [row[1] for row in rows] == [4, 4, 3, 3]
    clinic.dp(asked[0])
    clinic.refused(asked[1])
    clinic.dp(asked[2])
    assert clinic.value("SELECT remaining FROM dp_budget()") == 3
    again = clinic.rows("SELECT fits, remaining FROM dp_plan($$ {0}; {0} $$)".format(by("age", "5")))
    assert again == [(False, 3), (False, 3), (False, 3)]  # a refused statement is not free the second time
    with pytest.raises(duckdb.Error) as caught:
        clinic.con.execute("FROM dp_plan(?)", [f"{by('sex')}; DROP PRIVACY POLICY ON visits"]).fetchall()
    assert one_line(caught.value).startswith("statement 2: only statements with a price")


def test_noise_above_the_expected_rows_is_said(open_clinic: Callable[..., Clinic]) -> None:
    """dp_explain of a statement with noise above EXPECT ROWS says so. With less noise it does not."""
    clinic = open_clinic()
    clinic.fill()
    clinic.dp("CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 4, BUDGET (epsilon = 10), "
              "DOMAIN sex IN (0, 1), EXPECT ROWS 1000)")  # fmt: skip
    noted = [
        clinic.con.execute("SELECT note FROM dp_explain(?) WHERE chosen", [by("sex", epsilon)]).fetchall()[0][0]
        for epsilon in ("0.001", "1")
    ]
    assert "larger than EXPECT ROWS 1000" in noted[0] and "EXPECT" not in noted[1]
