"""Statements and dot commands of the owner's shell, without a terminal."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from dpduck.commands.command_line import main
from dpduck.commands.owner_session import GOES_ON, OwnerSession
from dpduck.commands.shell.loop import HELP, NO_PRICE, OwnerShell, is_complete, is_dot_command, run_lines
from dpduck.commands.shell.prompt import require_prompt
from dpduck.server.bare_statements import split_at_ends
from dpduck.values.errors import Interrupted, Refusal
from tests.server.doors import door_process
from tests.server.served import CANARY

ASKED = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.5) sex, count(*) AS n FROM visits GROUP BY sex"


@pytest.fixture
def shell(clinic: Path) -> Iterator[OwnerShell]:
    with OwnerSession(clinic, None) as session:
        assert not session.is_served()
        yield OwnerShell(session, "box")


def test_dot_commands(shell: OwnerShell, capsys: pytest.CaptureFixture[str]) -> None:
    """Prices, errors, budgets and tables cost nothing. Without a statement they are about the last one."""

    def said(text: str) -> str:
        assert not shell.execute(text)
        out, err = capsys.readouterr()
        return out + err

    assert (
        said(f".price\n{ASKED};")
        == said(f".price {ASKED};")
        == ("5 % of your budget (epsilon = 0.5); 75 % are left afterwards; you can still ask this 16 times\n")
    )
    assert "cost: 5 % of your budget (epsilon = 0.5)\n" in said(".explain")
    assert "worst_stderr" in said(".errors;")
    assert "80 %" in said(".budget") and "ward_cube" in said(".ledger")
    tables = said(".tables")
    for name, kind in (("visits", "private table"), ("ages", "private view"), ("wards", "public table")):
        assert f"{name:<9} │ {kind}" in tables
    assert all(name in said(".help") for name in HELP)
    assert said(".price DROP PRIVATE VIEW ages;").startswith("Error: ")
    assert said(f".price FROM dp($$ {ASKED} $$);").startswith("5 % of your budget")
    assert said(".price SELECT sex, count(*) FROM visits GROUP BY sex;") == f"{NO_PRICE}\n"
    assert said(f".price {ASKED.replace('0.5', '9')};").endswith("(epsilon = 9); costs more than what is left\n")
    assert (
        said(".nothing")
        == f"Error: there is no command '.nothing'; accepted: {', '.join(n.split()[0] for n in HELP)}\n"
    )
    assert "│" in said(f"{ASKED};")
    assert said(".price") == "answered already: free\n"
    assert "charged again" in said(".price ALTER PRIVACY POLICY ON visits SET MAX ROWS 3;") or shell.refused


def test_a_dot_command_without_any_statement(shell: OwnerShell, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing was typed before, so that it cannot be about the statement before. The help says this rule."""
    for name in (".price", ".explain", ".errors"):
        shell.execute(f"{name};")
        accepted = f"{name} SELECT WITH DIFFERENTIAL_PRIVACY ..;"
        assert capsys.readouterr().err == f"Error: a statement is missing; accepted: {accepted}\n"
    assert any("alone, these three take the statement before" in text for text in HELP.values())


def test_rows_one_below_the_other(shell: OwnerShell, capsys: pytest.CaptureFixture[str]) -> None:
    """The toggle changes how rows are shown, and back. Long results end with a line that says so."""
    shell.execute("\\x")
    shell.execute("SELECT age, n_stderr FROM ages ORDER BY age LIMIT 2;")
    assert capsys.readouterr().out.splitlines()[1:] == [
        "     age: 0", "n_stderr: 5.64215", "", "     age: 10", "n_stderr: 5.64215"
    ]  # fmt: skip
    shell.execute("SELECT range AS i FROM range(300);")
    assert capsys.readouterr().out.endswith("the first 200 rows; LIMIT and OFFSET show others\n")
    assert is_dot_command("\\X") and is_complete("\\X")
    shell.execute("\\X")
    shell.execute("SELECT 1 AS one; SELECT 2 AS two;")
    assert capsys.readouterr().out.count("┌") == 2


def test_a_refusal_ends_a_line_and_not_the_shell(shell: OwnerShell, capsys: pytest.CaptureFixture[str]) -> None:
    """What stands after a refused statement on the same line is not run. The next line is."""
    shell.execute("FROM secret; DROP PRIVATE VIEW ages;")
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1) and "no private view 'secret'" in err and CANARY not in err
    shell.execute("SELECT count(*) AS c FROM ages;")
    assert "10" in capsys.readouterr().out and shell.refused


def test_ctrl_c_in_any_place_is_one_line(
    shell: OwnerShell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python's and DuckDB's interruptions are told from other errors."""
    for error in (KeyboardInterrupt(), RuntimeError("Query interrupted"), Interrupted("it stays charged")):

        def stopped(*_: object, error: BaseException = error) -> None:
            raise error

        monkeypatch.setattr("dpduck.commands.shell.loop.print_answer", stopped)
        assert shell.execute("FROM ages;") is False
        assert capsys.readouterr().err.startswith(("Error: interrupted; nothing more", "Error: it stays charged"))

    def failed(*_: object) -> None:
        raise RuntimeError("another")

    monkeypatch.setattr("dpduck.commands.shell.loop.print_answer", failed)
    with pytest.raises(RuntimeError, match="another"):
        shell.execute("FROM ages;")


def test_ctrl_c_while_the_server_works(clinic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line says that the server may go on. The next statement begins a new connection."""
    with door_process(clinic), OwnerSession(clinic, None) as session:
        assert session.is_served() and session._owner is not None

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(session._owner._pipe, "send_bytes", interrupted, raising=False)
        with pytest.raises(Interrupted, match="the server may go on") as caught:
            session.ask("dp_budget", None)
        assert str(caught.value) == GOES_ON
        assert session.ask("dp_budget", None).fetchall() and session.is_served()


def test_statements_through_a_pipe(clinic: Path) -> None:
    """Each runs as soon as it is complete. The status is 1 if one was refused. No prompt is needed."""
    typed = f"-- counts\n{ASKED};\n\nSELECT count(*)\n  AS c FROM ages;\n.budget\nFROM secret;\nSELECT 7 AS last"
    done = CliRunner().invoke(main, ["shell", str(clinic), "--format", "json"], input=typed)
    assert done.exit_code == 1
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row.get("sex") for row in rows[:2]] == [0, 1]
    assert (rows[2], rows[3]["spent"], rows[-1]) == ({"c": 10}, 2.5, {"last": 7})
    assert done.stderr.startswith("Error: there is no private view 'secret'") and done.stderr.count("\n") == 1
    again = CliRunner().invoke(main, ["shell", str(clinic)], input="SELECT ';' AS c;\n.quit\nFROM secret;\n")
    assert again.exit_code == 0 and "secret" not in again.output


def test_bytes_of_standard_input(clinic: Path) -> None:
    """A byte order mark is left out. Bytes that are not UTF-8 are refused in one line, by both commands."""
    for words in (["shell", str(clinic)], ["sql", str(clinic), "-"]):
        marked = CliRunner().invoke(main, [*words, "--format", "csv"], input="SELECT 7 AS n".encode("utf-8-sig"))
        assert (marked.exit_code, marked.output) == (0, "n\n7\n")
        closed = CliRunner().invoke(main, words, input="SELECT 'é';\n".encode("latin-1"))
        assert closed.exit_code == 1 and closed.output.count("\n") == 1
        assert closed.output.startswith("Error: standard input is not in UTF-8; accepted: a copy in UTF-8: iconv -f ")


def test_a_pipe_loads_no_prompt(clinic: Path) -> None:
    """prompt_toolkit is imported at a terminal alone."""
    script = (
        "import sys\nfrom dpduck.commands.command_line import run\ntry:\n    run()\nfinally:\n"
        "    print(any(name.startswith('prompt_toolkit') for name in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "shell", str(clinic)], input="SELECT 1;\n", capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "False"


def test_a_terminal_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line says what to install."""
    monkeypatch.setattr("dpduck.commands.shell.prompt.find_spec", lambda name: None)
    with pytest.raises(Refusal, match=r"needs prompt_toolkit; accepted: pip install '\.\[shell\]'"):
        require_prompt()


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("", True), ("-- a remark", True), ("SELECT 1", False), ("SELECT 1;", True), ("SELECT 1; -- a remark", True),
        ("SELECT ';", False), ("SELECT ';'", False), ("SELECT $$ ; $$", False), ("/* ;", False),
        ("SELECT 1; SELECT", False),
        (".price\nSELECT 1", False),
        (".budget", True), (".price", True), (".price SELECT 1", False), (".price SELECT 1;", True), ("\\x", True),
        ("quit", True), (".5", False), ("EXIT", True),
    ],
)  # fmt: skip
def test_where_statements_end(text: str, complete: bool) -> None:
    """Semicolons in texts and comments end nothing."""
    assert is_complete(text) is complete


def test_parts_of_a_line() -> None:
    """Statements are split where they end, and numbers are no dot commands."""
    assert split_at_ends("a; b /* ; */; c") == (["a", "b /* ; */"], " c")
    assert split_at_ends(" ;; ") == ([], " ")
    assert is_dot_command(".x") and not is_dot_command(".5")


def test_ctrl_c_ends_a_pipe(
    shell: OwnerShell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After Ctrl-C no further statement of a pipe runs."""

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dpduck.commands.shell.loop.print_answer", stopped)
    assert run_lines(shell, iter(["FROM ages;\n", ".budget\n"])) is False
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1


def test_lines_end_with_the_input(shell: OwnerShell, capsys: pytest.CaptureFixture[str]) -> None:
    """The last statement needs no semicolon in a pipe, and an interruption in one statement ends that statement."""
    assert run_lines(shell, iter(["SELECT 1 AS\n", "c"]))
    assert "c" in capsys.readouterr().out
