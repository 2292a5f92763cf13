"""Jobs and expressions of the kernel, written as SQL texts in tests that describe them by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dpduck.kernel.columns.expressions import AnalystSql, Expression, Own, RelationColumn
from dpduck.kernel.columns.keys import KeyText
from dpduck.kernel.contributions import Contribution
from dpduck.kernel.counting.jobs import Attribute, CountingJob, GroupKey
from dpduck.kernel.relations import Grouped, Source
from dpduck.language.rows.compiled import Columns, condition_of, number_of, program_of, value_of
from dpduck.values.domain import Domain


def columns_of(types: Mapping[str, str]) -> dict[str, RelationColumn]:
    """Returns columns by their SQL. types: DuckDB's type of each, by the same SQL.

    >>> columns_of({'"r0"."age"': "INTEGER"})['"r0"."age"']
    RelationColumn(relation='r0', name='age', type_name='INTEGER')
    """
    parts = ((sql, *(part.strip('"') for part in sql.split('"."')), kind) for sql, kind in types.items())
    return {sql: RelationColumn(*found) for sql, *found in parts}


def own(sql: str) -> Own:
    """Returns SQL that counts as trusted code's own."""
    return Own((sql,))


def own_of(text: str, columns: Columns) -> Own:
    """Returns SQL over columns that counts as trusted code's own."""
    return Own(program_of(text, columns).pieces)


def rows(sql: str) -> Source:
    """Returns rows of SQL that counts as trusted code's own. The SQL is the text after FROM."""
    return Source(Grouped(sql))


def key(sql: str, domain: Domain) -> GroupKey:
    """Returns a key of SQL that counts as trusted code's own."""
    return GroupKey(own(sql), domain)


def adds(condition: str = "", form: str = "count", value: str = "", *rest: Any, **more: Any) -> Contribution:
    """Returns a contribution. Its SQL counts as trusted code's own, and is "" for none."""
    return Contribution(own(condition) if condition else None, form, own(value) if value else None, *rest, **more)


def compiled(contribution: Contribution, columns: Columns) -> Contribution:
    """Returns a contribution with an analyst's SQL, compiled over these columns."""
    condition, value = contribution.condition, contribution.value
    if isinstance(condition, Own):
        condition = condition_of(condition.sql, columns)
    if isinstance(value, Own):
        value = number_of(value.sql, columns)
    return replace(contribution, condition=condition, value=value)


def counts(
    source: Source | str,
    filters: Sequence[str],
    unit: str | None,
    max_rows: int,
    content: Sequence[str],
    keys: Sequence[GroupKey],
    attributes: Sequence[Attribute],
    aggregates: Sequence[Contribution],
    types: Mapping[str, str] | None = None,
    beside: Sequence[Contribution] = (),
    **more: Any,
) -> CountingJob:
    """Returns a job. types: of the columns over which texts are compiled. None: they are trusted code's own."""
    columns = columns_of(types or {})
    plain = types is None

    def read(text: str) -> Expression:
        return own(text) if plain else columns.get(text) or own_of(text, columns)

    return CountingJob(
        rows(source) if isinstance(source, str) else source,
        tuple(own(text) if plain else condition_of(text, columns) for text in filters),
        None if unit is None else read(unit),
        max_rows,
        tuple(map(read, content)),
        tuple(one if plain else replace(one, value=value_of(one.value.sql, columns)) for one in keys),
        tuple(attributes),
        tuple(one if plain else compiled(one, columns) for one in aggregates),
        beside=tuple(one if plain else compiled(one, columns) for one in beside),
        **more,
    )


def selected(job: CountingJob, texts: Sequence[Expression], groups: int) -> CountingJob:
    """Returns a job of groups that are private until they are published."""
    return replace(job, selected=True, texts=tuple(texts), groups=groups)


def by_digest(job: CountingJob, key: KeyText | Own) -> CountingJob:
    """Returns a job that counts rows by a key of an unbounded universe."""
    return replace(job, digest=key, aggregates=(Contribution(),), keys=(), attributes=())


def is_program(expression: Expression) -> bool:
    """Tells whether a worker evaluates an expression."""
    return isinstance(expression, AnalystSql)


def as_own(contribution: Contribution) -> Contribution:
    """Returns a contribution with SQL that counts as trusted code's own."""
    condition, value = contribution.condition, contribution.value
    return replace(
        contribution,
        condition=None if condition is None else own(condition.sql),
        value=None if value is None else own(value.sql),
    )
