"""Check a bundle of certificates: `python check.py BUNDLE [--head LINK]`. It needs Python alone: no data, no dpduck.

1. The chain: no entry of the ledger was changed, left out or put in, as the last link says. Compare that link with the
   one that the owner published: a whole chain can be written anew, but not with the same link.
2. The price of each release: from its plan, the noise and how far one privacy unit moves what it is added to.
3. The budgets: what all entries of a privacy unit add up to, in each period where it has such, never exceeds what was
   declared for it.

What cannot be checked without the data: that rows were counted as the plan says. Formulas: rho of Gaussian noise is
D2^2 / (2 sigma^2), epsilon of Laplace noise D1 / b (Bun and Steinke 2016); all amounts are exact rationals.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from collections.abc import Iterator
from datetime import date
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

FORMAT = "dpduck certificates 1"
GENESIS = "0" * 64
SMALL = Fraction(1, 10**12)
"""What roundings may differ by, relative to the amount."""

UNITS = 1024
"""Questions of a session are counted in such parts of a row."""

KEY = re.compile(
    r"(?P<unit>.* PER (?P<word>DAY|WEEK|MONTH|QUARTER|YEAR)) "
    r"(?:FROM (?P<first>\d{4}-\d\d-\d\d) TO (?P<end>\d{4}-\d\d-\d\d)|EVERY)",
    re.DOTALL | re.ASCII,
)
"""What is charged of a unit by periods: its rows from a day on to before another, or in every period."""

LAST = date(9999, 1, 1).toordinal()
"""A day that is in no period but a week; runs that end there or later end with the last period."""

Price = tuple[Fraction | None, Fraction, Fraction]  # epsilon (None: not pure), rho, delta
Part = dict[str, Any]
NOTHING: Price = (Fraction(0), Fraction(0), Fraction(0))


def canonical(entry: Part) -> str:
    """Writes an entry in one way."""
    return json.dumps(entry, sort_keys=True, separators=(",", ":"))


def check(bundle: Part, head: str | None = None) -> Iterator[str]:
    """Yields what is wrong, one line each; nothing where all is as it should be."""
    if bundle.get("format") != FORMAT:
        yield f"this is no bundle of the format {FORMAT!r}"
        return
    yield from check_chain(bundle, head)
    entries = {entry["id"]: entry for entry in bundle["entries"]}
    seen: set[int] = set()
    for certificate in bundle["certificates"]:
        if certificate["entry"] in seen:
            yield f"entry {certificate['entry']} has two certificates"
        seen.add(certificate["entry"])
        yield from check_certificate(certificate, entries.get(certificate["entry"]))
    yield from check_budgets(bundle["entries"])


def check_chain(bundle: Part, head: str | None) -> Iterator[str]:
    """Yields what is wrong with the chain of entries."""
    link = GENESIS
    for number, entry in enumerate(bundle["entries"], start=1):
        if entry["id"] != number:
            yield f"entry {number} is missing"
            return
        rest = {name: value for name, value in entry.items() if name != "link"}
        link = hashlib.sha256((link + canonical(rest)).encode()).hexdigest()
        if entry["link"] != link:
            yield f"entry {number} is not what was written"
            return
    if bundle["head"] != link:
        yield "the last link is not that of the last entry: entries are missing"
    if head is not None and head != link:
        yield "the last link is not the one that was published"


def check_certificate(certificate: Part, entry: Part | None) -> Iterator[str]:
    """Yields what is wrong with one release."""
    name = f"the certificate of entry {certificate['entry']}"
    if entry is None:
        yield f"{name} has no entry in the ledger"
        return
    same = {"statement": "statement", "privacy_unit": "unit", "link": "link"}
    if any(certificate[mine] != entry[theirs] for mine, theirs in same.items()):
        yield f"{name} is of another entry"
    if certificate["price"] != {part: entry[part] for part in ("epsilon", "rho", "delta")}:
        yield f"{name} says another price than the ledger"
    if certificate["flavor"] != ("zero-concentrated" if entry["epsilon"] is None else "pure"):
        yield f"{name} says another kind of guarantee than the ledger"
    paid = amounts(entry)
    for form in certificate["also"]:
        left = Fraction(form["delta"]) - paid[2]
        if left <= 0 or float(Fraction(form["epsilon"])) < least_epsilon(float(paid[1]), float(left)) * (1 - 1e-9):
            yield f"{name} says an epsilon that its rho does not give"
    if certificate["plan"] is None:
        return
    try:
        epsilon, rho, delta = price(certificate["plan"])
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        yield f"the plan of {name} cannot be read ({type(error).__name__})"
        return
    most = 1 + SMALL
    if paid[0] is not None and (epsilon is None or epsilon > paid[0] * most):
        yield f"{name}: its noise costs more epsilon than was charged"
    if rho > paid[1] * most:
        yield f"{name}: its noise costs more rho than was charged"
    if delta > paid[2] * most:
        yield f"{name}: its keys cost more delta than was charged"


def check_budgets(entries: list[Part]) -> Iterator[str]:
    """Yields the entries that exceed what was declared by then for their privacy unit.

    Of a unit by periods, each period has the budget; all of them together have LIFETIME, where there is one, and runs
    that begin with the first period or end with the last one are then refused.
    """
    budgets: dict[str, Part] = {}
    spent: dict[str, dict[int, Price]] = {}
    persons: dict[str, Price] = {}
    for entry in entries:
        (unit, days, periods), other = run_of(entry["unit"]), amounts(entry)
        sums = charged(spent.setdefault(unit, {}), days, other)
        persons[unit] = plus(persons.get(unit, NOTHING), of_person(other, periods))
        if min(other[1], other[2], other[0] or Fraction(0)) < 0:
            yield f"entry {entry['id']} gives something back"
        if entry["budget"] is not None:
            budgets[unit] = entry["budget"]
            both = [entry["budget"], entry["budget"].get("lifetime")]
            if not all(declared_well(budget) for budget in both if budget is not None):
                yield f"entry {entry['id']} declares more rho than its epsilon and delta allow"
        elif any(other):
            budget = budgets.get(unit)
            lifetime = None if budget is None else budget.get("lifetime")
            if not all(within(one, budget) for one in sums):
                yield f"entry {entry['id']} exceeds the budget of {unit}"
            endless = days[0] == 1 or days[1] >= LAST
            if lifetime is not None and (endless or not within(persons[unit], lifetime)):
                yield f"entry {entry['id']} exceeds the LIFETIME of {unit}"


def run_of(key: str) -> tuple[str, tuple[int, int], int]:
    """Reads the key of a charge: its unit, the days from the first to the one after the last, and how many periods."""
    found = KEY.fullmatch(key)
    if found is None:
        return key, (0, 1), 1
    first, end = (date.fromisoformat(text) for text in (found["first"] or "0001-01-01", found["end"] or "9999-01-01"))
    days, months = (end - first).days, 12 * (end.year - first.year) + end.month - first.month
    count = {"DAY": days, "WEEK": -(-days // 7), "MONTH": months, "QUARTER": -(-months // 3), "YEAR": -(-months // 12)}
    return found["unit"], (first.toordinal(), end.toordinal()), count[found["word"]]


def charged(steps: dict[int, Price], days: tuple[int, int], other: Price) -> list[Price]:
    """Adds a charge to the sums of its days, and returns them. steps: the sum from a day on to the next one."""
    for cut in days:
        steps.setdefault(cut, steps[max(before)] if (before := [day for day in steps if day < cut]) else NOTHING)
    inside = [day for day in steps if days[0] <= day < days[1]]
    steps.update({day: plus(steps[day], other) for day in inside})
    return [steps[day] for day in inside]


def of_person(other: Price, periods: int) -> Price:
    """Computes what a charge costs a person with rows in so many periods: k epsilon; k^2 rho, or what k epsilon costs.

    A delta of keys is bounded for one period alone.
    """
    if periods == 1:
        return other
    epsilon, rho = None if other[0] is None else periods * other[0], periods**2 * other[1]
    return epsilon, min(rho, of_pure(epsilon)[1]) if epsilon else rho, Fraction(1 if other[2] else 0)


def plus(one: Price, other: Price) -> Price:
    """Adds two charges; there is no pure epsilon once one of them has none."""
    epsilon = None if one[0] is None or other[0] is None else one[0] + other[0]
    return epsilon, one[1] + other[1], one[2] + other[2]


def within(spent: Price, budget: Part | None) -> bool:
    """Tells whether a sum of charges is within a budget."""
    if budget is None:
        return False
    if budget["rho"] is None:
        return spent[0] is not None and spent[0] <= Fraction(budget["epsilon"]) and spent[2] == 0
    return spent[1] <= Fraction(budget["rho"]) and spent[2] <= Fraction(budget["delta_keys"])


def declared_well(budget: Part) -> bool:
    """Tells whether the rho of a budget is within its epsilon and delta."""
    if budget["rho"] is None or budget["epsilon"] is None:
        return True
    delta = Fraction(budget["delta"]) - Fraction(budget["delta_keys"])
    if delta <= 0:
        return False
    return least_epsilon(float(Fraction(budget["rho"])), float(delta)) <= float(Fraction(budget["epsilon"])) * (
        1 + 1e-9
    )


def least_epsilon(rho: float, delta: float) -> float:
    """Returns the least epsilon that rho-zCDP gives at a delta, on ever finer grids of orders (Canonne et al. 2020)."""

    def epsilon(place: float) -> float:
        alpha = 1 + math.exp(place)
        return alpha * rho + (math.log(1 / delta) - math.log(alpha)) / (alpha - 1) + math.log1p(-1 / alpha)

    best, width = 0.0, 30.0
    for _ in range(8):
        best = min((best + width * step / 100 for step in range(-100, 101)), key=epsilon)
        width /= 20
    return max(0.0, epsilon(best))


def amounts(entry: Part) -> Price:
    """Reads the charge of an entry."""
    epsilon = None if entry["epsilon"] is None else Fraction(entry["epsilon"])
    return epsilon, Fraction(entry["rho"]), Fraction(entry["delta"])


def price(plan: list[Part]) -> Price:
    """Computes what a plan costs: epsilons add up, rhos add up, and deltas do."""
    parts = []
    for part in plan:
        if "moved" in part:
            parts.append(of_noise(part["noise"], *norms(part["moved"])))
            continue
        epsilon, rho, delta = of_other(part)
        times = whole(part["times"], 1)
        parts.append((None if epsilon is None else epsilon * times, rho * times, delta * times))
    if not parts:
        raise ValueError("nothing")
    pure = [epsilon for epsilon, _, _ in parts if epsilon is not None]
    rho, delta = sum((part[1] for part in parts), Fraction(0)), sum((part[2] for part in parts), Fraction(0))
    if len(pure) < len(parts):
        return None, rho, delta
    return sum(pure, Fraction(0)), min(rho, of_pure(sum(pure, Fraction(0)))[1]), delta


def norms(moved: list[Part]) -> tuple[int, int, int]:
    """Adds up how far one privacy unit moves all that has one noise: L1, squared L2, and any one number."""
    l1 = l2_squared = most = 0
    for query in moved:
        one, two, largest, times = (whole(query[name], 1) for name in ("l1", "l2_squared", "most", "times"))
        if not largest <= one <= two or two > one * one or two > one * largest:
            raise ValueError("norms of no vector")
        l1, l2_squared, most = l1 + one * times, l2_squared + two * times, max(most, largest)
    return l1, l2_squared, most


def whole(value: object, least: int) -> int:
    """Reads a whole number that is at least so large."""
    if not isinstance(value, int) or value < least:
        raise ValueError("no such number")
    return value


def parameter(noise: Part) -> Fraction:
    """Reads the parameter of a noise: the scale b of Laplace's, sigma^2 of Gauss's."""
    amount = Fraction(noise["parameter"])
    if amount <= 0:
        raise ValueError("no noise")
    return amount


def of_noise(noise: Part, l1: int, l2_squared: int, most: int) -> Price:
    """Computes the price of integers with one noise."""
    if noise["law"] == "discrete Gaussian":
        return None, Fraction(l2_squared) / (2 * parameter(noise)), Fraction(0)
    if noise["law"] != "discrete Laplace":
        raise ValueError("an unknown noise")
    scale = parameter(noise)
    return Fraction(l1) / scale, rho_of_laplace(Fraction(l1, most), Fraction(most) / scale, 1 / scale), Fraction(0)


def rho_of_laplace(shifts: Fraction, x: Fraction, step: Fraction) -> Fraction:
    """Bounds the rho of `shifts` numbers that move by x scales each; step: 1 in scales.

    The divergence of discrete Laplace noise from itself moved by d is x - (1 - exp(-x)) s / sinh(s).
    """
    bound = shifts * min(x, x * x / 2)
    if x > 1000 or step > 1000:
        return bound
    with localcontext() as context:
        context.prec = 60
        a, s = (Decimal(v.numerator) / Decimal(v.denominator) for v in (x, step))
        kept = 2 * s / (s.exp() - (-s).exp()) if s > Decimal("1e-10") else 1 - s * s / 6
        return min(bound, shifts * Fraction(a - (1 - (-a).exp()) * kept))


def of_pure(epsilon: Fraction) -> Price:
    """Returns the price of what is known to be epsilon-DP alone: at most epsilon tanh(epsilon/2) of rho."""
    return epsilon, rho_of_laplace(Fraction(1), epsilon, epsilon), Fraction(0)


def of_other(part: Part) -> Price:
    """Computes the price of a choice, a quantile, a threshold, a session, or a family within a limit."""
    l1, kind = whole(part["l1"], 1), part["query"]
    if kind == "Within":
        limit = Fraction(part["limit"])
        return of_pure(limit) if part["pure"] else (None, limit, Fraction(0))
    if kind == "Choice":
        loss = 2 * Fraction(part["rate"]) * l1
        return of_pure(loss) if part["pure"] else (None, loss * loss / 8, Fraction(0))
    if kind == "Quantiles":
        loss = 2 * Fraction(part["rate"]) * whole(part["largest_weight"], 1) * l1
        return loss, min(loss * loss / 8, of_pure(loss)[1]), Fraction(0)
    if kind == "SparseVector":
        step = l1 * UNITS
        compared = step / parameter(part["noise"]) + step / parameter(part["question"])
        measured = of_noise(part["measured"], step, step * step, step)
        if measured[0] is not None:
            return of_pure(compared + measured[0])
        return None, compared * compared / 2 + measured[1], Fraction(0)
    if kind != "Threshold":
        raise ValueError("an unknown query")
    return of_threshold(part)


def of_threshold(part: Part) -> Price:
    """Computes the price of keys above a threshold: the selecting count, the answers, and the delta of new keys."""
    groups, each, total, rows = (whole(part[name], 1) for name in ("groups", "per_group", "total", "rows"))
    first = of_noise(part["noise"], min(groups * each, total), min(groups * each * each, total * each), each)
    answered = whole(part["answered"], 0)
    costs = [first] if not answered else [first, of_noise(part["answers"], answered * rows, answered * rows**2, rows)]
    rho = sum((cost[1] for cost in costs), Fraction(0))
    new = tail(part["noise"], whole(part["excess"], 0))
    delta = Fraction(-math.expm1(groups * math.log1p(-new)) if new < 1 else 1) * (1 - Fraction(1, 10**8))
    if any(cost[0] is None for cost in costs):
        return None, rho, delta
    epsilon = sum((cost[0] or Fraction(0) for cost in costs), Fraction(0))
    return epsilon, min(rho, of_pure(epsilon)[1]), delta


def tail(noise: Part, excess: int) -> float:
    """Computes the chance that a noise is above a number."""
    scale = float(parameter(noise))
    if noise["law"] == "discrete Laplace":
        return math.exp(-(excess + 1) / scale) / (1 + math.exp(-1 / scale))
    if scale > 1e7:
        return math.erfc((excess + 0.5) / math.sqrt(2 * scale)) / 2
    reach = int(math.sqrt((excess + 1) ** 2 + 100 * scale)) + 2
    upper = math.fsum(math.exp(-n * n / (2 * scale)) for n in range(excess + 1, reach))
    rest = math.fsum(math.exp(-n * n / (2 * scale)) for n in range(1, int(10 * math.sqrt(scale)) + 2))
    return upper / (1 + 2 * rest)


def main(words: list[str]) -> int:
    """Checks the bundle that is named, prints what is wrong, and returns 1 if anything is."""
    head = words[words.index("--head") + 1] if "--head" in words[:-1] else None
    folder = Path(words[0]) if words and words[0] != "--head" else Path(__file__).parent
    bundle = json.loads((folder / "certificates.json").read_text("utf-8"))
    wrong = list(check(bundle, head))
    for line in wrong:
        sys.stdout.write(f"WRONG: {line}\n")
    unpriced = sum(certificate["plan"] is None for certificate in bundle.get("certificates", []))
    if not wrong:
        sys.stdout.write(
            f"whole: {len(bundle['entries'])} entries, {len(bundle['certificates'])} releases, {unpriced} of them "
            f"without a plan (made by an older version); last link {bundle['head']}\n"
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
