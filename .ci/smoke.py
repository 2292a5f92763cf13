"""What an installed wheel must do, run isolated and from elsewhere: python -I smoke.py [STORE-DIRECTORY].

With a directory, its clinic.duckdb and store were made by an older version: charges, views and answers are still there.
"""

import sys
import tempfile
from importlib.resources import files
from pathlib import Path

import duckdb

import dpduck

POLICY = "CREATE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 3), DOMAIN sex IN (0, 1))"
ASKED = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) AS n FROM visits GROUP BY sex"
VIEW = "CREATE PRIVATE VIEW cubed OPTIONS (epsilon = 1) AS SELECT sex, count(*) AS n FROM visits GROUP BY CUBE (sex)"


def made(folder: Path) -> None:
    """Makes a clinic with a policy, an answer and a view."""
    with dpduck.connect(folder / "clinic.duckdb") as con:
        con.execute("CREATE TABLE visits AS SELECT range % 2 AS sex FROM range(1000)")
        for statement in (POLICY, ASKED, VIEW):
            con.execute("FROM dp(?)", [statement]).fetchall()
        (folder / "answer.txt").write_text(repr(con.execute("FROM dp(?)", [ASKED]).fetchall()), "utf-8")


def checked(folder: Path) -> None:
    """Asks again: the same answer, nothing charged, the view readable, the budget held."""
    with dpduck.connect(folder / "clinic.duckdb") as con:
        spent = con.execute("SELECT spent FROM dp_budget() WHERE measure = 'epsilon'").fetchall()
        assert float(spent[0][0]) == 2, spent
        answer = con.execute("FROM dp(?)", [ASKED]).fetchall()
        assert repr(answer) == (folder / "answer.txt").read_text("utf-8"), answer
        assert len(con.execute("FROM private.cubed").fetchall()) == 3
        assert con.execute("SELECT spent FROM dp_budget() WHERE measure = 'epsilon'").fetchall() == spent
        try:
            con.execute("FROM dp(?)", [ASKED.replace("epsilon = 1", "epsilon = 2")]).fetchall()
        except duckdb.Error as error:
            assert "budget" in str(error), error
        else:
            raise AssertionError("a charge beyond the budget")
        con.execute("FROM dp(?)", [ASKED.replace("epsilon = 1", "epsilon = 0.5")]).fetchall()
    print("answers:", answer, "with DuckDB", duckdb.__version__)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--make"]:
        made(Path(sys.argv[2]))
    elif len(sys.argv) > 1:
        checked(Path(sys.argv[1]))
    else:
        assert (files("dpduck") / "sql" / "README.md").is_file(), "sql/ is missing from the wheel"
        with tempfile.TemporaryDirectory() as room:
            made(Path(room))
            checked(Path(room))
