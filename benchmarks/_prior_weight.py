"""Where fit.PRIOR comes from: the weight of the prior beside noisy tables, chosen on tables that no gate looks at.

usage: python benchmarks/_prior_weight.py [--draws N]

Tables: made ones (mixtures of products; 10 and 12 binary attributes, and six of mixed sizes) and, where the data are,
rochdale and czech. Each is released as the cube of all its 3-way marginals at epsilon 1, delta 1e-6 and fitted with
each weight. The figure of a weight: its mean total variation over the 3-way marginals, over that of no prior at all,
as the geometric mean over tables. NLTCS and Adult, whose errors are gates, are not among them.
"""

from __future__ import annotations

import argparse
from fractions import Fraction

import numpy as np
from _synthetic_data import data_folder, measured_tables, sets_of, table_of, variation

from dpduck.accounting import rho_of
from dpduck.synthetic import fit
from dpduck.synthetic.tables import fit_tables

RHO = rho_of(Fraction(1), Fraction(1, 10**6))
WEIGHTS = (0.0, 1 / 16, 1 / 4, 1 / 2, 1.0, 2.0, 4.0, 8.0)
MADE = (((2,) * 12, 20_000), ((2,) * 12, 100_000), ((2,) * 10, 5_000), ((8, 6, 5, 4, 3, 2), 30_000))
"""Sizes of the attributes, and records."""


def mixture(sizes: tuple[int, ...], records: int, random: np.random.Generator) -> np.ndarray:
    """Records of eight kinds; within a kind the attributes are independent, drawn from a Dirichlet law of 1/2."""
    shares, table = random.dirichlet(np.full(8, 1.0)), np.zeros(sizes)
    for share in shares:
        kind = np.ones(())
        for size in sizes:
            kind = np.multiply.outer(kind, random.dirichlet(np.full(size, 0.5)))
        table += share * kind
    return random.multinomial(records, table.reshape(-1) / table.sum()).reshape(sizes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data")
    parser.add_argument("--draws", type=int, default=3)
    options = parser.parse_args()
    random, folder = np.random.default_rng(2026), data_folder(options.data)
    tables = {
        f"made {draw}: {len(sizes)} attributes, {records} records": mixture(sizes, records, random)
        for draw in range(options.draws)
        for sizes, records in MADE
    }
    tables |= {name: table_of(folder, name) for name in ("rochdale", "czech") if (folder / f"{name}.csv").is_file()}
    ratios = []
    for name, table in tables.items():
        sets = sets_of(table, 3)
        observations, errors = measured_tables(table, sets, False, RHO), []
        for weight in WEIGHTS:
            fit.PRIOR = weight
            errors.append(variation(table, fit_tables(table.shape, observations)[0], sets))
        ratios.append(np.log(np.array(errors) / errors[0]))
        print(f"{name:45s}", *(f"{error:.5f}" for error in errors), flush=True)
    means = np.exp(np.mean(ratios, axis=0))
    print(f"{'weight':45s}", *(f"{weight:7.4f}" for weight in WEIGHTS))
    print(f"{'geometric mean, over no prior':45s}", *(f"{mean:7.4f}" for mean in means))
    print(f"best: {WEIGHTS[int(np.argmin(means))]}")


if __name__ == "__main__":
    main()
