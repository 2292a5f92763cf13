"""The how-to pages: each is one screen of short sentences, and its commands do as it says."""

from __future__ import annotations

import csv
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import duckdb
import pytest

import dpduck
from dpduck.dbt.models import view_statement
from tests.dbt import project as dbt_project
from tests.server.served import serving_flight
from tests.server.shell import eventually
from tests.support.pages import BLOCK, Typed, commands, installed, run_cell, type_page
from tests.support.ports import free_port
from tests.support.postgres_server import postgres_server
from tests.support.words import long_lines, long_sentences

ROOT = Path(__file__).resolve().parents[1]
PAGES = {page.stem: page for page in sorted((ROOT / "docs" / "how_to").glob("*.md"))}
CLONE = {"sql/examples/": f"{ROOT}/sql/examples/"}
PUBLISHER, READER = "publisher:PASSWORD@localhost/warehouse", "reader:READING@localhost/warehouse"
FAR = 20
"""Standard errors. Laplace noise of any number of cells is farther off in fewer than 1e-11 of all cases."""


def text_of(name: str) -> str:
    return PAGES[name].read_text(encoding="utf-8")


def blocks(name: str, kind: str) -> list[str]:
    return [text for one, _, text in BLOCK.findall(text_of(name)) if one == kind]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_one_screen(name: str) -> None:
    """At most 60 lines of 120 characters, no sentence of more than 25 words, and both ends of every task."""
    text = text_of(name)
    assert len(text.splitlines()) <= 60
    assert long_lines(text) == [] and long_sentences(text) == []
    if name != "how_to":
        assert text.startswith("# ") and "\nYou need " in text
        assert "\n**It worked** if " in text and "\n## If it did not\n" in text


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_links_is_there(name: str) -> None:
    """Links between pages lead to files, and the page of all pages lists each one."""
    page = PAGES[name]
    for target in re.findall(r"\]\(([^)#:]+)(?:#[\w-]*)?\)", text_of(name)):
        assert (page.parent / target).is_file(), target
    assert name == "how_to" or f"({name}.md)" in text_of("how_to")


def check_top_20(page: Typed) -> None:
    """Intervals at 0.999 of independent noise: 6 of 60 miss in fewer than 1e-10 of all cases. Places follow."""
    missed = page.rows("""
        SELECT count(*) FROM private.by_drug JOIN (SELECT drug, count(*) AS exact FROM prescriptions GROUP BY drug)
        USING (drug) WHERE exact NOT BETWEEN low AND high""")[0][0]
    assert missed <= 5
    exact = [drug for (drug,) in page.rows("SELECT drug FROM prescriptions GROUP BY drug ORDER BY count(*) DESC, drug")]
    for drug, _, _, _, best, worst in page.answer("best_place"):
        assert best <= worst and (missed or best <= exact.index(drug) + 1 <= worst), drug


def check_difference(page: Typed) -> None:
    """2,400 buyers of 20,000 on one page and 2,000 on the other: 400 more, and 0.02 (far: FAR)."""
    ((more, stderr, low, high),) = page.answer("dp_stderr_of")
    assert abs(more - 400) < FAR * stderr and low < more < high
    ((rate, noise, low, high),) = page.answer("dp_ratio_of")
    assert abs(rate - 0.02) < FAR * noise and low < rate < high and noise < (high - low) / 10


def check_year_on_year(page: Typed) -> None:
    """Differences and the ratio are the exact ones but for noise (far: FAR, and ten times the interval is farther)."""
    exact = page.rows("""SELECT ward, count(*) FILTER (year(day) = 2025), count(*) FILTER (year(day) = 2024)
                         FROM visits GROUP BY ward ORDER BY ward""")
    for (ward, this, last), (shown, more, stderr) in zip(exact, page.answer("AS more"), strict=True):
        assert ward == shown and abs(more - (this - last)) < FAR * stderr
    shown = page.rows("""FROM dp($$ SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) ward, day, count(*) AS n,
        dp_stderr(n) FROM visits WHERE month(day) <= 6 GROUP BY ward, day ORDER BY ward, day $$)""")
    half = page.rows("""SELECT ward, CAST(date_trunc('year', day) AS DATE) AS year, count(*) FROM visits
        WHERE month(day) <= 6 GROUP BY ALL ORDER BY ALL""")
    for (ward, year, n, stderr), (*keys, count) in zip(shown, half, strict=True):
        assert [ward, year] == keys and abs(n - count) < FAR * stderr, "WHERE sees the day itself"
    ((per_cent, low, high),) = page.answer("per_cent")
    assert abs(per_cent - 100 * (exact[-1][1] / exact[-1][2] - 1)) < 10 * (high - low) / 2 and low > 0


def check_rare_groups(page: Typed) -> None:
    """HAVING is free: two charges. What stands out is common, and 43 people are counted together (far: FAR)."""
    assert page.rows("SELECT spent FROM dp_budget()") == [(1.0,)]
    shown = page.answer("HAVING n > 5")
    assert {name for name, *_ in shown} >= {"cold", "flu", "measles"} and all(n > 5 * e for _, _, n, e in shown)
    assert all(abs(n - 43) < FAR * e for kind, n, e in page.answer("'rare'") if kind == "rare")


def check_public_totals(page: Typed) -> None:
    """One charge. Counties have their totals, and blocks of a tract add up to it, all whole and none negative."""
    assert page.rows("SELECT spent FROM dp_budget()") == [(0.5,)]
    rows = page.answer("PUBLIC TOTALS")
    tracts = {tract: n for _, tract, _, n, _ in rows if tract}
    assert len(tracts) == 6 and all(n >= 0 for _, _, _, n, _ in rows)
    assert tracts == {name: sum(n for _, _, block, n, _ in rows if block and block[:2] == name) for name in tracts}


def check_dpduck_shell(page: Typed) -> None:
    """The price beforehand, the view, its pivoted rows of three wards, and 5 % of the budget spent."""
    said = page.said[-1]
    assert said.startswith("5 % of your budget (epsilon = 1); 95 % are left afterwards; ")
    assert said.count("private.by_ward is ready") == 1 and all(ward in said for ward in ("cardiology", "oncology"))
    assert re.search(r"epsilon = 20 │ 5 % +│ 95 % ", said)


def check_budget_ran_out(page: Typed) -> None:
    """Free answers are right (far: FAR), and 0.5 is left after the budget was raised."""
    exact = page.rows("SELECT ward, count(*) FROM visits WHERE age >= 50 GROUP BY ward ORDER BY ward")
    for (ward, count), (shown, n, stderr, *_) in zip(exact, sorted(page.answer("dp_known")), strict=True):
        assert ward == shown and abs(n - count) < FAR * stderr
    assert page.answer("SELECT declared") == [("epsilon = 1.5", 1.0, 0.5)]
    assert all(0.055 < price < 0.06 and not fits for _, price, _, fits in page.answer("dp_plan"))
    assert page.rows(next(one for one in page.answers if "dp_plan" in one))[0][-1] is True, "it fits now"


def check_plan_a_budget(page: Typed) -> None:
    """The statement fits 20 times at first. One answer would be charged again, and nothing was changed."""
    ((price, times, others),) = page.answer("other_prices")
    assert (price, times) == ("5 % of your budget (epsilon = 0.1)", 20)
    assert others.startswith("epsilon = 0.05: 2.5 %, 40 times; epsilon = 0.1: 5 %, 20 times; epsilon = 0.2: ")
    ((spent, left, per_day, until, warning),) = page.answer("lasts_until")
    assert (spent, left, per_day, warning) == (0.1, 1.9, 0.1, None) and until is not None
    assert page.answer("ALTER PRIVACY POLICY") == [
        ("answer", "charged again", 0.1, "5 % of your budget (epsilon = 0.1)"),
        ("in all", "charged again", 0.1, "5 % of your budget (epsilon = 0.1)"),
    ]
    assert page.answer("reserved_for") == [(1.5, 0.4, "monthly: 20 % until 2099-12-31")]
    assert page.rows("SELECT reserved FROM dp_budget()") == [(0.0,)], "it was released"
    assert page.rows("SELECT max_rows, revision FROM dp_policies()") == [(4, 1)]


def check_forgot_a_column(page: Typed) -> None:
    """Three charges of 0.5. The free answer is right (far: FAR), and the column has a domain."""
    assert page.rows("SELECT spent FROM dp_budget()") == [(1.5,)]
    exact = page.rows("SELECT sex, count(*) FROM visits WHERE ward <> 'west' GROUP BY sex ORDER BY sex")
    for (sex, count), (shown, n, stderr, *_) in zip(exact, sorted(page.answer("dp_known")), strict=True):
        assert sex == shown and abs(n - count) < FAR * stderr
    ((domain,),) = page.rows("SELECT domain FROM dp_columns('visits') WHERE column_name = 'sex'")
    assert "F" in domain


def check_policy_register(page: Typed) -> None:
    """The parts of rows that the page tells are dp_check's. Towns have 10,500 rows each (far: FAR)."""
    percent = {finding: value for finding, _, value in page.answer("WHERE percent > 0;")}
    for told, finding in (("4.8 %", "rows dropped by MAX ROWS 1"), ("11.1 %", "rows outside the domain of born"),
                          ("2 %", "rows with NULL in status"), ("12.9", "rows outside some domain")):  # fmt: skip
        assert f"{percent[finding]:.1f}".removesuffix(".0") == told.removesuffix(" %")
        assert told == "12.9" or told in text_of("policy_register")
    assert all(abs(n - 10500) < FAR * e for _, n, e in page.answer("grouping_level"))


def check_policy_web_logs(page: Typed) -> None:
    """The findings that the page tells. Each day of the week is charged, and LIFETIME seven times."""
    found = {finding: (value, percent) for finding, value, percent in page.answer("'99 %'")}
    assert found["99 % of units have at most this many rows"] == (4.0, None)
    assert f"{found['rows dropped by MAX ROWS 4'][1]:.1f}" == "9.9"
    assert f"{found['rows dropped by MAX ROWS 100'][1]:.0f}" == "8"
    of_crawler = page.rows("""SELECT sum(greatest(n - 4, 0)) FROM (
        SELECT count(*) AS n FROM requests WHERE device = 'd0' GROUP BY CAST(seen AS DATE))""")[0][0]
    assert found["rows dropped by MAX ROWS 4"][0] == of_crawler, "nobody else has more than 4"
    spent = {period: value for period, value, _ in page.answer("dp_budget")}
    assert spent.pop("LIFETIME") == 3.5 and spent.pop("any other day") == 0
    assert list(spent.values()) == [0.5] * 7
    assert page.rows("SELECT count(*) FROM private.first_week") == [(28,)]


def check_policy_shop(page: Typed) -> None:
    """The rows that each MAX ROWS drops are as on the page. Revenues are right (far: FAR) to a few per cent."""
    assert [round(percent, 1) for _, percent in page.answer("MAX ROWS 3';")] == [77.8]
    assert page.answer("MAX ROWS 30';") == [(0.0, 0.0)]
    exact = {(region, item): total for region, item, total in page.rows("""
        SELECT region, item, CAST(sum(price) AS DOUBLE) FROM customers JOIN orders ON id = customer_id
        JOIN lines USING (order_id) GROUP BY region, item""")}  # fmt: skip
    for region, item, revenue, stderr in page.answer("AS revenue"):
        assert abs(revenue - exact[region, item]) < FAR * stderr and stderr < 0.05 * exact[region, item]


def check_notebook_use(page: Typed) -> None:
    """Cells that ask run again for nothing, and tell that they are free. The picture has three bars (far: FAR)."""
    for block in blocks("notebook_use", "ipython")[1:]:
        run_cell(block, page)
    assert page.rows("SELECT spent FROM dp_budget()") == [(0.5,)]
    assert all(abs(n - 3000) < FAR * 2 / 0.5 for _, n, *_ in page.names["wards"].fetchall())
    assert (page.folder / "wards.png").is_file() == (installed("pandas") and installed("matplotlib"))


def check_excel(page: Typed) -> None:
    """Both files have six months, and the bars of one are the interval of the other: each is one release."""
    with (page.folder / "by_month.csv").open() as one, (page.folder / "from_file.csv").open() as other:
        bars, ends = list(csv.DictReader(one)), list(csv.DictReader(other))
    assert len(bars) == len(ends) == 6
    for bar, end in zip(bars, ends, strict=True):
        assert float(bar["n"]) + float(bar["above"]) == float(end["high"])
        assert float(bar["n"]) - float(bar["below"]) == float(end["low"])


def check_superset(page: Typed) -> None:
    """The engine parameters of the page, given to SQLAlchemy: wards are read, files are not."""
    (parameters,) = map(json.loads, blocks("superset", "json"))
    arguments = parameters["connect_args"]
    with duckdb.connect(str(page.folder / "published.duckdb"), **arguments) as reader:
        assert len(reader.execute("SELECT ward, sum(n) FROM by_cell GROUP BY ward").fetchall()) == 3
        for refused in (
            "SELECT * FROM read_text('/etc/passwd')",
            "SET enable_external_access = true",
            "DROP TABLE by_cell",
        ):
            with pytest.raises(duckdb.Error):
                reader.execute(refused)
    assert find_spec("sqlalchemy") is None or page_in_sqlalchemy(page.folder / "published.duckdb", parameters) == 3


def page_in_sqlalchemy(file: Path, parameters: dict[str, Any]) -> int:
    """Reads the wards as Superset does."""
    sqlalchemy = pytest.importorskip("sqlalchemy")
    pytest.importorskip("duckdb_sqlalchemy")
    engine = sqlalchemy.create_engine(f"duckdb:///{file}", **parameters)
    with engine.connect() as connection:
        rows = connection.execute(sqlalchemy.text("SELECT ward, SUM(n) FROM by_cell GROUP BY ward")).all()
    engine.dispose()
    return len(rows)


def check_dbt(page: Typed) -> None:
    """Two builds by dbt, in its own environment, charge the model once. Without dbt its statement is read."""
    model = (page.folder / "models" / "by_ward.sql").read_text(encoding="utf-8").splitlines()[-1]
    statement = view_statement("by_ward", {"epsilon": "0.5"}, model.replace("{{ source('rows', 'visits') }}", "visits"))
    with dpduck.connect(page.folder / "clinic.duckdb") as con:
        assert con.execute("SELECT price FROM dp_plan(?)", [statement]).fetchone() == (
            "2.5 % of your budget (epsilon = 0.5)",
        )
    if not dbt_project.has_dbt():
        return
    project, (deps, build) = dbt_project.Project(page.folder), commands(blocks("dbt", "sh")[-1])
    assert project.dbt(*deps.split()[1:2]).code == 0
    for price in ("2.5 % of your budget (epsilon = 0.5)", "answered already: free"):
        said = project.dbt(*build.split()[1:2])
        assert f"by_ward: {price}" in said.text and "PASS=4" in said.text, said.text
    assert project.spent == 0.5 and len(project.ask("FROM largest")) == 1


def check_trial(page: Typed) -> None:
    """A trial charges nothing. Five times the price has a fifth of the errors, within a factor of 2."""
    assert page.rows("SELECT spent FROM dp_budget()") == [(0.0,)]
    errors = {epsilon: error for epsilon, answer, _, _, error, *_ in page.answer("dp_trial") if answer == "n"}
    assert 2.5 < errors[0.1] / errors[0.5] < 10  # 1,350 errors each: fails in fewer than 1e-9 of all cases


def check_documents(page: Typed) -> None:
    """The four documents are there. The record has a TODO for what the store cannot know, and the label has none."""
    label, record = ((page.folder / name).read_text() for name in ("label.html", "clinic_visits_2026.yaml"))
    assert "at most 74 of 100 times" in label and "data@clinic.example" in label and "TODO" not in label
    assert "epsilon: 1.0" in record and "intended_use: 'TODO: " in record
    assert len((page.folder / "codebook.csv").read_text().splitlines()) == 6 and "visits" in record
    assert any("[1] C. Dwork" in said for said in page.said)


def check_release(page: Typed) -> None:
    """The folder has its documents, each statement was charged once, and the checker finds each file unchanged."""
    assert {"report.html", "label.html", "methods.md"} <= {path.name for path in (page.folder / "public").rglob("*")}
    assert any("each file is as it was released" in said for said in page.said)
    assert any("nothing was charged or changed" in said for said in page.said)
    if shutil.which("ssh-keygen"):
        (signing,) = blocks("release", "bash")
        key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "office"]
        subprocess.run(key, cwd=page.folder, check=True)
        signed = subprocess.run(["bash", "-ec", signing], cwd=page.folder, check=True, capture_output=True, text=True)
        assert "Good" in signed.stdout
        subprocess.run([sys.executable, "public/check.py"], cwd=page.folder, check=True, capture_output=True)


def check_parquet_to_folder(page: Typed) -> None:
    """The trial charges nothing and is met, the release is charged once, and its folder is whole.

    A finest cell has some 1,000 stays, and noise of about 30. Three of 27 are 10 % off with a chance below 1e-5 in a
    release, and so in two of 20 releases with one below 1e-7.
    """
    assert any("is as it was released" in said for said in page.said)
    assert any("met by statement 1" in said and "NOT MET" not in said for said in page.said)
    with dpduck.connect(page.folder / "stays.duckdb") as con:
        assert con.execute("SELECT count(*) FROM dp_ledger() WHERE rho > 0").fetchall() == [(1,)]


def check_table_shapes(page: Typed) -> None:
    """The draft names both files' formats, and suggests the table that the page makes. Prices average 45 (far: FAR)."""
    assert "2 files became one table." in page.said[0] and "The column became DATE." in page.said[0]
    draft = " ".join(page.said[0].replace("\n    --", " ").split())
    assert "address.city AS address_city" in draft and "unnest(drugs) AS drugs FROM visits;" in draft
    cities = re.findall(r"(Ulm|Bern)\W+([0-9.]+)", page.said[-1])
    assert {name for name, _ in cities} == {"Ulm", "Bern"}
    assert all(abs(float(price) - 45) < FAR / 5 for _, price in cities)


def check_run_a_server(page: Typed) -> None:
    """The unit's own command serves, is ready, gives figures to the token, and goes on in a new log after SIGHUP."""
    metrics, web, log = free_port(), free_port(), page.folder / "audit.jsonl"
    unit = (ROOT / "deploy" / "dpduck.service").read_text(encoding="utf-8").replace("\\\n", " ")
    words = shlex.split(next(line for line in unit.splitlines() if line.startswith("ExecStart=")).split("=", 1)[1])
    mine = {"/var/lib/dpduck/clinic.duckdb": str(page.folder / "clinic.duckdb"), "quack:localhost:9494": "none",
            "127.0.0.1:8080": f"127.0.0.1:{web}", "127.0.0.1:9464": f"127.0.0.1:{metrics}",
            "/var/log/dpduck/audit.jsonl": str(log),
            "%d/metrics_token": str(page.folder / "metrics_token")}  # fmt: skip
    assert set(mine) <= set(words)
    command = [sys.executable, "-m", "dpduck.commands.command_line", *(mine.get(word, word) for word in words[1:])]
    token = (page.folder / "metrics_token").read_text(encoding="ascii").strip()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None and [server.stdout.readline() for _ in range(4)][1].endswith("/metrics\n")
            address = f"http://127.0.0.1:{metrics}"
            assert urlopen(f"{address}/health", timeout=60).read() == b"ready\n"  # noqa: S310
            asked = Request(f"{address}/metrics", headers={"Authorization": f"Bearer {token}"})  # noqa: S310
            figures = urlopen(asked, timeout=60).read().decode()  # noqa: S310
            assert set(re.findall(r"dpduck_\w+", text_of("run_a_server"))) <= set(re.findall(r"dpduck_\w+", figures))
            log.rename(page.folder / "audit.1")
            server.send_signal(signal.SIGHUP)
            assert eventually(log.exists, 60)
            server.terminate()
            assert server.wait(120) == 0
        finally:
            server.kill()


CHECKS: dict[str, Callable[[Typed], None]] = {
    name.removeprefix("check_"): check for name, check in globals().items() if name.startswith("check_")
}
NEEDED = {"notebook_use": "IPython", "parquet_to_folder": "vl_convert", "release": "vl_convert"}
"""Packages without which a page is not typed, as beside DuckDB 2.0."""

WAREHOUSE = ("metabase", "grafana", "power_bi_tableau", "psycopg")
"""Pages that read what docs/how_to/postgresql.md publishes."""


def test_every_page_is_typed() -> None:
    """No page is forgotten: it has a check here, or a test of its own below."""
    assert set(PAGES) == {*CHECKS, *WAREHOUSE, "postgresql", "adbc", "agents", "how_to"}


@pytest.mark.sampled
@pytest.mark.filterwarnings("ignore")  # other projects warn as they like
@pytest.mark.parametrize("name", CHECKS)
def test_a_page_does_what_it_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block runs as printed, in a fresh folder. Statements are answered or refused as on the page."""
    if name in NEEDED:
        pytest.importorskip(NEEDED[name], reason=f"{NEEDED[name]} is not installed")
    monkeypatch.chdir(tmp_path)
    page = Typed(tmp_path)
    type_page(PAGES[name], page, CLONE)
    assert page.kinds & {"sql", "python", "sh", "ipython"}
    CHECKS[name](page)
    if "con" in page.names:
        page.con.close()


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Typed, str]]:
    """PostgreSQL after docs/how_to/postgresql.md was typed, and the address of its reader."""
    pytest.importorskip("duckdb_extension_postgres_scanner", reason="the extension's wheel is not installed")
    folder = tmp_path_factory.mktemp("warehouse")
    with postgres_server() as uri, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("DPDUCK_STATE_DIR", str(folder / "state"))
        reader = re.sub(r"//[^@]+@", "//reader:READING@", uri)
        typed = Typed(folder)
        mine = {f"postgresql://{PUBLISHER}": uri, f"postgresql://{READER}": reader}
        type_page(PAGES["postgresql"], typed, CLONE | mine)
        yield typed, reader


def psql(reader: str, query: str) -> list[list[str]]:
    """Asks as the reader does. psql is there, since the page of PostgreSQL was typed with it."""
    said = subprocess.run(["psql", reader, "-AtF", "\t", "-c", query], capture_output=True, text=True, check=True)
    return [line.split("\t") for line in said.stdout.splitlines()]


@pytest.mark.slow
def test_the_publication_is_as_the_page_says(warehouse: tuple[Typed, str]) -> None:
    """The last command shows three wards. The reader sees the published table, may not write, and no more is there."""
    typed, reader = warehouse
    assert len(re.findall(r"^ *(?:cardiology|emergency|oncology) *\|", typed.said[-1], re.MULTILINE)) == 3
    found = psql(reader, "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema "
                         "NOT IN ('pg_catalog', 'information_schema') ORDER BY table_name")  # fmt: skip
    assert found == [["released", name] for name in ("by_cell", "by_month", "dpduck_releases")]
    with pytest.raises(subprocess.CalledProcessError):
        psql(reader, "DELETE FROM released.by_cell")


@pytest.mark.slow
@pytest.mark.parametrize("name", WAREHOUSE)
def test_a_tool_reads_the_publication(
    name: str, warehouse: tuple[Typed, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A tool's queries are answered, and add up to the same three wards and six months."""
    typed, reader = warehouse
    wards = sorted(psql(reader, "SELECT ward, sum(n) FROM released.by_cell GROUP BY ward"))
    for query in blocks(name, "postgresql"):
        rows = psql(reader, query)
        if "by_month" in query:
            assert len(rows) == 6 and all(float(low) <= float(n) <= float(high) for _, n, low, high in rows)
        elif "GROUP BY" in query:
            assert sorted(row[:2] for row in rows) == wards
    for settings in blocks(name, "yaml"):
        (source,) = pytest.importorskip("yaml").safe_load(settings)["datasources"]
        assert (source["user"], source["secureJsonData"]["password"]) == ("reader", "READING")
        assert f"{source['user']}:READING@localhost/{source['jsonData']['database']}" == READER
    page = Typed(typed.folder)
    type_page(PAGES[name], page, {f"postgresql://{READER}": reader})
    if "psycopg" in page.names:
        assert page.names["count"] == pytest.approx(float(dict(wards)["oncology"]))
        assert page.names["promise"].startswith("differentially private")
        assert len(re.findall(r"^2026-0[1-6]-01 ", capsys.readouterr().out, re.MULTILINE)) == 6


@pytest.mark.slow
@pytest.mark.skipif(not installed("adbc_driver_flightsql"), reason="no driver of ADBC is installed")
def test_adbc_asks_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The owner's commands, a server, and the client's block: two rows, for 0.1 of the share."""
    monkeypatch.chdir(tmp_path)
    before, serve, after = text_of("adbc").partition("dpduck serve clinic.duckdb --flight-sql\n")
    owner, client = tmp_path / "owner.md", tmp_path / "client.md"
    owner.write_text(f"{before}```\n", encoding="utf-8")
    client.write_text(after[after.index("## You read") :], encoding="utf-8")
    page = Typed(tmp_path)
    type_page(owner, page, CLONE)
    token = page.said[-1].split()[-1]
    with serving_flight(tmp_path / "clinic.duckdb", "--flight-sql", "localhost:0") as address:
        type_page(client, page, {"TOKEN": token, "grpc://localhost:32010": address})
    assert serve and page.names["answer"].num_rows == 2
    assert "cardiology" in capsys.readouterr().out
    with dpduck.connect("clinic.duckdb") as con:
        assert con.execute("SELECT epsilon FROM dp_ledger() WHERE principal = 'alice'").fetchall() == [(0.1,)]


@pytest.mark.slow
@pytest.mark.skipif(not installed("mcp"), reason="the extra mcp is not installed")
def test_an_agent_asks_as_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner's commands, the client's blocks, and both configurations: 0.01 of 0.2 for the day. Then it is free."""
    monkeypatch.chdir(tmp_path)
    page, started = Typed(tmp_path), "dpduck.commands.command_line"
    here = {'command="dpduck", args=[': f'command={sys.executable!r}, args=["-m", "{started}", ', "pip install": "true"}
    local_part, served_part = text_of("agents").split("Several agents share ")
    for name, text in (("local.md", local_part), ("served.md", served_part)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    type_page(tmp_path / "local.md", page, CLONE | here)
    (token,) = (said.strip() for said in page.said if said.startswith("dpduck_"))
    address = f"127.0.0.1:{free_port()}"
    with serving_flight(tmp_path / "clinic.duckdb", "--mcp", address):
        type_page(tmp_path / "served.md", page, {"127.0.0.1:8090": address, "TOKEN": token})
    again = page.names["again"]
    assert not again["charged"] and again["data"] == page.names["answer"]["data"]
    answer = page.names["answer"]
    assert [column["name"] for column in answer["data"]["columns"]] == ["sex", "n", "n_stderr"]
    assert answer["charged"] and answer["per_cent"] == 0.25
    assert answer["budget"][0]["left_today_percent"] == pytest.approx(9.75)
    local, remote = (json.loads(text)["mcpServers"]["clinic"] for text in blocks("agents", "json"))
    assert local["args"] == ["mcp", "clinic.duckdb", "--principal", "agent"] and remote["url"].endswith(":8090/mcp")
    assert "agent: 2 % of each budget" in page.said[-1]
