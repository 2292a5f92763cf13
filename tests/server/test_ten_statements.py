"""The ten statements of the README, typed as they stand in every client, against one served file."""

from __future__ import annotations

import asyncio
import csv
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpduck
from dpduck.kernel.ledger.secrets import SecretsFile
from dpduck.publish.extensions import extension_file
from dpduck.server.principals import PrincipalBook
from dpduck.values.quoting import quote_text
from tests.server.mcp.test_agent_clients import over_http
from tests.server.shell import EXTENSIONS, Server, attach, serving, shell, why_not
from tests.support.browser import CHROMIUM, chromium
from tests.support.ports import free_port

README = Path(__file__).resolve().parents[2] / "README.md"
NODE = Path(__file__).with_name("node")
PEOPLE = """COPY (SELECT range // 3 AS person_id, ['F', 'M'][1 + range // 3 % 2] AS sex,
    CASE WHEN range % 50 > 0 THEN range % 100 END AS age FROM range(30000)) TO 'people.parquet'"""

Ask = Callable[[str], tuple[list[str], list[tuple[str, ...]]]]
"""Function that types a statement in a client. Returns the columns and the rows, as texts without order."""


def readme(kind: str) -> list[str]:
    """The statements of the README's blocks of a kind, without comments."""
    (block,) = re.findall(rf"^```{kind}\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    plain = re.sub(r"--[^\n]*", "", block)
    return [part.strip() for part in re.split(r";\s*$", plain, flags=re.MULTILINE) if part.strip()]


TEN = readme("sql bare")


@dataclass(frozen=True)
class People:
    """The served file of the README, and a token of each client."""

    database: Path
    server: Server
    flight: str
    page: int
    agents: int
    tokens: dict[str, str]

    def charges(self) -> list[str]:
        """The first words of charged statements, as the owner's command lists it while the file is served."""
        command = [sys.executable, "-m", "dpduck.commands.command_line", "ledger", str(self.database)]
        done = subprocess.run([*command, "--format", "json"], check=True, capture_output=True, text=True)
        entries = [json.loads(line) for line in done.stdout.splitlines()]
        return [entry["statement"].split()[0] for entry in entries if entry["epsilon"]]


CLIENTS = ("stock shell", "macros", "adbc", "sqlalchemy", "node", "chromium", "agent")


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory, state_directory: Path) -> Iterator[People]:
    """The README's file, made as it says, and served over three protocols."""
    if why_not():
        pytest.skip(why_not())
    folder = tmp_path_factory.mktemp("people")
    with pytest.MonkeyPatch.context() as patch, dpduck.connect(folder / "mine.duckdb") as con:
        patch.chdir(folder)
        duckdb.sql(PEOPLE)
        for statement in readme("sql"):
            con.execute(statement).fetchall()
    book = PrincipalBook(SecretsFile.open(folder / "mine_private_secrets", create=False))
    tokens = {name: book.add(name.replace(" ", "_"), None) for name in CLIENTS}
    flight, page, agents = free_port(), free_port(), free_port()
    others = ["--web", f"127.0.0.1:{page}", "--mcp", f"127.0.0.1:{agents}", "--floor", "0.05"]
    with serving(folder / "mine.duckdb", "--flight-sql", f"localhost:{flight}", *others) as server:
        assert server.process.stdout is not None
        while not server.process.stdout.readline().startswith("audit log"):
            pass
        yield People(folder / "mine.duckdb", server, f"grpc://localhost:{flight}", page, agents, tokens)


def texts(rows: list[tuple[Any, ...]]) -> list[tuple[str, ...]]:
    return sorted(tuple(as_text(value) for value in row) for row in rows)


def as_text(value: Any) -> str:
    """Numbers of all clients alike: a whole number may have come as a float or a text."""
    if value is None or value in ("", "NULL"):
        return "NULL"
    try:
        return f"{float(value):.6g}"
    except (TypeError, ValueError):
        return str(value)


@contextmanager
def stock_shell(people: People) -> Iterator[Ask]:
    """Statements of clinic.query, in the shell of DuckDB."""

    def ask(statement: str) -> tuple[list[str], list[tuple[str, ...]]]:
        script = (
            attach(people.server.address, people.tokens["stock shell"]) + f"FROM clinic.query($$ {statement} $$);\n"
        )
        return printed(*shell(script))

    yield ask


@contextmanager
def macros(people: People) -> Iterator[Ask]:
    """The macros of sql/connect.sql: dp(..) for questions, and the others by their names."""
    text = (README.parent / "sql" / "connect.sql").read_text(encoding="utf-8")
    own = text[text.index("CREATE OR REPLACE TEMP MACRO") :]

    def ask(statement: str) -> tuple[list[str], list[tuple[str, ...]]]:
        if statement.startswith("FROM dp_"):
            typed = statement
        elif statement.startswith("EXPLAIN "):
            typed = f"FROM dp_explain($$ {statement.removeprefix('EXPLAIN ')} $$)"
        elif statement.startswith(("SELECT WITH", "CREATE", "DROP")):
            typed = f"FROM dp($$ {statement} $$)"
        else:
            typed = f"FROM clinic.query($$ {statement} $$)"
        return printed(*shell(f"{attach(people.server.address, people.tokens['macros'])}{own}\n{typed};\n"))

    yield ask


def printed(out: str, err: str) -> tuple[list[str], list[tuple[str, ...]]]:
    assert err == "", err
    columns, *rows = csv.reader(out.splitlines())
    return columns, texts([tuple(row) for row in rows])


@contextmanager
def adbc(people: People) -> Iterator[Ask]:
    dbapi = pytest.importorskip("adbc_driver_flightsql.dbapi", reason="the ADBC driver for Flight SQL is not installed")
    options = {"username": "adbc", "password": people.tokens["adbc"]}
    with dbapi.connect(people.flight, db_kwargs=options, autocommit=True) as connection:

        def ask(statement: str) -> tuple[list[str], list[tuple[str, ...]]]:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return [column[0] for column in cursor.description], texts(list(cursor.fetchall()))

        yield ask


@contextmanager
def sqlalchemy(people: People) -> Iterator[Ask]:
    """SQLAlchemy's dialect of DuckDB, with the server attached to each of its connections."""
    library = pytest.importorskip("sqlalchemy")
    pytest.importorskip("duckdb_sqlalchemy", reason="duckdb-sqlalchemy is not installed")
    engine = library.create_engine("duckdb:///:memory:")
    with engine.connect() as connection:
        for line in attach(people.server.address, people.tokens["sqlalchemy"]).split(";"):
            if line.strip():
                connection.exec_driver_sql(line)

        def ask(statement: str) -> tuple[list[str], list[tuple[str, ...]]]:
            answer = connection.exec_driver_sql(f"FROM clinic.query({quote_text(statement)})")
            return list(answer.keys()), texts([tuple(row) for row in answer])

        yield ask
    engine.dispose()


@contextmanager
def node(people: People) -> Iterator[Ask]:
    """DuckDB's package for Node, as tests/server/node installs it."""
    if shutil.which("node") is None or not (NODE / "node_modules").is_dir():
        pytest.skip("no Node, or its packages are not installed: npm ci in tests/server/node")
    first = {
        "extensions": [str(extension_file(name, "")) for name in EXTENSIONS],
        "address": people.server.address,
        "token": people.tokens["node"],
    }
    with subprocess.Popen(
        ["node", "ask.mjs"], cwd=NODE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdin is not None and run.stdout is not None
        stdin, stdout = run.stdin, run.stdout
        stdin.write(json.dumps(first) + "\n")

        def ask(statement: str) -> tuple[list[str], list[tuple[str, ...]]]:
            stdin.write(json.dumps(statement) + "\n")
            stdin.flush()
            said = json.loads(stdout.readline())
            assert "refused" not in said, said
            return said["columns"], texts([tuple(row) for row in said["rows"]])

        yield ask
        stdin.close()


@contextmanager
def browser(people: People) -> Iterator[Ask]:
    """The page, where each statement is typed, priced and paid by its buttons."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    with chromium() as found:
        page = found.new_page()
        page.set_default_timeout(300_000)
        page.goto(f"http://127.0.0.1:{people.page}/")
        page.fill("input[name=token]", people.tokens["chromium"])
        page.keyboard.press("Enter")
        page.wait_for_selector("header nav")

        def ask(statement: str) -> tuple[list[str], list[tuple[str, ...]]]:
            page.goto(f"http://127.0.0.1:{people.page}/ask")
            page.fill("#statement", statement)
            page.keyboard.press("Control+Enter")
            page.wait_for_selector("main button.pay, #result table, #result .refusal")
            if page.query_selector("main button.pay"):
                page.click("main button.pay")
                page.wait_for_selector("#result")
                page.wait_for_load_state()
            assert page.query_selector(".refusal") is None, page.inner_text("main")
            heads = [cell.inner_text().split("\n")[0].strip() for cell in page.query_selector_all("#result thead th")]
            return heads, []

        yield ask


@contextmanager
def agent(people: People) -> Iterator[Ask]:
    """The SDK's client of MCP. An agent makes and drops nothing: a person types these two in the stock shell."""
    pytest.importorskip("mcp", reason="the SDK of MCP is not installed")

    async def call(statement: str) -> Any:
        async with over_http(f"http://127.0.0.1:{people.agents}/mcp", people.tokens["agent"], "auto") as client:
            return await client.call_tool("ask", {"sql": statement, "anew": True})

    with stock_shell(people) as person:

        def ask(statement: str) -> tuple[list[str], list[tuple[str, ...]]]:
            said = asyncio.run(call(statement))
            if statement.startswith(("CREATE", "DROP")):
                assert said.is_error and "an agent asks questions" in said.content[0].text
                return person(statement)
            assert not said.is_error, said.content
            data = said.structured_content["data"]
            return [column["name"] for column in data["columns"]], texts([tuple(row) for row in data["rows"]])

        yield ask


HOW = dict(zip(CLIENTS, (stock_shell, macros, adbc, sqlalchemy, node, browser, agent), strict=True))


def test_there_are_ten() -> None:
    """Each is typed as it stands: none is inside dp(..), and none is quoted."""
    assert len(TEN) == 10 and not any("$$" in statement for statement in TEN)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_types_the_ten_statements(people: People, client: str) -> None:
    """Each has an answer, with the same columns and rows as in every other client. Three charges in all, by anybody."""
    with HOW[client](people) as ask:
        answers = {statement: ask(statement) for statement in TEN}
    cube, ages = answers[TEN[3]], answers[TEN[5]]
    assert answers[TEN[2]][0][:3] == ["sex", "n", "e"]
    if client != "chromium":
        assert len(answers[TEN[2]][1]) == 2 and len(cube[1]) == 33 and len(ages[1]) == 10
        assert len(answers[TEN[6]][1]) == 10 and len(answers[TEN[7]][1]) == 2
        for number in (2, 3, 5, 6):
            rows = answers[TEN[number]][1]
            first = SEEN.setdefault(number, rows)
            assert first == [row[: len(first[0])] for row in rows], "an agent sees error bars, too"
    assert people.charges() == ["SELECT", "SELECT", "CREATE"]


SEEN: dict[int, list[tuple[str, ...]]] = {}
"""Rows that the first client saw of a statement. Nobody sees others."""
