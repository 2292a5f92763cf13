"""Tools that trials share: the database's parts, the analysis of a statement under other terms, and exact bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, log10

import duckdb

from dpduck.kernel.ledger.ledger import Ledger
from dpduck.kernel.worker.workers import Workers
from dpduck.language.rows.facts import Policy, RequestRows
from dpduck.language.select.analyse import Analysis, analyse
from dpduck.language.statements.kinds import AskStatement, CreatePrivate
from dpduck.language.text.names import TableName
from dpduck.mechanisms.cubes.public_totals import with_tables
from dpduck.mechanisms.registry import own_options
from dpduck.mechanisms.release import PlaceOf
from dpduck.mechanisms.streams.plan import StreamRequest, analyse_stream
from dpduck.store.catalog import Catalog
from dpduck.store.cursors import OpenCursor, SandboxAnswers
from dpduck.store.policies import PolicyStore
from dpduck.store.sandbox import Sandbox
from dpduck.store.terms import PolicyTerms
from dpduck.trial.draws import Drawing
from dpduck.trial.readings import TableBounds
from dpduck.values.quoting import quote_identifier

Finding = tuple[str, float | None, str, float | None]
"""Exact fact of dp_check: its name, its value, advice, and its share of all rows in per cent."""


@dataclass(frozen=True)
class TrialTools:
    """Parts of a database. facts_of: returns the exact facts of a table (dp_check)."""

    open_cursor: OpenCursor
    policies: PolicyStore
    ledger: Ledger
    workers: Workers
    place_of: PlaceOf
    answered: SandboxAnswers
    facts_of: Callable[[TableName], Sequence[Finding]]

    def analyse(self, ask: AskStatement, terms: PolicyTerms | None) -> Analysis:
        """Analyses a statement as a release would. terms: other terms of the policies, which are in force nowhere."""
        with Sandbox(self.answered) as box, self.open_cursor() as cursor:
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            catalog = Catalog(cursor, self.policies, box, None, None, terms)
            return with_tables(analyse(ask, catalog, own_options()), catalog)

    def analyse_stream(self, statement: CreatePrivate, terms: PolicyTerms | None) -> StreamRequest:
        """Analyses a stream as its creation would."""
        with Sandbox(self.answered) as box, self.open_cursor() as cursor:
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            return analyse_stream(statement, Catalog(cursor, self.policies, box, None, None, terms))

    def drawing(self) -> Drawing:
        """Returns the tools for draws."""
        return Drawing(
            self.open_cursor, self.ledger, self.workers, self.place_of, self.answered, self._require_unchanged
        )

    def bounds(self, policy: Policy, facts: Sequence[Finding], part: float) -> TableBounds:
        """Returns the exact bounds that a part of the units and rows of a table meet, 1 or 0.99."""
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
                    ends[clamp.column] = row
        return TableBounds(max(policy.unit.max_rows, int(rows)) if part == 1 else int(rows), ends)

    def _require_unchanged(self, rows: RequestRows, cursor: duckdb.DuckDBPyConnection) -> None:
        Catalog(cursor, self.policies).require_unchanged(rows)


def round_outwards(end: float, side: int) -> float:
    """Rounds the lower (side = -1) or upper (side = 1) end of a range outwards to two digits.

    >>> round_outwards(101.22, -1), round_outwards(17653.4, 1), round_outwards(-101.22, -1), round_outwards(0, 1)
    (100.0, 18000.0, -110.0, 0.0)
    """
    if not end:
        return 0.0
    distance = Fraction(abs(end))
    unit = Fraction(10) ** (floor(log10(distance)) - 1)
    return float((floor if side * end < 0 else ceil)(distance / unit) * unit) * (1 if end > 0 else -1)
