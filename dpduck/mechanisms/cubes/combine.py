"""dp_stderr_of and dp_ratio_of: weighted sums of released cells with their standard errors, free of charge.

Weights are expressions over the keys of the release itself. A private view may show other rows than its release.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite, prod, sqrt

import duckdb
import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from dpduck.kernel.noise.law import NoiseKind
from dpduck.language.rows.expressions import sql_of
from dpduck.language.rows.functions import check_row_local
from dpduck.language.select.options import confidence_from
from dpduck.language.statements.parse import parse_expression
from dpduck.language.text.names import GROUPING_ID, GROUPING_SET, answer_column
from dpduck.language.text.words import meant_or
from dpduck.store.cursors import Caller
from dpduck.store.releases import KNOWN, STREAM, ReleaseStore, StoredRelease
from dpduck.store.sandbox import first_line, sandbox
from dpduck.store.tables import rows_sql
from dpduck.strategies.recovery.covariances import (
    Covariances,
    covariances_from_text,
    ratio_interval,
    ratio_weights,
    scale_to_variance,
    variance_of_sum,
)
from dpduck.strategies.recovery.intervals import SumMargin, sum_margin
from dpduck.values.arrays import FloatArray
from dpduck.values.errors import Refusal
from dpduck.values.quoting import fold, quote_identifier

Weights = dict[tuple[int, ...], FloatArray]
MOST_LISTED = 8

_NULL_TESTS = (exp.Coalesce, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Nvl2)
_COLUMNS = (("estimate", "DOUBLE"), ("stderr", "DOUBLE"), ("interval_low", "DOUBLE"), ("interval_high", "DOUBLE"))


def combine_cells(releases: ReleaseStore, text: str, caller: Caller) -> str:
    """Returns SQL with one row: the estimate of a sum or a ratio, its standard error and its interval.

    text: a JSON list of release, confidence, number of aggregate, and a weight for a sum or two weights for a ratio.
    """
    name, confidence, aggregate, *expressions = json.loads(text)
    if not all(isinstance(string, str) for string in (name, *expressions)):
        raise Refusal("a name or an expression is missing", accepted="dp_stderr_of('ward_cube', 'expression')")
    level = confidence_from(confidence)
    release = base_release(releases, name, caller)
    covariances = _covariances(releases, release)
    answers, weights = _evaluate_weights(releases, release, aggregate, expressions, covariances)
    law = release.laws[int(aggregate) - 1][0]
    covariances = scale_to_variance(covariances, next(iter(answers)), law.variance)
    sums = [_total(answers, weight) for weight in weights]
    margins = sum_margin(NoiseKind.GAUSSIAN if release.epsilon is None else NoiseKind.LAPLACE, level)
    if len(sums) == 2:
        return rows_sql(_COLUMNS, [_ratio(covariances, sums, weights, margins)])
    stderr = sqrt(variance_of_sum(covariances, weights[0]))
    largest = max(float(np.abs(table).max(initial=0.0)) for table in weights[0].values())
    half = margins.of(stderr, largest * max(law.step, 1.0))
    return rows_sql(_COLUMNS, [[sums[0], stderr, sums[0] - half, sums[0] + half]])


def _ratio(
    covariances: Covariances, sums: Sequence[float], weights: Sequence[Weights], margins: SumMargin
) -> list[float | None]:
    """Returns a ratio, its first-order error and its interval: no error and no bounds if the denominator may be 0."""
    if sums[1] == 0:
        return [None, None, -inf, inf]
    low, high = ratio_interval(covariances, (sums[0], weights[0]), (sums[1], weights[1]), margins)
    ratio = sums[0] / sums[1]
    variance = variance_of_sum(covariances, ratio_weights(weights[0], weights[1], ratio, sums[1]))
    return [ratio, sqrt(variance) if isfinite(high) else None, low, high]


def base_release(releases: ReleaseStore, name: str, caller: Caller) -> StoredRelease:
    """Returns the release of a name, or the release behind a view. Refuses a release that the caller may not see."""
    release = releases.find(name)
    if release is not None and release.kind != "view" and not caller.owner and release.principal != caller.name:
        release = None  # another's answers are not listed for this reader either
    if release is not None and release.strategy == KNOWN:
        raise Refusal(
            f"{name[:100]!r} was refreshed: it rests on several releases", accepted="dp_known, or one of dp_releases()"
        )
    if release is not None and release.strategy == STREAM:
        raise Refusal(
            f"{name[:100]!r} is a stream, and has no cells of one moment",
            accepted=f"the columns .._stderr of private.{name[:100]}; dp_difference('{name[:100]}', '{name[:100]}', "
            "'2025-02-01', '2025-01-01'), which has the error of two periods' difference",
        )
    base = None if release is None else releases.by_digest(release.digest)
    if base is None:
        accepted = meant_or(name, releases.views(), "a name of dp_releases()")
        raise Refusal(f"there is no release {name[:100]!r}", accepted=accepted)
    return base


def _covariances(releases: ReleaseStore, release: StoredRelease) -> Covariances:
    text = releases.covariances(release.digest)
    if text is None or not release.laws:
        raise Refusal(
            "no covariances are kept for this release",
            accepted="a release of counts alone, or of one sum, by consistency 'l2' or 'none', without nonnegative, "
            "integer, public_totals, PREFIXES and RANGES, of at most 20000 grouping sets; with a norm, of one count, "
            "without left_out and total",
        )
    return covariances_from_text(text)


def _evaluate_weights(
    releases: ReleaseStore,
    release: StoredRelease,
    aggregate: object,
    expressions: Sequence[str],
    covariances: Covariances,
) -> tuple[Weights, list[Weights]]:
    if not isinstance(aggregate, int) or not 1 <= aggregate <= len(release.laws):
        raise Refusal("there is no such aggregate", accepted=f"aggregate from 1 to {len(release.laws)}")
    rows = releases.rows(release.name)
    keys = tuple(rows.column_names[: rows.column_names.index(GROUPING_ID)])
    written = [_weight(text, keys) for text in expressions]
    with sandbox() as connection:
        connection.register("cells", rows.select([*keys, GROUPING_ID, GROUPING_SET, answer_column(aggregate - 1)]))
        cells = _run(connection, keys, answer_column(aggregate - 1), [weight.sql for weight in written])
    tables = [_by_set(cells, len(keys), column) for column in range(len(written) + 1)]
    with_null = _with_null(cells, len(keys))
    meant = [
        _meant(table, weight, keys, with_null, covariances) for table, weight in zip(tables[1:], written, strict=True)
    ]
    return tables[0], meant


@dataclass(frozen=True)
class _Weight:
    """Weight as SQL. named: positions of its key columns. tested: those compared with NULL.

    chosen: whether the weight selects the grouping sets itself, by grouping_id.
    """

    sql: str
    named: frozenset[int]
    tested: frozenset[int]
    chosen: bool


def _weight(text: str, keys: Sequence[str]) -> _Weight:
    try:
        return _parse_weight(text, keys)
    except RecursionError:
        raise Refusal("the expression is nested too deeply", accepted="shorter chains of operators") from None


def _parse_weight(text: str, keys: Sequence[str]) -> _Weight:
    expression = parse_expression(text)
    check_row_local(expression)
    names = {fold(name) for name in (*keys, GROUPING_ID)}
    for column in expression.find_all(exp.Column):
        if column.table or fold(column.name) not in names:
            raise Refusal(
                f"a weight may not use {column.sql()!r}",
                accepted=f"the key columns of the release: {', '.join(keys) or 'it has none'}",
            )
    places = {fold(name): place for place, name in enumerate(keys)}
    columns = [(column, fold(column.name)) for column in expression.find_all(exp.Column)]
    return _Weight(
        f"coalesce(try(CAST(({sql_of(expression)}) AS DOUBLE)), 0)",
        frozenset(places[name] for _, name in columns if name in places),
        frozenset(places[name] for column, name in columns if name in places and _is_tested(column)),
        any(name == GROUPING_ID for _, name in columns),
    )


def _is_tested(column: exp.Column) -> bool:
    """Tells whether a column is compared with NULL, which is its value in a set that rolls it up."""
    node: exp.Expr | None = column
    while node is not None:
        if isinstance(node, _NULL_TESTS) or (isinstance(node, exp.Is) and isinstance(node.expression, exp.Null)):
            return True
        node = node.parent
    return False


def _with_null(cells: dict[str, NDArray[np.float64]], keys: int) -> frozenset[int]:
    ids = cells["dpduck_id"].astype(np.int64)
    return frozenset(place for place in range(keys) if (cells[f"null_{place}"].astype(bool) & ~_bit(ids, place)).any())


def _bit(ids: NDArray[np.int64], place: int) -> NDArray[np.bool_]:
    return (ids >> place & 1).astype(bool)


def _meant(
    weights: Weights, weight: _Weight, keys: Sequence[str], with_null: frozenset[int], covariances: Covariances
) -> Weights:
    """Returns the weights with 0 in the grouping sets that an expression is not meant for.

    An expression is meant for the set of exactly the columns that it names. A column that it compares with NULL may be
    rolled up. If there is no such set, a set with more columns has the same sum.
    """
    if weight.chosen or len(weights) == 1:
        return weights
    sets = [frozenset(members) for members in weights]
    chosen = [group for group in sets if weight.named - weight.tested <= group <= weight.named]
    unclear = [place for place in sorted(weight.tested & with_null) if any(place not in group for group in chosen)]
    if unclear and any(unclear[0] in group for group in chosen):
        raise _unclear(f"a weight cannot tell a total from the group of NULL of {keys[unclear[0]]!r}", sets, keys)
    if not chosen:
        larger = [group for group in sets if weight.named <= group and not weight.tested]
        if not larger:
            raise _unclear("no grouping set has the columns of this weight alone", sets, keys)
        fewest = min(map(len, larger))
        alike = [tuple(sorted(group)) for group in larger if len(group) == fewest]
        best = min(alike, key=lambda members: variance_of_sum(covariances, {members: weights[members]}))
        chosen = [frozenset(best)]
    return {
        members: table if frozenset(members) in chosen else np.zeros_like(table) for members, table in weights.items()
    }


def _unclear(what: str, sets: Sequence[frozenset[int]], keys: Sequence[str]) -> Refusal:
    ids = sorted((sum(1 << place for place in range(len(keys)) if place not in group), sorted(group)) for group in sets)
    listed = [f"{number} for ({', '.join(keys[place] for place in places)})" for number, places in ids]
    more = ", .." if len(listed) > MOST_LISTED else ""
    return Refusal(what, accepted=f"a condition on grouping_id, which is {', '.join(listed[:MOST_LISTED])}{more}")


def _run(
    connection: duckdb.DuckDBPyConnection, keys: Sequence[str], answer: str, weights: Sequence[str]
) -> dict[str, NDArray[np.float64]]:
    """Returns the columns set, id, code_0.., null_0.., value_0 (answer) and value_1.. (weights) of all cells."""
    named = ", ".join([*map(quote_identifier, keys), GROUPING_ID])
    codes = [
        f"dense_rank() OVER (PARTITION BY {GROUPING_SET} ORDER BY {name} NULLS FIRST) - 1 AS code_{number}"
        for number, name in enumerate(map(quote_identifier, keys))
    ]
    codes += [f"{name} IS NULL AS null_{number}" for number, name in enumerate(map(quote_identifier, keys))]
    listed = ", ".join(f"{sql} AS value_{number}" for number, sql in enumerate(weights, 1))
    try:
        connection.execute("CREATE TABLE numbered AS SELECT *, row_number() OVER () AS dpduck_row FROM cells")
        connection.execute(
            f"CREATE TABLE weighted AS SELECT dpduck_row, {listed} FROM (SELECT {named}, dpduck_row FROM numbered)"
        )
        return connection.execute(
            f"SELECT {', '.join([f'{GROUPING_SET} AS dpduck_set', f'{GROUPING_ID} AS dpduck_id', *codes])}, "
            f"CAST({answer} AS DOUBLE) AS value_0, weighted.* EXCLUDE (dpduck_row) "
            "FROM numbered JOIN weighted USING (dpduck_row)"
        ).fetchnumpy()
    except duckdb.Error as error:
        raise Refusal(
            f"DuckDB does not accept this weight: {first_line(error)}", accepted="an expression over key columns"
        ) from None


def _by_set(cells: dict[str, NDArray[np.float64]], keys: int, column: int) -> Weights:
    """Returns one array per grouping set. Codes of labels are arbitrary: covariances do not depend on their order."""
    values = np.asarray(cells[f"value_{column}"], np.float64)
    if not np.isfinite(values).all():
        raise Refusal("a weight is not a finite number", accepted="finite weights; NULL counts as 0")
    tables: Weights = {}
    for number in np.unique(cells["dpduck_set"]):
        chosen = cells["dpduck_set"] == number
        rolled_up = int(cells["dpduck_id"][chosen][0])
        members = tuple(position for position in range(keys) if not rolled_up >> position & 1)
        codes = tuple(np.asarray(cells[f"code_{position}"][chosen], np.intp) for position in members)
        sizes = tuple(int(code.max()) + 1 for code in codes)
        table = np.zeros(prod(sizes))
        table[np.ravel_multi_index(codes, sizes) if codes else [0]] = values[chosen]
        tables[members] = table.reshape(sizes)
    return tables


def _total(answers: Weights, weights: Weights) -> float:
    total = sum(float((answers[members] * table).sum()) for members, table in weights.items())
    if not isfinite(total):
        raise Refusal("the sum is not a finite number", accepted="smaller weights")
    return total
