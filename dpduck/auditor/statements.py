"""Statements to audit: some for each mechanism."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
    """Parts of statements over a table.

    keys: columns with a domain, sorted by its size. clamped: columns with a CLAMP. texts: columns of texts without a
    domain. unit: SQL of the unit.
    """

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
    """Returns the unit as an argument of count(DISTINCT ..), or None if the table has no column of the unit."""
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
