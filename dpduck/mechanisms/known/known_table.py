"""dp_known: a table of the answers that mechanisms/known computes, under the analyst's SELECT, free of charge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import ceil, log10, prod

import numpy as np
import pyarrow as pa

from dpduck.language.select.known import KnownQuestion
from dpduck.language.select.request import Price, SelectRequest
from dpduck.language.text.names import KNOWN_FROM, high_column, low_column
from dpduck.mechanisms.cubes.plan import CubePlan, plan_cube
from dpduck.mechanisms.known.answer import KnownAnswer, KnownReleases
from dpduck.mechanisms.published_facts import notes_of, scope_of
from dpduck.mechanisms.released_rows import AnswerColumn, release_columns, release_rows
from dpduck.store.cursors import ReleaseCopies
from dpduck.store.measured import MeasurementRecord
from dpduck.store.releases import KNOWN, ReleaseStore, StoredRelease
from dpduck.store.sandbox import Sandbox
from dpduck.values.accounting import rho_of_pure
from dpduck.values.arrays import FloatArray
from dpduck.values.errors import Refusal

LARGEST_ROUNDED = 1e12
MOST_CELLS = 5_000_000


def known_table(
    question: KnownQuestion, releases: KnownReleases, copies: ReleaseCopies, box: Sandbox, text: str
) -> tuple[str, list[KnownAnswer]]:
    """Returns SQL with a known answer, and the answers to its aggregates.

    Refuses an unknown aggregate with a statement that would pay for it.
    """
    request = question.analysis.request
    cells = sum(prod(request.question.answer_sizes[key] for key in chosen) for chosen in request.question.grouping_sets)
    if cells > MOST_CELLS:
        raise Refusal(f"the answer would have {cells} cells", accepted=f"at most {MOST_CELLS}: fewer columns")
    answers = releases.answers(question)
    known_answers = [answer for answer in answers if answer is not None]
    if len(known_answers) < len(answers):
        unknown = next(number for number, answer in enumerate(answers) if answer is None)
        raise _unknown(request, unknown, releases.records, text)
    columns, rows = _table(request, known_answers, box)
    return question.analysis.outer.over(copies.save(columns, rows)), known_answers


def resting_on(view: StoredRelease, answers: Sequence[KnownAnswer], store: ReleaseStore) -> StoredRelease:
    """Returns the record of a table with known answers: its guarantee is the joint one of all releases behind them."""
    names = dict.fromkeys(name for source in answers for name in source.releases)
    releases = [source for source in map(store.find, names) if source is not None]
    pure = [source.epsilon for source in releases if source.epsilon is not None]
    rhos = [source.rho if source.epsilon is None else rho_of_pure(source.epsilon) for source in releases]
    return replace(
        view,
        strategy=KNOWN,
        epsilon=sum(pure, Fraction(0)) if len(pure) == len(releases) else None,
        rho=sum(rhos, Fraction(0)),
        delta=sum((source.delta for source in releases), Fraction(0)),
        ledger_id=max(source.ledger_id for source in releases),
        laws=(),
        scope=f"from {_describe_sources(answers)}",
    )


def require_rows_of_view(view: StoredRelease, answers: Sequence[KnownAnswer]) -> None:
    """Refuses answers about other rows than the view's. Newer rows under its name must answer the same question."""
    other = _other_rows(answers)
    if other:
        raise Refusal(
            f"what is known is about other rows than {view.name!r}: {'; '.join(other)}",
            accepted="CREATE OR REPLACE PRIVATE VIEW .. OPTIONS (.., refresh = '..') AS .., which is charged for",
        )


def refresh_view(
    view: StoredRelease, question: KnownQuestion, answers: Sequence[KnownAnswer], store: ReleaseStore
) -> StoredRelease:
    """Returns a view with newer rows, with the releases behind the rows and their joint guarantee."""
    record = resting_on(view, answers, store)
    scope = f"{scope_of(question.analysis.request)}; {record.scope}"
    notes, caption = notes_of(question.analysis, record), question.analysis.caption.text
    return replace(record, scope=scope, notes=notes, caption=caption)


def _table(
    request: SelectRequest, answers: Sequence[KnownAnswer], box: Sandbox
) -> tuple[list[tuple[str, str]], pa.Table]:
    whole = [False] * len(answers)
    columns = [(name, kind) for name, kind in release_columns(request, whole) if kind != "DOUBLE[]"]
    rows = release_rows(request, [AnswerColumn(_plain(item.estimates), item.stderrs) for item in answers], whole, box)
    for number, item in enumerate(answers):
        for name, ends in ((low_column(number), item.low), (high_column(number), item.high)):
            columns.append((name, "DOUBLE"))
            rows = rows.append_column(name, pa.array(ends, from_pandas=True))
    columns.append((KNOWN_FROM, "VARCHAR"))
    said = pa.DictionaryArray.from_arrays(np.zeros(rows.num_rows, np.int32), pa.array([_describe_sources(answers)]))
    return columns, rows.append_column(KNOWN_FROM, said)


def _plain(estimates: FloatArray) -> FloatArray:
    """Rounds estimates to twelve digits of the largest one: 6632.000000000002 becomes 6632."""
    largest = float(np.nanmax(np.abs(estimates), initial=1.0))
    return np.round(estimates, max(0, 12 - ceil(log10(largest)))) if largest < LARGEST_ROUNDED else estimates


def _describe_sources(answers: Sequence[KnownAnswer]) -> str:
    names = list(dict.fromkeys(name for answer in answers for name in answer.releases))
    shown = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
    alone = next((answer.alone for answer in answers if answer.alone), "")
    if alone:
        shown += f" of {alone[:19]}, about the rows of that time"
    return "; ".join([shown, *_other_rows(answers)])


def _other_rows(answers: Sequence[KnownAnswer]) -> list[str]:
    """Describes the rows that answers leave out, and how MAX ROWS was applied if not as in the question."""
    lines = []
    left = sorted(set().union(*(answer.left_out for answer in answers)))
    if left:
        columns = [column.split(".")[-1].strip('"') for column in left]
        shown = " or ".join(columns[:8]) + (f" or one of {len(columns) - 8} more" if len(columns) > 8 else "")
        lines.append(f"rows with {shown} outside of its domain are not counted")
    return [*lines, *dict.fromkeys(answer.bounded for answer in answers if answer.bounded)]


def _unknown(request: SelectRequest, number: int, releases: Sequence[MeasurementRecord], text: str) -> Refusal:
    """Returns the refusal of an aggregate that is not known, with a statement that would determine it."""
    aggregate = request.question.aggregates[number]
    what = f"no release that you may read determines {aggregate.text[:60]}"
    if not releases:
        what = "nothing was measured of this table that you may read, apart from releases with a norm or with groups"
    try:
        plan = plan_cube(request)
    except Refusal as refused:
        return Refusal(
            what, accepted=f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (..): {refused.accepted or refused.what}"
        )
    return Refusal(
        what, accepted=f"FROM dp($$ {paying(text, price_option(plan.request.price))} $$), {_error(plan, number)}"
    )


def price_option(price: Price) -> str:
    """Writes a price as an option of a statement."""
    charge, epsilon, delta = price.charge, price.stated_epsilon, price.stated_delta
    if epsilon is not None:
        return f"epsilon = {float(epsilon):.12g}" + (f", delta = {float(delta):.12g}" if delta is not None else "")
    name, amount = ("epsilon", charge.epsilon) if charge.epsilon is not None else ("rho", charge.rho)
    return f"{name} = {float(amount or Fraction(0)):.6g}"


def _error(plan: CubePlan, number: int) -> str:
    use = plan.uses[number]
    worst = plan.measures[use.measure].plan.worst_stderr * use.size**0.5
    return f"which is charged for; its standard error would be {worst:.3g}" if worst else "which is charged for"


def paying(text: str, price: str) -> str:
    """Returns the statement with the clause that pays, or only its beginning if it is no single short SELECT."""
    start = text.strip().rstrip(";").rstrip()
    if start[:6].upper() == "SELECT" and start.upper().count("SELECT") == 1 and len(start) <= 300 and "\n" not in start:
        return f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({price}){start[6:]}"
    return f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS ({price}) .."
