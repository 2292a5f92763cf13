"""The questions of the coverage audit, through SQL: statements, their exact figures, and how often intervals hold.

One release has thousands of cells with independent, or nearly independent, noises: they are the runs. Groups of 1 to
100 rows are told apart in three classes, so that no class hides behind another.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from scipy.stats import binom

from tests.support.clinics import Clinic

SIZES = (1, 2, 3, 8, 15, 30, 60, 100)
CLASSES = {"1 to 3 rows": (1, 2, 3), "8 to 15 rows": (8, 15), "30 to 100 rows": (30, 60, 100)}
GROUPS = {"people": 2_000, "few": 160}
PRICES = {
    "Laplace": ("epsilon = 0.2", "epsilon = 1", "epsilon = 5"),
    "Gaussian": ("rho = 0.02", "rho = 0.5", "rho = 12.5"),
}
FALSE_ALARM = 1e-9
"""Of one class of one design at one price whose intervals hold just as often as they must at least, or may at most."""
LEAST, MOST = 0.94, 0.995


@dataclass(frozen=True)
class Design:
    """One aggregate under some options. answer: the aggregate. exact: its value over exact rows.

    options: those beside the price. keys, grouping: the columns shown and the GROUP BY. Both tables have a class by g.
    beside: other aggregates of the same statement. exact_sql: the exact figures, where `exact` cannot say them. alike:
    how many cells share their noise, so that they count as one.
    occupied: whether cells without rows are passed over. wide: why its intervals may hold more often than MOST.
    """

    name: str
    answer: str
    exact: str
    options: str = ""
    keys: str = "g"
    grouping: str = "g"
    table: str = "people"
    where: str = ""
    beside: str = ""
    exact_sql: str = ""
    alike: int = 1
    occupied: bool = False
    wide: str = ""

    @property
    def where_sql(self) -> str:
        """The WHERE clause, if any."""
        return f"WHERE {self.where}" if self.where else ""

    @property
    def counted(self) -> bool:
        """Tells whether a group without rows has a figure, which is 0."""
        return self.answer.startswith(("count", "sum")) and not self.occupied


@dataclass
class Tally:
    """How many intervals were looked at, and how many held the exact figure."""

    looked: int = 0
    held: int = 0
    alike: int = 1

    def add(self, held: bool) -> None:
        """One more."""
        self.looked += 1
        self.held += held

    @property
    def share(self) -> float:
        """The part of the intervals that held."""
        return self.held / max(1, self.looked)

    @property
    def too_few(self) -> bool:
        """Tells whether so few hold with a probability below FALSE_ALARM if the true part is LEAST."""
        return bool(binom.cdf(self.held // self.alike, self.looked // self.alike, LEAST) < FALSE_ALARM)

    @property
    def too_many(self) -> bool:
        """Tells whether so many hold with a probability below FALSE_ALARM if the true part is MOST."""
        return bool(binom.sf(self.held // self.alike - 1, self.looked // self.alike, MOST) < FALSE_ALARM)


def table_sql(name: str) -> str:
    """A table of GROUPS groups of SIZES rows by turns: amounts of every kind, two rows of a unit."""
    sizes = ", ".join(map(str, SIZES))
    uniform = "(hash(i, {}) / 18446744073709551616.0)"
    normal = f"sqrt(-2 * ln({uniform.format(2)} + 1e-12)) * cos(6.283185307 * {uniform.format(3)})"
    return f"""CREATE TABLE {name} AS SELECT i // 2 AS who, g, i % 2 AS h, i % 3 AS k, (i // 2) % 2 AS flag,
        CAST(exp(3 + {normal}) AS DECIMAL(9, 2)) AS x, {uniform.format(4)} AS y, 20 + 40 * {uniform.format(5)} AS z,
        CAST(floor(10 * {uniform.format(6)}) AS INTEGER) AS grade FROM (SELECT row_number() OVER () - 1 AS i, g
        FROM range({GROUPS[name]}) AS r(g), range(100) AS s(j) WHERE j < [{sizes}][1 + g % {len(SIZES)}])"""


def policy_sql(name: str, budget: str) -> str:
    """Returns the policy: clamps with and without steps, one clamp far wider than its values."""
    return f"""CREATE PRIVACY POLICY ON {name} (PRIVACY UNIT who MAX ROWS 2, BUDGET ({budget}),
        DOMAIN g RANGE 0 TO {GROUPS[name]} STEP 1, DOMAIN h IN (0, 1), DOMAIN k IN (0, 1, 2),
        DOMAIN grade RANGE 0 TO 10 STEP 1,
        CLAMP x BETWEEN 0 AND 200 STEP 0.01, CLAMP y BETWEEN 0 AND 1, CLAMP z BETWEEN 0 AND 10000,
        CLAMP flag BETWEEN 0 AND 1, CLAMP grade BETWEEN 0 AND 9)"""


def fill(clinic: Clinic, noise: str) -> None:
    """Both tables, under a budget for one kind of noise."""
    budget = "epsilon = 1000000" if noise == "Laplace" else "rho = 1000000"
    clinic.rows("CREATE TABLE levels AS SELECT range AS k, range < 2 AS fine FROM range(3)")
    clinic.dp("DECLARE PUBLIC TABLE levels")
    for name in GROUPS:
        clinic.rows(table_sql(name))
        clinic.dp(policy_sql(name, budget))
    for name, select in PUBLIC.items():
        clinic.rows(f"CREATE TABLE {name} AS {select}")
        clinic.dp(f"DECLARE PUBLIC TABLE {name}")


X = "least(greatest(x, 0), 200)"
PUBLIC = {
    "known_counts": "SELECT g, count(*) AS a FROM people WHERE g < 400 GROUP BY g",
    "known_halves": "SELECT h, count(*) AS a FROM few GROUP BY h",
    "known_sums": f"SELECT g, sum({X}) AS a FROM people WHERE g < 400 GROUP BY g",
}
"""Totals that are public, of a fifth of the groups or of all of them."""
SETS = "GROUPING SETS ((g, h), (g))"
BY_GROUP = f"SELECT g, sum(least(s, 100)) FROM (SELECT g, who, sum({X}) AS s FROM people GROUP BY g, who) GROUP BY g"
PREFIXES = (
    "SELECT g, up, count(*) FILTER (WHERE grade < up) FROM few, range(1, 11) AS ends(up) WHERE g % 2 = 1 GROUP BY g, up"
)
WHOLE = "noise is whole numbers: at high prices the narrowest interval that holds 95 % of it holds nearly all"
FEW_ROWS = "of a few rows the noise allows nearly every value between the bounds, where the interval is cut"
ANY_ROWS = "the ends are chosen so far out that they hold for all rows there could be"
BUCKETS = "the ends of an interval are ends of buckets, or whole steps"
DESIGNS: tuple[Design, ...] = (
    Design("count", "count(*)", "count(*)", wide=WHOLE),
    Design("count, filter", "count(*) FILTER (WHERE flag = 1)", "count(*) FILTER (WHERE flag = 1)", wide=WHOLE),
    Design("count of a join", "count(*)", "count(*)", table="people JOIN levels USING (k)", where="fine", wide=WHOLE),
    Design("units", "count(DISTINCT who)", "count(DISTINCT who)", wide=WHOLE),
    Design("distinct values", "count(DISTINCT k)", "count(DISTINCT k)", wide=WHOLE),
    Design("count, integer", "count(*)", "count(*)", "integer = TRUE", wide=WHOLE),
    Design("count, nonnegative", "count(*)", "count(*)", "nonnegative = TRUE", wide=WHOLE),
    Design("nonnegative and integer", "count(*)", "count(*)", "nonnegative = TRUE, integer = TRUE", wide=WHOLE),
    Design("sparse, nonnegative", "count(*)", "count(*)", "nonnegative = TRUE", "g, k", "g, k", where="g % 20 = 7",
           occupied=True, wide=WHOLE),
    Design("public totals", "count(*)", "count(*)", "public_totals = 'known_counts'", "g, h", "g, h", alike=2,
           wide=WHOLE),
    Design("public totals, nonnegative", "count(*)", "count(*)", "public_totals = 'known_counts', nonnegative = TRUE",
           "g, h", "g, h", alike=2, wide=WHOLE),
    Design("public totals, whole counts", "count(*)", "count(*)",
           "public_totals = 'known_counts', nonnegative = TRUE, integer = TRUE", "g, h", "g, h", alike=2, wide=WHOLE),
    Design("public totals, sets", "count(*)", "count(*)", "public_totals = 'known_halves'", "g, h", SETS, "few",
           wide=WHOLE),
    Design("public totals of a sum", "sum(x)", f"sum({X})", "public_totals = 'known_sums'", "g, h", "g, h", alike=2),
    Design("sum", "sum(x)", f"sum({X})"),
    Design("sum, wide bounds", "sum(z)", "sum(z)"),
    Design("sum of a join", "sum(x)", f"sum({X})", table="people JOIN levels USING (k)", where="fine"),
    Design("sum beside others", "sum(x)", f"sum({X})", beside="count(*), avg(x)"),
    Design("sum beside a variance", "sum(z)", "sum(z)", beside="var_pop(z)"),
    Design("sum by group and unit", "sum(x, contribution_bounds_per_group => (0, 100))", "", exact_sql=BY_GROUP),
    Design("avg", "avg(x)", f"avg({X})", wide=FEW_ROWS),
    Design("avg, no step", "avg(y)", "avg(y)", wide=FEW_ROWS),
    Design("avg beside a variance", "avg(z)", "avg(z)", beside="stddev_pop(z)", wide=FEW_ROWS),
    Design("var_pop", "var_pop(y)", "var_pop(y)", wide=FEW_ROWS),
    Design("var_samp", "var_samp(y)", "var_samp(y)", wide=FEW_ROWS),
    Design("stddev_pop", "stddev_pop(x)", f"stddev_pop({X})", wide=FEW_ROWS),
    Design("stddev_pop, wide bounds", "stddev_pop(z)", "stddev_pop(z)", wide=FEW_ROWS),
    Design("stddev_samp of a flag", "stddev_samp(flag)", "stddev_samp(flag)", wide=f"{FEW_ROWS}; {WHOLE}"),
    Design("sets, l2", "count(*)", "count(*)", "", "g, h", SETS, wide=WHOLE),
    Design("sets, nonnegative", "count(*)", "count(*)", "nonnegative = TRUE", "g, h", SETS, wide=WHOLE),
    Design("sets, integer", "count(*)", "count(*)", "integer = TRUE", "g, h", SETS, wide=WHOLE),
    Design("sets, none", "count(*)", "count(*)", "consistency = 'none'", "g, h", SETS, wide=WHOLE),
    Design("sets, linf", "count(*)", "count(*)", "consistency = 'linf', strategy = 'marginals'", "g, h", SETS, "few",
           wide=WHOLE),
    Design("sets, l1", "count(*)", "count(*)", "consistency = 'l1', strategy = 'marginals'", "g, h", SETS, "few",
           wide=WHOLE),
    Design("prefixes", "count(*)", "", "", "g, range_end(grade)", "g, PREFIXES(grade)", "few", "g % 2 = 1",
           exact_sql=PREFIXES, alike=10, wide=WHOLE),
    Design("median", "median(x)", f"quantile_disc({X}, 0.5)", "quantiles = 'tree'", table="few", wide=BUCKETS),
    Design("median, chosen", "median(x)", f"quantile_disc({X}, 0.5)", "quantiles = 'choice'", table="few",
           wide=ANY_ROWS),
    Design("decile, chosen", "quantile_cont(grade, 0.1)", "quantile_disc(grade, 0.1)", "quantiles = 'choice'",
           table="few", wide=ANY_ROWS),
    Design("upper decile", "quantile_cont(grade, 0.9)", "quantile_disc(grade, 0.9)", "quantiles = 'tree'",
           table="few", wide=BUCKETS),
    Design("max", "max(x)", f"max({X})", table="few", wide=BUCKETS),
)  # fmt: skip


def intervals(clinic: Clinic, design: Design, price: str, tag: str) -> list[tuple[Any, ...]]:
    """The keys and the interval of every released cell."""
    listed = ", ".join(part for part in (price, f"refresh = '{tag}'", design.options) if part)
    beside = f", {design.beside}" if design.beside else ""
    return clinic.dp(
        f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({listed}) {design.keys}, dp_interval_low(a), dp_interval_high(a), "
        f"{design.answer} AS a{beside} FROM {design.table} {design.where_sql} GROUP BY {design.grouping}"
    )


def exact_figures(clinic: Clinic, design: Design) -> dict[tuple[Any, ...], float]:
    """Returns the exact value that every cell's interval must hold, by the cell's keys."""
    default = f"SELECT {design.keys}, {design.exact} FROM {design.table} {design.where_sql} GROUP BY {design.grouping}"
    rows = clinic.rows(design.exact_sql or default)
    return {tuple(row[:-1]): float(row[-1]) for row in rows if row[-1] is not None}


def tallies(clinic: Clinic, design: Design, price: str, runs: Iterable[int]) -> dict[str, Tally]:
    """How often the intervals of a design held at a price, by the number of rows of the group."""
    exact = exact_figures(clinic, design)
    found = {name: Tally() for name in CLASSES}
    for run in runs:
        width = len(design.keys.split(", "))
        for row in intervals(clinic, design, price, f"{run}"):
            keys, (low, high) = row[:width], row[width : width + 2]
            truth = exact.get(keys, 0.0 if design.counted else None)
            if truth is None:
                continue
            slack = 1e-9 * max(1.0, abs(truth))
            size = SIZES[int(keys[0]) % len(SIZES)]
            name = next(name for name, sizes in CLASSES.items() if size in sizes)
            found[name].add(low is None or low - slack <= truth <= high + slack)
    for tally in found.values():
        tally.alike = design.alike
    return found
