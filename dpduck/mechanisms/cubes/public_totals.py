"""Totals that are already public: the table that a statement names, and the equations that they are for its answers.

A row of the table is a sum over groups. Keys with a value name the groups, and a key that is NULL, or no column of the
table, is summed over. An answer's column has its total.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import scipy

from dpduck.language.select.analyse import Analysis
from dpduck.language.select.request import Aggregate, PublicTotal, Question
from dpduck.language.text.names import TableName
from dpduck.mechanisms.cubes.measures import with_matrix
from dpduck.mechanisms.cubes.nested_keys import determines, fold_cells, has_nested_keys
from dpduck.store.catalog import Catalog
from dpduck.strategies.recovery.controlled import has_counts, nest_twice
from dpduck.strategies.recovery.fixed_margins import margins_agree
from dpduck.strategies.recovery.projection import Equations
from dpduck.values.arrays import FloatArray
from dpduck.values.errors import InternalError, Refusal
from dpduck.values.quoting import fold

MOST_TOTALS = 20_000
MOST_ENTRIES = 1 << 22
"""Most cells times equations. A projection has several matrices of this size."""

MOST_SETS = 256
LARGEST_COUNT = 10**12


def with_tables(analysis: Analysis, catalog: Catalog) -> Analysis:
    """Returns the analysis with the contents of public tables that its options name: a strategy, and totals."""
    if analysis.request.question.treatment.strategy_table:
        analysis = with_matrix(analysis, catalog)
    return with_totals(analysis, catalog) if analysis.request.question.treatment.public_totals else analysis


def with_totals(analysis: Analysis, catalog: Catalog) -> Analysis:
    """Returns the analysis with the totals of the table that its option public_totals names.

    Refuses totals that no table can have. The digest of the request has the totals, not the name of the table.
    """
    question = analysis.request.question
    _require_plain(analysis)
    named = question.treatment.public_totals
    table = catalog.resolve(TableName(tuple(named.split("."))))
    if table is None or not catalog.is_public(table):
        raise Refusal(f"{named!r} is no public table", accepted="a table after DECLARE PUBLIC TABLE")
    catalog.public_digest(table)  # so that a kept analysis is known to be older than the table's rows
    totals = _read_totals(analysis, catalog, table)
    question = replace(question, totals=totals)
    for number in dict.fromkeys(total.aggregate for total in totals):
        _require_possible(question, number, str(table))
    return replace(analysis, request=replace(analysis.request, question=question))


def _require_plain(analysis: Analysis) -> None:
    question = analysis.request.question
    treatment = question.treatment
    bounded = treatment.norm is not None or treatment.finds_norm or treatment.widens
    if question.has_ranges or treatment.strategy_table or treatment.consistency != "l2" or bounded:
        raise Refusal(
            "public totals are for counts and sums by groups that agree by least squares",
            accepted="GROUP BY columns, without PREFIXES, RANGES, strategy_table, consistency and norms; or the "
            "statement without public_totals",
        )
    if len(question.grouping_sets) > MOST_SETS:
        raise Refusal(f"{len(question.grouping_sets)} grouping sets with totals", accepted=f"at most {MOST_SETS}")
    if analysis.reuse:
        raise Refusal("reuse does not go with public totals", accepted="one of them")


def _read_totals(analysis: Analysis, catalog: Catalog, table: TableName) -> tuple[PublicTotal, ...]:
    question, columns = analysis.request.question, [column.name for column in catalog.columns(table)]
    keys = {fold(name): number for name, number in reversed(analysis.grouped)}
    answers = {fold(name): number for name, number in reversed(analysis.shown)}
    places = [(name, keys[fold(name)]) for name in columns if fold(name) in keys]
    totals = [(name, answers[fold(name)]) for name in columns if fold(name) in answers]
    unknown = [name for name in columns if fold(name) not in keys and fold(name) not in answers]
    if unknown or not totals or len({number for _, number in (*places,)}) < len(places):
        what = f"{table} has the column {unknown[0]!r}" if unknown else f"{table} has no column of an answer"
        listed = ", ".join(dict.fromkeys(name for name, _ in (*analysis.grouped, *analysis.shown)))
        raise Refusal(what, accepted=f"columns with the names of groups and answers: {listed}")
    for name, number in totals:
        _require_added(question.aggregates[number], name)
    by_name = {name: question.keys[number] for name, number in places}
    rows = catalog.label_rows(table, by_name, [name for name, _ in totals], MOST_TOTALS)
    if not 1 <= len(rows) <= MOST_TOTALS:
        raise Refusal(f"{table} has {len(rows) or 'no'} rows", accepted=f"1 to {MOST_TOTALS} of them")
    read = []
    for labels, texts in rows:
        pairs = zip(places, labels, strict=True)
        cell = tuple(sorted((number, label) for (_, number), label in pairs if label is not None))
        for (name, number), text in zip(totals, texts, strict=True):
            if text is not None:
                read.append(PublicTotal(number, cell, _total(text, question.aggregates[number], f"{table}.{name}")))
    if not read:
        raise Refusal(f"{table} has no total", accepted="a number in a column of an answer")
    if len({(total.aggregate, total.cell) for total in read}) < len(read):
        raise Refusal(f"{table} has two totals for one group", accepted="one row for each group")
    return tuple(sorted(read, key=lambda total: (total.aggregate, total.cell)))


def _require_added(aggregate: Aggregate, name: str) -> None:
    if aggregate.function not in ("count", "sum") or aggregate.operand_by_group or aggregate.distinct is not None:
        raise Refusal(
            f"{name} is {aggregate.text[:60]}, which does not add up over groups",
            accepted="totals of count(*), count(column), count_if(..) and sum(column)",
        )


def _total(text: str, aggregate: Aggregate, where: str) -> Fraction:
    try:
        total = Fraction("" if "/" in text else text)
    except ValueError:
        raise Refusal(f"{where} holds something else than numbers", accepted="numbers") from None
    if abs(total) > LARGEST_COUNT:
        raise Refusal(f"{where} has a number out of range", accepted=f"numbers up to {LARGEST_COUNT}")
    if aggregate.function == "count" and (total < 0 or total.denominator != 1):
        raise Refusal(f"{where} is a count, and has a total that is none", accepted="whole numbers from 0 on")
    return total


@dataclass(frozen=True, eq=False)
class FinestGroups:
    """Groups of cells with a total, in the grouping set that gives all other sets by sums. place: its number."""

    place: int
    matrix: scipy.sparse.csr_array


def finest_groups(question: Question, number: int) -> FinestGroups | None:
    """Returns the groups of an aggregate's totals over the finest table. None if no set determines all others."""
    totals = [total for total in question.totals if total.aggregate == number]
    for place, members in enumerate(question.grouping_sets):
        if all(determines(question, members, other) for other in question.grouping_sets):
            return FinestGroups(place, _rows_of(question, totals, members))
    return None


def _rows_of(question: Question, totals: Sequence[PublicTotal], members: tuple[int, ...]) -> scipy.sparse.csr_array:
    """Returns a row of 0 and 1 for each total, over the cells of a grouping set that determines the total."""
    rows, columns = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    cells = int(np.prod([question.sizes[key] for key in members], dtype=np.int64))
    for wanted in dict.fromkeys(total.members for total in totals):
        cells_of = fold_cells(question, members, wanted)
        if cells_of is None:
            raise InternalError("a total over cells that do not determine it")
        shape = [question.sizes[key] for key in wanted]
        numbers = np.full(int(np.prod(shape, dtype=np.int64)), -1)
        for place, total in enumerate(totals):
            if total.members == wanted:
                numbers[np.ravel_multi_index([label for _, label in total.cell], shape) if shape else 0] = place
        row = numbers[cells_of]
        columns.append(np.flatnonzero(row >= 0))
        rows.append(row[row >= 0])
    data = np.ones(sum(map(len, rows)))
    placed = (np.concatenate(rows), np.concatenate(columns))
    return scipy.sparse.csr_array((data, placed), shape=(len(totals), cells))


def equations_of(question: Question, number: int) -> Equations:
    """Returns the equations for an aggregate's answers in all grouping sets.

    Each total is an equation over the smallest set that determines it. If the keys of a set are functions of another
    set's keys, its cells are sums of that set's cells. Further equations then make both agree.
    """
    sets, totals = question.grouping_sets, [total for total in question.totals if total.aggregate == number]
    pairs = [(fine, coarse) for fine in range(len(sets)) for coarse in range(len(sets))]
    pairs = [(fine, coarse) for fine, coarse in pairs if _nests(question, sets[fine], sets[coarse])]
    _require_size(len(totals) + sum(question.cells[coarse] for _, coarse in pairs), question)
    carriers: dict[int, list[PublicTotal]] = {}
    for total in totals:
        carriers.setdefault(_carrier(question, total), []).append(total)
    blocks, sides = list[scipy.sparse.csr_array](), list[float]()
    for place, carried in carriers.items():
        blocks.append(_in_all_sets(question, {place: _rows_of(question, carried, sets[place])}))
        sides += [float(total.total) for total in carried]
    for fine, coarse in pairs:
        added, size = _sums(question, fine, coarse), question.cells[coarse]
        blocks.append(_in_all_sets(question, {fine: added, coarse: -scipy.sparse.eye_array(size)}))
        sides += [0.0] * size
    weights = scipy.sparse.csr_array(scipy.sparse.vstack(blocks, format="csr"))
    return Equations(sets, question.sizes, weights, np.array(sides))


def _require_size(equations: int, question: Question) -> None:
    cells = sum(question.cells)
    if equations * cells > MOST_ENTRIES:
        raise Refusal(
            f"{equations} totals and sums of nested groups for {cells} cells",
            accepted=f"at most {MOST_ENTRIES} for one number times the other; or a total for every group of a key",
        )


def whole_margins(question: Question, number: int) -> dict[tuple[int, ...], FloatArray] | None:
    """Returns the margins that the totals of an aggregate are. None if a margin lacks a total, or keys are nested."""
    tables: dict[tuple[int, ...], FloatArray] = {}
    for total in question.totals:
        if total.aggregate == number:
            shape = [question.sizes[key] for key in total.members]
            table = tables.setdefault(total.members, np.full(shape, np.nan))
            table[tuple(label for _, label in total.cell)] = float(total.total)
    sets = question.grouping_sets
    inside = all(any(set(margin) <= set(members) for members in sets) for margin in tables)
    whole = all(np.isfinite(table).all() for table in tables.values())
    return tables if inside and whole and not has_nested_keys(question) else None


def _nests(question: Question, fine: tuple[int, ...], coarse: tuple[int, ...]) -> bool:
    """Tells whether the cells of a set are sums of another's, without having its keys alone."""
    return not set(coarse) <= set(fine) and determines(question, fine, coarse)


def _carrier(question: Question, total: PublicTotal) -> int:
    """Returns the number of the smallest set that determines a total. A set with the total's own keys comes first."""
    holding = [
        (not set(total.members) <= set(members), cells, place)
        for place, (members, cells) in enumerate(zip(question.grouping_sets, question.cells, strict=True))
        if determines(question, members, total.members)
    ]
    if not holding:
        names = ", ".join(question.keys[key].name for key in total.members)
        raise Refusal(f"no grouping set has the groups of a total by {names}", accepted=f"GROUP BY {names}, ..")
    return min(holding)[2]


def _sums(question: Question, fine: int, coarse: int) -> scipy.sparse.csr_array:
    """Returns the matrix that sums the cells of a set onto those of another set."""
    cells = fold_cells(question, question.grouping_sets[fine], question.grouping_sets[coarse])
    if cells is None:
        raise InternalError("a set that is no sum of another")
    shape = question.cells[coarse], question.cells[fine]
    return scipy.sparse.csr_array((np.ones(len(cells)), (cells, np.arange(len(cells)))), shape=shape)


def _in_all_sets(question: Question, parts: Mapping[int, scipy.sparse.sparray]) -> scipy.sparse.csr_array:
    """Returns rows over the cells of all sets, with these parts at their sets and 0 elsewhere."""
    height = next(iter(parts.values())).shape[0]
    blocks = [parts.get(place, scipy.sparse.csr_array((height, cells))) for place, cells in enumerate(question.cells)]
    return scipy.sparse.csr_array(scipy.sparse.hstack(blocks, format="csr"))


def _require_possible(question: Question, number: int, table: str) -> None:
    """Refuses totals that contradict each other, or that cannot be met by whole or non-negative counts."""
    aggregate, treatment = question.aggregates[number], question.treatment
    margins = whole_margins(question, number)
    agreed = equations_of(question, number).agree() if margins is None else margins_agree(margins)
    finest, impossible = finest_groups(question, number), not agreed
    if agreed and finest is not None and aggregate.function == "count":
        impossible = not has_counts(*_few_groups(question, number, finest))
    if impossible:
        raise Refusal(
            f"the totals of {aggregate.text[:60]} in {table} contradict each other: no table has all of them",
            accepted="totals of the same rows, in which parts add up to no more than their whole",
        )
    if not (treatment.nonnegative or treatment.integer):
        return
    if finest is None or not nest_twice(finest.matrix):
        raise Refusal(
            "with public totals, nonnegative and integer are for cells of one table, by totals that nest",
            accepted="a grouping set with all columns, and totals by one or two hierarchies; or the statement without "
            "nonnegative and integer",
        )


def _few_groups(question: Question, number: int, finest: FinestGroups) -> tuple[scipy.sparse.csr_array, FloatArray]:
    """Returns the groups of an aggregate's totals over the keys of the totals alone, if one set has these, and totals.

    A table over these keys is a margin of some finest table, and neither has negative cells.
    """
    totals = [total for total in question.totals if total.aggregate == number]
    together = tuple(sorted({key for total in totals for key in total.members}))
    if not set(together) <= set(question.grouping_sets[finest.place]):
        return finest.matrix, sides_of(question, number)
    return _rows_of(question, totals, together), sides_of(question, number)


def sides_of(question: Question, number: int) -> FloatArray:
    """Returns the totals of an aggregate, in the order of `finest_groups`."""
    return np.array([float(total.total) for total in question.totals if total.aggregate == number])
