"""Check of a bundle of certificates: `python check.py BUNDLE [--head LINK]`. It needs only Python: no data, no dpduck.

1. The chain: no ledger entry or certificate was changed, left out or put in, if the last link is the one that the
   owner published. A chain written anew has another last link.
2. The price of each release, computed from its noise and its sensitivity to one privacy unit.
3. The budgets: the entries of a privacy unit never exceed its declared budget, in each period if there are periods.

Only with the data can anybody check that rows were counted as the plan says. The rho of Gaussian noise is D2^2 / (2
sigma^2), the epsilon of Laplace noise is D1 / b (Bun and Steinke 2016). All amounts are exact rationals.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import re
import sys
from collections.abc import Iterator
from datetime import date
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import reduce
from pathlib import Path
from typing import Any

FORMAT = "dpduck certificates 2"
MODEL = "central: the owner's process sees the rows, and adds the noise"
NEIGHBOURS = "one table is the other without all rows of one privacy unit; by periods, of one of them"
GENESIS = "0" * 64
SMALL = Fraction(1, 10**12)  # the largest difference by rounding, relative to the amount
UNITS = 1024  # a session counts its questions in these parts of a row
DELTAS = (Fraction(1, 10**6), Fraction(1, 10**9))  # each price is also an epsilon at these, plus the delta of keys
LAST = date(9998, 12, 31).toordinal()  # a day in the last possible period of every length
KEY = re.compile(
    r"(?P<unit>.* PER (?P<word>DAY|WEEK|MONTH|QUARTER|YEAR))"
    r"(?: (?:FROM (?P<first>\d{4}-\d\d-\d\d) TO (?P<end>\d{4}-\d\d-\d\d)|EVERY))?",
    re.DOTALL | re.ASCII,
)  # the charged part of a unit with periods: its rows from one day until before another, or in every period

ACCEPTED = "the folder that dpduck certify --to made"
UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
Price = tuple[Fraction | None, Fraction, Fraction]  # epsilon (None: not pure), rho, delta
Part = dict[str, Any]
NOTHING: Price = (Fraction(0), Fraction(0), Fraction(0))


def canonical(part: Part) -> str:
    """Returns the canonical JSON text of an entry or a certificate."""
    return json.dumps(part, sort_keys=True, separators=(",", ":"))


def digest(part: Part, before: str = "") -> str:
    """Returns the SHA-256 of the previous link (`before`) and an entry or certificate, without the part's own link."""
    rest = {name: value for name, value in part.items() if name != "link"}
    return hashlib.sha256((before + canonical(rest)).encode()).hexdigest()


def check(bundle: Part, head: str | None = None) -> Iterator[str]:
    """Yields a line for each error. A correct bundle has none."""
    if bundle.get("format") != FORMAT:
        yield f"this is no bundle of the format {FORMAT!r}, but says {str(bundle.get('format'))[:40]!r}"
        return
    try:
        if (bundle["model"], bundle["neighbours"]) != (MODEL, NEIGHBOURS):
            yield f"the bundle promises something else than the format {FORMAT!r}"
        yield from check_chain(bundle, head)
        others = {entry["id"]: entry for entry in bundle["entries"]}
        for certificate in bundle["certificates"]:
            yield from check_certificate(certificate, others.pop(certificate["entry"], None))
        missing = (number for number, entry in others.items() if entry["certificate"] is not None)
        yield from (f"the certificate of entry {number} is missing" for number in missing)
        yield from check_budgets(bundle["entries"])
    except UNREADABLE as error:
        yield f"the bundle cannot be read to its end ({type(error).__name__})"


def check_chain(bundle: Part, head: str | None) -> Iterator[str]:
    """Yields the errors of the chain of entries. head: the last link as the owner published it."""
    link = GENESIS
    for number, entry in enumerate(bundle["entries"], start=1):
        link = digest(entry, link)
        if (entry["id"], entry["link"]) != (number, link):
            yield f"entry {number} is missing, or is not what was written"
            return
    if bundle["head"] != link:
        yield "the last link is not that of the last entry: entries are missing"
    if head is not None and head != link:
        yield "the last link is not the one that was published"


def check_certificate(certificate: Part, entry: Part | None) -> Iterator[str]:
    """Yields the errors of one certificate, compared with its entry of the ledger."""
    name = f"the certificate of entry {certificate['entry']}"
    if entry is None:
        yield f"{name} has no entry in the ledger, or it has two"
        return
    if entry["certificate"] != digest(certificate):
        yield f"{name} is not what was written"
    own = [certificate[field] for field in ("statement", "privacy_unit", "link")]
    if own != [entry[field] for field in ("statement", "unit", "link")]:
        yield f"{name} is of another entry"
    if certificate["price"] != {part: entry[part] for part in ("epsilon", "rho", "delta")}:
        yield f"{name} says another price than the ledger"
    if certificate["flavor"] != ("zero-concentrated" if entry["epsilon"] is None else "pure"):
        yield f"{name} says another kind of guarantee than the ledger"
    paid = amounts(entry)
    if [Fraction(form["delta"]) for form in certificate["also"]] != [small + paid[2] for small in DELTAS]:
        yield f"{name} does not say its price at the deltas of the format"
    for form, small in zip(certificate["also"], DELTAS, strict=False):
        least = least_epsilon(float(paid[1]), float(small))
        if not math.isclose(float(Fraction(form["epsilon"])), least, rel_tol=1e-9):
            yield f"{name} says an epsilon that its rho does not give"
    if certificate["plan"] is None:
        return
    try:
        planned = price(certificate["plan"])
    except UNREADABLE as error:
        yield f"the plan of {name} cannot be read ({type(error).__name__})"
        return
    for measure, costs, charge in zip(("epsilon", "rho", "delta"), planned, paid, strict=True):
        if charge is not None and (costs is None or costs > charge * (1 + SMALL)):
            yield f"{name}: its noise and its keys cost more {measure} than was charged"


def check_budgets(entries: list[Part]) -> Iterator[str]:
    """Yields a line for each entry that exceeds its unit's budget at that time, or declares less than was spent.

    Each period has the whole budget. LIFETIME is for all periods together, so that no run of periods may be endless.
    """
    budgets: dict[str, Part] = {}
    spent: dict[str, dict[int, Price]] = {}
    persons: dict[str, Price] = {}  # the sums that LIFETIME bounds
    for entry in entries:
        name, other, declared = f"entry {entry['id']}", amounts(entry), entry["budget"]
        try:
            unit, endless, run = run_of(entry["unit"])
        except ValueError:
            yield f"{name} names no run of whole periods"
            continue
        steps, sums, says = spent.setdefault(unit, {}), [], "exceeds"
        if min(other[1], other[2], other[0] or Fraction(0)) < 0:
            yield f"{name} gives something back"
        if other != NOTHING:
            sums = add_charge(steps, run, other)
            persons[unit] = plus(persons.get(unit, NOTHING), of_person(other, len(run)))
        if declared is not None:
            if sums or entry["unit"] != unit:
                yield f"{name} declares a budget and names a charge or a run of periods"
            if not is_consistent(declared):
                yield f"{name} declares a budget that does not hold together, or more rho than its epsilon and delta"
                continue
            budgets[unit], sums, says = declared, sums + list(steps.values()), "declares less than was spent of"
        budget = budgets.get(unit)
        if not all(within(total, budget) for total in sums):
            yield f"{name} {says} the budget of {unit}"
        lifetime = (budget or {}).get("lifetime")
        over = (endless and other != NOTHING) or not within(persons.get(unit, NOTHING), lifetime)
        if lifetime is not None and over:
            yield f"{name} {says} the LIFETIME of {unit}"


def number_of(word: str, day: int) -> int:
    """Returns the number of a day's period. Days and periods count from the year 1, which begins with a Monday."""
    if word in ("DAY", "WEEK"):
        return (day - 1) // (1 if word == "DAY" else 7)
    at = date.fromordinal(day)
    return (12 * (at.year - 1) + at.month - 1) // {"MONTH": 1, "QUARTER": 3, "YEAR": 12}[word]


def run_of(key: str) -> tuple[str, bool, range]:
    """Reads the key of a charge: its unit, whether its periods are open at the start or the end, and their numbers."""
    match = KEY.fullmatch(key)
    if match is None:
        return key, False, range(1)
    unit, word = match["unit"], match["word"]
    every = range(number_of(word, LAST) + 1)
    if match["first"] is None:  # EVERY, or written by a version without periods
        return unit, True, every
    first, end = (date.fromisoformat(match[name]).toordinal() for name in ("first", "end"))
    run = range(number_of(word, first), number_of(word, end - 1) + 1)
    begun = first > 1 and number_of(word, first - 1) == run.start
    if not first < end or begun or number_of(word, end) < run.stop or run.stop > every.stop:
        raise ValueError("an empty run, or one with a part of a period")
    return unit, run.start == 0 or run.stop == every.stop, run


def add_charge(steps: dict[int, Price], run: range, other: Price) -> list[Price]:
    """Adds a charge to the sums of its periods, and returns these sums. steps: each sum, by its first period."""
    for cut in (run.start, run.stop):
        steps.setdefault(cut, steps[max(before)] if (before := [at for at in steps if at < cut]) else NOTHING)
    inside = [at for at in steps if at in run]
    steps.update({at: plus(steps[at], other) for at in inside})
    return [steps[at] for at in inside]


def of_person(other: Price, periods: int) -> Price:
    """Computes the cost of k periods to a person with rows in each: k epsilon, and min(k^2 rho, rho of k epsilon)."""
    if periods == 1:  # nothing bounds the delta of keys for more periods
        return other
    epsilon, rho = None if other[0] is None else periods * other[0], periods**2 * other[1]
    return epsilon, min(rho, of_pure(epsilon)[1]) if epsilon else rho, Fraction(1 if other[2] else 0)


def plus(first: Price, other: Price) -> Price:
    """Adds two charges. There is no pure epsilon if one charge has none."""
    epsilon = None if first[0] is None or other[0] is None else first[0] + other[0]
    return epsilon, first[1] + other[1], first[2] + other[2]


def within(spent: Price, budget: Part | None) -> bool:
    """Tells whether a sum of charges is within a budget."""
    if budget is None:
        return False
    if budget["rho"] is None:
        return spent[0] is not None and spent[0] <= Fraction(budget["epsilon"]) and spent[2] == 0
    return spent[1] <= Fraction(budget["rho"]) and spent[2] <= Fraction(budget["delta_keys"])


def is_consistent(budget: Part) -> bool:
    """Tells whether a budget and its LIFETIME are of one kind, and the rho of each is within its epsilon and delta."""
    lifetime = budget.get("lifetime")
    if lifetime is not None:
        same = (lifetime["rho"] is None) == (budget["rho"] is None) and lifetime.get("lifetime") is None
        return same and is_consistent(lifetime) and is_consistent({**budget, "lifetime": None})
    epsilon, rho = (None if budget[name] is None else Fraction(budget[name]) for name in ("epsilon", "rho"))
    delta, keys = Fraction(budget["delta"]), Fraction(budget["delta_keys"])
    if rho is None:
        return epsilon is not None and epsilon > 0 and delta == keys == 0
    if rho <= 0 or not 0 <= keys <= delta < 1 or (epsilon is not None and keys == delta):
        return False
    return epsilon is None or least_epsilon(float(rho), float(delta - keys)) <= float(epsilon) * (1 + 1e-9)


def least_epsilon(rho: float, delta: float) -> float:
    """Returns the least epsilon that rho-zCDP gives at a delta, by a search over Rényi orders (Canonne et al. 2020)."""

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
    """Computes the price of a plan, as the sum of the prices of its parts."""
    parts = []
    for part in plan:
        moved = "moved" in part
        epsilon, rho, delta = of_noise(part["noise"], *norms(part["moved"])) if moved else of_other(part)
        times = 1 if moved else whole(part["times"], 1)
        parts.append((None if epsilon is None else epsilon * times, rho * times, delta * times))
    return add_prices(parts)


def add_prices(parts: list[Price]) -> Price:
    """Adds up prices. If all are pure, the sum has no more rho than its epsilon implies."""
    epsilon, rho, delta = reduce(plus, parts)
    return epsilon, rho if epsilon is None else min(rho, of_pure(epsilon)[1]), delta


def norms(moved: list[Part]) -> tuple[int, int, int]:
    """Adds up the sensitivities of queries that share a noise: L1, squared L2, and the largest change of one number."""
    l1 = l2_squared = most = 0
    for query in moved:
        own_l1, square, largest, times = (whole(query[name], 1) for name in ("l1", "l2_squared", "most", "times"))
        if not largest <= own_l1 <= square or square > own_l1 * own_l1 or square > own_l1 * largest:
            raise ValueError("norms of no vector")
        l1, l2_squared, most = l1 + own_l1 * times, l2_squared + square * times, max(most, largest)
    return l1, l2_squared, most


def whole(value: object, least: int) -> int:
    """Reads a whole number that is at least `least`."""
    if not isinstance(value, int) or value < least:
        raise ValueError("no such number")
    return value


def positive(value: str) -> Fraction:
    """Reads a rational above 0. Any other amount would make a price too small."""
    amount = Fraction(value)
    if amount <= 0:
        raise ValueError("no such amount")
    return amount


def of_noise(noise: Part, l1: int, l2_squared: int, most: int) -> Price:
    """Computes the price of integers that all get this noise: Laplace of scale b, or Gaussian with sigma^2."""
    scale = positive(noise["parameter"])
    if noise["law"] == "discrete Gaussian":
        return None, Fraction(l2_squared) / (2 * scale), Fraction(0)
    if noise["law"] != "discrete Laplace":
        raise ValueError("an unknown noise")
    return Fraction(l1) / scale, rho_of_laplace(Fraction(l1, most), Fraction(most) / scale, 1 / scale), Fraction(0)


def rho_of_laplace(shifts: Fraction, x: Fraction, step: Fraction) -> Fraction:
    """Bounds the rho of `shifts` numbers with Laplace noise that one unit moves by x scales each. step: s = 1 / scale.

    The divergence of discrete Laplace noise from its copy moved by x scales is x - (1 - exp(-x)) s / sinh(s).
    """
    bound = shifts * min(x, x * x / 2)
    if x > 1000 or step > 1000:
        return bound
    with localcontext() as context:
        context.prec = 60
        a, s = (Decimal(v.numerator) / Decimal(v.denominator) for v in (x, step))
        ratio = 2 * s / (s.exp() - (-s).exp()) if s > Decimal("1e-10") else 1 - s * s / 6
        return min(bound, shifts * Fraction(a - (1 - (-a).exp()) * ratio))


def of_pure(epsilon: Fraction) -> Price:
    """Returns the price of a release that is epsilon-DP, which implies that rho is at most epsilon tanh(epsilon/2)."""
    return epsilon, rho_of_laplace(Fraction(1), epsilon, epsilon), Fraction(0)


def of_other(part: Part) -> Price:
    """Computes the price of a choice, a quantile, a threshold, a session, or a family within a limit."""
    l1, kind = whole(part["l1"], 1), part["query"]
    if kind == "Within":
        limit = positive(part["limit"])
        return of_pure(limit) if part["pure"] else (None, limit, Fraction(0))
    if kind == "Choice":
        loss = 2 * positive(part["rate"]) * l1
        return of_pure(loss) if part["pure"] else (None, loss * loss / 8, Fraction(0))
    if kind == "Quantiles":
        loss = 2 * positive(part["rate"]) * whole(part["largest_weight"], 1) * l1
        return loss, min(loss * loss / 8, of_pure(loss)[1]), Fraction(0)
    if kind == "SparseVector":
        step = l1 * UNITS
        compared = sum((step / positive(part[name]["parameter"]) for name in ("noise", "question")), Fraction(0))
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
    new = tail(part["noise"], whole(part["excess"], 0))
    delta = Fraction(-math.expm1(groups * math.log1p(-new)) if new < 1 else 1) * (1 - Fraction(1, 10**8))
    return *add_prices(costs)[:2], delta


def tail(noise: Part, excess: int) -> float:
    """Computes the probability that noise is above `excess`."""
    scale = float(positive(noise["parameter"]))
    if noise["law"] == "discrete Laplace":
        return math.exp(-(excess + 1) / scale) / (1 + math.exp(-1 / scale))
    if scale > 1e7:
        return math.erfc((excess + 0.5) / math.sqrt(2 * scale)) / 2
    reach = int(math.sqrt((excess + 1) ** 2 + 100 * scale)) + 2
    upper = math.fsum(math.exp(-n * n / (2 * scale)) for n in range(excess + 1, reach))
    rest = math.fsum(math.exp(-n * n / (2 * scale)) for n in range(1, int(10 * math.sqrt(scale)) + 2))
    return upper / (1 + 2 * rest)


def main(words: list[str]) -> int:
    """Checks the named bundle, prints its errors, and returns 1 if there are any."""
    reader = argparse.ArgumentParser(description=f"Checks a bundle of the format {FORMAT!r}.")
    reader.add_argument("bundle", nargs="?", type=Path, default=Path(__file__).parent)
    reader.add_argument("--head", metavar="LINK", help="the last link, as the owner published it")
    read = reader.parse_args(words)
    try:
        bundle = json.loads((read.bundle / "certificates.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        reader.error(f"{read.bundle} is no bundle that can be read ({type(error).__name__}); accepted: {ACCEPTED}")
    wrong = [f"WRONG: {line}\n" for line in check(bundle, read.head)]
    sys.stdout.writelines(wrong)
    if wrong:
        return 1
    unpriced = sum(certificate["plan"] is None for certificate in bundle["certificates"])
    sys.stdout.write(
        f"whole: {len(bundle['entries'])} entries, {len(bundle['certificates'])} releases, {unpriced} of them "
        f"without a plan (made by an older version); last link {bundle['head']}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
