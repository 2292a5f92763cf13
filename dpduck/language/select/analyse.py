"""Analysis of an annotated SELECT against public facts alone: a frozen request, and the SQL that reads its release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import prod

from sqlglot import exp

from dpduck.language.rows.facts import PublicFacts, SourceColumn
from dpduck.language.rows.periods import by_periods
from dpduck.language.rows.scope import resolve
from dpduck.language.rows.source import read_row_source
from dpduck.language.rows.sql import rows_of
from dpduck.language.rows.tree import RowSource
from dpduck.language.select.aggregates import AggregateReader, check_groups, check_treatment
from dpduck.language.select.answers import AnswerReader, has_aggregate
from dpduck.language.select.binding import check_rows
from dpduck.language.select.cell_keys import with_cell_key
from dpduck.language.select.cells import add_summary, cell_columns, with_summary_columns
from dpduck.language.select.excluded_cells import possible_cells
from dpduck.language.select.intervals import with_intervals
from dpduck.language.select.keys import RANGE_END, Grouping, KeyBuilder, range_text, read_grouping
from dpduck.language.select.options import (
    Caption,
    Options,
    price_of,
    read_options,
    require_caption,
    require_confidence,
    require_groups,
    require_norm,
    row_bound,
)
from dpduck.language.select.outer import (
    OuterQuery,
    SelectItem,
    find_annotated,
    select_items,
    select_over_release,
    surround,
)
from dpduck.language.select.private_keys import require_counts, require_persons, require_selectable, selection_of
from dpduck.language.select.request import Aggregate, Key, Question, SelectRequest, Treatment
from dpduck.language.select.together import with_counts_together
from dpduck.language.select.usual_norms import MANY_ROWS, may_find_norms, with_norms
from dpduck.language.select.view_columns import (
    PlainViewColumn,
    items_without_answers,
    with_intervals_of,
    with_view_columns,
)
from dpduck.language.statements.kinds import AskStatement
from dpduck.language.text.dialect import DifferentialPrivacy
from dpduck.language.text.options import Option
from dpduck.language.text.positions import refusal
from dpduck.values.errors import Refusal
from dpduck.values.quoting import fold
from dpduck.values.sqltypes import sql_type

MAX_RELEASED_CELLS = 50_000_000
MAX_AGGREGATES = 100
_REFUSED_CLAUSES = {
    "distinct": ("SELECT DISTINCT is refused", "GROUP BY"),
    "sample": ("SAMPLE is refused: sampling is not a guarantee", "the statement without it"),
    "windows": ("a WINDOW clause is refused", "OVER (..) in place"),
    "into": ("INTO is refused", "CREATE TABLE x AS FROM dp(..)"),
    "laterals": ("LATERAL is refused", "a join with a declared public table"),
    "exclude": ("EXCLUDE is refused", "a list of columns"),
    "pivots": ("PIVOT is refused", "GROUP BY"),
    "locks": ("FOR UPDATE is refused", "the statement without it"),
}
_ACCEPTED_CLAUSES = {
    "hint", "expressions", "from_", "joins", "where", "group", "having", "qualify", "order", "limit", "offset", "with_",
    "kind",
}  # fmt: skip


@dataclass(frozen=True)
class Analysis:
    """Request of a statement, the SQL that reads its release, and the confidence of its intervals."""

    request: SelectRequest
    outer: OuterQuery
    confidence: Fraction
    shown: tuple[tuple[str, int], ...] = ()  # columns that show an aggregate unchanged, with the aggregate's number
    cells: tuple[tuple[str, str], ...] = ()  # for a view of all cells, the output name and released name of each column
    reuse: bool = False
    ahead: Fraction = Fraction(1)  # a target with reuse may pay this many times its price, for later statements
    described: tuple[PlainViewColumn, ...] = ()  # the columns of a view that are no answers
    caption: Caption = field(default_factory=Caption)  # texts for the readers of a view
    grouped: tuple[tuple[str, int], ...] = ()  # columns that are a key unchanged, with the key's number

    @property
    def levels(self) -> bool:
        """Tells whether a view mixes rows of several grouping sets, so that each row names its grouping set."""
        question = self.request.question
        return len(question.grouping_sets) > 1 and question.summary is None and not self.cells


def analyse(ask: AskStatement, facts: PublicFacts, more: Sequence[Option] | None = ()) -> Analysis:
    """Analyses a statement. Raises every refusal here, before anything is charged.

    more: options of mechanisms, besides those of every statement. None for a stream, which cannot select keys.
    """
    try:
        analysis, source = read_analysis(ask, facts, more)
        if analysis.caption != Caption():
            require_caption(analysis.caption, analysis.shown, ask.view is not None, ask.query)
        if more is None:  # a stream: its old rows may be gone when new rows come
            return analysis
        if not analysis.cells and len(analysis.request.question.aggregates) > 1:
            joined = with_counts_together(analysis.request, source, facts, analysis.reuse)
            analysis = replace(analysis, request=joined)
        if not source.first.keys:
            return analysis
        return replace(analysis, request=with_cell_key(analysis.request, source, facts))
    except RecursionError:
        raise Refusal("the statement is nested too deeply", accepted="shorter chains of operators") from None


def row_count_request(
    select: exp.Select, options: Sequence[exp.Expr], facts: PublicFacts, group: exp.Group | None = None, bins: int = 0
) -> tuple[SelectRequest, RowSource]:
    """Returns a request that counts the rows of a SELECT without aggregates, and the row source of the SELECT.

    options: the options that set the price. group: the grouping sets. bins: the most bins of a column, 0 for all bins.
    """
    given, source = read_options(options, select), read_row_source(select, facts, {})
    if given.treatment.groups:
        raise refusal(
            select, "max_groups_contributed applies to a SELECT by public groups alone", "the statement without it"
        )
    if given.treatment.public_totals:
        raise refusal(select, "public totals are for the answers of a SELECT", "the statement without public_totals")
    items = select_items(select, source.scope) if group is not None else ()
    grouping = _grouping(group, items, source)
    builder = KeyBuilder(source, facts, given.selection is not None or None, given.summary is not None, bins)
    keys = tuple(builder.build(text, expression) for text, expression in grouping.keys)
    (sets, _), aggregates = _grouping_sets(grouping, keys), (Aggregate("", "count(*)"),)
    check_groups(aggregates, keys, sets, select)
    request = _request(given, select, source, builder.sources, keys, sets, aggregates, facts)
    check_rows(select, request, source, AggregateReader(source, {}), builder.written, facts)
    return request, source


def read_analysis(
    ask: AskStatement, facts: PublicFacts, more: Sequence[Option] | None, *, known: bool = False, combined: bool = False
) -> tuple[Analysis, RowSource]:
    """Returns the analysis and its rows. known: earlier releases answer alone. combined: with a new release, too."""
    select, common = (_view_select(ask), {}) if ask.view is not None else find_annotated(ask.query)
    _check_clauses(select)
    clause = select.args.get("hint")
    written_here = clause.expressions if isinstance(clause, DifferentialPrivacy) else ()
    options = read_options(written_here if ask.view is None else ask.options, clause or select, more or ())
    source = read_row_source(select, facts, common)
    items = select_items(select, source.scope)
    grouping = _grouping(select.args.get("group"), items, source)
    chosen = options.selection is not None or (None if known or more is None else False)
    builder = KeyBuilder(source, facts, chosen, nodes=options.summary is not None)
    keys = tuple(builder.build(text, expression) for text, expression in grouping.keys)
    plain, shared = options.summary is None and not chosen, not chosen and options.target_stderr is None
    usual = source.first.policy.unit.max_rows >= MANY_ROWS and more is not None and not (known or combined)
    usual = usual and may_find_norms(options, source, keys)
    widens = usual or options.treatment.total or options.treatment.left_out
    answers = AnswerReader(
        source.scope,
        _column_names(keys),
        tuple(key.name for key in keys),
        AggregateReader(source, source.types, shared=shared, opens=options.treatment.finds_norm),
        {fold(item.name): item.expression for item in items},
        enums=_enums(keys, builder.sources),
        moved=options.treatment.moves or widens or not plain or known or combined,
    )
    sets, repeated = _grouping_sets(grouping, keys)
    if chosen:
        require_selectable(keys, sets, clause or select)
    possible = _possible(select.args.get("where"), keys, builder.sources, source, facts) if plain else None
    released = select_over_release(select, items, answers, repeated, possible)
    released = _with_columns(released, items, keys, ask, options, answers, known, len(sets) > 1 and more is not None)
    if not answers.aggregates:
        raise refusal(select, "nothing is counted", "count(*), count(column) or count(*) FILTER (WHERE ..)")
    check_treatment(options, answers.aggregates, keys, clause or select)
    options = replace(options, treatment=_merge_weights(options.treatment, sets, repeated, clause or select))
    request = _request(options, select, source, builder.sources, keys, sets, tuple(answers.aggregates), facts)
    request = with_intervals(request, source.policy, answers.reader.conditions)
    request = with_norms(request) if usual else request
    if options.summary is not None:
        request = add_summary(request, options.summary, source.policy.expect_rows, clause or select)
    check_rows(select, request, source, answers.reader, builder.written, facts, run=not known)
    outer = surround(ask.query, select, released, tuple(item.name for item in items), facts)
    shown, grouped = _name_columns(items, keys, answers)
    cells = () if options.form == "sets" else cell_columns(ask, select, items, answers, request)
    rest = options.reuse, options.ahead, items_without_answers(released, items, answers) if ask.view is not None else ()
    return Analysis(request, outer, require_confidence(options), shown, cells, *rest, options.caption, grouped), source


def _name_columns(
    items: tuple[SelectItem, ...], keys: tuple[Key, ...], answers: AnswerReader
) -> tuple[tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]]:
    """Returns the names and numbers of items that are unchanged aggregates, then those of items that are keys."""
    shown = tuple((part.name, number) for part in items if (number := answers.number_of(part.expression)) is not None)
    numbers = {key.name: number for number, key in enumerate(keys)}
    named = ((part.name, answers.key_of(part.expression)) for part in items)
    return shown, tuple((name, numbers[key]) for name, key in named if key in numbers)


def _possible(
    where: exp.Where | None,
    keys: tuple[Key, ...],
    columns: tuple[SourceColumn, ...],
    source: RowSource,
    facts: PublicFacts,
) -> exp.Expr | None:
    if where is None:
        return None
    collated = any(facts.has_collations(table) for table in source.every_table)
    return possible_cells(where.this, keys, columns, source.scope, collated)


def _with_columns(
    select: exp.Select,
    items: tuple[SelectItem, ...],
    keys: tuple[Key, ...],
    ask: AskStatement,
    options: Options,
    answers: AnswerReader,
    known: bool,
    several: bool,
) -> exp.Select:
    """Adds the columns of a summary, or the columns with the errors of a view or a known answer.

    several: whether rows of several grouping sets stand together. Then a view names the grouping set of each row. A
        stream does not, because its columns are part of its digest.
    """
    if known and ask.view is None:
        return with_intervals_of(select, items, answers)
    if options.summary is None and ask.view is not None:
        return with_view_columns(select, items, answers, levels=several and options.form == "sets")
    return select if options.summary is None else with_summary_columns(select, items, keys, options.summary)


def _enums(keys: tuple[Key, ...], sources: tuple[SourceColumn, ...]) -> Mapping[str, str]:
    """Returns the ENUM type of each key that is an ENUM column, by the name of the key."""
    domains = {
        key.name: sources[key.sources[0]].domain
        for key in keys
        if key.sources and key.expression == sources[key.sources[0]].sql
    }
    return {name: domain.type_name for name, domain in domains.items() if sql_type(domain.type_name).is_enum}


def _view_select(ask: AskStatement) -> exp.Select:
    if not isinstance(ask.query, exp.Select):
        raise refusal(ask.query, "a private view takes one SELECT", "SELECT .. FROM .. GROUP BY ..")
    return ask.query


def _check_clauses(select: exp.Select) -> None:
    for part, value in select.args.items():
        if value and part not in _ACCEPTED_CLAUSES:
            what, accepted = _REFUSED_CLAUSES.get(
                part, (f"{part.strip('_').upper()} is refused", "the statement without it")
            )
            first = value[0] if isinstance(value, list) else value
            raise refusal(first if isinstance(first, exp.Expr) else select, what, accepted)
    if select.args.get("kind"):
        raise refusal(select, "SELECT AS STRUCT or VALUE is refused", "a list of columns")


def _grouping(group: exp.Group | None, items: tuple[SelectItem, ...], source: RowSource) -> Grouping:
    aliases = {fold(item.name): item.expression for item in items}

    def key_of(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Literal):
            if not node.is_int or not 1 <= int(node.name[:6]) <= len(items):
                raise refusal(node, "GROUP BY has no such position", f"1 .. {len(items)}, or a column")
            node = items[int(node.name[:6]) - 1].expression
        elif isinstance(node, exp.Column) and not node.table and fold(node.name) in aliases:
            in_scope = any(fold(name) == fold(node.name) for name, _ in source.scope.columns())
            node = node if in_scope else aliases[fold(node.name)]
        if has_aggregate(node):
            raise refusal(node, "an aggregate in GROUP BY", "columns and expressions over them")
        return resolve(node, source.scope)

    plain = [item.expression for item in items if not has_aggregate(item.expression)]
    return read_grouping(group, [node for node in plain if node.find(exp.Column)], key_of)


def _column_names(keys: tuple[Key, ...]) -> dict[str, str]:
    """Maps canonical SQL of keys to released columns. For ranges, also maps their column and range_end(column)."""
    names = {key.expression: key.name for key in keys}
    for key in keys:
        if key.shape:
            column = key.expression[len(range_text(key.shape, "")) - 1 : -1]
            names |= {column: key.name, range_text(RANGE_END, column): key.end_name}
    return names


def _grouping_sets(
    grouping: Grouping, keys: tuple[Key, ...]
) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...] | None]:
    """Returns the distinct sets as key positions. If a set is repeated, also returns the number of each listed set."""
    order = {key.expression: position for position, key in enumerate(keys)}
    written = [tuple(sorted(order[text] for text in grouping_set)) for grouping_set in grouping.sets]
    distinct = tuple(dict.fromkeys(written))
    if len(distinct) == len(written):
        return distinct, None
    numbers = {grouping_set: number for number, grouping_set in enumerate(distinct)}
    return distinct, tuple(numbers[grouping_set] for grouping_set in written)


def _merge_weights(
    treatment: Treatment, sets: tuple[tuple[int, ...], ...], repeated: tuple[int, ...] | None, place: exp.Expr
) -> Treatment:
    """Returns the treatment with weights for distinct grouping sets. The weights of a repeated set add up."""
    if not treatment.weights:
        return treatment
    numbers = repeated if repeated is not None else tuple(range(len(sets)))
    if len(treatment.weights) != len(numbers):
        raise refusal(
            place,
            f"{len(treatment.weights)} weights for {len(numbers)} grouping sets",
            f"weights = ({', '.join(['1'] * min(len(numbers), 3))}{', ..' if len(numbers) > 3 else ''}): "
            f"{len(numbers)} of them, in the order of the grouping sets",
        )
    weights = [Fraction(0)] * len(sets)
    for number, weight in zip(numbers, treatment.weights, strict=True):
        weights[number] += weight
    return replace(treatment, weights=tuple(weights))


def _check_size(
    select: exp.Select,
    keys: tuple[Key, ...],
    sets: tuple[tuple[int, ...], ...],
    aggregates: tuple[Aggregate, ...],
    selecting: bool,
) -> None:
    sizes = [key.released_size for key in keys]
    cells = sum(prod(sizes[position] for position in grouping_set) for grouping_set in sets) * len(aggregates)
    if cells > MAX_RELEASED_CELLS and not selecting:
        raise refusal(
            select,
            f"the answer would have {cells} cells",
            f"at most {MAX_RELEASED_CELLS}: fewer columns or grouping sets, or a summary",
        )
    if len(aggregates) > MAX_AGGREGATES:
        raise refusal(select, f"{len(aggregates)} different aggregates", f"at most {MAX_AGGREGATES}")


def _request(
    options: Options,
    select: exp.Select,
    source: RowSource,
    columns: tuple[SourceColumn, ...],
    keys: tuple[Key, ...],
    sets: tuple[tuple[int, ...], ...],
    aggregates: tuple[Aggregate, ...],
    facts: PublicFacts,
) -> SelectRequest:
    place = select.args.get("hint") or select
    if options.selection is None:
        check_groups(aggregates, keys, sets, place)
    if options.summary is None:
        _check_size(select, keys, sets, aggregates, options.selection is not None)
    policy = source.policy
    rows = by_periods(rows_of(source, facts, row_bound(options, source, place), select), columns, source, facts, select)
    question = Question(
        sources=columns,
        keys=keys,
        grouping_sets=sets,
        aggregates=aggregates,
        treatment=options.treatment,
        selection=(
            None if options.selection is None else selection_of(options.selection, policy, rows.unit_bound, place)
        ),
        own=options.own,
    )
    require_persons(rows, question, place)
    request = SelectRequest(rows, question, price_of(options, policy, place))
    require_norm(options, request, place)
    if options.treatment.groups:
        require_groups(options, request, place)
    if options.selection is not None:
        require_counts(request, place)
    return request
