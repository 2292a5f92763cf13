"""The command line: statements of dp() on a file, what was released, publishing, serving, the demonstration."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import click
import duckdb

from dpduck.commands import DATABASE, FORMAT, STORE, one_line_errors, prepared_tables, preparing
from dpduck.commands.audit import audit_command
from dpduck.commands.compare import compare
from dpduck.commands.policy import policy, principal, report
from dpduck.commands.printing import SHORT_STATEMENT, WIDTH, boxed, counted, moment, print_findings, printed
from dpduck.commands.reading import Reading, is_of_views, reading, show_views
from dpduck.commands.serving import serve
from dpduck.database.attached import StoreFiles, store_files
from dpduck.engine.connection import connect, verify_store
from dpduck.engine.functions import MACROS
from dpduck.frontend.text.names import in_sql, quote_identifier
from dpduck.publish.publish import certify, publish
from dpduck.server.runner_process import create_table
from dpduck.server.vault_client import Owner, owner_of_server
from dpduck.values.errors import Refusal

# The demonstration: a made-up clinic, its policy, a released count beside the exact one, and the budget left.


MARK = "made_by_dpduck_demo"
VISITS, PATIENTS = 1_000_000, 200_000
WARDS = ("cardiology", "emergency", "geriatrics", "maternity", "neurology", "oncology", "orthopaedics", "paediatrics")

_WARD_ROWS = ", ".join(f"('{name}', '{'north' if number % 2 else 'south'}')" for number, name in enumerate(WARDS))
CLINIC = (
    f"CREATE TABLE wards AS SELECT * FROM (VALUES {_WARD_ROWS}) AS t(name, building)",
    # some patients come often and most come seldom; wards are unequal too
    f"""
    CREATE TABLE visits AS
    SELECT patient_id,
           CASE WHEN hash(patient_id, 'sex') % 100 < 54 THEN 'F' ELSE 'M' END AS sex,
           least(104, CAST(20 + 70 * sqrt((hash(patient_id, 'age') % 10000) / 10000.0) AS INTEGER)) AS age,
           (SELECT list(name ORDER BY name) FROM wards)
               [1 + CAST(floor({len(WARDS)} * pow((hash(visit, 'ward') % 10000) / 10000.0, 1.7)) AS INTEGER)] AS ward,
           CAST(20 + hash(visit, 'charge') % 90000 / 100.0 AS DECIMAL(9, 2)) AS charge
    FROM (SELECT range AS visit,
                 CAST(floor({PATIENTS} * pow((hash(range, 'patient') % 1000000) / 1000000.0, 1.2)) AS INTEGER)
                     AS patient_id
          FROM range({VISITS}))
    """,
)
POLICY = """CREATE PRIVACY POLICY ON visits (
    PRIVACY UNIT patient_id MAX ROWS 30,
    BUDGET (epsilon = 3),
    DOMAIN sex  IN ('F', 'M'),
    DOMAIN age  RANGE 0 TO 100 STEP 10 WITH EDGES,
    DOMAIN ward FROM wards.name,
    CLAMP  charge BETWEEN 0 AND 1000 STEP 0.01,
    EXPECT ROWS 1000000
)"""
COUNT = """SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1)
       ward, count(*) AS n, dp_interval_low(n) AS low, dp_interval_high(n) AS high
FROM visits GROUP BY ward ORDER BY ward"""
CUBE = "SELECT sex, ward, count(*) AS n FROM visits GROUP BY CUBE (sex, ward)"
VIEW = f"CREATE PRIVATE VIEW ward_cube OPTIONS (epsilon = 1) AS {CUBE}"
EXACT_BESIDE_PRIVATE = """
SELECT ward, exact, private, low, high, exact BETWEEN low AND high AS covered
FROM (SELECT ward, count(*) AS exact FROM visits GROUP BY ward)
JOIN (SELECT ward, n AS private, low, high FROM dp($1)) USING (ward) ORDER BY ward
"""


def run_demo(directory: Path, say: Callable[[str], None], steps: Callable[[str], None]) -> None:
    """Makes the clinic in a directory and tells what happens; say prints a line, steps reports progress."""
    _make_room(directory)
    steps("making 1,000,000 visits of 200,000 patients")
    with duckdb.connect(str(directory / "clinic.duckdb")) as clinic:
        for statement in CLINIC:
            clinic.execute(statement)
    with connect(directory / "clinic.duckdb") as con:
        steps("declaring what is public and what is protected")
        con.execute("FROM dp('DECLARE PUBLIC TABLE wards')").fetchall()
        con.execute("FROM dp($1)", [POLICY]).fetchall()
        say(POLICY)
        title = "what the owner may look at before opening the table to others (exact, not private)"
        _show(con, title, "SELECT finding, value FROM dp_check('visits')", [], say)
        steps("explaining a cube (spends nothing)")
        _show(con, "the strategies for CUBE (sex, ward), least total variance first",
              "SELECT strategy, chosen, round(total_variance) AS total_variance, worst_stderr, cells "
              "FROM dp_explain($1)", [VIEW], say)  # fmt: skip
        steps("releasing counts")
        say(f"\n{COUNT}")
        _show(con, "exact beside private, with 95 % intervals", EXACT_BESIDE_PRIVATE, [COUNT], say)
        con.execute("FROM dp($1)", [VIEW]).fetchall()
        _show(con, "private.ward_cube: an ordinary table from now on, every margin adds up",
              "FROM private.ward_cube WHERE ward IS NULL ORDER BY sex", [], say)  # fmt: skip
        _show(con, "the budget", "SELECT table_name, measure, budget, spent, remaining FROM dp_budget()", [], say)
        steps("done")
    say(f"\nOpen what was released in any DuckDB shell: duckdb {directory}/clinic_private.duckdb 'FROM ward_cube'")


def _make_room(directory: Path) -> None:
    """Makes an empty directory; an earlier demonstration is replaced, anything else is left alone and refused."""
    directory.mkdir(parents=True, exist_ok=True)
    present = sorted(path.name for path in directory.iterdir())
    if present and MARK not in present:
        raise Refusal(f"the directory {directory} is not empty", accepted="an empty or new directory")
    for path in directory.iterdir():
        if path.is_file() and (path.name == MARK or path.name.startswith("clinic")):
            path.unlink()
    (directory / MARK).write_text("dpduck demo replaces this directory's clinic* files when it runs again\n")


def _show(
    con: duckdb.DuckDBPyConnection, title: str, sql: str, parameters: list[str], say: Callable[[str], None]
) -> None:
    say(f"\n-- {title}")
    say(con.sql(sql, params=parameters).__repr__() if parameters else con.sql(sql).__repr__())


BUDGET = ("table_name", "measure", "budget", "spent", "remaining", "share", "epsilon_left", "policy", "period")
LEDGER = ("id", moment("charged_at"), "principal", "epsilon", "rho", "delta", SHORT_STATEMENT)
RELEASES = ("name", "kind", "rows", "epsilon", "rho", "delta", moment("released_at"), SHORT_STATEMENT)
"""Columns of boxes, which have room for no more; --format csv has all."""

COMMENTED = {"ignore_unknown_options": True}
"""Of commands whose statement may begin with a comment of SQL, as what a draft prints does: it is no option."""

MOST_NAMED = 20
"""Views that a refusal names."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dpduck")
def main() -> None:
    """Differential privacy inside DuckDB. DATABASE is a DuckDB file whose tables have privacy policies."""


@main.command()
@click.option(
    "--directory", type=click.Path(file_okay=False, path_type=Path), default=Path("dpduck_demo"), show_default=True
)
def demo(directory: Path) -> None:
    """Make a clinic of 1,000,000 visits, declare its policy, release counts, show them beside the exact ones."""

    def steps(name: str) -> None:
        if sys.stderr.isatty():
            click.secho(f"{name} ..", fg="cyan", err=True)

    with one_line_errors():
        run_demo(directory, click.echo, steps)


@main.command(context_settings=COMMENTED)
@DATABASE
@click.argument("statement")
@STORE
@FORMAT
def sql(database: Path, statement: str, store: Path | None, shape: str) -> None:
    """Run one statement of dp(): a question, a policy, a view. Or read: FROM dp_columns('visits'), FROM private.v.

    STATEMENT is the text, or - for standard input: dpduck sql clinic.duckdb - < policy.sql
    """
    text = sys.stdin.read() if statement == "-" else statement
    if is_of_views(text):
        show_views(database, store, text, shape)
        return
    read = reading(text)
    if read is None:
        answer(database, store, "dp", text, shape)
        return
    with answers(database, store) as ask:
        printed(read.shown(ask(read.function, read)), shape)


@main.command(context_settings=COMMENTED)
@DATABASE
@click.argument("statement")
@STORE
@FORMAT
@click.option("--all", "everything", is_flag=True, help="All strategies with all columns, as dp_explain has them.")
def explain(database: Path, statement: str, store: Path | None, shape: str, everything: bool) -> None:
    """Say how far the answers of a statement will be off, what helps, and what it costs; spends nothing."""
    if everything or shape != "box":
        answer(database, store, "dp_explain", statement, shape)
        return
    with answers(database, store) as ask:
        told = ask("dp_explain", statement).filter("chosen").project("strategy, price, seconds, note").fetchall()
        with suppress(duckdb.Error, Refusal):  # of a statement without aggregates there is no such table
            boxed(ask("dp_errors", statement).project("* EXCLUDE (note)"))  # dp_explain's has it, too
        for strategy, price, seconds, note in told:
            said = {"strategy": strategy, "cost": price, "time": _in_words(seconds), "note": note}
            for name, text in said.items():
                click.echo(textwrap.fill(f"{name}: {text}", WIDTH, subsequent_indent="  "))


def _in_words(seconds: float | None) -> str:
    """Says how long an answer may take."""
    if seconds is None:
        return "not known beforehand"
    return f"{'under a second' if seconds < 1 else f'about {seconds:.0f} s'}, and as long as reading the rows takes"


@main.command()
@DATABASE
@STORE
@FORMAT
def budget(database: Path, store: Path | None, shape: str) -> None:
    """List every table's budget, what is spent and what is left."""
    answer(database, store, "dp_budget", None, shape, BUDGET)


@main.command()
@DATABASE
@click.argument("table")
@STORE
@FORMAT
def check(database: Path, table: str, store: Path | None, shape: str) -> None:
    """Show what the answers about TABLE leave out, exactly: for its owner's eyes only."""
    if shape != "box":
        answer(database, store, "dp_check", table, shape)
        return
    with answers(database, store) as ask:
        print_findings(ask("dp_check", table))


@main.command()
@DATABASE
@STORE
@FORMAT
def ledger(database: Path, store: Path | None, shape: str) -> None:
    """List every charge: when, who, what, how much. Of a statement in a box, its beginning on one line."""
    answer(database, store, "dp_ledger", None, shape, LEDGER)


@main.command()
@DATABASE
@STORE
@FORMAT
def releases(database: Path, store: Path | None, shape: str) -> None:
    """List every released table. Of a statement in a box, its beginning on one line."""
    answer(database, store, "dp_releases", None, shape, RELEASES)


@main.command()
@DATABASE
@STORE
@FORMAT
def policies(database: Path, store: Path | None, shape: str) -> None:
    """List every policy in force."""
    answer(database, store, "dp_policies", None, shape)


@main.command()
@DATABASE
@click.argument("view")
@STORE
@FORMAT
def show(database: Path, view: str, store: Path | None, shape: str) -> None:
    """Print a private view."""
    with one_line_errors(), closing_owner(store_files(database, store)) as owner, ExitStack() as stack:
        con = stack.enter_context(connect(database, store) if owner is None else owner.store())
        place, listed = ("private", "dp_releases()") if owner is None else ("store", "store.dpduck.releases")
        names = con.execute(f"SELECT name, kind FROM {listed} ORDER BY lower(name)").fetchall()
        if view.lower() not in [name.lower() for name, _ in names]:
            views = ", ".join([name for name, kind in names if kind == "view"][:MOST_NAMED]) or "none yet"
            raise Refusal(f"there is no private view {view[:80]!r}", accepted=f"a name of dpduck releases: {views}")
        printed(con.sql(f"FROM {place}.main.{quote_identifier(view)}"), shape)


@main.command(name="publish")
@click.argument("database", type=click.Path(dir_okay=False, exists=True, path_type=Path))
@click.option("--to", "target", required=True, help="FILE.duckdb, a directory (Parquet), or postgresql://..")
@click.option("--schema", default="public", show_default=True, help="The schema in PostgreSQL.")
@click.option("--with-ledger", is_flag=True, help="Tell who asked and the numbers of ledger entries too.")
@click.option("--view", "views", multiple=True, help="A view to publish, may be given again; all if none is.")
def publish_command(database: Path, target: str, schema: str, with_ledger: bool, views: tuple[str, ...]) -> None:
    """Write private views, and nothing else, to a DuckDB file, Parquet files or PostgreSQL.

    DATABASE has its store beside it; the store itself is taken, too.
    """
    beside = store_files(database, None).store
    store = beside if beside is not None and beside.exists() else database
    with one_line_errors(), closing_owner(store_files(None, store)) as owner:
        source = store if owner is None else owner.store()
        published = publish(source, target, schema=schema, with_ledger=with_ledger, views=views)
        click.echo(f"{counted(len(published.views))} in {published.target}: {', '.join(published.views)}")


@main.command()
@DATABASE
@STORE
@click.option("--adopt", is_flag=True, help="Accept an older copy of the store; what was spent stays spent.")
def verify(database: Path, store: Path | None, adopt: bool) -> None:
    """Check the ledger's whole chain, and that the store is not an older or a second copy."""
    with one_line_errors(), closing_owner(store_files(database, store)) as owner:
        if owner is not None and adopt:
            raise Refusal("a store that is served was adopted already", accepted="verify without --adopt")
        entries = verify_store(database, store, adopt=adopt) if owner is None else owner.verify()
        click.echo(f"the ledger is whole: {entries} entries")


@main.command(name="certify")
@DATABASE
@STORE
@click.option("--to", "target", required=True, type=click.Path(path_type=Path), help="A directory for the bundle.")
def certify_command(database: Path, store: Path | None, target: Path) -> None:
    """Write a certificate for every release, which anyone can check without the data: python BUNDLE/check.py

    Publish the last link where nobody can change it.
    """
    with one_line_errors(), closing_owner(store_files(database, store)) as owner:
        found = store_files(database, store).store
        if owner is not None or found is None:
            raise Refusal("the store is being served", accepted="the same when dpduck serve has ended")
        written = certify(found, verify_store(database, store), target)
        click.echo(f"{written.certificates} certificates of {written.entries} entries in {target}")
        click.echo(f"last link {written.head}")


@main.command()
@DATABASE
@click.argument("tables", nargs=-1)
@STORE
def prepare(database: Path, tables: tuple[str, ...], store: Path | None) -> None:
    """Prepare tables, all that have a policy if none is named: answers cost what exact ones cost.

    From then on they are about the rows of this moment, until ALTER PRIVACY POLICY ON .. NEW EPOCH, or UNPREPARE.
    """
    with one_line_errors(), closing_owner(store_files(database, store)) as owner:
        if owner is None:
            for line in prepared_tables(database, store, tables):
                click.echo(line)
            return
        listed = owner.call(MACROS["dp_policies"][1], None).table.column(0).to_pylist()
        ask = MACROS["dp"][1]
        known = [in_sql(name) for name in listed]
        for line in preparing(lambda text: owner.call(ask, text).table.column(0)[0].as_py(), tables, known):
            click.echo(line)


@contextmanager
def closing_owner(files: StoreFiles) -> Iterator[Owner | None]:
    """Lends the door of the server that serves this store; None where nobody does, and its files are free."""
    owner = owner_of_server(files)
    try:
        yield owner
    finally:
        if owner is not None:
            owner.close()


@contextmanager
def answers(
    database: Path, store: Path | None
) -> Iterator[Callable[[str, str | Reading | None], duckdb.DuckDBPyRelation]]:
    """Asks dp functions as the owner, through the server where one serves the store; each answer replaces the last."""
    with one_line_errors(), closing_owner(store_files(database, store)) as owner, ExitStack() as stack:
        con = stack.enter_context(connect(database, store) if owner is None else duckdb.connect())

        place = "temp.answer" if owner is None else "answer"

        def ask(function: str, argument: str | Reading | None) -> duckdb.DuckDBPyRelation:
            con.execute(f"DROP TABLE IF EXISTS {place}")
            written = argument.call if isinstance(argument, Reading) else ""
            if owner is None:  # a relation of the query itself would ask it again
                given = [argument] if isinstance(argument, str) else []
                call = written or f"{function}({'$1' if given else ''})"
                con.execute(f"CREATE TEMP TABLE answer AS FROM {call}", given)
            else:
                text = argument.argument if isinstance(argument, Reading) else argument
                rows = owner.call(MACROS[function][1], text)
                create_table(con, place, list(rows.columns), rows.table)
            return con.sql(f"FROM {place}")

        yield ask


def answer(
    database: Path, store: Path | None, function: str, argument: str | None, shape: str, narrow: Sequence[str] = ()
) -> None:
    """Prints what a dp function answers the owner; of a box the columns that narrow has."""
    with answers(database, store) as ask:
        printed(ask(function, argument), shape, narrow)


for _command in (serve, principal, policy, report, compare, audit_command):
    main.add_command(_command)

if __name__ == "__main__":
    main()
