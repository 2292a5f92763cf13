"""Where fit.PRIOR and fit.FLAT_PRIOR come from: weights of priors beside noisy answers, from tables of no gate.

usage: python -m benchmarks.papers.prior_weight [cube|MWEM|stop] [--draws N]

Tables: made ones, mixtures of products; NLTCS, Adult and the tables of the papers are not among them.
cube: the fitted cube of all 3-way marginals at (epsilon, delta = 1e-6), of binary attributes and of mixed sizes, dense
and sparse; error: mean total variation over those marginals. Weights are per record.
MWEM: small tables under pure epsilon, rounds by the product's rule; error: the geometric mean of total variation and of
relative entropy, which sees a cell that is there and was fitted away. Weights are per measured value.
The figure of a weight is its error over that of the best weight for the table, as the geometric mean over tables. Taken
is the lowest point of the parabola through the logarithms of the best figure and its neighbours'.
stop: the same for table_fit.TOLERANCE, with the tables of the cube and the weight that they gave; taken is the best.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from fractions import Fraction
from math import sqrt

import numpy as np

from benchmarks.papers._synthetic_data import measured_tables, mixture, relative_entropy, run_mwem, sets_of, variation
from dpduck.kernel.queries.operators import Family
from dpduck.mechanisms.synthetic import mwem, table_fit
from dpduck.mechanisms.synthetic.mwem import Method
from dpduck.mechanisms.synthetic.pool import Pool
from dpduck.mechanisms.synthetic.schedule import Schedule, rounds_of
from dpduck.values.accounting import rho_of

WEIGHTS = {
    "cube": (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0),
    "MWEM": (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0),
    "stop": (1e-2, 3e-3, 1e-3, 3e-4, 1e-4),
}
EPSILONS = {"cube": ("1/4", "1", "4"), "MWEM": ("1/10", "1/2", "1"), "stop": ("1/4", "1", "4")}
MADE = {
    "cube": (
        ((2,) * 12, 20_000),
        ((2,) * 10, 5_000),
        ((2,) * 8, 1_000),
        ((8, 6, 5, 4, 3, 2), 30_000),
        ((10, 12, 7, 9, 5, 2, 2), 30_000),
        ((12, 10, 15, 9, 6), 20_000),
    ),
    "MWEM": (
        ((2,) * 6, 100),
        ((2,) * 6, 2_000),
        ((2,) * 8, 600),
        ((2,) * 10, 5_000),
        ((6, 5, 4, 3, 2), 1_000),
        ((6, 5, 4, 3, 2), 20_000),
        ((10, 8, 6, 4), 500),
        ((10, 8, 6, 4), 5_000),
    ),
}
"""Sizes of the attributes, and records."""


def cube_errors(table: np.ndarray, epsilon: Fraction, label: str) -> list[float]:
    sets, errors = sets_of(table, 3), []
    observations = measured_tables(table, sets, False, rho_of(epsilon, Fraction(1, 10**6)))
    for weight in WEIGHTS[label]:
        setattr(table_fit, {"cube": "PRIOR", "stop": "TOLERANCE"}[label], weight)
        errors.append(variation(table, table_fit.fit_tables(table.shape, observations)[0], sets))
    return errors


def mwem_errors(table: np.ndarray, epsilon: Fraction) -> list[float]:
    """Means of five runs."""
    sets, records, errors = sets_of(table, 3), int(table.sum()), []
    families = tuple(Family(chosen, tuple(table.shape[a] for a in chosen)) for chosen in sets)
    schedule = Schedule(True, epsilon, 1, 1, Fraction(1, 4))
    schedule = replace(schedule, rounds=rounds_of(schedule, [one.shape for one in families], table.ndim, records))
    pool = Pool(table.shape, families, (), whole=True)
    for weight in WEIGHTS["MWEM"]:
        mwem.FLAT_PRIOR = weight
        made = [run_mwem(table, pool, schedule, Method(expected=records)) for _ in range(5)]
        entropy = float(np.mean([relative_entropy(table, one) for one in made]))
        errors.append(sqrt(entropy * float(np.mean([variation(table, one, sets) for one in made]))))
    return errors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("label", choices=tuple(WEIGHTS))
    parser.add_argument("--draws", type=int, default=1)
    options = parser.parse_args()
    random, ratios, label = np.random.default_rng(2026), [], options.label
    print(f"{label + ', weight':50s}", *(f"{weight:7.5f}" for weight in WEIGHTS[label]))
    for draw in range(options.draws):
        for sizes, records in MADE["MWEM" if label == "MWEM" else "cube"]:
            table = mixture(sizes, records, random)
            for epsilon in EPSILONS[label]:
                asked = table, Fraction(epsilon)
                errors = mwem_errors(*asked) if label == "MWEM" else cube_errors(*asked, label)
                name = f"table {draw}, {len(sizes)} attributes, {records} records, epsilon {epsilon}"
                print(f"{name:50s}", *(f"{error:.5f}" for error in errors), flush=True)
                ratios.append(np.log(np.array(errors) / min(errors)))
    means = np.exp(np.mean(ratios, axis=0))
    print(f"{'geometric mean over the best weight':50s}", *(f"{mean:7.4f}" for mean in means))
    best = WEIGHTS[label][int(np.argmin(means))] if label == "stop" else lowest(WEIGHTS[label], means)
    print(f"best for {label}: {best:.4f}")


def lowest(weights: tuple[float, ...], figures: np.ndarray) -> float:
    """Returns where a parabola in the logarithm of the weight is lowest. Each weight is twice the one before."""
    best = min(max(int(np.argmin(figures)), 1), len(weights) - 2)
    before, at, after = np.log(figures[best - 1 : best + 2])
    return float(weights[best] * 2 ** ((before - after) / (2 * (before - 2 * at + after))))


if __name__ == "__main__":
    main()
