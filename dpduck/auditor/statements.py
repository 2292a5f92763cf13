"""Statements to audit: some for each mechanism, and a search through the statements that policies allow.

The search is guided by coverage. It composes a statement from parts, and prefers the parts that were tried least. So it
soon tries every part together with many others. Its choices follow from a seed, which is printed.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dpduck.auditor.neighbours import UNIQUE_TEXT, Neighbours, is_open_text
from dpduck.language.rows.facts import CatalogColumn, Policy
from dpduck.values.domain import RangeDomain
from dpduck.values.privacy import PrivacyUnit
from dpduck.values.quoting import fold, quote_identifier
from dpduck.values.sqltypes import sql_type

SELECT = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS"
MOST_CELLS = 200
"""Most cells of a key in a statement. With few cells, a second has many runs."""


@dataclass(frozen=True)
class Case:
    """A statement to audit. mechanism: its intended mechanism. text: SQL with {tag}, which is a new word in each run.

    then: if given, each run is a release by dp(), after the statement `before`, and this query's rows are compared.
    """

    mechanism: str
    text: str
    then: str = ""
    before: str = ""


@dataclass(frozen=True)
class StatementParts:
    """Parts of statements over a table. keys: sorted by size. clamped: have a CLAMP. texts: no domain. unit: SQL."""

    table: str
    keys: tuple[str, ...]
    clamped: tuple[str, ...]
    texts: tuple[str, ...]
    unit: str | None
    numbers: tuple[str, ...]
    where: str
    delta: bool
    price: str

    def options(self, more: str = "") -> str:
        """Writes the clause with the price and a fresh tag."""
        return f"({self.price}{more}, refresh = '{{tag}}')"


def list_parts(pair: Neighbours, epsilon: str) -> list[StatementParts]:
    """Lists the parts of statements over each table. epsilon: the price of each, as rho if a budget has no epsilon."""
    return [_parts_of(policy, pair.columns(policy), epsilon) for policy in pair.policies]


def _parts_of(policy: Policy, columns: Sequence[CatalogColumn], epsilon: str) -> StatementParts:
    unit, period = policy.unit, policy.unit.period
    hidden = set(map(fold, unit.own_columns))
    open_columns = [column for column in columns if fold(column.name) not in hidden]
    keys = [column for column in open_columns if policy.domain(column.name) is not None]
    sizes = {column.name: domain.size for column in keys if (domain := policy.domain(column.name)) is not None}
    small = sorted((name for name in sizes if sizes[name] <= MOST_CELLS), key=lambda name: sizes[name])
    texts = [column.name for column in open_columns if is_open_text(column, policy)]
    numbers = [column.name for column in open_columns if sql_type(column.type_name).is_numeric]
    of_period = [] if period is None else [column for column in keys if fold(column.name) == fold(period.column)]
    domain = policy.domain(of_period[0].name) if of_period else None
    where = ""
    if isinstance(domain, RangeDomain) and period is not None:
        name = quote_identifier(period.column)
        where = f" WHERE {name} >= '{domain.edges[0]}' AND {name} < '{domain.upper}'"
    budget = policy.budget
    price = f"epsilon = {epsilon}" if budget.pure or budget.epsilon is not None else f"rho = {epsilon}"
    return StatementParts(
        ".".join(map(quote_identifier, policy.table.parts[1:])),
        tuple(map(quote_identifier, small)),
        tuple(quote_identifier(clamp.column) for clamp in policy.clamps),
        tuple(map(quote_identifier, texts)),
        _unit_text(unit),
        tuple(map(quote_identifier, numbers)),
        where,
        budget.delta_keys > 0 or (not budget.pure and budget.epsilon is not None),
        price,
    )  # fmt: skip


def _unit_text(unit: PrivacyUnit) -> str | None:
    """Returns the unit as an argument of count(DISTINCT ..). None if the table has no column of the unit."""
    names = () if unit.reference is not None else unit.own_columns
    listed = ", ".join(map(quote_identifier, names))
    return f"({listed})" if len(names) > 1 else listed or None


def own_statements(scope: StatementParts) -> Iterator[Case]:
    """Yields statements for every mechanism that the policy allows."""
    whole, options = f"FROM {scope.table}{scope.where}", scope.options()
    first = scope.keys[0] if scope.keys else None
    by_first = f" GROUP BY {first}" if first else ""
    named = f"{first}, " if first else ""
    yield Case("cube", f"{SELECT} {options} {named}count(*) AS n {whole}{by_first}")
    for value in scope.clamped[:1]:
        for answer in (f"sum({value})", f"avg({value})", f"median({value})"):
            yield Case("cube", f"{SELECT} {options} {named}{answer} AS a {whole}{by_first}")
        yield Case("cube", f"{SELECT} {options} count(*) AS n, sum({value}) AS s {whole}")
        clause = scope.options(", quantiles = 'choice'")
        yield Case("cube", f"{SELECT} {clause} {named}median({value}) AS a {whole}{by_first}")
    if len(scope.keys) > 1:
        pair = ", ".join(scope.keys[:2])
        yield Case("cube", f"{SELECT} {options} {pair}, count(*) AS n {whole} GROUP BY CUBE ({pair})")
        clause = f"OPTIONS ({scope.price}, mechanism = 'mwem', rows = 40)"
        select = f"AS SELECT {pair} {whole} WORKLOAD MARGINALS (2)"
        yield Case("synthetic table", f"CREATE PRIVATE TABLE audited_{{tag}} {clause} {select}")
    if scope.unit is not None and first:
        yield Case("cube", f"{SELECT} {options} {first}, count(DISTINCT {scope.unit}) AS n {whole}{by_first}")
    if scope.unit is not None and first and scope.delta:
        for norm in ("1", "'private'"):
            clause = scope.options(f", delta = 1e-7, max_norm_contributed = {norm}")
            query = f"{SELECT} {clause} {first}, count(*) AS n, count(DISTINCT {scope.unit}) AS p {whole}{by_first}"
            yield Case("norms" if norm == "'private'" else "cube", query)
    if first:
        yield from _summaries(scope, first)
    key = next(iter(scope.texts), first)
    if scope.delta and key:
        for kind in ("LAPLACE", "GAUSSIAN"):
            clause = f"({scope.price}, delta = 1e-7, group_selection_strategy = {kind}_THRESHOLD, "
            clause += "max_groups_contributed = 1, refresh = '{tag}')"
            counted = "count(*)" if scope.unit is None else f"count(DISTINCT {scope.unit})"
            yield Case("selected keys", f"{SELECT} {clause} {key}, {counted} AS n {whole} GROUP BY {key}")
    if key:
        yield from _sparse_statements(scope, key)
    if first:
        yield Case(
            "known answers",
            f"{SELECT} {options} {first}, count(*) AS n {whole}{by_first}",
            f"FROM dp_known('SELECT count(*) AS n {whole.replace(chr(39), chr(39) * 2)}')",
            f"ALTER PRIVACY POLICY ON {scope.table} NEW EPOCH",
        )


def _summaries(one: StatementParts, key: str) -> Iterator[Case]:
    """Yields summaries of counts by a key, and one summary of sums."""
    for method in ("'filter'", "'priority', summary_size = 2", "'sketch', sketch_rows = 3"):
        clause = one.options(f", summary = {method}")
        mechanism = "sketch" if "sketch" in method else "summary"
        yield Case(mechanism, f"{SELECT} {clause} {key}, count(*) AS n FROM {one.table}{one.where} GROUP BY {key}")
    for value in one.clamped[:1]:
        clause = one.options(", summary = 'filter'")
        yield Case("summary", f"{SELECT} {clause} {key}, sum({value}) AS n FROM {one.table}{one.where} GROUP BY {key}")


def _sparse_statements(scope: StatementParts, key: str) -> Iterator[Case]:
    """Yields projections, histograms and sessions over a key, and a session together with its answers."""
    options = f"OPTIONS ({scope.price}, sparsity = 1, queries = 10"
    over = f"ON {scope.table} ({key}){scope.where}"
    select = f"AS SELECT {key} FROM {scope.table}{scope.where}"
    session = f"CREATE PRIVATE SESSION audited_{{tag}} {options}) {over}"
    yield Case("projection", f"CREATE PRIVATE PROJECTION audited_{{tag}} {options}, rows = 64) {select}")
    yield Case("histogram", f"CREATE PRIVATE HISTOGRAM audited_{{tag}} {options}) {over}")
    yield Case("session", session)
    yield Case("session", session, f"FROM dp_ask('audited_{{tag}}', ['{UNIQUE_TEXT}'])")


# The search.


@dataclass
class StatementSearch:
    """Search that composes statements from the parts that were tried least so far. seed: the source of all choices."""

    tables: list[StatementParts]
    seed: str
    accepted: Counter[str] = field(default_factory=Counter)
    tried: Counter[str] = field(default_factory=Counter)
    number: int = 0

    def statement(self) -> tuple[str, tuple[str, ...]]:
        """Returns the next statement, and the names of its parts."""
        self.number += 1
        scope = self.tables[self.number % len(self.tables)]
        keys, key_part = self._keys(scope)
        aggregates = [self._aggregate(scope), *([self._aggregate(scope)] if self._chance("second", 3) == 0 else [])]
        grouping, group_part = self._grouping(keys)
        where, where_part = self._pick("where", _conditions(scope))
        option, option_part = self._pick("option", OPTIONS)
        tail, tail_part = self._pick("tail", ["", " ORDER BY ALL", " HAVING a1 > 0", " ORDER BY a1 DESC LIMIT 3"])
        listed = [*keys, *(f"{sql} AS a{place + 1}" for place, (sql, _) in enumerate(aggregates))]
        joined = scope.where if not where else f"{scope.where} AND ({where})" if scope.where else f" WHERE {where}"
        text = f"{SELECT} {scope.options(option)} {', '.join(listed)} FROM {scope.table}{joined}{grouping}{tail}"
        parts = (key_part, group_part, where_part, option_part, tail_part, *(part for _, part in aggregates))
        self.tried.update(set(parts))
        return text, parts

    def note(self, parts: Sequence[str], answered: bool) -> None:
        """Notes whether a statement of these parts was answered."""
        if answered:
            self.accepted.update(set(parts))

    def _chance(self, what: str, number: int) -> int:
        digest = hashlib.sha256(f"{self.seed} {self.number} {what}".encode()).digest()
        return int.from_bytes(digest[:8], "big") % number

    def _pick(self, what: str, options: Sequence[str]) -> tuple[str, str]:
        """Returns one of the three options with the fewest tries, and its name. what: the kind of choice."""
        order = sorted(
            range(len(options)),
            key=lambda place: (self._tries(f"{what} {options[place]}"), self._chance(f"{what} {place}", 1 << 30)),
        )
        chosen = options[order[self._chance(what, min(3, len(order)))]]
        return chosen, f"{what} {chosen}"

    def _tries(self, part: str) -> int:
        """Returns the number of tries of a part. Tries of a part that was always refused count three times."""
        return self.tried[part] * (1 if self.accepted[part] or self.tried[part] < 2 else 3)

    def _keys(self, scope: StatementParts) -> tuple[list[str], str]:
        number = self._chance("number of keys", 1 + min(3, len(scope.keys)))
        start = self._chance("first key", max(len(scope.keys), 1))
        keys = [scope.keys[(start + place) % len(scope.keys)] for place in range(number)]
        return keys, f"keys {scope.table} {number}"

    def _aggregate(self, scope: StatementParts) -> tuple[str, str]:
        return self._pick(f"aggregate {scope.table}", _aggregates(scope))

    def _grouping(self, keys: Sequence[str]) -> tuple[str, str]:
        if not keys:
            return "", "grouping none"
        listed = ", ".join(keys)
        forms = [f"{listed}", f"CUBE ({listed})", f"ROLLUP ({listed})", f"GROUPING SETS (({listed}), ())", "ALL",
                 f"MARGINALS (1, {listed})"]  # fmt: skip
        names = ["list", "cube", "rollup", "sets", "all", "marginals"]
        name, part = self._pick("grouping", names)
        return f" GROUP BY {forms[names.index(name)]}", part


OPTIONS = (
    "", ", consistency = 'none'", ", consistency = 'l1'", ", consistency = 'linf'", ", nonnegative = TRUE",
    ", integer = TRUE", ", budgets = 'uniform'", ", confidence = 0.9", ", strategy = 'identity'",
    ", max_rows_contributed = 1", ", max_norm_contributed = 1",
)  # fmt: skip


def _aggregates(scope: StatementParts) -> list[str]:
    texts = ["count(*)", "count(*) FILTER (WHERE 1 = 1)"]
    for value in scope.clamped:
        texts += [f"{name}({value})" for name in ("sum", "avg", "min", "max", "median", "var_pop", "stddev", "count")]
        texts += [f"quantile_cont({value}, 0.25)", f"sum({value} * 2 + 1)", f"sum(abs({value}))"]
        texts += [f"sum({value}, contribution_bounds_per_group => (0, 8))", f"sum({value}) FILTER (WHERE {value} > 1)"]
    for value in scope.numbers:
        texts += [f"sum(least(greatest(1 / {value}, 0), 1))"]
    for key in scope.keys:
        texts += [f"count(DISTINCT {key})"]
    for value in scope.numbers:
        texts += [f"sum(CAST({value} AS TINYINT), contribution_bounds_per_row => (0, 3))"]
    for text in scope.texts:
        texts += [f"count({text})", f"sum(CAST({text} AS INTEGER), contribution_bounds_per_row => (0, 3))"]
        texts += [f"count(*) FILTER (WHERE CAST({text} AS DATE) > DATE '2020-01-01')"]
    if scope.unit is not None:
        texts += [f"count(DISTINCT {scope.unit})"]
    return [*texts, "count(*, contribution_bounds_per_group => (0, 2))"]


def _conditions(scope: StatementParts) -> list[str]:
    texts = ["", "1 = 1"]
    for key in scope.keys:
        texts += [f"{key} IS NOT NULL", f"{key} IS DISTINCT FROM {key}", f"coalesce({key} = {key}, FALSE)"]
    for value in scope.numbers:
        texts += [f"{value} > 1", f"100 / {value} > 1", f"CAST({value} AS TINYINT) < 9", f"{value} * {value} > 4",
                  f"sqrt({value}) > 1", f"{value} BETWEEN -5 AND 50 OR {value} IS NULL"]  # fmt: skip
    for text in scope.texts:
        texts += [f"{text} LIKE 'n%'", f"CAST({text} AS INTEGER) > 1", f"length({text}) > 3",
                  f"CAST({text} AS DATE) > DATE '2020-01-01'", f"regexp_matches({text}, 'o')"]  # fmt: skip
    return texts
