"""The data and questions of the table of peers, which every peer reads from one file; it imports numpy and pandas."""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable
from time import perf_counter

import numpy as np
import pandas as pd

EPSILON, DELTA = 1.0, 1e-6
WARDS, BINS, WORDS = 8, 10, 500


def made(rows: int) -> pd.DataFrame:
    """One row a person: sex, a bin of ages, a ward, a charge of 0 to 100, and a word that nobody declared."""
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "id": np.arange(rows),
            "sex": rng.integers(0, 2, rows),
            "age": np.minimum(rng.gamma(4, 1.1, rows).astype(int), BINS - 1),
            "ward": np.minimum(rng.geometric(0.35, rows) - 1, WARDS - 1),
            "charge": np.minimum(rng.gamma(2, 15, rows).astype(int), 100),
            "word": np.minimum(rng.zipf(1.3, rows), WORDS) - 1,
        }
    )


KEYS = {"count": [], "1 key": ["sex"], "2 keys": ["sex", "ward"], "3 keys": ["sex", "ward", "age"]}
"""Workloads that are counts by declared keys."""


def error(answers: dict[tuple[int, ...], float], exact: pd.Series) -> float:
    """Root mean squared error over the cells of the exact answer; one that is not answered counts as 0."""
    cells = {key if isinstance(key, tuple) else (key,): value for key, value in exact.items()}
    return float(np.sqrt(np.mean([(answers.get(cell, 0.0) - value) ** 2 for cell, value in cells.items()])))


def tell(name: str, ask: Callable[[], float | str]) -> None:
    """Asks one question several times, and prints one line of JSON: its error, the median time, memory so far.

    ask: returns the error, or the reason of a refusal. The error is the root mean square of those of all repeats.
    """
    seconds, found = [], list[float]()
    refused = ""
    for _ in range(int(os.environ.get("REPEATS", "5"))):
        began = perf_counter()
        try:
            one = ask()
        except Exception as problem:
            one = f"{type(problem).__name__}: {(str(problem).strip() or ' ').splitlines()[0]}"
        seconds.append(perf_counter() - began)
        if isinstance(one, str):
            refused = one[:160]
            break
        found.append(one)
    told: dict[str, object] = {"workload": name, "seconds": float(np.median(seconds))}
    told |= {"refused": refused} if refused else {"error": float(np.sqrt(np.mean(np.square(found))))}
    told["mebibytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()
