"""dpduck trial: prints how useful statements would be on the true data, for the owner alone.

Its figures follow from exact counts. So they are printed under a warning, a picture is readable by its owner alone, and
nothing is stored.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import click
import duckdb

from dpduck.commands.errors import one_line_errors
from dpduck.commands.printing import print_rows, say
from dpduck.database.connection import connect
from dpduck.database.functions import OWNER, database_of
from dpduck.mechanisms.batch import numbered, split_statements
from dpduck.publish.page_file import replace_page
from dpduck.publish.pictures import spec_of, svg
from dpduck.publish.report import require_pictures
from dpduck.server.owner import require_not_served
from dpduck.store.store_files import store_files
from dpduck.trial.criteria import read_criteria
from dpduck.trial.listing import COLUMNS, lines_of, read_epsilon
from dpduck.trial.statement_trial import Trial
from dpduck.trial.suggest import Suggestion
from dpduck.values.errors import Refusal, StoreError
from dpduck.values.quoting import unquote_identifier

WARNING = (
    "For the owner of the data alone. Every figure here follows from exact counts, and no budget was charged. "
    "Do not publish these figures. If you choose a price or a bound by them, the choice reveals a little that no "
    "budget paid for: say in your record that you did."
)
"""First words of a trial. The documents of a release say the same."""

ACCEPTED = "SELECT WITH DIFFERENTIAL_PRIVACY .., and CREATE PRIVATE VIEW, TABLE or STREAM .., with ; between them"


@dataclass(frozen=True)
class TrialSettings:
    """Options of the command."""

    runs: int
    epsilons: str | None
    criteria: Path | None
    suggesting: bool
    picture: Path | None
    shape: str


def print_trial(database: Path, store: Path | None, statements: Path, settings: TrialSettings) -> bool:
    """Tries the statements of a file and prints the figures. Returns whether every criterion is met."""
    met = True
    with one_line_errors():
        listed = split_statements(_read_statements(statements), ACCEPTED)
        criteria = [] if settings.criteria is None else read_criteria(settings.criteria, len(listed))
        if settings.suggesting and not criteria:
            raise Refusal("a suggestion needs criteria to meet", accepted="--criteria criteria.toml --suggest")
        prices = [None] if settings.epsilons is None else [*map(read_epsilon, settings.epsilons.split(","))]
        if settings.picture is not None:
            require_pictures()
        require_not_served(store_files(database, store))
        click.secho(WARNING, fg="yellow", err=True)
        with connect(database, store) as connection:
            loaded = database_of(connection)
            if loaded is None:
                raise StoreError("dpduck is not loaded; accepted: a database with a store")
            trials, rows = loaded.trials, list[tuple[int, Trial]]()
            for number, text in enumerate(listed, 1):
                own = [item for item in criteria if item.statement in (None, number)]
                with numbered(number):
                    if not settings.suggesting:
                        rows += [(number, trial) for trial in trials.run(text, settings.runs, prices, OWNER, own)]
                        continue
                    if not own:
                        click.echo(f"statement {number}: no criterion is about it")
                        continue
                    click.echo(f"statement {number} of {len(listed)}: hundreds of trials, some minutes ..", err=True)
                    _print_suggestion(number, trials.suggest(text, own, OWNER))
        if not settings.suggesting:
            _print_lines(rows, settings.shape)
            met = _print_criteria(rows)
        if settings.picture is not None and rows:
            replace_page(settings.picture, svg(curve_of(rows)), 0o600)
            click.echo(f"errors by price in {settings.picture}: for your eyes only, never to be published", err=True)
    return met


def require_criteria(
    connection: duckdb.DuckDBPyConnection, statements: Mapping[int, str], criteria: Path, runs: int, most: int
) -> frozenset[int] | None:
    """Tries statements, and prints whether they meet the criteria of a file. Returns the numbers of tried statements.

    Returns None if a criterion is not met.

    statements: by their numbers in a plan. most: the number of statements of the plan.
    """
    loaded, listed = database_of(connection), read_criteria(criteria, most)
    if loaded is None:
        raise StoreError("dpduck is not loaded; accepted: a database with a store")
    rows = list[tuple[int, Trial]]()
    for number, text in statements.items():
        with numbered(number):
            if own := [item for item in listed if item.statement in (None, number)]:
                rows += [(number, trial) for trial in loaded.trials.run(text, runs, [None], OWNER, own)]
    return frozenset(number for number, _ in rows) if _print_criteria(rows) else None


def _read_statements(statements: Path) -> str:
    try:
        return sys.stdin.read() if str(statements) == "-" else statements.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise Refusal(f"{str(statements)!r} cannot be read", accepted="a file of statements, or -") from None


def _print_lines(rows: Sequence[tuple[int, Trial]], shape: str) -> None:
    lines = [line for number, trial in rows for line in lines_of(number, trial)]
    names = [name for name, _ in COLUMNS]
    if shape != "box":
        print_rows(names, [tuple(_plain(value) for value in line) for line in lines], shape)
        return
    for number, trial in rows:
        price = "" if trial.epsilon is None else f" at epsilon = {float(trial.epsilon):g}"
        say(f"statement {number}{price}")
        for line in sentences(trial):
            say(f"  {line}")


def sentences(trial: Trial) -> Iterator[str]:
    """Yields a trial as sentences for people. A bias that may be the noise of the runs is left out."""
    for figures in trial.answers:
        cells = f"{figures.cells} cell{'' if figures.cells == 1 else 's'}"
        if trial.rows is None:
            half, most = _share(figures.median_error), _share(figures.p90_error)
            yield f"{figures.answer}: half of the tables are within {half} of the data, nine in ten within {most}"
            continue
        yield (
            f"{figures.answer}, {cells} of {figures.size}: half are within {_share(figures.median_error)}, nine "
            f"in ten within {_share(figures.p90_error)}; {_share(figures.within_10)} are within 10 %"
        )
        biases = [
            f"{what} {'take away' if bias < 0 else 'add'} {_share(abs(bias))}"
            for what, bias, noise in (
                ("MAX ROWS and norms", figures.bias_of_rows, figures.bias_noise),
                ("clamps", figures.bias_of_clamps, None),
            )
            if bias is not None and abs(bias) >= max(0.001, 3 * (noise or 0))
        ]  # fmt: skip
        covered = [] if figures.coverage is None else [f"intervals hold the true answer in {_share(figures.coverage)}"]
        if biases or covered:
            yield f"    {'; '.join([*biases, *covered])}"
    if trial.rows is not None:
        swapped = "" if trial.rows.swapped is None else f", {_share(trial.rows.swapped)} of pairs are swapped"
        yield (
            f"of {trial.rows.rows} true rows {_share(trial.rows.dropped)} are missing, and "
            f"{_share(trial.rows.spurious)} of the rows shown are not true{swapped}"
        )
    for what, percent in trial.left_out:
        yield f"no cell has these rows: {what}, {percent:.3g} % of all rows"


def _share(share: float | None) -> str:
    return "nothing" if share is None else "no bound" if share > 1e6 else f"{100 * share:.3g} %"


def _plain(value: object) -> object:
    return float(value) if isinstance(value, Fraction) else value


def _print_criteria(rows: Sequence[tuple[int, Trial]]) -> bool:
    """Prints whether each criterion is met. Returns whether all are."""
    met = True
    for number, trial in rows:
        price = "" if trial.epsilon is None else f" at epsilon = {float(trial.epsilon):g}"
        for criterion, share in trial.met:
            holds = share >= criterion.runs
            met = met and holds
            word = "met" if holds else "NOT MET"
            say(f"{word} by statement {number}{price}: {criterion} (it holds in {_share(share)})", err=True)
    return met


def _print_suggestion(number: int, suggestion: Suggestion) -> None:
    click.echo(f"statement {number}: epsilon = {float(suggestion.epsilon):g} meets the criteria")
    for table, bounds in suggestion.bounds.items():
        name = unquote_identifier(table.rpartition(".")[2])
        clamps = [f"CLAMP {column} BETWEEN {low:g} AND {high:g}" for column, (low, high) in bounds.clamps.items()]
        say(f"  with {', '.join([f'MAX ROWS {bounds.max_rows}', *clamps])} in the policy of {name}")


def curve_of(rows: Sequence[tuple[int, Trial]]) -> dict[str, Any]:
    """Returns a picture of the median error by price, a line for each answer and size of cells, in Vega-Lite."""
    points = [
        {
            "epsilon": float(trial.epsilon), "error": 100 * figures.median_error,
            "answer": f"{number}: {figures.answer}, {figures.size}",
        }
        for number, trial in rows
        if trial.epsilon is not None
        for figures in trial.answers
        if figures.median_error is not None and figures.median_error <= 1e6
    ]  # fmt: skip
    if not points:
        raise Refusal("a picture shows errors by price", accepted="--epsilon 0.5,1,2 --picture FILE.svg")
    across = {"field": "epsilon", "type": "quantitative", "title": "epsilon", "scale": {"type": "log"}}
    up = {"field": "error", "type": "quantitative", "title": "median error, % of the true answer"}
    series = {"field": "answer", "type": "nominal", "title": "answer"}
    line = {"mark": {"type": "line", "point": True}, "encoding": {"x": across, "y": up, "color": series}}
    return {**spec_of(points, [line], "median error by price"), "width": 480, "height": 320}
