"""Trials of CREATE PRIVATE TABLE: the distances of the marginals of drawn rows from those of the data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from math import prod

import duckdb
import numpy as np

from dpduck.kernel.noise.entropy import operating_system_entropy, words64
from dpduck.mechanisms.synthetic.measure import model_of
from dpduck.mechanisms.synthetic.request import SyntheticRequest
from dpduck.mechanisms.synthetic.sample import sample_codes
from dpduck.store.check import code_rows, distances
from dpduck.trial.draws import Drawing
from dpduck.trial.figures import AnswerFigures
from dpduck.values.errors import InternalError

MOST_DRAWN = 1_000_000
"""Largest number of rows that a run draws."""


def margin_figures(
    drawing: Drawing, request: SyntheticRequest, data_sql: str, open_cursor: Callable[[], duckdb.DuckDBPyConnection],
    runs: int,
) -> Iterator[AnswerFigures]:  # fmt: skip
    """Yields the distance of each marginal of at most three columns, over several tables of made-up rows.

    data_sql: the rows of the data, with columns named as the keys. A distance is a total variation.
    """
    question, entropy = request.base.question, operating_system_entropy()
    with open_cursor() as cursor:
        data = code_rows(cursor, question, data_sql)
    by_margin: dict[tuple[str, int], list[float]] = defaultdict(list)
    with drawing.releases(request, request.base.rows) as release:
        for _ in range(runs):
            table, _plan = release()
            if table.covariances is None:
                raise InternalError("a distribution without its description")
            model = model_of(table.covariances, table.rows)
            rows = request.options.rows or max(1, round(model.records))
            codes = sample_codes(model.distribution, min(rows, MOST_DRAWN), lambda count: words64(entropy, count))
            for margin in distances(question, data, np.array(codes)):
                by_margin[margin.columns, margin.ways].append(margin.distance)
    sizes = {key.name: len(key.labels) for key in question.keys}
    for (columns, ways), values in sorted(by_margin.items(), key=lambda item: (item[0][1], -float(np.median(item[1])))):
        cells = prod(sizes[name] for name in columns.split(", "))
        within = (float(np.mean(np.array(values) <= limit)) for limit in (0.1, 0.5))
        size = f"{ways} column{'' if ways == 1 else 's'}"
        yield AnswerFigures(columns, size, cells, float(np.median(values)), float(np.quantile(values, 0.9)), *within)
