"""SmartNoise SQL 1.0 on the questions of the table: python -m benchmarks.peers._asked_smartnoise table.parquet."""

from __future__ import annotations

import sys
import warnings

import pandas as pd
from snsql import Privacy, from_df

from benchmarks.peers._asked_data import DELTA, EPSILON, KEYS, error, tell


def main() -> None:
    """Asks everything of one table. Its Privacy is the price of each column of a question, not of the question."""
    warnings.simplefilter("ignore")
    table = pd.read_parquet(sys.argv[1])
    whole = {name: {"type": "int", "lower": 0, "upper": 100} for name in ("sex", "age", "ward", "charge", "word")}
    meta = {"": {"public": {"visits": {"row_privacy": False, "max_ids": 1, "rows": len(table),
                                       "id": {"type": "int", "private_id": True}, **whole}}}}  # fmt: skip

    def asked(sql: str) -> list[tuple[float, ...]]:
        reader = from_df(table, privacy=Privacy(epsilon=EPSILON, delta=DELTA), metadata=meta)
        return [tuple(row) for row in reader.execute(sql)[1:]]

    def counted(keys: list[str]) -> float:
        listed = "".join(f"{key}, " for key in keys)
        by = f" GROUP BY {', '.join(keys)}" if keys else ""
        rows = asked(f"SELECT {listed}COUNT(*) AS n FROM public.visits{by}")
        if not keys:
            return abs(float(rows[0][0]) - len(table))
        return error({tuple(row[:-1]): float(row[-1]) for row in rows}, table.groupby(keys).size())

    def cube() -> float:
        rows = asked("SELECT sex, ward, COUNT(*) AS n FROM public.visits GROUP BY CUBE (sex, ward)")
        return float(len(rows))

    def summed() -> float:
        rows = asked("SELECT sex, SUM(charge) AS s FROM public.visits GROUP BY sex")
        return error({(row[0],): float(row[1]) for row in rows}, table.groupby("sex").charge.sum())

    for name, keys in KEYS.items():
        tell(name, lambda keys=keys: counted(keys))
    tell("cube", cube)
    tell("sums", summed)
    tell("median", lambda: float(asked("SELECT MEDIAN(charge) AS m FROM public.visits")[0][0]))
    tell("free texts", lambda: counted(["word"]))


main()
