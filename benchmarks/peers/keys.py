"""Counts of 100,000 keys at epsilon 1: summaries beside OpenDP's make_alp_queryable and the stability histogram.

Keys are among 10^9. Their counts are spread evenly over the logarithms from 1 to 200, so that no method is asked for
counts that suit it alone. Summaries have twice as many rows as there are keys. Errors are root mean squared: of
occupied keys, all and by count, and of absent ones. What a method does not release counts as 0.

Gates: filter has an error of at most make_alp_queryable's on occupied keys, and is 100 times faster from the counts to
the release. Informs: the other rows. The stability histogram needs a delta (10^-6) that the others do without. It knows
no domain, and is the only one that answers for keys which nobody has declared.
Traps avoided: both get exact counts in their own form, and neither is timed for making it. OpenDP's total_limit and
value_limit are the true ones, which favours it. It answers a sample of keys, each being asked for by a call.
Without OpenDP its gates are skipped and the benchmark says so.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from fractions import Fraction
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise

import numpy as np

from dpduck.kernel.noise.entropy import operating_system_entropy
from dpduck.kernel.noise.integers import discrete_laplace
from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.queries.cells import MixedRadix
from dpduck.kernel.queries.sparse_counts import SparseCounts
from dpduck.kernel.queries.summaries import draw_summary
from dpduck.language.select.request import Summary
from dpduck.mechanisms.keys.plan import smallest_excess
from dpduck.mechanisms.summaries.plan import design_method
from dpduck.mechanisms.summaries.recover import estimate_weights, with_priorities

DOMAIN, KEYS, LARGEST = 10**9, 100_000, 200
EPSILON, DELTA = Fraction(1), Fraction(1, 10**6)
SAMPLE = 2_000
"""Occupied keys that OpenDP is asked for, and as many absent ones."""
BINS = (1, 3, 6, 10, 15, 25, 50, LARGEST + 1)
Answers = Callable[[np.ndarray], np.ndarray]


def table(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Keys in order, and their counts."""
    keys = np.unique(rng.integers(0, DOMAIN, KEYS + KEYS // 8))
    keys = np.sort(rng.permutation(keys)[:KEYS])
    return keys, np.floor(np.exp(rng.uniform(0, np.log(LARGEST + 1), KEYS))).astype(np.int64)


def looked_up(keys: np.ndarray, values: np.ndarray) -> Answers:
    """Values of released keys, 0 of others."""

    def answer(asked: np.ndarray) -> np.ndarray:
        places = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
        return np.where(keys[places] == asked, values[places], 0.0)

    return answer


def summary(method: str, keys: np.ndarray, counts: np.ndarray) -> tuple[Answers, int]:
    exact = SparseCounts(MixedRadix((DOMAIN,)), keys[None, :], counts)
    design = design_method(Summary(method, 2 * KEYS, expect_rows=int(counts.sum())), DOMAIN, 1 / EPSILON)
    noisy = draw_summary(exact, design.plan, operating_system_entropy())
    kept, tau = with_priorities(noisy, design.keep, float(design.tau))
    found = estimate_weights(kept, design.scale, design.theta, tau)
    return looked_up(found.positions[0], found.weights), len(found.weights)


def stability(keys: np.ndarray, counts: np.ndarray) -> tuple[Answers, int]:
    """Laplace noise on occupied keys, published above the threshold that delta asks for."""
    noisy = counts + discrete_laplace(1 / EPSILON, len(counts), operating_system_entropy())
    kept = noisy > 1 + smallest_excess(Noise(NoiseKind.LAPLACE, 1 / EPSILON), 1, DELTA)
    return looked_up(keys[kept], noisy[kept].astype(np.float64)), int(kept.sum())


def projected(keys: np.ndarray, counts: np.ndarray) -> tuple[Answers, int]:
    """OpenDP's, which has no rows."""
    dp = import_module("opendp.prelude")
    dp.enable_features("contrib")
    domain = dp.map_domain(dp.atom_domain(T="u32"), dp.atom_domain(T="i32"))
    metric = dp.l01inf_distance(dp.absolute_distance(T="i32"))
    total = int(counts.sum())
    queryable = dp.m.make_alp_queryable(
        domain, metric, scale=float(EPSILON), total_limit=total, value_limit=int(counts.max())
    )
    assert queryable.map((1, 1, 1)) <= float(EPSILON)
    answers = queryable(dict(zip(keys.tolist(), counts.tolist(), strict=True)))
    return lambda asked: np.array([answers(key) for key in asked.tolist()], dtype=np.float64), 0


def error(answers: Answers, keys: np.ndarray, counts: np.ndarray) -> float:
    return float(np.sqrt(np.mean((answers(keys) - counts) ** 2)))


def row(
    name: str, make: Callable[[], tuple[Answers, int]], keys: np.ndarray, counts: np.ndarray, absent: np.ndarray
) -> tuple[float, float]:
    """One line of the table: the error over all these keys, and the seconds to the release."""
    start = time.perf_counter()
    answers, rows = make()
    seconds = time.perf_counter() - start
    whole, empty = error(answers, keys, counts), error(answers, absent, np.zeros(len(absent)))
    parts = []
    for low, high in pairwise(BINS):
        inside = (counts >= low) & (counts < high)
        parts.append(error(answers, keys[inside], counts[inside]))
    figures = "".join(f"{part:8.2f}" for part in parts)
    print(f"  {name:20}{seconds:9.3f}{rows:9}{whole:8.2f}{figures}{empty:9.3f}", flush=True)
    return whole, seconds


def gate(passed: bool, text: str) -> bool:
    print(f"{'PASS' if passed else 'FAIL'} gate    {text}", flush=True)
    return passed


def main() -> int:
    rng = np.random.default_rng(21)
    keys, counts = table(rng)
    absent = np.setdiff1d(rng.integers(0, DOMAIN, 20 * SAMPLE), keys)
    names = "".join(f"{f'{low}-{high - 1}':>8}" for low, high in pairwise(BINS))
    print(f"  {'':20}{'seconds':>9}{'rows':>9}{'error':>8}{names}{'absent':>9}")
    own = {
        method: row(method, lambda method=method: summary(method, keys, counts), keys, counts, absent)
        for method in ("filter", "filter_priority", "priority")
    }
    row("stability", lambda: stability(keys, counts), keys, counts, absent)
    if find_spec("opendp") is None:
        print("skipped: no OpenDP")
        return 0
    chosen = np.sort(rng.permutation(KEYS)[:SAMPLE])
    theirs, seconds = row(
        "make_alp_queryable", lambda: projected(keys, counts), keys[chosen], counts[chosen], absent[:SAMPLE]
    )
    error_here, seconds_here = own["filter"]
    passed = [
        gate(error_here <= theirs, f"error on occupied keys: filter {error_here:.2f}, OpenDP {theirs:.2f}"),
        gate(
            seconds >= 100 * seconds_here,
            f"filter {seconds_here:.2f} s, OpenDP {seconds:.1f} s: {seconds / seconds_here:.0f} times (100)",
        ),
    ]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
