"""docs/shell.md: every statement of the guide, in the stock shell, against a served clinic."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.served import add_principals, make_clinic
from tests.server.shell import attach, needs_quack, serving, shell

ROOT = Path(__file__).resolve().parent.parent.parent
GUIDE, CONNECT = ROOT / "docs" / "shell.md", ROOT / "sql" / "connect.sql"
_STEP = re.compile(r"(?P<statement>.*?;)\n-- (?P<kind>gives|refused): (?P<says>[^\n]*)\n", re.DOTALL)


def steps() -> list[tuple[str, str, str]]:
    """Returns every statement of the guide's SQL blocks with the guide's answer."""
    blocks = re.findall(r"```sql\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)
    found = [(m["statement"].strip(), m["kind"], m["says"]) for block in blocks for m in _STEP.finditer(block)]
    left = [_STEP.sub("", block).strip() for block in blocks]
    assert left == [""] * len(blocks), left
    return found


@pytest.mark.slow
@needs_quack
def test_the_guide_says_what_the_shell_says(tmp_path: Path, state_directory: Path) -> None:
    """One session for all answered statements, in order. One for each refusal."""
    database, token = made_as_the_guide_says(tmp_path)
    with serving(database) as server:
        answered = [(statement, says) for statement, kind, says in steps() if kind == "gives"]
        script = "".join(f"{statement}\n.print ====\n" for statement, _ in answered)
        out, err = shell(attach(server.address, token) + macros() + script)
        assert err == ""
        parts = out.split("====\n")[:-1]
        assert len(parts) == len(answered) > 12
        for (statement, says), part in zip(answered, parts, strict=True):
            assert described(part) == says, statement
        refused = [(statement, says) for statement, kind, says in steps() if kind == "refused"]
        assert len(refused) >= 5
        for statement, says in refused:
            out, err = shell(attach(server.address, token) + statement + "\n")
            assert out == "" and says in err, (statement, err)


def made_as_the_guide_says(folder: Path) -> tuple[Path, str]:
    """The clinic that the guide's owner makes, line by line, and the token of the file for alice."""
    block = re.search(r"## The owner.*?```sh\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert block is not None
    for line in block[1].splitlines():
        words = shlex.split(line.replace("sql/examples/", f"{ROOT}/sql/examples/"), comments=True)
        if words[0] == "python":
            command = [sys.executable, *words[1:]]
        elif words[:2] in (["dpduck", "sql"], ["dpduck", "principal"]):
            command = [sys.executable, "-m", "dpduck.commands.command_line", *words[1:]]
        else:
            assert words[0] == "pip" or words[:2] == ["dpduck", "serve"], line
            continue
        environment = dict(os.environ, PYTHONPATH=str(ROOT))
        subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True)
    (token,) = re.findall("TOKEN '(dpduck_[^']*)'", (folder / "alice.sql").read_text(encoding="utf-8"))
    return folder / "clinic.duckdb", token


def macros() -> str:
    """Returns the lines of a principal's file after the address and the token."""
    text = CONNECT.read_text(encoding="utf-8")
    return text[text.index("CREATE OR REPLACE TEMP MACRO") :]


def described(part: str) -> str:
    """Returns the result in the guide's form: columns and rows."""
    lines = part.splitlines()
    return f"{', '.join(lines[0].split(','))}; {len(lines) - 1} rows" if lines else "nothing"


@pytest.mark.slow
@needs_quack
def test_connect_sql_is_what_a_shell_begins_with(
    tmp_path: Path, own_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The extensions from the files of their wheels, as in the guide. Then sql/connect.sql, but for the address."""
    database = make_clinic(tmp_path)
    monkeypatch.setenv("DPDUCK_TOKEN", add_principals(database)["carol"])
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path))  # the shell's home, where extensions are installed
    (line,) = re.findall(r"^python -c (\"from importlib.*?\") \| duckdb$", GUIDE.read_text("utf-8"), flags=re.MULTILINE)
    script = shlex.split(line)[0]
    install = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert install.count("INSTALL '") == 2
    assert shell(install)[1] == ""
    text = CONNECT.read_text(encoding="utf-8")
    with serving(database) as server:
        assert "quack:localhost:9494" in text
        init = tmp_path / "connect.sql"
        init.write_text(text.replace("quack:localhost:9494", server.address), encoding="utf-8")
        out, err = shell("SELECT count(*) AS c FROM clinic.ages;", "-init", str(init))
        assert out.endswith("c\n10\n") and "Error" not in err
