"""Weaknesses that are planted in the product, each with a statement by which the auditor must find it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import dpduck
from dpduck.auditor.neighbours import CROWDED, SPREAD, UNITS
from dpduck.database import database
from dpduck.kernel import door as of_door
from dpduck.kernel.ledger.ledger import Ledger
from dpduck.kernel.noise import draw as drawing
from dpduck.kernel.queries import histograms, keys, projections, sketches
from dpduck.kernel.queries import quantiles as of_quantiles
from dpduck.kernel.queries import summaries as of_summaries
from dpduck.kernel.queries import tables as of_tables
from dpduck.kernel.rows import reader
from dpduck.mechanisms.cubes import measure as of_cubes
from dpduck.values.errors import InternalError, Refusal
from dpduck.values.privacy import Charge

cube_measure: Any = of_cubes
door: Any = of_door
quantiles: Any = of_quantiles
summaries: Any = of_summaries
tables: Any = of_tables
"""Modules whose own names are replaced."""


def shop(budget: str = "epsilon = 10, delta = 1e-3, delta_keys = 5e-4", unit: str = "patient MAX ROWS 4") -> Any:
    """A connection with visits of patients to wards: keys, a CLAMP, free texts, a public table."""
    con = dpduck.connect()
    con.execute("CREATE TABLE wards AS SELECT 'w' || range AS name FROM range(4)")
    con.execute(
        "CREATE TABLE visits AS SELECT i // 4 AS patient, i % 2 AS sex, (i * 7) % 100 AS age, 'w' || (i % 4) AS ward, "
        "(i * 13) % 1000 / 10.0 AS charge, 'k' || (i % 17) AS drug FROM range(400) r(i)"
    )
    con.execute("FROM dp('DECLARE PUBLIC TABLE wards')").fetchall()
    con.execute(
        "FROM dp(?)",
        [
            f"CREATE PRIVACY POLICY ON visits (PRIVACY UNIT {unit}, BUDGET ({budget}), DOMAIN sex IN (0, 1), DOMAIN "
            "age RANGE 0 TO 100 STEP 25, DOMAIN ward FROM wards.name, CLAMP charge BETWEEN 0 AND 100 STEP 0.1)"
        ],
    ).fetchall()
    return con


@dataclass(frozen=True)
class Planted:
    """A weakness: its patch, the statement, the neighbours that show it, and the number of runs.

    runs: at least twice as many as every trial needed. A busy machine makes runs longer, not more.
    """

    name: str
    plant: Callable[[pytest.MonkeyPatch], None]
    statement: str
    kind: str = CROWDED
    runs: int = 100
    quick: bool = False


ROWS = 4 * UNITS
"""Of a made-up table before a unit is added."""

SELECT = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, refresh = '{tag}')"
COUNT = f"{SELECT} sex, count(*) AS n FROM visits GROUP BY sex"
SUM = f"{SELECT} sex, sum(charge) AS a FROM visits GROUP BY sex"
MEDIAN = SUM.replace("sum", "median").replace("refresh", "quantiles = 'choice', refresh")
BY_TWO = f"{SELECT} age, ward, count(*) AS n FROM visits GROUP BY age, ward"
GAUSSIAN = COUNT.replace("epsilon = 1", "rho = 0.5")
KEYS = (
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-7, group_selection_strategy = "
    "LAPLACE_THRESHOLD, max_groups_contributed = 1, refresh = '{tag}') drug, count(DISTINCT patient) AS n FROM visits "
    "GROUP BY drug"
)
SKETCH = COUNT.replace("refresh", "summary = 'sketch', sketch_rows = 3, refresh")
SUMMARY = COUNT.replace("refresh", "summary = 'filter', refresh")
SPARSE = "OPTIONS (epsilon = 1, sparsity = 1, queries = 10"


def narrower(module: Any, by: Fraction) -> Callable[[pytest.MonkeyPatch], None]:
    """Noise of a smaller parameter where a module draws it."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        right = module.draw
        patch.setattr(module, "draw", lambda noise, count, entropy: right(
            replace(noise, parameter=noise.parameter * by), count, entropy))  # fmt: skip

    return plant


def without_noise(module: Any) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(module, "draw", lambda noise, count, entropy: np.zeros(count, np.int64))


def law(name: str, by: Fraction) -> Callable[[pytest.MonkeyPatch], None]:
    """A sampler of a smaller parameter, wherever noise is drawn."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        right = getattr(drawing, name)
        patch.setattr(drawing, name, lambda parameter, count, entropy: right(parameter * by, count, entropy))

    return plant


def counted(change: Callable[[Any, Any], Any]) -> Callable[[pytest.MonkeyPatch], None]:
    """Exact counts are changed after they are counted. change: of the job and the counts."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        right = door.count_exactly
        patch.setattr(door, "count_exactly", lambda cursor, job, *rest: change(job, right(cursor, job, *rest)))

    return plant


def job_of(change: Callable[[Any], Any]) -> Callable[[pytest.MonkeyPatch], None]:
    """Counts another job than the priced one, and reports the priced bounds."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        right = door.count_exactly

        def count(cursor: Any, job: Any, *rest: Any) -> Any:
            counts = right(cursor, change(job), *rest)
            counts._unit_bounds = tuple(
                bound for one, bound in zip(job.aggregates, job.unit_bounds, strict=True) for _ in range(one.tables)
            )
            return counts

        patch.setattr(door, "count_exactly", count)

    return plant


def _twice(job: Any, counts: Any) -> Any:
    counts._exact_counts = counts._exact_counts * 2
    return counts


def _wider(job: Any) -> Any:
    wide = tuple(
        replace(one, high=one.high * 5, steps=one.steps * 5) if one.form == "sum" else one for one in job.aggregates
    )
    return replace(job, aggregates=wide)


def _thrice(job: Any) -> Any:
    return replace(job, max_rows=3 * job.max_rows)


def _total(counts: Any) -> int:
    return int(counts._exact_counts[0].sum())


def _fails_by_a_row(job: Any, counts: Any) -> Any:
    if _total(counts) > ROWS:
        raise InternalError("more rows than there may be")
    return counts


def _told_in_messages(patch: pytest.MonkeyPatch) -> None:
    """A refusal quotes how many rows a table has."""

    def analyse(statement: Any, catalog: Any, options: Any) -> Any:
        rows = catalog._cursor.execute("SELECT count(*) FROM memory.main.visits").fetchall()[0][0]
        raise Refusal(f"none of {rows} rows has that", accepted="a column")

    patch.setattr(database, "analyse", analyse)


def _shape_by_rows(patch: pytest.MonkeyPatch) -> None:
    """A cell is left out where there are many rows."""
    known = [0]

    def note(job: Any, counts: Any) -> Any:
        known[0] = _total(counts)
        return counts

    counted(note)(patch)
    right = cube_measure.release_rows
    patch.setattr(cube_measure, "release_rows", lambda *given: right(*given).slice(int(known[0] > ROWS)))


def _priced_by_rows(patch: pytest.MonkeyPatch) -> None:
    """The ledger is charged more where there are more rows."""
    right, begin, known = Ledger.charge, reader.begin, [0]

    def begun(cursor: Any) -> None:
        known[0] = cursor.execute("SELECT count(*) FROM memory.main.visits").fetchall()[0][0]
        begin(cursor)

    def charge(self: Ledger, unit_key: str, table: str, amount: Charge, *rest: Any, **more: Any) -> int:
        epsilon = None if amount.epsilon is None else amount.epsilon * (1 + Fraction(known[0], 10**5))
        return right(self, unit_key, table, replace(amount, epsilon=epsilon), *rest, **more)

    patch.setattr(reader, "begin", begun)
    patch.setattr(Ledger, "charge", charge)


def _half_charged(patch: pytest.MonkeyPatch) -> None:
    right = Ledger.charge

    def charge(self: Ledger, unit_key: str, table: str, amount: Charge, *rest: Any, **more: Any) -> int:
        half = None if amount.epsilon is None else amount.epsilon / 2
        return right(self, unit_key, table, replace(amount, epsilon=half, rho=amount.rho / 4), *rest, **more)

    patch.setattr(Ledger, "charge", charge)


def _used_again(patch: pytest.MonkeyPatch) -> None:
    """Noise of a law and a length is drawn once, and used in every release."""
    right, kept = tables.draw, dict[tuple[Any, int], Any]()

    def draw(noise: Any, count: int, entropy: Any) -> Any:
        if (noise, count) not in kept:
            kept[noise, count] = right(noise, count, entropy)
        return kept[noise, count].copy()

    patch.setattr(tables, "draw", draw)


def _one_for_all_cells(patch: pytest.MonkeyPatch) -> None:
    right = tables.draw
    patch.setattr(tables, "draw", lambda noise, count, entropy: np.repeat(right(noise, 1, entropy), count))


def _even(patch: pytest.MonkeyPatch) -> None:
    """Noise of twice the steps at half the scale: as wide as it should be, and always even."""
    right = tables.draw
    patch.setattr(tables, "draw", lambda noise, count, entropy: 2 * right(
        replace(noise, parameter=noise.parameter / 2), count, entropy))  # fmt: skip


def _drawn_until_enough(patch: pytest.MonkeyPatch) -> None:
    """Fresh draws until a summary has as many cells as there are."""
    right = summaries.draw_summary

    def draw(*given: Any) -> Any:
        while True:
            found = right(*given)
            if len(found.counts) == 2 and abs(int(found.counts.sum()) - int(given[0]._occupied_counts.sum())) < 4:
                return found

    patch.setattr(summaries, "draw_summary", draw)


def _certain_choice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(quantiles, "exponential_choice", lambda scores, rate, entropy: int(np.argmax(scores)))


def _exact_total(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tables.Total, "draw", lambda query, counts, ask, entropy, chosen: int(counts._exact_counts.sum()))


PLANTED = (
    Planted("Laplace noise at two thirds", law("discrete_laplace", Fraction(2, 3)), COUNT, runs=20_000),
    Planted("Gaussian noise at two thirds", law("discrete_gaussian", Fraction(4, 9)), GAUSSIAN, runs=40_000),
    Planted("a unit counted twice", counted(_twice), COUNT, runs=8_000),
    Planted("MAX ROWS left out", job_of(_thrice), COUNT, runs=3_000, quick=True),
    Planted("a failure by a row", counted(_fails_by_a_row), COUNT, quick=True),
    Planted("a figure in a refusal", _told_in_messages, COUNT.replace("sex, ", "nothing_has, "), quick=True),
    Planted("a shape by rows", _shape_by_rows, COUNT, quick=True),
    Planted("a price by rows", _priced_by_rows, COUNT, quick=True),
    Planted("half of the price charged", _half_charged, COUNT, quick=True),
    Planted("noise used again", _used_again, COUNT, runs=1_000, quick=True),
    Planted("one noise for all cells", _one_for_all_cells, COUNT, runs=1_000, quick=True),
    Planted("noise that is even", _even, BY_TWO, SPREAD, 1_000),
    Planted("sums with the noise of a fifth", narrower(tables, Fraction(1, 5)), SUM, runs=3_000),
    Planted("CLAMP left out", job_of(_wider), SUM, runs=1_000),
    Planted("keys selected and counted without noise", without_noise(keys), KEYS, SPREAD, 500),
    Planted("a threshold with a tenth of its noise", narrower(keys, Fraction(1, 10)), KEYS, SPREAD, 500),
    Planted("summaries drawn until they fit", _drawn_until_enough, SUMMARY, runs=2_000),
    Planted("a sketch with the noise of one row", narrower(sketches, Fraction(1, 6)), SKETCH, runs=2_000),
    Planted("a histogram without noise", without_noise(histograms),
            f"CREATE PRIVATE HISTOGRAM audited_{{tag}} {SPARSE}) ON visits (drug)", runs=500),
    Planted("a projection with a hundredth of its noise", narrower(projections, Fraction(1, 100)),
            f"CREATE PRIVATE PROJECTION audited_{{tag}} {SPARSE}, rows = 64) AS SELECT drug FROM visits", runs=2_000),
    Planted("a median without chance", _certain_choice, MEDIAN, runs=6_000),
    Planted("a session with an exact total", _exact_total,
            f"CREATE PRIVATE SESSION audited_{{tag}} {SPARSE}) ON visits (drug)", runs=2_000),
)  # fmt: skip
