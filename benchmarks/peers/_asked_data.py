"""The data and questions of the table of peers. Every peer reads them from one folder. Needs numpy and pandas."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd

EPSILON, DELTA = 1.0, 1e-6
WARDS, BINS, WORDS, CHARGES, PLACES, BLOCK = 8, 10, 500, 101, 1000, 100
MOST = 4
"""Rows of a person that are counted, where people have several."""

STATEMENTS = 1000
SIZES = {"sex": 2, "ward": WARDS, "age": BINS, "charge": CHARGES}
KEYS = {"count": [], "1 key": ["sex"], "2 keys": ["sex", "ward"], "3 keys": ["sex", "ward", "age"]}
"""Workloads that are counts by declared keys."""

SETS = ([], ["sex"], ["ward"], ["sex", "ward"])
"""Of the cube."""

QUARTERS = (0.25, 0.5, 0.75)
SYNTHETIC = ["sex", "ward", "age", "charge"]
Key = tuple[int, ...]
Answers = Mapping[Key, float]


def made(rows: int, whole: bool = True) -> pd.DataFrame:
    """One row a person: sex, a bin of ages, a ward. If `whole`, also a charge of 0 to 100, a word that nobody declared,
    home and place of work.
    """
    rng = np.random.default_rng(1)
    table = pd.DataFrame(
        {
            "id": np.arange(rows, dtype=np.int32),
            "sex": rng.integers(0, 2, rows, dtype=np.int32),
            "age": np.minimum(rng.gamma(4, 1.1, rows), BINS - 1).astype(np.int32),
            "ward": np.minimum(rng.geometric(0.35, rows) - 1, WARDS - 1).astype(np.int32),
        }
    )
    if whole:
        home = np.minimum(rng.zipf(1.4, rows), PLACES) - 1
        near = (home * 7 + np.minimum(rng.zipf(2.0, rows), 50)) % PLACES
        table["charge"] = np.minimum(rng.gamma(2, 15, rows).astype(int), CHARGES - 1)
        table["word"] = np.minimum(rng.zipf(1.3, rows), WORDS) - 1
        table["home"], table["work"] = home, np.where(rng.random(rows) < 0.7, near, rng.integers(0, PLACES, rows))
    return table


def stays(people: pd.DataFrame) -> pd.DataFrame:
    """Rows of people, one to four of each, in wards."""
    rng = np.random.default_rng(2)
    whose = np.repeat(people["id"].to_numpy(), np.minimum(rng.geometric(0.5, len(people)), MOST))
    return pd.DataFrame({"id": whose, "stay_ward": np.minimum(rng.geometric(0.35, len(whose)) - 1, WARDS - 1)})


def statements() -> list[list[int]]:
    """Returns different conditions: which sexes, wards and ages are counted, each from one to another."""
    rng, found = np.random.default_rng(3), dict[tuple[int, ...], None]()
    while len(found) < STATEMENTS:
        ends = [sorted(rng.integers(0, size, 2).tolist()) for size in (2, WARDS, BINS)]
        found[tuple(end for pair in ends for end in pair)] = None
    return [list(one) for one in found]


def write(folder: Path, rows: int, rho: str, whole: bool) -> None:
    """Writes tables and statements. rho: the whole budget, for peers that pay in rho."""
    people = made(rows, whole)
    people.to_parquet(folder / "table.parquet")
    if whole:
        stays(people).to_parquet(folder / "stays.parquet")
    (folder / "statements.json").write_text(json.dumps({"rho": rho, "conditions": statements()}))


def error(answers: Answers, exact: pd.Series | Mapping[Any, float], others: bool = False) -> float:
    """Root mean squared error over the cells of the exact answer. A cell without an answer counts as 0.

    others: looks at answered cells that the exact answer lacks, too, where the truth is 0.
    """
    cells = {key if isinstance(key, tuple) else (key,): float(value) for key, value in exact.items()}
    asked = {**dict.fromkeys(answers, 0.0), **cells} if others else cells
    return float(np.sqrt(np.mean([(answers.get(cell, 0.0) - value) ** 2 for cell, value in asked.items()])))


def cube_error(answers: Mapping[int, Answers], table: pd.DataFrame) -> float:
    """Root mean squared error over all cells of all grouping sets. answers: by the set's place in SETS."""
    squares: list[float] = []
    for place, keys in enumerate(SETS):
        exact = counts_of(table, keys)
        squares += [error(answers[place], exact) ** 2] * len(exact)
    return float(np.sqrt(np.mean(squares)))


def counts_of(table: pd.DataFrame, keys: list[str]) -> pd.Series | dict[Key, int]:
    """Counts rows by keys. Without keys there is one count."""
    return table.groupby(keys).size() if keys else {(): len(table)}


def range_error(counts: Mapping[tuple[int, int], float], table: pd.DataFrame) -> float:
    """Root mean squared error over all ranges of charges, from a first charge to before a second."""
    upto = np.concatenate([[0], np.bincount(table["charge"], minlength=CHARGES).cumsum()])
    ranges = list(combinations(range(CHARGES + 1), 2))
    return float(np.sqrt(np.mean([(counts[one] - (upto[one[1]] - upto[one[0]])) ** 2 for one in ranges])))


def ranges_of(bins: Answers) -> dict[tuple[int, int], float]:
    """Adds up bins into ranges, for peers that plan no ranges."""
    upto = np.concatenate([[0.0], np.cumsum([bins.get((place,), 0.0) for place in range(CHARGES)])])
    return {(one, two): float(upto[two] - upto[one]) for one, two in combinations(range(CHARGES + 1), 2)}


def block_error(answers: Answers, table: pd.DataFrame) -> float:
    """Root mean squared error over sums of pairs in squares of 100 homes by 100 places of work."""
    side = PLACES // BLOCK
    found, exact = np.zeros((side, side)), np.zeros((side, side))
    np.add.at(exact, (table["home"] // BLOCK, table["work"] // BLOCK), 1)
    if answers:
        cells = np.array(list(answers))
        np.add.at(found, (cells[:, 0] // BLOCK, cells[:, 1] // BLOCK), np.array(list(answers.values())))
    return float(np.sqrt(np.mean((found - exact) ** 2)))


def variation(rows: pd.DataFrame, table: pd.DataFrame) -> float:
    """Mean total variation of made rows from the table, over margins of two columns."""
    found = []
    for pair in combinations(SYNTHETIC, 2):
        shape, flat = [SIZES[name] for name in pair], []
        for one in (rows, table):
            cells = np.ravel_multi_index([one[name].to_numpy(np.int64) for name in pair], shape)
            flat.append(np.bincount(cells, minlength=int(np.prod(shape))) / len(one))
        found.append(np.abs(flat[0] - flat[1]).sum() / 2)
    return float(np.mean(found))


def exact_statements(table: pd.DataFrame, conditions: list[list[int]]) -> list[int]:
    """Returns the exact count of each statement."""
    cells = np.zeros((2, WARDS, BINS), np.int64)
    np.add.at(cells, (table["sex"], table["ward"], table["age"]), 1)
    return [int(cells[s : t + 1, w : v + 1, a : b + 1].sum()) for s, t, w, v, a, b in conditions]


def asked_in_turn(ask: Callable[[list[int]], float], folder: Path, table: pd.DataFrame) -> tuple[float, str]:
    """Asks the statements in turn, for SECONDS at most. Returns their error, and a note on how many were answered."""
    conditions, began = json.loads((folder / "statements.json").read_text())["conditions"], perf_counter()
    answers: list[float] = []
    for one in conditions:
        if answers and perf_counter() - began > float(os.environ.get("SECONDS", "60")):
            break
        answers.append(ask(one))
    exact = exact_statements(table, conditions)[: len(answers)]
    note = "" if len(answers) == len(conditions) else f"{len(answers)} of {len(conditions)} in that time"
    return float(np.sqrt(np.mean((np.array(answers) - np.array(exact)) ** 2))), note


def tell(name: str, ask: Callable[[], float | str | tuple[float, str]]) -> None:
    """Asks one question again and again, and prints one line of JSON: its error, the median time, memory at most.

    ask: returns the error, perhaps with a note, or the reason of a refusal. The printed error is the root mean square
    over all repeats. `sure` is its standard error as a part of the error. WORKLOADS names the wanted questions.
    """
    wanted = os.environ.get("WORKLOADS")
    if wanted and name not in wanted.split(";"):
        return
    least, most = int(os.environ.get("LEAST", "1")), int(os.environ.get("REPEATS", "5"))
    limit = float(os.environ.get("SECONDS", "60"))
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak of memory begins anew
    told: dict[str, object] = {"workload": name, "note": ""}
    seconds, used, squares, began = list[float](), busy(), list[float](), perf_counter()
    while len(squares) < least or (len(squares) < most and perf_counter() - began < limit):
        start = perf_counter()
        try:
            one = ask()
        except Exception as problem:
            one = f"{type(problem).__name__}: {(str(problem).strip() or ' ').splitlines()[0]}"
        seconds.append(perf_counter() - start)
        if isinstance(one, str):
            told["refused"] = one.partition(": [<")[0][:200]
            break
        found, told["note"] = one if isinstance(one, tuple) else (one, "")
        squares.append(found**2)
    if squares and "refused" not in told:
        mean, number = float(np.mean(squares)), len(squares)
        told |= {"error": mean**0.5, "repeats": number}
        told["sure"] = float(np.std(squares, ddof=1) / number**0.5 / mean / 2) if number > 1 and mean > 0 else None
    told |= {"seconds": float(np.median(seconds)), "busy": (busy() - used) / len(seconds), "mebibytes": peak()}
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


def descendants() -> list[int]:
    """Returns the processes that this one started, and theirs."""
    found, left = list[int](), [os.getpid()]
    while left:
        threads = Path(f"/proc/{left.pop()}/task").glob("*/children")
        with suppress(OSError):
            children = [int(child) for thread in threads for child in thread.read_text().split()]
            found, left = found + children, left + children
    return found


def busy() -> float:
    """Returns the processor seconds of this process and of all that it started, so far."""
    times, ticks = os.times(), os.sysconf("SC_CLK_TCK")
    total = times.user + times.system + times.children_user + times.children_system
    for one in descendants():
        with suppress(OSError):
            total += sum(map(int, Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()[11:15])) / ticks
    return total


def peak() -> float:
    """Returns the most MiB that this process, and those that it started, held."""
    total = 0.0
    for one in [os.getpid(), *descendants()]:
        with suppress(OSError):
            lines = Path(f"/proc/{one}/status").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    return total
