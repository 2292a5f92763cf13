"""Facts that are published with a private view beside its price: the unit, the rows left out, and the errors."""

from __future__ import annotations

from dataclasses import replace

from dpduck.language.select.analyse import Analysis
from dpduck.language.select.private_keys import FURTHER, groups_text
from dpduck.language.select.request import Key, Question, SelectRequest
from dpduck.language.select.view_columns import PlainViewColumn
from dpduck.language.text.names import GROUPING_ID, GROUPING_LEVEL, stderr_column
from dpduck.mechanisms.unit_counts import warn_of_count_bounds
from dpduck.store.releases import StoredRelease
from dpduck.values.column_notes import (
    ANSWER,
    CONSTANT,
    EVERY_LEVEL,
    NAMED_LEVEL,
    OF_KEYS,
    PUBLIC_TOTALS,
    SOME_LEVEL,
    STDERR,
    Nulls,
    Values,
    key_note,
    with_unit,
)
from dpduck.values.domain import Domain, RangeDomain
from dpduck.values.periods import format_run as shown_run
from dpduck.values.sqltypes import sql_type


def _leaves_out(domain: Domain) -> bool:
    """Tells whether values that are not NULL can be outside the domain."""
    return not domain.with_edges if isinstance(domain, RangeDomain) else domain.other is None


def scope_of(request: SelectRequest) -> str:
    """Returns the privacy unit, MAX ROWS and the domains of a release in one line, from public facts alone.

    The text does not name the column of the privacy unit, which is not published.
    """
    unit = (
        "one row"
        if request.rows.unit_sql is None
        else f"all rows of one privacy unit, of which at most {request.rows.max_rows} "
        f"{'is' if request.rows.max_rows == 1 else 'are'} counted"
    )
    selection = request.question.selection
    if selection is not None and request.rows.unit_sql is not None and selection.groups < request.rows.unit_bound:
        unit += f", in at most {selection.groups} groups: {FURTHER}, so counts are too low"
    treatment = request.question.treatment
    bounded = treatment.norm is not None and treatment.norm < request.rows.max_rows
    if (bounded or treatment.finds_norm) and not treatment.total:
        unit += "; a unit above a norm counts in part, so counts are too low"
    unit += groups_text(request)
    if request.rows.periods is not None:
        run, column = request.rows.periods.periods, request.rows.periods.sql.rpartition(".")[2].strip('"')
        unit += f", of one {run.word.lower()} of {column}; charged to {shown_run(run)}"
        if request.rows.unit_sql is not None:
            unit += "; somebody with rows in k of them is protected k times less (rho: up to k^2 times)"
        if request.rows.unit_sql is not None and request.question.selection is not None and run.count > 1:
            unit += ", and the delta of keys has no bound for them"
    keys = []
    for key in request.question.keys:
        left = _left_out_by(key, request)
        size = "selected values" if not key.labels else f"{len(key.labels)} values"
        keys.append(f"{key.name} ({size}{f', rows with {left} are not counted' if left else ''})")
    cut = warn_of_count_bounds(request)
    if request.question.totals:
        cut = "; ".join(filter(None, (cut, PUBLIC_TOTALS)))
    return f"protects {unit}" + (f"; by {', '.join(keys)}" if keys else "") + (f"; {cut}" if cut else "")


def rows_left_out(request: SelectRequest) -> str:
    """Returns which rows the domains of the keys leave out, '' for none."""
    names = dict[str, list[str]]()
    for key in request.question.keys:
        if left := _left_out_by(key, request):
            names.setdefault(left, []).append(key.name)
    return "; ".join(f"rows with {left} of {', '.join(keys)} are not counted" for left, keys in names.items())


def _left_out_by(key: Key, request: SelectRequest) -> str:
    """Returns the kinds of values outside the domains of a key: NULL, other values, both or nothing."""
    domains = [request.question.sources[position].domain for position in key.sources]
    without = [domain for domain in domains if not domain.with_null]
    others = [domain for domain in domains if _leaves_out(domain)]
    return " or ".join(word for word, missing in (("NULL", without), ("other values", others)) if missing)


def notes_of(analysis: Analysis, release: StoredRelease) -> dict[str, str]:
    """Returns a description of each column of a view, by name. In a description, {} stands for the guarantee."""
    errors = {stderr_column(number): name for name, number in analysis.shown}
    by_itself = {name for column in analysis.described if column.plain for name in column.reads}
    notes: dict[str, str] = {}
    for column in analysis.described:
        error_of = [errors[name] for name in column.reads if column.plain and name in errors]
        said = STDERR + error_of[0] if error_of else _note_of(column, analysis.request.question, by_itself)
        notes |= {} if said is None else {column.name: said}
    units = (*analysis.caption.units, *("" for _ in analysis.shown))
    for (name, number), unit in zip(analysis.shown, units, strict=False):
        said = errors_of(replace(analysis, shown=((name, number),)), release)
        note = "; ".join(filter(None, (ANSWER, said)))
        notes[name] = with_unit(note, unit) if unit else note
        if f"{name}_stderr" not in analysis.outer.columns:
            notes[f"{name}_stderr"] = STDERR + name
    if analysis.levels:
        notes.setdefault(GROUPING_LEVEL, NAMED_LEVEL)
    return notes


def _note_of(column: PlainViewColumn, question: Question, by_itself: set[str]) -> str | None:
    """Describes a column that is no answer, None if it is computed from answers. by_itself: columns shown unchanged."""
    if not column.reads:
        return CONSTANT
    if column.reads == {GROUPING_ID}:
        return EVERY_LEVEL if column.every else SOME_LEVEL
    numbers = {name: number for number, key in enumerate(question.keys) for name in (key.name, key.end_name) if name}
    if not column.reads <= numbers.keys():
        return None
    if not column.plain:
        return OF_KEYS if column.reads <= by_itself else key_note(Values.COMPUTED, Nulls.NONE)
    (number,) = (numbers[name] for name in column.reads)
    return key_note(_values_of(question.keys[number], question), _nulls_of(number, question))


def _values_of(key: Key, question: Question) -> Values:
    if question.selection is not None:
        return Values.SELECTED
    source = question.sources[key.sources[0]]
    domain, computed = source.domain, not key.shape and key.expression != source.sql
    if computed or not isinstance(domain, RangeDomain):
        return Values.LISTED
    if key.shape:
        return Values.RANGE
    return Values.WHOLE if domain.step == "1" and sql_type(domain.type_name).is_whole else Values.BIN


def _nulls_of(number: int, question: Question) -> Nulls:
    if question.selection is not None:
        return Nulls.OTHERS if question.selection.other else Nulls.VALUE
    total = any(number not in grouping_set for grouping_set in question.grouping_sets)
    value = None in question.keys[number].labels and not question.keys[number].shape
    if value:
        return Nulls.EITHER if total else Nulls.VALUE
    return Nulls.TOTAL if total else Nulls.NONE


def errors_of(analysis: Analysis, release: StoredRelease) -> str:
    """Describes the standard errors of counts and sums. The errors that depend on answers are in dp_stderr."""
    request, said = analysis.request, []
    if request.question.summary is not None or request.question.treatment.moves:
        return ""  # a summary's rows carry their own
    if request.question.treatment.widens:
        return "standard errors follow from answers, and stand beside them"
    for name, number in analysis.shown:
        errors = [law.stderr for law in release.laws[number]] if number < len(release.laws) else []
        if errors and not request.question.aggregates[number].has_curved_error:
            low, high = f"{min(errors):.4g}", f"{max(errors):.4g}"
            named = name.replace(";", ",")  # which would end this part of the comment
            said.append(f"{named} {low}" if low == high else f"{named} {low} to {high}")
    return f"standard error of {', '.join(said)}" if said else ""


def nothing_shown(request: SelectRequest, release: StoredRelease | None) -> str:
    """Returns a note for a view of selected keys that shows no group, else an empty text."""
    if request.question.selection is None or release is None or release.rows:
        return ""
    return "; no group was above the threshold, which dp_explain shows: fewer or larger groups, or a higher price"
