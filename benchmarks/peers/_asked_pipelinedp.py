"""PipelineDP 0.3 (local) on the questions of the table: python -m benchmarks.peers._asked_pipelinedp FOLDER."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pandas as pd
import pipeline_dp as pdp

from benchmarks.peers._asked_data import (
    CHARGES,
    DELTA,
    EPSILON,
    KEYS,
    MOST,
    QUARTERS,
    SETS,
    SIZES,
    STATEMENTS,
    WARDS,
    asked_in_turn,
    block_error,
    counts_of,
    cube_error,
    error,
    range_error,
    ranges_of,
    tell,
)

PARTS = "an aggregation for each grouping set, a quarter of the price each"
WIDTHS = {**SIZES, "stay_ward": WARDS}


class Asked:
    """The tables of a folder as rows of Python."""

    def __init__(self, folder: Path) -> None:
        self.table = pd.read_parquet(folder / "table.parquet")
        self.rows = list(self.table.itertuples(index=False))
        if "charge" in self.table:
            self.stays = pd.read_parquet(folder / "stays.parquet")

    def answered(self, keys: list[str], metrics: Sequence[object] = (pdp.Metrics.COUNT,), public: bool = True,
                 rows: Sequence[object] | None = None, whole: float = EPSILON, **bounds: object) -> dict:  # fmt: skip
        """Asks for the whole price."""
        budget = pdp.NaiveBudgetAccountant(total_epsilon=whole, total_delta=DELTA)
        found = self.lazily(budget, keys, metrics, public, rows, **bounds)
        budget.compute_budgets()
        return {tuple(key): value for key, value in found}

    def lazily(self, budget: object, keys: list[str], metrics: Sequence[object], public: bool,
               rows: Sequence[object] | None, **bounds: object) -> object:  # fmt: skip
        extract = pdp.DataExtractors(
            privacy_id_extractor=lambda row: row.id,
            partition_extractor=lambda row: tuple(getattr(row, key) for key in keys),
            value_extractor=lambda row: getattr(row, "charge", 0),
        )
        sparse = bounds or {"max_partitions_contributed": 1, "max_contributions_per_partition": 1}
        valued = {} if list(metrics) == [pdp.Metrics.COUNT] else {"min_value": 0, "max_value": CHARGES - 1}
        given = pdp.AggregateParams(metrics=list(metrics), noise_kind=pdp.NoiseKind.LAPLACE, **sparse, **valued)
        cells = list(product(*(range(WIDTHS[key]) for key in keys))) if public else None
        rows = self.rows if rows is None else rows
        return pdp.DPEngine(budget, pdp.LocalBackend()).aggregate(rows, given, extract, public_partitions=cells)

    def one(self, keys: list[str], metric: object = pdp.Metrics.COUNT, **more: object) -> dict:
        return {key: float(value[0]) for key, value in self.answered(keys, (metric,), **more).items()}

    def cube(self) -> tuple[float, str]:
        found = {place: self.one(keys, whole=EPSILON / 4) for place, keys in enumerate(SETS)}
        return cube_error(found, self.table), PARTS

    def quartiles(self) -> float:
        asked = self.answered(["ward"], [pdp.Metrics.PERCENTILE(int(100 * part)) for part in QUARTERS])
        found = {(*key, place): float(value[place]) for key, value in asked.items() for place in range(3)}
        exact = self.table.groupby("ward").charge.quantile(list(QUARTERS))
        return error(found, {(ward, QUARTERS.index(part)): value for (ward, part), value in exact.items()})

    def several(self) -> float:
        rows = list(self.stays.itertuples(index=False))
        found = self.one(["stay_ward"], rows=rows, max_contributions=MOST)
        return error(found, self.stays.groupby("stay_ward").size())


def in_turn(asked: Asked, folder: Path) -> tuple[float, str]:
    """Its accountant adds epsilons up, so that each statement has a thousandth."""

    def ask(condition: list[int]) -> float:
        s, t, w, v, a, b = condition
        rows = [row for row in asked.rows if s <= row.sex <= t and w <= row.ward <= v and a <= row.age <= b]
        budget = pdp.NaiveBudgetAccountant(EPSILON / STATEMENTS, DELTA / STATEMENTS)
        found = asked.lazily(budget, [], (pdp.Metrics.COUNT,), True, rows)
        budget.compute_budgets()
        return float(next(iter(found))[1][0])

    return asked_in_turn(ask, folder, asked.table)


def main() -> None:
    """Asks everything of one folder."""
    folder = Path(sys.argv[1])
    asked = Asked(folder)
    table = asked.table
    by_sex = table.groupby("sex")
    for name, keys in KEYS.items():
        exact = counts_of(table, keys)
        tell(name, lambda keys=keys, exact=exact: error(asked.one(keys), exact))
    if "charge" in table:
        tell("cube", asked.cube)
        tell("sums", lambda: error(asked.one(["sex"], pdp.Metrics.SUM), by_sex.charge.sum()))
        tell("averages", lambda: error(asked.one(["sex"], pdp.Metrics.MEAN), by_sex.charge.mean()))
        tell("quartiles", asked.quartiles)
        tell("free texts", lambda: error(asked.one(["word"], public=False), table.groupby("word").size()))
        tell("several rows", asked.several)
        tell("join", lambda: "no joins: joined before, by whoever has the rows")
        tell("ranges", lambda: (range_error(ranges_of(asked.one(["charge"])), table), "bins, added up"))
        pairs = ["home", "work"]
        tell("pairs", lambda: error(asked.one(pairs, public=False), table.groupby(pairs).size(), others=True))
        tell("pairs, added up", lambda: block_error(asked.one(pairs, public=False), table))
        tell("synthetic rows", lambda: "it makes none")
    tell("1,000 statements", lambda: in_turn(asked, folder))
    tell("1,000 statements, known", lambda: "nothing answers from what was released: cells are added up by hand")


main()
