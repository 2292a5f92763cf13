"""Figures 2 and 3 of Hardt, Ligett and McSherry (MWEM): contingency tables and NLTCS, beside Barak et al.

Figure 2: relative entropy of mildew, rochdale and czech against epsilon; candidates are the parities of order 1 to 3.
Barak: all their coefficients, uniform; fitted by multiplicative weights (the paper's modification) and by mirror
descent, the better of the two. MWEM as in the paper (one update a round, the average); replays: all measurements 20
times a round, the average; both with rounds by the rule of `queries_rounds`, from Theorem 2.2 of the text of 2012.
Optimised: whole 3-way marginals, fitted after each round, rounds by the rule of `rounds_of`, as SQL has it.
Figure 3: NLTCS, average over the 2- or 3-way marginals of the mean absolute error of a cell, in records, against
epsilon, for 20, 30 and 40 marginals asked as a whole.

The number of records is charged for, for everybody; as the paper takes it as public, it is here the public guess
(EXPECT ROWS) that estimates stay within a factor of 2 of. Needs ../shared/data or $DPDUCK_DATA.

Gates (exit status 1): the mean of optimised MWEM below Barak's at every epsilon up to 1 on the three tables; with the
paper's update, at its best number of rounds, MWEM below Barak on NLTCS 3-way at epsilon 0.1, and Barak below MWEM on
NLTCS 2-way at epsilon 1; the mechanism that `auto` chooses there (from EXPECT ROWS alone) is not MWEM. Everything else
informs: so does MWEM with fits, which the paper has not, and which at 40 rounds comes near Barak there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from math import prod
from pathlib import Path

import numpy as np

from benchmarks.papers._synthetic_data import (
    absolute_error,
    data_folder,
    measured_tables,
    relative_entropy,
    run_mwem,
    sets_of,
    table_of,
)
from dpduck.algebra.marginals import MarginalWorkload
from dpduck.kernel.noise.law import NoiseKind
from dpduck.kernel.queries.operators import Family
from dpduck.mechanisms.synthetic.distribution import Distribution, uniform
from dpduck.mechanisms.synthetic.multiplicative import replay
from dpduck.mechanisms.synthetic.mwem import Method
from dpduck.mechanisms.synthetic.observations import Observation
from dpduck.mechanisms.synthetic.pool import Pool, parities
from dpduck.mechanisms.synthetic.schedule import (
    Schedule,
    error_after_rounds,
    mean_absolute,
    queries_rounds,
    rounds_of,
    surviving,
)
from dpduck.mechanisms.synthetic.table_fit import fit_tables
from dpduck.strategies.choose import plan_workload

TABLES = ("mildew", "rochdale", "czech")
HALF, TENTH = Fraction(1, 2), Fraction(1, 10)
Table = np.ndarray


def gate(passed: bool, text: str) -> bool:
    print(f"{'PASS' if passed else 'FAIL'}  {text}")
    return passed


def barak(table: Table, order: int, epsilon: Fraction) -> list[Distribution]:
    """All Fourier coefficients, fitted in two ways."""
    observations = measured_tables(table, sets_of(table, order), True, epsilon, "F")
    return [passed_over(table, observations, 20), fit_tables(table.shape, observations)[0]]


def barak_once(table: Table, order: int, epsilon: Fraction) -> Distribution:
    """The same coefficients, each used for one update, as in the paper."""
    return passed_over(table, measured_tables(table, sets_of(table, order), True, epsilon, "F"), 1)


def passed_over(table: Table, observations: list[Observation], passes: int) -> Distribution:
    """The uniform distribution after so many passes of updates."""
    start = uniform(table.shape, dense=True)
    component = start.components[0]
    weights = replay(component.members, component.table, observations, float(table.sum()), passes)
    return start.with_table(0, weights)


def single_queries(table: Table, order: int) -> Pool:
    """The parities of so many attributes and fewer, asked one at a time."""
    sets = [chosen for few in range(1, order + 1) for chosen in sets_of(table, few)]
    families = tuple(parities(chosen, tuple(table.shape[a] for a in chosen)) for chosen in sets)
    return Pool(table.shape, families, (), whole=False)


def mwem_by_queries(table: Table, order: int, epsilon: Fraction, rounds: int) -> Distribution:
    """MWEM as in the paper: one coefficient and one update a round, the average of all rounds."""
    method = Method(fits=False, passes=1, averages=True, expected=int(table.sum()))
    return run_mwem(table, single_queries(table, order), Schedule(True, epsilon, 1, rounds, HALF), method)


def contingency(table: Table, epsilon: Fraction) -> dict[str, Callable[[], float]]:
    """Figure 2's algorithms, as one run each."""
    pool, records = single_queries(table, 3), int(table.sum())
    schedule = Schedule(True, epsilon, 1, 1, HALF)
    rounds = queries_rounds(schedule, table.size, len(pool.workload), records, 64)
    schedule = Schedule(True, epsilon, 1, rounds, HALF)

    def mwem(passes: int) -> float:
        method = Method(fits=False, passes=passes, averages=True, expected=records)
        return relative_entropy(table, run_mwem(table, pool, schedule, method))

    shapes = [tuple(table.shape[a] for a in chosen) for chosen in sets_of(table, 3)]
    marginals = tuple(Family(chosen, shape) for chosen, shape in zip(sets_of(table, 3), shapes, strict=True))
    whole = Schedule(True, epsilon, 1, 1, Fraction(1, 4))
    whole = replace(whole, rounds=rounds_of(whole, shapes, table.ndim, records))

    def optimised() -> float:
        found = run_mwem(table, Pool(table.shape, marginals, (), whole=True), whole, Method(expected=records))
        return relative_entropy(table, found)

    return {
        "Barak": lambda: min(relative_entropy(table, found) for found in barak(table, 3, epsilon)),
        "MWEM": lambda: mwem(1),
        "replays": lambda: mwem(20),
        "optimised": optimised,
    }


def figure2(folder: Path, epsilons: list[Fraction], runs: int) -> bool:
    passed = True
    for name in TABLES:
        table = table_of(folder, name)
        print(f"\n{name}: relative entropy in nats, mean and standard deviation of {runs} runs")
        for epsilon in epsilons:
            means = {}
            for label, run in contingency(table, epsilon).items():
                values = np.array([run() for _ in range(runs)])
                means[label] = float(values.mean())
                print(f"  epsilon {float(epsilon):4.2f}  {label:10s} {values.mean():9.4f} +- {values.std():.4f}")
            passed &= gate(
                means["optimised"] < means["Barak"],
                f"{name}, epsilon {float(epsilon)}: optimised {means['optimised']:.4f} < Barak {means['Barak']:.4f}",
            )
    return passed


def cube_error(table: Table, order: int, epsilon: Fraction, rounds: int, fits: bool) -> float:
    sets = sets_of(table, order)
    pool = Pool(table.shape, tuple(Family(chosen, tuple(table.shape[a] for a in chosen)) for chosen in sets), (), True)
    schedule = Schedule(True, epsilon, 1, rounds, Fraction(1, 4))
    method = Method(fits=fits, passes=5, expected=int(table.sum()))
    return absolute_error(table, run_mwem(table, pool, schedule, method), sets)


def figure3(folder: Path, epsilons: list[Fraction], runs: int, rounds: list[int]) -> bool:
    table, found = table_of(folder, "nltcs"), {}
    for order in (2, 3):
        print(f"\nNLTCS, {order}-way: mean absolute error of a cell, in records ({runs} runs)")
        for epsilon in epsilons:
            sets = sets_of(table, order)
            values = np.array(
                [min(absolute_error(table, one, sets) for one in barak(table, order, epsilon)) for _ in range(runs)]
            )
            found[order, epsilon, "Barak"] = float(values.mean())
            print(f"  epsilon {float(epsilon):4.2f}  Barak          {values.mean():9.1f} +- {values.std():.1f}")
            for number in rounds:
                for label, fits in (("paper", False), ("fit", True)):
                    values = np.array([cube_error(table, order, epsilon, number, fits) for _ in range(runs)])
                    best = found.get((order, epsilon, label), np.inf)
                    found[order, epsilon, label] = min(best, float(values.mean()))
                    print(
                        f"  epsilon {float(epsilon):4.2f}  MWEM {number:2d} {label:6s}"
                        f" {values.mean():9.1f} +- {values.std():.1f}"
                    )
    mwem, other = found[3, TENTH, "paper"], found[3, TENTH, "Barak"]
    passed = gate(mwem < other, f"NLTCS 3-way, epsilon 0.1: MWEM {mwem:.1f} < Barak {other:.1f}")
    mwem, other = found[2, Fraction(1), "paper"], found[2, Fraction(1), "Barak"]
    passed &= gate(other < mwem, f"NLTCS 2-way, epsilon 1: Barak {other:.1f} < MWEM {mwem:.1f}")
    return passed & auto_says_so(table)


def auto_says_so(table: Table) -> bool:
    """Predicted errors at NLTCS 2-way, epsilon 1: those that dp_explain prints for EXPECT ROWS 20000."""
    sets = sets_of(table, 2)
    workload = MarginalWorkload(table.shape, sets, (1.0,) * len(sets))
    plan = plan_workload(workload, NoiseKind.LAPLACE, Fraction(1), 1, strategy="F", budgets="uniform")[0]
    noise = [
        mean_absolute(True, v) * prod(table.shape[a] for a in s) for s, v in zip(sets, plan.variances, strict=True)
    ]
    coefficients = float(np.mean([surviving(one / 40_000) for one in noise]))
    mwem = error_after_rounds(Schedule(True, Fraction(1), 1, 16, Fraction(1, 4)), [(2, 2)] * len(sets), 16, 20_000)
    return gate(coefficients < mwem, f"auto: predicted error of Barak {coefficients:.4f} < MWEM's {mwem:.4f}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--cube-runs", type=int, default=3)
    parser.add_argument("--epsilons", nargs="+", default=["0.1", "0.2", "0.4", "0.6", "0.8", "1"])
    parser.add_argument("--cube-epsilons", nargs="+", default=["0.1", "0.4", "1"])
    parser.add_argument("--rounds", nargs="+", type=int, default=[20, 30, 40])
    options = parser.parse_args()
    folder = data_folder(options.data)
    missing = [name for name in ("mildew.csv", "nltcs.parquet") if not (folder / name).is_file()]
    if missing:
        print(f"skipped: no {' and no '.join(missing)} in the data folder")
        return 0
    passed = figure2(folder, [Fraction(each) for each in options.epsilons], options.runs)
    passed &= figure3(folder, [Fraction(each) for each in options.cube_epsilons], options.cube_runs, options.rounds)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
