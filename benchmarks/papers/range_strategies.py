"""Ranges and prefixes over 256 and 1,024 values: predicted error per query beside the best known, and the time to plan.

Gates: p-identity within 2 % of the best known in under 2 s, the Gaussian optimum within 1 % of the convex optimum in
under 5 s, every other strategy no worse than known by more than 0.1 %. Better than known passes. Times are wall-clock
and include strategy, quantisation to integers, exact budgets and the predicted variance of every query. Each plan is
timed once, after one small plan that loads the libraries. Errors are root mean squares at epsilon = 1 in the continuous
limit (planned at epsilon = 0.001, where discrete noise has the continuous variance) or at sigma = 1.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from fractions import Fraction
from time import perf_counter

from benchmarks.papers._range_plans import plan_ranges, total_variance
from dpduck.algebra.ranges import RangeWorkload, all_ranges, prefixes
from dpduck.kernel.noise.law import NoiseKind

WORKLOADS: tuple[tuple[str, Callable[[int], RangeWorkload], int], ...] = (
    ("all ranges 256", all_ranges, 256),
    ("prefixes 256", prefixes, 256),
    ("all ranges 1024", all_ranges, 1024),
    ("prefixes 1024", prefixes, 1024),
)

# strategy: (known errors in the order of WORKLOADS, relative tolerance, seconds or None where time only informs)
LAPLACE: dict[str, tuple[tuple[float, ...], float, float | None]] = {
    "identity": ((13.12, 16.03, 26.15, 32.02), 0.001, None),
    "haar": ((14.47, 12.50, 19.80, 16.52), 0.001, None),
    "hierarchy_2": ((9.06, 8.92, 13.29, 12.09), 0.001, None),
    "hierarchy_4": ((8.89, 8.49, 12.70, 10.91), 0.001, None),
    "p_identity": ((8.08, 7.41, 11.08, 9.61), 0.02, 2.0),
}
GAUSSIAN: dict[str, tuple[tuple[float, ...], float, float | None]] = {
    "haar": ((3.436, 2.977, 4.248, 3.553), 0.001, None),
    "hierarchy_2": ((3.436, 2.977, 4.248, 3.553), 0.001, None),
    "gaussian_optimum": ((2.901, 2.524, 3.515, 2.955), 0.01, 5.0),
}


def measured(workload: RangeWorkload, noise: NoiseKind, strategy: str) -> tuple[float, float]:
    """Error per query and seconds."""
    amount = Fraction(1, 1000) if noise is NoiseKind.LAPLACE else Fraction(1, 2 * 10**6)
    begin = perf_counter()
    plan = plan_ranges(workload, noise, amount, 1, strategy)[0]
    seconds = perf_counter() - begin
    return (total_variance(plan) / workload.queries) ** 0.5 / 1000, seconds


def main() -> int:
    plan_ranges(all_ranges(8), NoiseKind.LAPLACE, Fraction(1), 1)
    plan_ranges(all_ranges(8), NoiseKind.GAUSSIAN, Fraction(1), 1)
    print(f"{'noise':9}{'strategy':18}{'workload':17}{'known':>9}{'ours':>9}{'ratio':>8}{'seconds':>9}  gate")
    failures = 0
    for noise, table in ((NoiseKind.LAPLACE, LAPLACE), (NoiseKind.GAUSSIAN, GAUSSIAN)):
        for strategy, (known, tolerance, limit) in table.items():
            for (name, make, size), target in zip(WORKLOADS, known, strict=True):
                error, seconds = measured(make(size), noise, strategy)
                passed = error <= target * (1 + tolerance) and (limit is None or seconds < limit)
                failures += not passed
                gate = f"{tolerance:.1%}" + (f", {limit:g} s" if limit else "")
                kind = noise.value.split()[1]
                print(
                    f"{kind:9}{strategy:18}{name:17}{target:9.3f}{error:9.3f}{error / target:8.4f}{seconds:9.2f}  "
                    f"{'PASS' if passed else 'FAIL'} ({gate})",
                    flush=True,
                )
    print("all gates pass" if not failures else f"{failures} gates fail")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
