"""One statement of a trial: its true answer in a database in memory, and its noisy answers at any price."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil

import duckdb
import numpy as np

from dpduck.language.rows.facts import Policy
from dpduck.language.select.analyse import Analysis
from dpduck.language.statements.kinds import AskStatement
from dpduck.store.terms import PolicyTerms
from dpduck.trial.criteria import Criterion, share_of_runs
from dpduck.trial.figures import CELLS, MORE, NOISY, SHOWN, TRUE, AnswerFigures, RowFigures, answer_figures, row_figures
from dpduck.trial.readings import Reading, TableBounds, lift_bounds, read_true, rows_number, terms_of
from dpduck.trial.tools import Finding, TrialTools, round_outwards
from dpduck.values.errors import Refusal
from dpduck.values.quoting import fold, quote_identifier
from dpduck.values.sqltypes import sql_type

MOST_CELLS = 5_000_000
"""Largest number of cells of all runs together, for each aggregate."""

MOST_RUNS = 10_000

MakeRuns = Callable[[int, Fraction | None, PolicyTerms | None, duckdb.DuckDBPyConnection], Reading]
"""Function that draws a statement: a number of runs, its epsilon, its terms, and the database for the answers.

Without an epsilon, the price is as written. Without terms, those in force hold.
"""


@dataclass(frozen=True)
class Trial:
    """Result for one statement at one price. epsilon: None for the price that was written.

    left_out: rows that no cell of the statement has, in per cent. met: the share of runs that meet each criterion.
    """

    epsilon: Fraction | None
    answers: tuple[AnswerFigures, ...]
    rows: RowFigures | None
    left_out: tuple[tuple[str, float], ...] = ()
    met: tuple[tuple[Criterion, float], ...] = ()


@dataclass(frozen=True)
class StatementTrial:
    """A statement with its true answer.

    written: returns the statement's SELECT, a fresh tree each time. make_runs: draws the statement.
    bounds: for each table that the statement reads, bounds that every row meets. facts: exact facts of these tables.
    """

    tools: TrialTools
    written: Callable[[], AskStatement]
    make_runs: MakeRuns
    scratch: duckdb.DuckDBPyConnection
    in_force: Mapping[str, Policy]
    bounds: Mapping[str, TableBounds]
    facts: Mapping[str, Sequence[Finding]]

    def draw_truth(self) -> int:
        """Computes the true answer, and the answer in which clamps stay and only MAX ROWS is lifted.

        Returns the number of the aggregate that counts the rows of each cell.
        """
        number = 0
        for prefix, clamps in ((MORE, False), (TRUE, True)):
            lifted = {
                name: lift_bounds(policy, self.bounds[name], clamps=clamps) if name in self.bounds else policy
                for name, policy in self.in_force.items()
            }
            reading = read_true(self.written(), self.tools.analyse, terms_of(lifted), clamps=clamps)
            with np.errstate(divide="ignore", invalid="ignore"):  # errors are 0
                self.tools.drawing().draw_runs(reading.analysis, 1, self.scratch, prefix)
            number = rows_number(reading.analysis)
        return number

    def own_bounds(self) -> Mapping[str, TableBounds]:
        """Returns the bounds that the policies declare."""
        return {
            name: TableBounds(self.in_force[name].unit.max_rows, _ends_of(self.in_force[name])) for name in self.bounds
        }

    def other_bounds(self, analysis: Analysis) -> Sequence[Mapping[str, TableBounds]]:
        """Returns bounds that may do better: those that nearly all rows meet, and those that all rows meet.

        Clamps of columns that the statement does not add up stay as they are. MAX ROWS is at least the bound in the
        statement's OPTIONS, since a smaller MAX ROWS would be refused. Clamps are rounded outwards to two digits: a
        policy is public, and an exact end would show the value of a row.
        """
        written = analysis.request.rows.max_rows
        has_rows = written < min(self.in_force[name].unit.max_rows for name in self.bounds)
        least = max(ceil(analysis.request.question.treatment.norm or 1), written if has_rows else 1)
        aggregates = analysis.request.question.aggregates
        operands = "".join(aggregate.operand.sql for aggregate in aggregates if aggregate.operand is not None)
        nearly = {name: self.tools.bounds(self.in_force[name], self.facts[name], 0.99) for name in self.bounds}
        return [
            {
                name: replace(bounds, max_rows=max(bounds.max_rows, least), clamps={
                    column: _round_ends(bounds.clamps.get(column, own)) if quote_identifier(column) in operands else own
                    for column, own in _ends_of(self.in_force[name]).items()
                })
                for name, bounds in other.items()
            }
            for other in (nearly, self.bounds)
        ]  # fmt: skip

    def at(
        self, runs: int, epsilon: Fraction | None, changed: Mapping[str, TableBounds], rows_of: int,
        criteria: Sequence[Criterion] = (),
    ) -> Trial:  # fmt: skip
        """Draws the statement at a price, and returns its figures.

        changed: other bounds of tables. rows_of: the number of the aggregate that counts rows, from draw_truth.
        """
        if not 2 <= runs <= MOST_RUNS:
            raise Refusal("the number of runs is out of range", accepted=f"2 to {MOST_RUNS}")
        ((cells,),) = self.scratch.execute(f"SELECT count(*) FROM {TRUE}{CELLS}").fetchall()
        if cells * runs > MOST_CELLS:
            raise Refusal("so many runs of so many cells are too much at once", accepted="fewer runs, or fewer cells")
        for kind in (CELLS, SHOWN):
            self.scratch.execute(f"DROP TABLE IF EXISTS {NOISY}{kind}")
        policies = {
            name: lift_bounds(policy, changed[name]) if name in changed else policy
            for name, policy in self.in_force.items()
        }
        reading = self.make_runs(runs, epsilon, terms_of(policies) if changed else None, self.scratch)
        analysis = reading.analysis
        shown = {number: name for name, number in reversed(analysis.shown)}
        aggregates = enumerate(analysis.request.question.aggregates)
        named = [(number, shown.get(number, aggregate.text)) for number, aggregate in aggregates]
        answers = [line for number, name in named for line in answer_figures(self.scratch, number, name, rows_of)]
        rows = row_figures(self.scratch, reading.labels or self._texts(), analysis.outer)
        met = tuple((item, share_of_runs(self.scratch, item, named, rows_of)) for item in criteria)
        return Trial(epsilon, tuple(answers), rows, tuple(self._left_out(analysis)), met)

    def _texts(self) -> list[str]:
        """Lists the columns of the true answer without numbers: the labels of a SELECT around the annotated SELECT."""
        described = self.scratch.execute(f"DESCRIBE {TRUE}{SHOWN}").fetchall()
        return [fold(name) for name, type_name, *_ in described if not sql_type(type_name).is_numeric]

    def _left_out(self, analysis: Analysis) -> Iterator[tuple[str, float]]:
        """Yields the rows that no cell has, in per cent: values outside domains, NULLs, and rows of no unit."""
        keys = {fold(source.sql.rpartition(".")[2].strip('"')) for source in analysis.request.question.sources}
        for table, facts in self.facts.items():
            for finding, value, _, percent in facts:
                of_key = finding.startswith(("rows outside the domain of ", "rows with NULL in "))
                of_key = of_key and fold(finding.rpartition(" ")[2]) in keys
                if value and percent is not None and (of_key or finding.startswith("rows whose unit")):
                    yield f"{self.in_force[table].table.table}: {finding}", percent


def _round_ends(ends: tuple[float, float]) -> tuple[float, float]:
    return round_outwards(ends[0], -1), round_outwards(ends[1], 1)


def _ends_of(policy: Policy) -> dict[str, tuple[float, float]]:
    return {clamp.column: (float(clamp.low), float(clamp.high)) for clamp in policy.clamps}
