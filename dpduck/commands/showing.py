"""Commands that show: an audit, a comparison, a demonstration, a report, a trial. Each imports when it runs."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path

import click

from dpduck.commands import DATABASE, FORMAT, STORE
from dpduck.commands.errors import one_line_errors
from dpduck.store.store_files import store_files
from dpduck.values.errors import Refusal

SHOWING = click.Group()
"""The commands of this file."""


@SHOWING.command(name="audit")
@DATABASE
@click.argument("statements", nargs=-1)
@STORE
@click.option("--seconds", default=5.0, show_default=True, type=click.FloatRange(0.1), help="Of each statement.")
@click.option("--epsilon", default="1", show_default=True, help="The price of each own statement.")
@click.option(
    "--search", default=0.0, show_default=True, type=click.FloatRange(0), help="Seconds of a search for others."
)
@click.option("--seed", help="Of the search, to repeat it; a fresh one if none is given.")
@click.option(
    "--format", "shape", type=click.Choice(["text", "json"]), default="text", help="json: a line a statement."
)
def audit_command(
    database: Path, statements: tuple[str, ...], store: Path | None, seconds: float, epsilon: str, search: float,
    seed: str | None, shape: str,
) -> None:  # fmt: skip
    """Ask STATEMENTS, or some of every mechanism, of two made-up tables that differ in one privacy unit.

    The tables are made from the policies of DATABASE in memory: no private row is read, and nothing is charged to it.
    Each statement is answered thousands of times on both. The audit computes a lower bound on the privacy loss. The
    exit status is 1 if the bound is above the charge, or if a message, a shape or a price depends on the unit.
    """
    from dpduck.auditor.audit import Settings  # noqa: PLC0415
    from dpduck.commands.audit import print_audit  # noqa: PLC0415

    settings = Settings(epsilon, seconds, search, seed or secrets.token_hex(4))
    if print_audit(database, store, statements, settings, shape):
        sys.exit(1)


@SHOWING.command(name="trial")
@DATABASE
@click.argument("statements", type=click.Path(dir_okay=False, path_type=Path, allow_dash=True))
@STORE
@click.option("--runs", default=100, show_default=True, type=click.IntRange(2, 10_000), help="Releases to draw.")
@click.option("--epsilon", "epsilons", help="Other prices to try, as in 0.5,1,2.")
@click.option(
    "--criteria", type=click.Path(dir_okay=False, exists=True, path_type=Path), help="What must hold, in TOML."
)
@click.option(
    "--suggest", "suggesting", is_flag=True, help="Find the smallest price and bounds that meet the criteria."
)
@click.option("--picture", type=click.Path(dir_okay=False, path_type=Path), help="FILE.svg, errors by price.")
@FORMAT
def trial_command(
    database: Path, statements: Path, store: Path | None, runs: int, epsilons: str | None, criteria: Path | None,
    suggesting: bool, picture: Path | None, shape: str,
) -> None:  # fmt: skip
    """Try STATEMENTS on the true data many times: how useful would their answers be? For its owner's eyes only.

    STATEMENTS is a file with ; between the statements, or - for standard input. Nothing is charged, stored or served.
    The exit status is 1 if a criterion is not met.
    """
    from dpduck.commands.trial import TrialSettings, print_trial  # noqa: PLC0415

    settings = TrialSettings(runs, epsilons, criteria, suggesting, picture, shape)
    if not print_trial(database, store, statements, settings):
        sys.exit(1)


@SHOWING.command()
@DATABASE
@click.argument("table")
@STORE
@click.option("--to", "target", type=click.Path(dir_okay=False, path_type=Path), help="FILE.html, for yourself alone.")
def compare(database: Path, table: str, store: Path | None, target: Path | None) -> None:
    """Tell how far synthetic TABLE is from the data, exactly: for its owner's eyes only, never to be published.

    With --to, write a page with a heat map of all pairs of columns, which no other account can read.
    """
    from dpduck.commands.compare import print_comparison  # noqa: PLC0415

    print_comparison(database, table, store, target)


@SHOWING.command()
@click.option(
    "--directory", type=click.Path(file_okay=False, path_type=Path), default=Path("dpduck_demo"), show_default=True
)
def demo(directory: Path) -> None:
    """Make a clinic of 1,000,000 visits, declare its policy, release counts, show them beside the exact ones."""
    from dpduck.commands.demo import run_demo  # noqa: PLC0415

    def steps(name: str) -> None:
        if sys.stderr.isatty():
            click.secho(f"{name} ..", fg="cyan", err=True)

    with one_line_errors():
        run_demo(directory, click.echo, steps)


@SHOWING.command()
@DATABASE
@STORE
@click.option("--to", "target", required=True, type=click.Path(dir_okay=False, path_type=Path), help="FILE.html")
@click.option("--title", help="The page's title; DATABASE's name unless given.")
@click.option("--about", default="", help="A sentence below the title.")
@click.option("--with-ledger", is_flag=True, help="Tell who asked, and what, too.")
@click.option("--view", "views", multiple=True, help="A view to show; all if none is given.")
def report(
    database: Path, store: Path | None, target: Path, title: str | None, about: str, with_ledger: bool,
    views: tuple[str, ...],
) -> None:  # fmt: skip
    """Write one page with a picture of every private view, what is protected, and what was spent.

    The page fetches nothing and runs nothing: it can be mailed, printed, or put on any server.
    """
    from dpduck.commands.answering import answers, closing_owner  # noqa: PLC0415
    from dpduck.commands.printing import views_in_words  # noqa: PLC0415
    from dpduck.publish.published_views import open_store  # noqa: PLC0415
    from dpduck.publish.report import ReportFacts, write_report  # noqa: PLC0415

    with one_line_errors():
        files = store_files(database, store)
        if files.store is None:
            raise Refusal("a store in memory has no report", accepted="a store in a file")
        with answers(database, store) as ask:
            policies, budgets, ledger = (
                ask(function, None).to_arrow_table().to_pylist()
                for function in ("dp_policies", "dp_budget", "dp_ledger")
            )
        with closing_owner(files) as owner, open_store(files.store) if owner is None else owner.store() as released:
            facts = ReportFacts(policies, budgets, ledger)
            named = title or database.stem
            shown = write_report(
                released, facts, target, title=named, about=about, with_ledger=with_ledger, views=views
            )
        click.echo(f"{views_in_words(shown)} in {target}")


@SHOWING.command(name="release")
@DATABASE
@click.argument("plan", type=click.Path(dir_okay=False, exists=True, path_type=Path))
@STORE
@click.option("--to", "folder", required=True, type=click.Path(file_okay=False, path_type=Path), help="A new folder.")
@click.option("--title", help="The title of the documents; DATABASE's name unless given.")
@click.option("--contact", default="", help="Who answers questions, and where.")
@click.option(
    "--criteria", type=click.Path(dir_okay=False, exists=True, path_type=Path), help="Try first, by this file."
)
@click.option("--runs", default=100, show_default=True, type=click.IntRange(2, 10_000), help="Releases of the trial.")
@click.option("--postgresql", default="", help="postgresql://.., for the views as well.")
@click.option("--yes", is_flag=True, help="Charge without a question.")
def release_command(
    database: Path, plan: Path, store: Path | None, folder: Path, title: str | None, contact: str,
    criteria: Path | None, runs: int, postgresql: str, yes: bool,
) -> None:  # fmt: skip
    """Release a PLAN of statements to a folder: data, certificates and documents. It can be repeated.

    PLAN is a file of CREATE PRIVATE VIEW, TABLE or STREAM statements with ; between them. Their prices are shown first.
    The same command again charges nothing and changes nothing, also after it was killed.
    """
    from dpduck.commands.release import ReleaseSettings, release_plan  # noqa: PLC0415

    def confirm(question: str) -> bool:
        return yes or click.confirm(question, err=True)

    settings = ReleaseSettings(title or database.stem, contact, criteria, runs, postgresql, confirm)
    if not release_plan(database, store, plan, folder, settings):
        sys.exit(1)
