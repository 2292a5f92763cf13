"""dp_trial: draws a statement's noise many times over the exact counts, and compares the answers with the true one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction

import duckdb

from dpduck.kernel.ledger.ledger import Ledger
from dpduck.kernel.places.engine import EnginePlace
from dpduck.kernel.worker.workers import Workers
from dpduck.language.rows.facts import Policy, RequestRows
from dpduck.language.select.analyse import Analysis, analyse
from dpduck.language.statements.kinds import AskStatement
from dpduck.language.text.names import TableName
from dpduck.mechanisms.cubes.measures import with_matrix
from dpduck.mechanisms.registry import own_options
from dpduck.mechanisms.release import PlaceOf
from dpduck.store.catalog import Catalog
from dpduck.store.cursors import Caller, OpenCursor, SandboxAnswers, require_owner
from dpduck.store.policies import PolicyStore
from dpduck.store.sandbox import Sandbox
from dpduck.store.terms import PolicyTerms
from dpduck.trial.criteria import Criterion, share_of_runs
from dpduck.trial.draws import Drawing, open_scratch
from dpduck.trial.figures import (
    MORE,
    NOISY,
    TRUE,
    AnswerFigures,
    RowFigures,
    answer_figures,
    row_figures,
)
from dpduck.trial.readings import (
    Bounds,
    Reading,
    lift_bounds,
    read_true,
    read_written,
    rows_number,
    terms_of,
)
from dpduck.trial.suggest import Suggestion, choices_of_bounds, least_share, round_up, suggest
from dpduck.values.errors import Refusal
from dpduck.values.quoting import fold, quote_identifier

MOST_CELLS = 5_000_000
"""Largest number of cells of all runs together, for each aggregate."""

MOST_RUNS = 10_000

Finding = tuple[str, float | None, str, float | None]
"""Exact fact of dp_check: its name, its value, advice, and its share of all rows in per cent."""


@dataclass(frozen=True)
class Trial:
    """Result for one statement at one price. epsilon: None for the price that was written.

    left_out: rows that no cell of the statement has, in per cent. met: the share of runs that meet each criterion.
    """

    epsilon: Fraction | None
    answers: tuple[AnswerFigures, ...]
    rows: RowFigures
    left_out: tuple[tuple[str, float], ...]
    met: tuple[tuple[Criterion, float], ...] = ()


@dataclass(frozen=True)
class Trials:
    """Trials over one database. facts_of: returns the exact facts of a table (dp_check)."""

    open_cursor: OpenCursor
    policies: PolicyStore
    ledger: Ledger
    workers: Workers
    place_of: PlaceOf
    answered: SandboxAnswers
    facts_of: Callable[[TableName], Sequence[Finding]]

    def run(
        self, text: str, runs: int, epsilons: Sequence[Fraction | None], caller: Caller,
        criteria: Sequence[Criterion] = (),
    ) -> list[Trial]:  # fmt: skip
        """Tries a statement at each price. Many runs reveal the exact counts, so it is the owner's alone."""
        with self.opened(text, caller) as statement:
            return [statement.at(runs, epsilon, {}, criteria) for epsilon in epsilons]

    def suggest(self, text: str, criteria: Sequence[Criterion], caller: Caller) -> Suggestion:
        """Returns the smallest price, and the bounds, at which a statement meets the criteria."""
        with self.opened(text, caller) as statement:

            def attempt(epsilon: Fraction, bounds: Mapping[str, Bounds], runs: int) -> float:
                return least_share(statement.at(runs, epsilon, bounds, criteria).met)

            return suggest(attempt, list(choices_of_bounds(statement.own_bounds(), statement.other_bounds())))

    @contextmanager
    def opened(self, text: str, caller: Caller) -> Iterator[StatementTrial]:
        """Yields a statement with its true answer, which is computed once for all prices."""
        require_owner(caller)
        first = read_written(text, self.analyse, None)
        rows = first.analysis.request.rows
        if first.analysis.request.question.summary is not None or first.analysis.cells or first.analysis.reuse:
            what = "a trial has no true answer for a summary, a view of cells, or an answer with reuse"
            raise Refusal(what, accepted="the statement without summary, form = 'cells' and reuse")
        if isinstance(self.place_of(rows), EnginePlace):
            raise Refusal("a trial does not look into an engine's tables", accepted="tables of this database")
        tables = list(dict.fromkeys((rows.table, *(read.table for read in rows.reads))))
        facts = {table.sql: list(self.facts_of(table)) for table in tables}
        in_force = dict(self.policies.now().policies)
        bounds = {table.sql: self.bounds(in_force[table.sql], facts[table.sql], 1.0) for table in tables}
        with closing(open_scratch()) as scratch:
            trial = StatementTrial(self, text, scratch, in_force, bounds, facts)
            trial.draw_truth()
            yield trial

    def analyse(self, ask: AskStatement, terms: PolicyTerms | None) -> Analysis:
        """Analyses a statement as a release would. terms: other terms of the policies, which are in force nowhere."""
        with Sandbox(self.answered) as box, self.open_cursor() as cursor:
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            catalog = Catalog(cursor, self.policies, box, None, None, terms)
            analysis = analyse(ask, catalog, own_options())
            strategy = analysis.request.question.treatment.strategy_table
            return with_matrix(analysis, catalog) if strategy else analysis

    def drawing(self) -> Drawing:
        """Returns the tools for draws."""
        return Drawing(
            self.open_cursor, self.ledger, self.workers, self.place_of, self.answered, self._require_unchanged
        )

    def _require_unchanged(self, rows: RequestRows, cursor: duckdb.DuckDBPyConnection) -> None:
        Catalog(cursor, self.policies).require_unchanged(rows)

    def bounds(self, policy: Policy, facts: Sequence[Finding], part: float) -> Bounds:
        """Returns the bounds that a part of the units and rows of a table meet.

        If the part is not 1, the ends of clamps are rounded outwards to two digits.
        """
        name = "most rows of a unit" if part == 1 else "99 % of units have at most this many rows"
        rows = next((value for finding, value, _, _ in facts if finding == name), None) or policy.unit.max_rows
        ends = dict[str, tuple[float, float]]()
        with self.open_cursor() as cursor:
            for clamp in policy.clamps:
                value = f"CAST({quote_identifier(clamp.column)} AS DOUBLE)"
                row = cursor.execute(
                    f"SELECT quantile_disc({value}, {1 - part}), quantile_disc({value}, {part}) "
                    f"FROM {policy.table.sql} WHERE isfinite({value})"
                ).fetchone()
                if row is not None and row[0] is not None:
                    ends[clamp.column] = row if part == 1 else (-_round_up(-row[0]), _round_up(row[1]))
        return Bounds(max(policy.unit.max_rows, int(rows)) if part == 1 else int(rows), ends)


def _ends_of(policy: Policy) -> dict[str, tuple[float, float]]:
    return {clamp.column: (float(clamp.low), float(clamp.high)) for clamp in policy.clamps}


def _round_up(number: float) -> float:
    """Rounds a number away from 0 or towards 0 to two digits, but never down."""
    size = round_up(Fraction(abs(number))) if number else Fraction(0)
    return float(size) if number >= 0 else number


@dataclass(frozen=True)
class StatementTrial:
    """A statement with its true answer in a scratch database. bounds: for each table, bounds that every row meets."""

    trials: Trials
    text: str
    scratch: duckdb.DuckDBPyConnection
    in_force: Mapping[str, Policy]
    bounds: Mapping[str, Bounds]
    facts: Mapping[str, Sequence[Finding]]

    def draw_truth(self) -> None:
        """Computes the true answer, and the answer in which clamps stay and only MAX ROWS is lifted."""
        for prefix, clamps in ((TRUE, True), (MORE, False)):
            reading = self._true(clamps)
            self.trials.drawing().draw(reading.analysis, 1, self.scratch, prefix)

    def own_bounds(self) -> Mapping[str, Bounds]:
        """Returns the bounds that the policies declare."""
        policies = {name: self.in_force[name] for name in self.bounds}
        return {name: Bounds(policy.unit.max_rows, _ends_of(policy)) for name, policy in policies.items()}

    def other_bounds(self) -> Sequence[Mapping[str, Bounds]]:
        """Returns bounds that may do better: those that nearly all rows meet, and those that all rows meet.

        Clamps of columns that the statement does not add up stay as they are.
        """
        nearly = {name: self.trials.bounds(self.in_force[name], self.facts[name], 0.99) for name in self.bounds}
        return [
            {name: self._of_used(name, bounds) for name, bounds in other.items()} for other in (nearly, self.bounds)
        ]

    def _of_used(self, table: str, bounds: Bounds) -> Bounds:
        aggregates = self._written(None, {}).analysis.request.question.aggregates
        operands = "".join(aggregate.operand.sql for aggregate in aggregates if aggregate.operand is not None)
        ends = {
            column: bounds.clamps.get(column, own) if quote_identifier(column) in operands else own
            for column, own in _ends_of(self.in_force[table]).items()
        }
        return replace(bounds, clamps=ends)

    def at(
        self, runs: int, epsilon: Fraction | None, changed: Mapping[str, Bounds], criteria: Sequence[Criterion] = ()
    ) -> Trial:
        """Draws the statement at a price, and returns its figures. changed: other bounds of tables."""
        if not 2 <= runs <= MOST_RUNS:
            raise Refusal("the number of runs is out of range", accepted=f"2 to {MOST_RUNS}")
        true, written = self._true(True), self._written(epsilon, changed)
        ((cells,),) = self.scratch.execute(f"SELECT count(*) FROM {TRUE}cells").fetchall()
        if cells * runs > MOST_CELLS:
            raise Refusal(
                f"{runs} runs of {cells} cells are too much at once",
                accepted=f"at most {max(2, MOST_CELLS // cells)} runs, or fewer cells",
            )
        for kind in ("cells", "shown"):
            self.scratch.execute(f"DROP TABLE IF EXISTS {NOISY}{kind}")
        analysis, question = written.analysis, written.analysis.request.question
        self.trials.drawing().draw(analysis, runs, self.scratch, NOISY)
        names = {number: name for name, number in reversed(analysis.shown)}
        rows_of = rows_number(true.analysis)
        named = [(number, names.get(number, aggregate.text)) for number, aggregate in enumerate(question.aggregates)]
        answers = [line for number, name in named for line in answer_figures(self.scratch, number, name, rows_of)]
        labels = written.labels or self._texts()
        ordered = "ORDER BY" in analysis.outer.sql
        rows = row_figures(self.scratch, labels, analysis.outer.columns, ordered)
        met = tuple((item, share_of_runs(self.scratch, item, named, rows_of)) for item in criteria)
        return Trial(epsilon, tuple(answers), rows, tuple(self._left_out(analysis)), met)

    def _written(self, epsilon: Fraction | None, changed: Mapping[str, Bounds]) -> Reading:
        terms = None
        if changed:
            terms = terms_of({
                name: lift_bounds(policy, changed[name]) if name in changed else policy
                for name, policy in self.in_force.items()
            })  # fmt: skip
        return read_written(self.text, self.trials.analyse, epsilon, terms)

    def _true(self, clamps: bool) -> Reading:
        lifted = {
            name: lift_bounds(policy, self.bounds[name], clamps=clamps) if name in self.bounds else policy
            for name, policy in self.in_force.items()
        }
        return read_true(self.text, self.trials.analyse, terms_of(lifted))

    def _texts(self) -> list[str]:
        """Lists the columns of the true answer without numbers: the labels of a SELECT around the annotated SELECT."""
        described = self.scratch.execute(f"DESCRIBE {TRUE}shown").fetchall()
        return [name for name, kind, *_ in described if kind in ("VARCHAR", "DATE", "BOOLEAN") or kind.startswith("E")]

    def _left_out(self, analysis: Analysis) -> Iterator[tuple[str, float]]:
        """Yields the rows that no cell has, as shares of all rows in per cent: NULLs, other values, rows of no unit."""
        columns = {fold(source.sql.rpartition(".")[2].strip('"')) for source in analysis.request.question.sources}
        for table, facts in self.facts.items():
            name = self.in_force[table].table.table
            for finding, value, _, percent in facts:
                start = finding.startswith(("rows outside the domain of ", "rows with NULL in "))
                if value and percent is not None and (
                    (start and fold(finding.rpartition(" ")[2]) in columns) or finding.startswith("rows whose unit")
                ):  # fmt: skip
                    yield f"{name}: {finding}", percent
