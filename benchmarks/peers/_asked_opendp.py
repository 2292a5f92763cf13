"""OpenDP 0.16 (opendp[polars,mbi]) on the questions of the table: python -m benchmarks.peers._asked_opendp FOLDER."""

from __future__ import annotations

import json
import sys
from fractions import Fraction
from pathlib import Path

import opendp.prelude as dp
import pandas as pd
import polars as pl

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
    SYNTHETIC,
    WARDS,
    asked_in_turn,
    block_error,
    counts_of,
    cube_error,
    error,
    range_error,
    ranges_of,
    tell,
    variation,
)

PARTS = "a statement for each grouping set, a quarter of the price each"


class Asked:
    """Contexts over the tables of a folder. Each context serves one release."""

    def __init__(self, folder: Path) -> None:
        self.table = pd.read_parquet(folder / "table.parquet")
        self.frame = pl.from_pandas(self.table).lazy()
        self.stays = pd.read_parquet(folder / "stays.parquet") if "charge" in self.table else None

    def context(self, keys: list[str], frame: pl.LazyFrame | None = None, unit: object = None, public: bool = True,
                parts: int = 1, rows: int = 0, **loss: float) -> dp.Context:  # fmt: skip
        margin = dp.polars.Margin(by=keys, max_length=rows or len(self.table),
                                  invariant="keys" if keys and public else None)  # fmt: skip
        return dp.Context.compositor(
            data=self.frame if frame is None else frame, privacy_unit=unit or dp.unit_of(contributions=1),
            privacy_loss=dp.loss_of(**(loss or {"epsilon": EPSILON})), split_evenly_over=parts, margins=[margin],
        )  # fmt: skip

    def counted(self, keys: list[str], context: dp.Context | None = None) -> dict[tuple[int, ...], float]:
        query = (context or self.context(keys)).query()
        if not keys:
            return {(): float(query.select(dp.len()).release().collect().item())}
        return answers(query.group_by(keys).agg(dp.len()), keys, "len")

    def cube(self) -> tuple[float, str]:
        found = {place: self.counted(keys, self.context(keys, epsilon=EPSILON / 4)) for place, keys in enumerate(SETS)}
        return cube_error(found, self.table), PARTS

    def summed(self, averages: bool) -> float:
        total = pl.col("charge").fill_null(0).dp.sum((0, CHARGES - 1))
        query = self.context(["sex"]).query().group_by("sex").agg(*([total, dp.len()] if averages else [total]))
        found = query.release().collect().to_pandas()
        by_sex = self.table.groupby("sex").charge
        if averages:
            return error({(row.sex,): row.charge / max(row.len, 1) for row in found.itertuples()}, by_sex.mean())
        return error({(row.sex,): row.charge for row in found.itertuples()}, by_sex.sum())

    def quartiles(self) -> float:
        of = pl.col("charge").fill_null(0).dp
        asked = [of.quantile(part, list(range(CHARGES))).alias(f"q{place}") for place, part in enumerate(QUARTERS)]
        found = self.context(["ward"]).query().group_by("ward").agg(*asked).release().collect().to_pandas()
        told = {(row.ward, place): row[place + 1] for row in found[["ward", "q0", "q1", "q2"]].itertuples(index=False)
                for place in range(3)}  # fmt: skip
        exact = self.table.groupby("ward").charge.quantile(list(QUARTERS))
        return error(told, {(ward, QUARTERS.index(part)): value for (ward, part), value in exact.items()})

    def several(self) -> float:
        frame = pl.from_pandas(self.stays).lazy()
        unit = dp.unit_of(contributions=1, identifier=pl.col("id"))
        query = self.context(["stay_ward"], frame, unit, rows=len(self.stays)).query().truncate_per_group(MOST)
        keys = pl.LazyFrame({"stay_ward": range(WARDS)}, schema={"stay_ward": pl.Int64})
        found = answers(query.group_by("stay_ward").agg(dp.len()).with_keys(keys), ["stay_ward"], "len")
        return error(found, self.stays.groupby("stay_ward").size())

    def unknown(self, keys: list[str]) -> dict[tuple[int, ...], float]:
        return self.counted(keys, self.context(keys, public=False, epsilon=EPSILON, delta=DELTA))

    def ranges(self) -> tuple[float, str]:
        """A tree of counts with branches of ten, its levels made consistent."""
        tree = (
            (dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance())
            >> dp.t.then_count_by_categories(categories=list(range(CHARGES - 1)))
            >> dp.t.then_b_ary_tree(leaf_count=CHARGES, branching_factor=10)
        )
        noisy = dp.binary_search_chain(lambda scale: tree >> dp.m.then_laplace(scale), d_in=1, d_out=EPSILON)
        consistent = dp.t.make_consistent_b_ary_tree(branching_factor=10)
        bins = consistent(noisy(self.table["charge"].tolist()))[:CHARGES]
        found = ranges_of({(place,): value for place, value in enumerate(bins)})
        return range_error(found, self.table), "a tree of counts, by its library"

    def synthetic(self, rho: float) -> tuple[float, str]:
        """Makes rows by AIM. rho: equal to (epsilon, delta), since AIM wants no delta where keys are public."""
        keys = {name: list(range(SIZES[name])) for name in SYNTHETIC}
        context = dp.Context.compositor(data=self.frame.select(SYNTHETIC), privacy_unit=dp.unit_of(contributions=1),
                                        privacy_loss=dp.loss_of(rho=rho))  # fmt: skip
        query = context.query(rho=rho).select(*SYNTHETIC)
        made = query.contingency_table(keys=keys, algorithm=dp.mbi.AIM()).release()
        rows = made.synthesize(rows=len(self.table)).to_pandas()
        return variation(rows.fillna(0), self.table), "AIM"


def answers(query: object, keys: list[str], name: str) -> dict[tuple[int, ...], float]:
    found = query.release().collect().to_pandas()
    return {tuple(row[:-1]): float(row[-1]) for row in found[[*keys, name]].to_numpy().tolist()}


def rho_of(folder: Path) -> float:
    return float(Fraction(json.loads((folder / "statements.json").read_text())["rho"]))


def in_turn(asked: Asked, folder: Path) -> tuple[float, str]:
    context = asked.context([], parts=STATEMENTS, rho=rho_of(folder))

    def ask(condition: list[int]) -> float:
        s, t, w, v, a, b = condition
        chosen = (pl.col("sex") >= s) & (pl.col("sex") <= t) & (pl.col("ward") >= w) & (pl.col("ward") <= v)
        chosen = chosen & (pl.col("age") >= a) & (pl.col("age") <= b)
        return float(context.query().filter(chosen).select(dp.len()).release().collect().item())

    return asked_in_turn(ask, folder, asked.table)


def main() -> None:
    """Asks everything of one folder."""
    dp.enable_features("contrib")
    folder = Path(sys.argv[1])
    asked = Asked(folder)
    table = asked.table
    for name, keys in KEYS.items():
        exact = counts_of(table, keys)
        tell(name, lambda keys=keys, exact=exact: error(asked.counted(keys), exact))
    if asked.stays is not None:
        tell("cube", asked.cube)
        tell("sums", lambda: asked.summed(False))
        tell("averages", lambda: asked.summed(True))
        tell("quartiles", asked.quartiles)
        tell("free texts", lambda: error(asked.unknown(["word"]), table.groupby("word").size()))
        tell("several rows", asked.several)
        tell("join", lambda: "a context is over one table: joined before, by whoever has the rows")
        tell("ranges", asked.ranges)
        pairs = ["home", "work"]
        tell("pairs", lambda: error(asked.unknown(pairs), table.groupby(pairs).size(), others=True))
        tell("pairs, added up", lambda: block_error(asked.unknown(pairs), table))
        tell("synthetic rows", lambda: asked.synthetic(rho_of(folder)))
    tell("1,000 statements", lambda: in_turn(asked, folder))
    tell("1,000 statements, known", lambda: "nothing answers from what was released: cells are added up by hand")


main()
