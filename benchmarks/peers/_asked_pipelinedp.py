"""PipelineDP 0.3 (local) on the questions of the table: python -m benchmarks.peers._asked_pipelinedp table.parquet."""

from __future__ import annotations

import sys
from itertools import product

import pandas as pd
import pipeline_dp as pdp

from benchmarks.peers._asked_data import BINS, DELTA, EPSILON, KEYS, WARDS, error, tell

SIZES = {"sex": 2, "ward": WARDS, "age": BINS}


def main() -> None:
    """Asks everything of one table."""
    table = pd.read_parquet(sys.argv[1])
    rows = list(table.itertuples(index=False))

    def asked(keys: list[str], metric: pdp.Metrics, public: bool, high: float = 1) -> dict[tuple[int, ...], float]:
        budget = pdp.NaiveBudgetAccountant(total_epsilon=EPSILON, total_delta=DELTA)
        engine = pdp.DPEngine(budget, pdp.LocalBackend())
        extract = pdp.DataExtractors(
            privacy_id_extractor=lambda row: row.id,
            partition_extractor=lambda row: tuple(getattr(row, key) for key in keys),
            value_extractor=lambda row: row.charge,
        )
        given = pdp.AggregateParams(
            metrics=[metric], noise_kind=pdp.NoiseKind.LAPLACE, max_partitions_contributed=1,
            max_contributions_per_partition=1, min_value=0, max_value=high,
        )  # fmt: skip
        cells = list(product(*(range(SIZES[key]) for key in keys))) if public else None
        found = engine.aggregate(rows, given, extract, public_partitions=cells)
        budget.compute_budgets()
        return {key: float(value[0]) for key, value in found}

    def counted(keys: list[str], public: bool = True) -> float:
        found = asked(keys, pdp.Metrics.COUNT, public)
        if not keys:
            return abs(found[()] - len(table))
        return error(found, table.groupby(keys).size())

    for name, keys in KEYS.items():
        tell(name, lambda keys=keys: counted(keys))
    tell("cube", lambda: "no grouping sets: each is an aggregation of its own, with a part of the price")
    tell("sums", lambda: error(asked(["sex"], pdp.Metrics.SUM, True, 100), table.groupby("sex").charge.sum()))
    tell("median", lambda: abs(asked([], pdp.Metrics.PERCENTILE(50), True, 100)[()] - float(table.charge.median())))
    tell("free texts", lambda: counted(["word"], False))


main()
