"""OpenDP 0.16 (opendp[polars]) on the questions: python -m benchmarks.peers._asked_opendp table.parquet."""

from __future__ import annotations

import sys

import opendp.prelude as dp
import pandas as pd
import polars as pl

from benchmarks.peers._asked_data import BINS, DELTA, EPSILON, KEYS, WARDS, error, tell

SIZES = {"sex": 2, "ward": WARDS, "age": BINS}


def main() -> None:
    """Asks everything of one table."""
    dp.enable_features("contrib")
    table = pd.read_parquet(sys.argv[1])
    frame = pl.from_pandas(table).lazy()

    def context(keys: list[str]) -> dp.Context:
        margins = [dp.polars.Margin(by=keys, max_length=len(table), invariant="keys" if keys else None)]
        if not keys:
            margins = [dp.polars.Margin(by=[], max_length=len(table))]
        return dp.Context.compositor(
            data=frame, privacy_unit=dp.unit_of(contributions=1), privacy_loss=dp.loss_of(epsilon=EPSILON),
            split_evenly_over=1, margins=margins,
        )  # fmt: skip

    def counted(keys: list[str]) -> float:
        query = context(keys).query()
        if not keys:
            found = query.select(dp.len()).release().collect()
            return abs(float(found.item()) - len(table))
        found = query.group_by(keys).agg(dp.len()).release().collect().to_pandas()
        return error({tuple(row[:-1]): row[-1] for row in found[[*keys, "len"]].to_numpy().tolist()},
                     table.groupby(keys).size())  # fmt: skip

    def summed() -> float:
        query = context(["sex"]).query().group_by("sex")
        found = query.agg(pl.col("charge").fill_null(0).dp.sum((0, 100))).release().collect().to_pandas()
        return error({(row[0],): row[1] for row in found.to_numpy().tolist()}, table.groupby("sex").charge.sum())

    def median() -> float:
        query = context([]).query().select(pl.col("charge").fill_null(0).dp.median(list(range(101))))
        return abs(float(query.release().collect().item()) - float(table.charge.median()))

    def words() -> float:
        made = dp.Context.compositor(
            data=frame, privacy_unit=dp.unit_of(contributions=1), privacy_loss=dp.loss_of(epsilon=EPSILON, delta=DELTA),
            split_evenly_over=1, margins=[dp.polars.Margin(by=["word"], max_length=len(table))],
        )  # fmt: skip
        found = made.query().group_by("word").agg(dp.len()).release().collect().to_pandas()
        return error({(row[0],): row[1] for row in found[["word", "len"]].to_numpy().tolist()},
                     table.groupby("word").size())  # fmt: skip

    for name, keys in KEYS.items():
        tell(name, lambda keys=keys: counted(keys))
    tell("cube", lambda: "no CUBE in Polars: each grouping set is a query of its own, with a part of the price")
    tell("sums", summed)
    tell("median", median)
    tell("free texts", words)


main()
