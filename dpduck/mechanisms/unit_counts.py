"""Numbers of a unit's rows, as operands of averages, sums and quantiles. MAX ROWS is the bound if none is written."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dpduck.kernel.relations import Source, Units
from dpduck.language.select.request import SelectRequest
from dpduck.values.quoting import quote_identifier


def warn_of_count_bounds(request: SelectRequest) -> str:
    """Names the aggregates that clamp the number of a unit's rows to a bound, and the remedy. '' if there are none."""
    said = []
    for aggregate in request.question.aggregates:
        if aggregate.operand is None or aggregate.function == "count":
            continue
        for name in _count_columns(request.rows.source):
            inside = re.search(rf"WHEN {re.escape(name)} >= (\d+) THEN", aggregate.operand.sql)
            plain = aggregate.operand.sql == f"CAST({name} AS DOUBLE)"
            bound = str(aggregate.operand.high) if plain else inside[1] if inside is not None else ""
            if bound:
                said.append(f"{aggregate.text} takes a unit with more than {bound} rows for one with {bound}")
    if not said:
        return ""
    return f"{'; '.join(dict.fromkeys(said))}: avg(n, contribution_bounds_per_row => (low, high)) sets other bounds"


def _count_columns(source: Source) -> Iterator[str]:
    """Yields the SQL of the columns that hold numbers of a unit's rows."""
    if isinstance(source.first, Units):
        for _, quoted in source.first.counts:
            yield f"{quote_identifier(source.first.alias)}.{quoted}"
    for join in source.joins:
        yield from _count_columns(join.right)
