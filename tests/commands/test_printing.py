"""Names and texts of others on the owner's terminal: every character that a terminal would obey is written out."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path

import click
import duckdb
import pytest
from click.testing import CliRunner

from dpduck.commands.command_line import main
from dpduck.commands.errors import one_line
from dpduck.commands.printing import give, print_box, print_records, print_relation, say
from dpduck.database.progress import Progress
from dpduck.notebook import prices
from dpduck.values.errors import Refusal
from dpduck.values.quoting import printable, quote_identifier, quote_text

TITLE = "n\x1b]0;PWNED\x07"
HOSTILE = f"{TITLE}\rover\x9b2J\u202eleft\u200b\x7f"
SHOWN = r"n\x1b]0;PWNED\x07\rover\x9b2J\u202eleft\u200b\x7f"


class TerminalText(StringIO):
    """Output that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@contextmanager
def screen() -> Iterator[TerminalText]:
    """Standard output that is a terminal meanwhile."""
    opened = TerminalText()
    with redirect_stdout(opened):
        yield opened


def require_harmless(text: str) -> None:
    obeyed = [letter for letter in text if unicodedata.category(letter) in ("Cc", "Cf") and letter not in "\n\t"]
    assert text and obeyed == []


@pytest.mark.parametrize("columns", [1, 60])
@pytest.mark.parametrize("rows", [1, 40])
def test_boxes_and_records(columns: int, rows: int) -> None:
    """Values and names, in a box, in records, and in the list of columns below a box that is too wide."""
    names = ", ".join(f"{quote_text(HOSTILE)} AS {quote_identifier(f'{HOSTILE}{i}')}" for i in range(columns))
    with duckdb.connect() as con, screen() as shown:
        relation = con.sql(f"SELECT {names} FROM range({rows})")
        print_box(relation)
        print_records(relation)
    require_harmless(shown.getvalue())
    assert SHOWN in shown.getvalue()


def test_csv_is_written_out_at_a_terminal_alone() -> None:
    """A file or a pipe keeps the bytes, since programs read it."""
    pipe = StringIO()
    with duckdb.connect() as con:
        relation = con.sql(f"SELECT {quote_text(HOSTILE)} AS x, E'two\\nlines' AS y")
        with screen() as shown:
            print_relation(relation, "csv")
            print_relation(relation, "json")
        with redirect_stdout(pipe):
            print_relation(relation, "csv")
            give(f"{HOSTILE}\n")
    require_harmless(shown.getvalue().replace("\x7f", ""))  # JSON writes out all but this one
    assert SHOWN in shown.getvalue() and '"two\nlines"' in shown.getvalue()
    assert pipe.getvalue() == f'x,y\n{HOSTILE},"two\nlines"\n{HOSTILE}\n'


def test_lines_and_documents() -> None:
    """Other lines of commands, errors, the progress line and the lines of a notebook."""
    with screen() as shown:
        say(HOSTILE)
        give(HOSTILE)
        Progress(shown).say(HOSTILE)
        click.echo(one_line(Refusal(HOSTILE, accepted=HOSTILE)))
    require_harmless(shown.getvalue().replace("\rdpduck: ", ""))
    assert shown.getvalue().count(r"n\x1b]0;PWNED\x07") == 5
    assert printable("é\t中\n") == "é\t中\n"


def test_a_principals_name_of_a_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The statement of a view, in the ledger, in releases, and in a notebook's explanation."""
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "2000")
    database = tmp_path / "clinic.duckdb"
    with duckdb.connect(str(database)) as con:
        con.execute("CREATE TABLE visits AS SELECT range AS patient FROM range(1000)")
    view = f"CREATE PRIVATE VIEW vx OPTIONS (epsilon = 0.1) AS SELECT count(*) AS {quote_identifier(TITLE)} FROM visits"
    for text in ("CREATE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1))", view):
        ran = CliRunner().invoke(main, ["sql", str(database), text])
        assert ran.exit_code == 0, ran.output
    for words in (["sql", str(database), "FROM dp_releases()"], ["ledger", str(database)], ["releases", str(database)]):
        shown = CliRunner().invoke(main, words).output
        require_harmless(shown)
    assert "PWNED" in CliRunner().invoke(main, ["sql", str(database), "SELECT statement FROM dp_releases()"]).output


def test_prices_in_a_notebook() -> None:
    """A note that quotes a name is a line of a cell's output."""
    with duckdb.connect() as con:
        columns = f"1 AS number, NULL AS price, {quote_text(HOSTILE)} AS note, 1 AS times_left, true AS fits"
        con.execute(f"CREATE MACRO dp_plan(x) AS TABLE SELECT {columns}")
        lines = prices(con, "SELECT 1")
    assert len(lines) == 1 and SHOWN in lines[0]
    require_harmless(lines[0])
