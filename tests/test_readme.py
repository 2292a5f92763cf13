"""The README's code blocks are executed: what a newcomer copies works as it stands."""

import os
import re
import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner

from dpduck.commands.command_line import main

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks() -> Iterator[tuple[str, str]]:
    yield from BLOCK.findall((ROOT / "README.md").read_text())


def statements(text: str) -> list[str]:
    """Statements of an SQL block; semicolons stand at line ends only."""
    return [part for part in re.split(r";\s*$", text, flags=re.MULTILINE) if part.strip()]


def check_refusal(con: duckdb.DuckDBPyConnection, text: str) -> None:
    statement, expected = text.split(";\n-- ")
    with pytest.raises(duckdb.Error) as refused:
        con.sql(statement)
    assert str(refused.value).split("\n")[0].removeprefix("Invalid Input Error: ") == expected.strip()


def run_shell(line: str) -> None:
    """`dpduck ..` runs; `make ..` must name a target of the Makefile."""
    words = shlex.split(line)
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), line
        return
    assert words[0] == "dpduck", line
    if words[1] == "report" and find_spec("vl_convert") is None:  # of the extra `report`
        return
    result = CliRunner().invoke(main, words[1:])
    assert result.exit_code == 0, (line, result.output)


@pytest.mark.slow
def test_code_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python, SQL and shell blocks run in order, in an empty folder; refusals refuse with the printed text."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path / "state"))
    names: dict[str, object] = {}
    shell: list[str] = []
    kinds = []
    for language, text in blocks():
        kinds.append(language)
        if language == "python":
            exec(text, names)  # noqa: S102
        elif language == "sql":
            for statement in statements(text):
                names["con"].execute(statement).fetchall()  # type: ignore[attr-defined]
        elif language == "refused":
            check_refusal(names["con"], text)  # type: ignore[arg-type]
        elif language == "sh":
            shell += text.strip().splitlines()
    assert {"python", "sql", "refused", "sh"} <= set(kinds)
    names["con"].close()  # type: ignore[attr-defined]
    for line in shell:
        run_shell(line)
    assert os.path.exists("published.duckdb")  # noqa: PTH110
