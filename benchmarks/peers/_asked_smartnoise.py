"""SmartNoise SQL 1.0 on the questions of the table: python -m benchmarks.peers._asked_smartnoise FOLDER."""

from __future__ import annotations

import sqlite3
import sys
import warnings
from pathlib import Path

import pandas as pd
from snsql import Privacy, from_connection
from snsql.sql.odometer import OdometerHeterogeneous

from benchmarks.peers._asked_data import (
    CHARGES,
    DELTA,
    EPSILON,
    KEYS,
    MOST,
    SETS,
    STATEMENTS,
    asked_in_turn,
    block_error,
    counts_of,
    cube_error,
    error,
    range_error,
    ranges_of,
    tell,
)

PARTS = "a statement for each grouping set, a quarter of the price each"
COLUMNS = ("sex", "age", "ward", "charge", "word", "home", "work", "stay_ward")


def metadata(table: pd.DataFrame, most: int, censor: bool) -> dict[str, object]:
    """Returns SmartNoise's YAML of a table. censor: groups of few people are left out, since keys are not public."""
    high = {"charge": CHARGES - 1}
    columns = {name: {"type": "int", "lower": 0, "upper": high.get(name, 1000)} for name in COLUMNS if name in table}
    return {"row_privacy": False, "max_ids": most, "sample_max_ids": most > 1, "censor_dims": censor,
            "rows": len(table), "id": {"type": "int", "private_id": True}, **columns}  # fmt: skip


class Asked:
    """The tables of a folder, in SQLite in memory, which is where it reads most directly."""

    def __init__(self, folder: Path) -> None:
        self.table, self.con = pd.read_parquet(folder / "table.parquet"), sqlite3.connect(":memory:")
        self.tables = {"visits": (self.table, 1)}
        if "charge" in self.table:
            self.stays = pd.read_parquet(folder / "stays.parquet")
            self.tables["stays"] = (self.stays, MOST)
        for name, (frame, _) in self.tables.items():
            frame.to_sql(name, self.con, index=False)

    def rows(self, sql: str, whole: float = EPSILON, public: bool = True) -> list[tuple[float, ...]]:
        """Asks at a price for which SmartNoise's odometer reports the whole, over all columns of the statement."""
        given = {name: metadata(frame, most, not public) for name, (frame, most) in self.tables.items()}

        def reader(epsilon: float) -> object:
            privacy = Privacy(epsilon=epsilon, delta=DELTA)
            return from_connection(self.con, privacy=privacy, metadata={"": {"": given}}, engine="sqlite")

        spent, _ = reader(whole).get_privacy_cost(sql)
        return [tuple(row) for row in reader(whole * whole / spent).execute(sql)[1:]]

    def answered(self, keys: list[str], what: str = "COUNT(*)", tail: str = "visits", **more: object) -> dict:
        listed, by = "".join(f"{key}, " for key in keys), f" GROUP BY {', '.join(keys)}" if keys else ""
        rows = self.rows(f"SELECT {listed}{what} AS a FROM {tail}{by}", **more)
        return {tuple(int(key) for key in row[:-1]): float(row[-1] or 0) for row in rows}

    def cube(self) -> tuple[float, str]:
        found = {place: self.answered(keys, whole=EPSILON / 4) for place, keys in enumerate(SETS)}
        return cube_error(found, self.table), PARTS


def in_turn(asked: Asked, folder: Path) -> tuple[float, str]:
    """Pays for each so that its odometer has the whole after all, as near below as halving finds."""
    low, high = EPSILON / STATEMENTS, EPSILON
    for _ in range(12):
        middle = (low * high) ** 0.5
        odometer = OdometerHeterogeneous(Privacy(epsilon=middle, delta=DELTA))
        for _ in range(STATEMENTS):
            odometer.spend(Privacy(epsilon=middle, delta=0.0))
        low, high = (middle, high) if odometer.spent[0] <= EPSILON else (low, middle)
    given = {name: metadata(frame, most, False) for name, (frame, most) in asked.tables.items()}
    privacy = Privacy(epsilon=low, delta=DELTA)
    one = from_connection(asked.con, privacy=privacy, metadata={"": {"": given}}, engine="sqlite")
    sql = "SELECT COUNT(*) AS a FROM visits"

    def ask(condition: list[int]) -> float:
        s, t, w, v, a, b = condition
        where = f"sex >= {s} AND sex <= {t} AND ward >= {w} AND ward <= {v} AND age >= {a} AND age <= {b}"
        return float(one.execute(f"{sql} WHERE {where}")[1][0])

    found, note = asked_in_turn(ask, folder, asked.table)
    return found, f"{note} at epsilon {low:.2g} each".strip()


def main() -> None:
    """Asks everything of one folder."""
    warnings.simplefilter("ignore")
    folder = Path(sys.argv[1])
    asked = Asked(folder)
    table = asked.table
    by_sex = table.groupby("sex")
    for name, keys in KEYS.items():
        exact = counts_of(table, keys)
        tell(name, lambda keys=keys, exact=exact: error(asked.answered(keys), exact))
    if "charge" in table:
        joined = asked.stays.merge(table, on="id")
        tell("cube", asked.cube)
        tell("sums", lambda: error(asked.answered(["sex"], "SUM(charge)"), by_sex.charge.sum()))
        tell("averages", lambda: error(asked.answered(["sex"], "AVG(charge)"), by_sex.charge.mean()))
        tell("quartiles", lambda: float(asked.rows("SELECT MEDIAN(charge) AS m FROM visits")[0][0]))
        tell("free texts", lambda: error(asked.answered(["word"], public=False), table.groupby("word").size()))
        tell("several rows", lambda: error(asked.answered(["stay_ward"], tail="stays"),
                                           asked.stays.groupby("stay_ward").size()))  # fmt: skip
        tell("join", lambda: error(
            asked.answered(["sex", "stay_ward"], tail="stays JOIN visits ON stays.id = visits.id"),
            joined.groupby(["sex", "stay_ward"]).size()))  # fmt: skip
        tell("ranges", lambda: (range_error(ranges_of(asked.answered(["charge"])), table), "bins, added up"))
        pairs = ["home", "work"]
        tell("pairs", lambda: error(asked.answered(pairs, public=False), table.groupby(pairs).size(), others=True))
        tell("pairs, added up", lambda: block_error(asked.answered(pairs, public=False), table))
        tell("synthetic rows", lambda: "smartnoise-synth is another package: benchmarks/peers/synthetic.py")
    tell("1,000 statements", lambda: in_turn(asked, folder))
    tell("1,000 statements, known", lambda: "nothing answers from what was released: cells are added up by hand")


main()
