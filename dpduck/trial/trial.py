"""dp_trial: draws a statement's noise many times over the exact counts, and compares the answers with the true one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import TypeVar

import duckdb

from dpduck.kernel.places.engine import EnginePlace
from dpduck.language.rows.facts import RequestRows
from dpduck.language.statements.kinds import STREAM, AskStatement, CreatePrivate
from dpduck.language.statements.parse import parse_ask, parse_statement
from dpduck.language.statements.synthetic import CreateSynthetic
from dpduck.mechanisms.synthetic.data import data_sql
from dpduck.mechanisms.synthetic.request import analyse_synthetic
from dpduck.store.catalog import Catalog
from dpduck.store.cursors import Caller, require_owner
from dpduck.store.sandbox import Sandbox
from dpduck.store.terms import PolicyTerms
from dpduck.trial.criteria import Criterion
from dpduck.trial.draws import open_scratch
from dpduck.trial.figures import NOISY, AnswerFigures
from dpduck.trial.readings import Reading, TableBounds, at_epsilon, read_written
from dpduck.trial.statement_trial import MakeRuns, StatementTrial, Trial
from dpduck.trial.streams import draw_stream, stream_ask
from dpduck.trial.suggest import Suggestion, choices_of_bounds, least_share, suggest
from dpduck.trial.synthetic import margin_figures
from dpduck.trial.tools import TrialTools
from dpduck.values.errors import DpduckError, InternalError, Refusal
from dpduck.values.quoting import fold

T = TypeVar("T")
TRIED = "SELECT WITH DIFFERENTIAL_PRIVACY .., CREATE PRIVATE VIEW, TABLE .. WORKLOAD, or STREAM"


@dataclass(frozen=True)
class Trials:
    """Trials over one database, for its owner alone: many runs reveal the exact counts."""

    tools: TrialTools

    def run(
        self, text: str, runs: int, epsilons: Sequence[Fraction | None], caller: Caller,
        criteria: Sequence[Criterion] = (),
    ) -> list[Trial]:  # fmt: skip
        """Tries a statement at each price. An epsilon of None stands for the price that was written."""
        require_owner(caller)
        return _hide_reasons(lambda: self._run(text, runs, epsilons, criteria))

    def _run(
        self, text: str, runs: int, epsilons: Sequence[Fraction | None], criteria: Sequence[Criterion]
    ) -> list[Trial]:
        if isinstance(parse_statement(text), CreateSynthetic):
            if criteria:
                raise Refusal("criteria are of statements that show cells", accepted="SELECT .. GROUP BY, or a stream")
            return [Trial(epsilon, tuple(self._margins(text, runs, epsilon)), None) for epsilon in epsilons]
        with self._open(text) as statement:
            rows_of = statement.draw_truth()
            return [statement.at(runs, epsilon, {}, rows_of, criteria) for epsilon in epsilons]

    def suggest(self, text: str, criteria: Sequence[Criterion], caller: Caller) -> Suggestion:
        """Returns the smallest price, and the bounds, at which a SELECT meets the criteria."""
        require_owner(caller)
        return _hide_reasons(lambda: self._suggest(text, criteria))

    def _suggest(self, text: str, criteria: Sequence[Criterion]) -> Suggestion:
        with self._open(text) as statement:
            rows_of = statement.draw_truth()
            analysis = self.tools.analyse(statement.written(), None)

            def attempt(epsilon: Fraction, bounds: Mapping[str, TableBounds], runs: int) -> float:
                return least_share(statement.at(runs, epsilon, bounds, rows_of, criteria).met)

            return suggest(attempt, list(choices_of_bounds(statement.own_bounds(), statement.other_bounds(analysis))))

    @contextmanager
    def _open(self, text: str) -> Iterator[StatementTrial]:
        """Yields a statement that shows cells."""
        statement, tools = parse_statement(text), self.tools
        written: Callable[[], AskStatement] = partial(parse_ask, text)
        draw: MakeRuns = partial(self._draw_select, text)
        if isinstance(statement, CreatePrivate) and statement.kind == STREAM:
            written, draw = partial(_stream_ask, text), partial(self._draw_stream, text)
        elif not isinstance(statement, AskStatement):
            raise Refusal("a trial has no true answer for this statement", accepted=TRIED)
        request = tools.analyse(written(), None).request
        _require_true_answer(tools, written())
        tables = list(dict.fromkeys((request.rows.table, *(read.table for read in request.rows.reads))))
        facts = {table.sql: list(tools.facts_of(table)) for table in tables}
        in_force = dict(tools.policies.now().policies)
        bounds = {table.sql: tools.bounds(in_force[table.sql], facts[table.sql], 1.0) for table in tables}
        with closing(open_scratch()) as scratch:
            yield StatementTrial(tools, written, draw, scratch, in_force, bounds, facts)

    def _draw_select(
        self, text: str, runs: int, epsilon: Fraction | None, terms: PolicyTerms | None,
        scratch: duckdb.DuckDBPyConnection,
    ) -> Reading:  # fmt: skip
        reading = read_written(parse_ask(text), self.tools.analyse, epsilon, terms)
        self.tools.drawing().draw_runs(reading.analysis, runs, scratch, NOISY)
        return reading

    def _draw_stream(
        self, text: str, runs: int, epsilon: Fraction | None, terms: PolicyTerms | None,
        scratch: duckdb.DuckDBPyConnection,
    ) -> Reading:  # fmt: skip
        statement = _stream(text)
        if epsilon is not None:
            statement = replace(statement, options=tuple(at_epsilon(statement.options, epsilon)))
        stream = self.tools.analyse_stream(statement, terms)
        draw_stream(self.tools.drawing(), stream, runs, scratch)
        return Reading(stream.analysis, tuple(fold(key.name) for key in stream.request.question.keys))

    def _margins(self, text: str, runs: int, epsilon: Fraction | None) -> Iterator[AnswerFigures]:
        """Yields the figures of a synthetic table."""
        statement = parse_statement(text)
        if not isinstance(statement, CreateSynthetic):
            raise InternalError("a statement of another kind than before")
        if epsilon is not None:
            statement = replace(statement, options=tuple(at_epsilon(statement.options, epsilon)))
        with Sandbox(self.tools.answered) as box, self.tools.open_cursor() as cursor:
            catalog = Catalog(cursor, self.tools.policies, box)
            request = analyse_synthetic(statement, catalog)
            _require_not_in_engine(self.tools, request.base.rows)
            sql = data_sql(statement, request)
        if sql is None:
            raise Refusal("a trial of a synthetic table reads one table", accepted="SELECT columns FROM t [WHERE ..]")
        yield from margin_figures(self.tools.drawing(), request, sql, self.tools.open_cursor, runs)


def _hide_reasons(attempt: Callable[[], T]) -> T:
    """Turns an error of another kind than dpduck's own into a refusal: its reason could quote an exact answer."""
    try:
        return attempt()
    except DpduckError:
        raise
    except Exception:  # noqa: S110 - the error is raised below, so that no error that quotes data is its context
        pass
    raise Refusal(
        "the trial failed over the true answer, and the reason could quote it",
        accepted="TRY_CAST for an answer that may not fit, or a simpler SELECT around the answers",
    )


def _stream_ask(text: str) -> AskStatement:
    return stream_ask(_stream(text))


def _stream(text: str) -> CreatePrivate:
    statement = parse_statement(text)
    if not isinstance(statement, CreatePrivate):
        raise InternalError("a statement of another kind than before")
    return statement


def _require_true_answer(tools: TrialTools, ask: AskStatement) -> None:
    """Refuses statements without a true answer to compare with."""
    analysis = tools.analyse(ask, None)
    if analysis.request.question.summary is not None or analysis.cells or analysis.reuse:
        what = "a trial has no true answer for a summary, a view of cells, or an answer with reuse"
        raise Refusal(what, accepted="the statement without summary, form = 'cells' and reuse")
    _require_not_in_engine(tools, analysis.request.rows)


def _require_not_in_engine(tools: TrialTools, rows: RequestRows) -> None:
    if isinstance(tools.place_of(rows), EnginePlace):
        raise Refusal("a trial does not look into an engine's tables", accepted="tables of this database")
