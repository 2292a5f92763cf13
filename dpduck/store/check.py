"""Exact facts from dp_check and dp_compare, only for the owner of a table, who has the rows anyway.

No fact is stored. dp_compare measures the distance of a synthetic table's rows from the data: the total variation
of each marginal, half the sum of absolute differences of shares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb, prod
from types import MappingProxyType
from typing import Any

import duckdb
import numpy as np

from dpduck.kernel.columns.conditions import where_sql
from dpduck.kernel.columns.expressions import Expression, Own
from dpduck.kernel.counting.jobs import GroupKey
from dpduck.kernel.rows.binning import code_expression
from dpduck.language.rows.facts import CatalogColumn, Clamp, Policy
from dpduck.language.select.request import Question
from dpduck.language.text.names import TableName
from dpduck.values.arrays import FloatArray, IntegerArray
from dpduck.values.domain import RangeDomain
from dpduck.values.periods import word_of
from dpduck.values.quoting import fold, quote_identifier
from dpduck.values.sqltypes import sql_type
from dpduck.values.text_readings import readings

MOST_ROWS = 1_000_000

MOST_MARGINS, MOST_CELLS = 1_000, 1 << 22
"""Most compared marginals of three columns, those with the most distant pairs first, and most cells of a marginal."""


@dataclass(frozen=True)
class Distance:
    """Distance of a marginal of `ways` columns. value: the cell that differs most. in_data, in_rows: its shares."""

    columns: str
    ways: int
    distance: float
    value: str
    in_data: float
    in_rows: float


def code_rows(cursor: duckdb.DuckDBPyConnection, question: Question, relation: str) -> IntegerArray:
    """Returns the codes of rows inside all domains, as an array by key and row. Large tables are sampled.

    relation: SQL of a table with columns named as the keys.
    """
    parts, parameters = [], dict[str, object]()
    for place, key in enumerate(question.keys):
        domain = question.sources[key.sources[0]].domain
        code = code_expression(GroupKey(Own((quote_identifier(key.name),)), domain), place)
        parts.append(f"CAST({code.sql} AS INTEGER) AS c{place}")
        parameters |= code.parameters
    sampled = f"SELECT {', '.join(parts)} FROM ({relation}) USING SAMPLE {MOST_ROWS} ROWS"
    sample = cursor.sql(sampled, params=parameters).to_arrow_table()
    rows = []
    for place, key in enumerate(question.keys):
        positions = sample.column(place).combine_chunks().fill_null(len(key.codes)).to_numpy()
        rows.append(np.append(np.array(key.codes, np.int64), -1)[positions])
    codes = np.array(rows)
    return codes[:, (codes >= 0).all(axis=0)]


def distances(question: Question, data: IntegerArray, rows: IntegerArray) -> list[Distance]:
    """Returns the distances of the marginals of one, two and three columns, the largest first. See MOST_MARGINS."""
    columns, results = range(len(question.keys)), list[Distance]()
    pairs: dict[tuple[int, ...], float] = {}
    for members in [*combinations(columns, 1), *combinations(columns, 2)]:
        result = _distance(question, data, rows, members)
        if result is not None:
            results.append(result)
            pairs[members] = result.distance
    triples: Iterable[tuple[int, ...]] = combinations(columns, 3)
    if comb(len(question.keys), 3) > MOST_MARGINS:
        triples = sorted(triples, key=lambda triple: -sum(pairs.get(pair, 0.0) for pair in combinations(triple, 2)))
    for members in list(triples)[:MOST_MARGINS]:
        result = _distance(question, data, rows, members)
        results += [] if result is None else [result]
    return sorted(results, key=lambda result: -result.distance)


def _distance(question: Question, data: IntegerArray, rows: IntegerArray, members: Sequence[int]) -> Distance | None:
    shape = tuple(len(question.keys[member].labels) for member in members)
    if prod(shape) > MOST_CELLS:
        return None
    true, synthetic = (_shares(codes, members, shape) for codes in (data, rows))
    worst = int(np.abs(true - synthetic).argmax())
    places = np.unravel_index(worst, shape)
    values = (question.keys[member].labels[int(place)] for member, place in zip(members, places, strict=True))
    return Distance(
        ", ".join(question.keys[member].name for member in members), len(members),
        float(np.abs(true - synthetic).sum() / 2), ", ".join("NULL" if label is None else label for label in values),
        float(true[worst]), float(synthetic[worst]),
    )  # fmt: skip


def _shares(codes: IntegerArray, members: Sequence[int], shape: tuple[int, ...]) -> FloatArray:
    cells = np.ravel_multi_index([codes[member] for member in members], shape)
    shares: FloatArray = np.bincount(cells, minlength=prod(shape)) / max(codes.shape[1], 1)
    return shares


NO_POLICY = (
    "no policy yet: dp_draft('..') begins one. A domain or clamp says what was known without these rows: "
    "round outwards, and copy nothing from here"
)
Columns = Callable[[str, Mapping[str, object]], list[Any]]
"""Runs SQL with parameters and returns its columns. If the rows lie in an engine, each task has some of the units, and
columns named TOTAL and a number are added up over the tasks.
"""

TOTAL = "dpduck_total_"
LARGER = "a larger MAX ROWS drops fewer rows and adds noise"
NORMS = (
    "MAX ROWS may be generous if prices have a delta or are in rho, and statements have a norm; dp_check with a "
    "statement shows what norms leave out"
)
MOVED_ON = "answers are about these; ALTER PRIVACY POLICY ON .. NEW EPOCH prepares the rows of today"


@dataclass(frozen=True)
class CheckFinding:
    """One exact fact with advice. percent: if the fact is a number of rows, their share of all rows."""

    what: str
    value: float | None
    advice: str
    percent: float | None = None


def check_table(
    columns: Columns,
    policy: Policy,
    from_sql: str,
    unit_sql: str | None,
    prepared: float | None = None,
    period: Expression | None = None,
    *,
    averages: bool = True,
) -> list[CheckFinding]:
    """Returns findings: the rows per unit, and the rows that several values of MAX ROWS, domains and clamps leave out.

    columns: reader of the rows. from_sql: the table, joined with the tables that lead to the unit. unit_sql: None for
    PRIVACY UNIT ROW. prepared: number of prepared rows. period: for a unit by periods, the number of a row's period,
    NULL for none. averages: whether averages of clamped columns are computed. An engine adds up only whole numbers.
    """
    total = _one(columns, ["count(*)"], policy.table.sql)[0]
    return [
        CheckFinding("rows", total, "EXPECT ROWS is a public guess: round it, or leave it out"),
        *([] if prepared is None else [_rows("rows that were prepared", prepared, total, MOVED_ON)]),
        *(_unit_findings(columns, policy, from_sql, unit_sql, total) if unit_sql is not None else []),
        *([] if period is None else [_period_finding(columns, policy, from_sql, period, total)]),
        *_domain_findings(columns, policy, total),
        *_clamp_findings(columns, policy, total, averages),
    ]


def check_columns(reads: Columns, table: TableName, columns: Sequence[CatalogColumn]) -> list[CheckFinding]:
    """Describes a table without a policy: its rows, and each column's NULLs, values, quantiles and rows per value."""
    total = _row(reads, f"SELECT count(*) FROM {table.sql}")[0] or 0.0
    findings = [CheckFinding("rows", total, NO_POLICY)]
    name_of_table = ".".join(map(quote_identifier, table.parts[-1:] if table.parts[-2] == "main" else table.parts[-2:]))
    for column in columns:
        name = quote_identifier(column.name)
        nulls, values = _row(reads, f"SELECT count(*) - count({name}), count(DISTINCT {name}) FROM {table.sql}")
        findings.append(_rows(f"rows with NULL in {column.name}", nulls, total, "WITH NULL would keep them in cells"))
        findings.append(CheckFinding(f"different values of {column.name}", values, ""))
        kind = sql_type(column.type_name)
        ways = readings(lambda sql: _row(reads, sql), table.sql, column.name, column.type_name)
        doubt = "only you know which format is meant; " if len(ways) > 1 else ""
        for way in ways:
            advice = f"{doubt}in DuckDB{'' if way.is_whole else ', with NULL for others'}: {way.alter(name_of_table)}"
            findings.append(_rows(f"values of {column.name} that are {way.how}", way.read, way.values, advice))
        if kind.is_numeric:
            ends = ", ".join(f"CAST(quantile_disc({name}, {place}) AS DOUBLE)" for place in (0.005, 0.995))
            low, high = _row(reads, f"SELECT {ends} FROM {table.sql}")
            findings.append(
                CheckFinding(f"99 % of {column.name} are at least", low, "what lies below a CLAMP counts as it")
            )
            findings.append(
                CheckFinding(f"99 % of {column.name} are at most", high, "what lies above a CLAMP counts as it")
            )
        may_be_unit = kind.bits > 8 or (kind.is_unit_part and not kind.is_whole)  # 256 values are too few for units
        if may_be_unit and values:
            per = f"SELECT count(*) AS rows FROM {table.sql}{where_sql([f'{name} IS NOT NULL'])} GROUP BY {name}"
            high, most = _row(reads, f"SELECT quantile_disc(rows, 0.99), max(rows) FROM ({per})")
            advice = f"if {column.name} is the privacy unit, consider it as MAX ROWS; the most is {most:.0f}"
            findings.append(CheckFinding(f"99 % of {column.name} have at most this many rows", high, advice))
    return findings


def _rows(what: str, rows: float | None, total: float, advice: str) -> CheckFinding:
    return CheckFinding(what, rows, advice, None if rows is None else 100 * rows / max(total, 1.0))


def _unit_findings(columns: Columns, policy: Policy, from_sql: str, unit_sql: str, total: float) -> list[CheckFinding]:
    bound = policy.unit.max_rows
    per_unit = f"SELECT count(*) AS rows FROM {from_sql}{where_sql([f'{unit_sql} IS NOT NULL'])} GROUP BY {unit_sql}"
    counted, number = columns(f"SELECT rows, count(*) AS {TOTAL}0 FROM ({per_unit}) GROUP BY rows", {})
    order = np.argsort(counted)
    rows, number = np.asarray(counted)[order].astype(float), np.asarray(number)[order].astype(float)
    units, owned, upto = float(number.sum()), float((rows * number).sum()), number.cumsum()
    median, high, most = (
        float(rows[int(np.searchsorted(upto, part * units))]) if units else None for part in (0.5, 0.99, 1.0)
    )
    tried = {bound, max(1, bound // 2), 2 * bound, *(int(quantile) for quantile in (median, high, most) if quantile)}
    dropped = []
    for other in sorted(tried):
        lost = float((np.maximum(rows - other, 0) * number).sum())
        advice = f"with MAX ROWS {other} a count at epsilon = 1 without a delta has a standard error of "
        advice += f"{other * 2**0.5:.3g} (Laplace noise)"
        if other == bound:
            advice = f"{LARGER}: {advice}"
        dropped.append(_rows(f"rows dropped by MAX ROWS {other}", lost, total, advice))
    return [
        CheckFinding("privacy units", units, ""),
        CheckFinding("median rows of a unit", median, ""),
        CheckFinding("99 % of units have at most this many rows", high, f"consider it as MAX ROWS; {LARGER}"),
        CheckFinding("most rows of a unit", most, NORMS),
        *dropped,
        _rows("rows whose unit is NULL", total - owned, total, "they are never counted, nor are rows without a parent"),
    ]


def _period_finding(columns: Columns, policy: Policy, from_sql: str, period: Expression, total: float) -> CheckFinding:
    (lost,) = _one(columns, [f"count(*) FILTER (WHERE ({period.sql}) IS NULL)"], from_sql)
    word = str(word_of(policy.unit.key)).lower()
    return _rows(f"rows in no {word}", lost, total, f"a NULL or endless date is of no {word}: they are never counted")


def _domain_findings(columns: Columns, policy: Policy, total: float) -> list[CheckFinding]:
    findings: list[CheckFinding] = []
    parameters: dict[str, object] = {}
    left_out: list[str] = []
    for position, (column, domain) in enumerate(policy.domains):
        name = f"t.{quote_identifier(column)}"
        code = code_expression(GroupKey(Own((name,)), domain), position)
        nulls, outside = _one(
            columns,
            [f"count(*) FILTER (WHERE {name} IS NULL)", f"count(*) FILTER (WHERE {name} IS NOT NULL)"],
            f"{policy.table.sql} AS t{where_sql([f'({code.sql}) IS NULL'])}",
            code.parameters,
        )
        other = "WITH EDGES or a wider RANGE" if isinstance(domain, RangeDomain) else "WITH OTHER or more values"
        findings.append(_rows(f"rows outside the domain of {column}", outside, total, f"{other} would keep them"))
        if nulls:
            period = policy.unit.period
            by_it = period is not None and fold(period.column) == fold(column)
            keep = "they are of no period, and never counted" if by_it else "WITH NULL would keep them"
            findings.append(_rows(f"rows with NULL in {column}", nulls, total, keep))
        parameters |= code.parameters
        left_out.append(f"({code.sql}) IS NULL")
    if len(left_out) > 1:
        outside_of_any = f"{policy.table.sql} AS t{where_sql([' OR '.join(left_out)])}"
        (lost,) = _one(columns, ["count(*)"], outside_of_any, parameters)
        advice = "a statement that groups by all of these columns has them in no cell and in no total"
        findings.append(_rows("rows outside some domain", lost, total, advice))
    return findings


def _clamp_findings(columns: Columns, policy: Policy, total: float, averages: bool) -> list[CheckFinding]:
    findings = []
    for clamp in policy.clamps:
        name = quote_identifier(clamp.column)
        conditions = (f"{name} < {clamp.low}", f"{name} > {clamp.high}", f"{name} IS NULL")
        below, above, nulls = _one(
            columns, [f"count(*) FILTER (WHERE {condition})" for condition in conditions], policy.table.sql
        )
        findings += [
            _rows(f"values of {clamp.column} below its clamp", below, total, f"each counts as {clamp.low}"),
            _rows(f"values of {clamp.column} above its clamp", above, total, f"each counts as {clamp.high}"),
            _rows(f"rows with NULL in {clamp.column}", nulls, total, "they are in no sum, average or quantile of it"),
            *(_averages(columns, policy, clamp) if averages else ()),
        ]
    return findings


LARGEST = "1e300"
"""Largest absolute value in an average. Larger values, infinities and NaN are left out."""


def _averages(columns: Columns, policy: Policy, clamp: Clamp) -> Iterator[CheckFinding]:
    value = f"CAST({quote_identifier(clamp.column)} AS DOUBLE)"
    inside = f"{value} BETWEEN -{LARGEST} AND {LARGEST}"
    clamped = f"greatest(least({value}, {clamp.high}), {clamp.low})"
    sums = [f"coalesce(sum(CASE WHEN {inside} THEN {term} END), 0)" for term in (value, clamped)]
    number, plain, within = _one(columns, [f"count(CASE WHEN {inside} THEN 1 END)", *sums], f"{policy.table.sql} AS t")
    if number:
        moved = abs(within - plain) / max(abs(plain), 1e-300)
        share = f"{100 * moved:.2g} % of it is lost or added by the clamp" if plain else "the clamp alone makes it"
        wider = "; a wider CLAMP would keep more, with more noise" if moved > NOTABLE else ""
        yield CheckFinding(f"average of {clamp.column} without its clamp", plain / number, "answers never see it")
        yield CheckFinding(f"average of {clamp.column} with its clamp", within / number, share + wider)


NOTABLE = 0.01


def _one(
    columns: Columns, counts: Sequence[str], from_sql: str, parameters: Mapping[str, object] = MappingProxyType({})
) -> list[float]:
    listed = ", ".join(f"{count} AS {TOTAL}{number}" for number, count in enumerate(counts))
    return [float(column[0]) for column in columns(f"SELECT {listed} FROM {from_sql}", parameters)]


def _row(columns: Columns, sql: str) -> list[float | None]:
    arrays = [np.ma.MaskedArray(column) for column in columns(sql, {})]
    return [None if column.mask.any() else float(column[0]) for column in arrays]
