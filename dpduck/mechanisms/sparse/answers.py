"""Answers of histograms and sessions as tables."""

from __future__ import annotations

from collections.abc import Sequence
from math import log, sqrt

import numpy as np

from dpduck.database.tables import Value, rows_sql
from dpduck.mechanisms.sparse.ask import HYPOTHESIS, MEASURED
from dpduck.mechanisms.sparse.questions import Asked
from dpduck.mechanisms.sparse.session import HistogramLaw
from dpduck.mechanisms.sparse.session_plan import SessionPlan
from dpduck.mechanisms.sparse.store import Answered, Named
from dpduck.trusted.ask import UNITS
from dpduck.trusted.noise.law import NoiseKind

COLUMNS = (
    ("question", "VARCHAR"), ("answer", "DOUBLE"), ("margin", "DOUBLE"), ("source", "VARCHAR"), ("updated", "BOOLEAN"),
    ("updates_left", "BIGINT"), ("note", "VARCHAR"),
)  # fmt: skip
OUT_OF_UPDATES = "no updates are left: from the hypothesis, without a statement about its error"
MORE_THAN_DECLARED = "beyond the declared number of questions"


def session_answers(named: Named, plan: SessionPlan, asked: Asked, answers: Sequence[Answered]) -> str:
    """One row for each question of a session."""
    margins = {HYPOTHESIS: plan.alpha, MEASURED: plan.measured}
    rows: list[list[Value]] = []
    for label, one in zip(asked.labels, answers, strict=True):
        note = "" if one.source in margins else OUT_OF_UPDATES
        if one.number > named.queries:
            note = note or MORE_THAN_DECLARED
        left = plan.law.updates - one.updates
        rows.append([label, one.answer, margins.get(one.source), one.source, one.source == MEASURED, left, note])
    return rows_sql(COLUMNS, rows)


def histogram_answers(named: Named, law: HistogramLaw, asked: Asked, values: Sequence[int]) -> str:
    """One row for each question of a histogram; margins hold for all declared questions but with chance beta."""
    shares = asked.weights / UNITS
    starts = np.concatenate([[0], np.cumsum(asked.lengths)[:-1]]).astype(np.intp)
    sums = np.add.reduceat(np.asarray(values, dtype=np.float64) * shares, starts)
    squares = np.add.reduceat(shares * shares, starts)
    rows: list[list[Value]] = [
        [
            label,
            float(answer),
            histogram_margin(law, float(square), named.queries, named.beta),
            "histogram",
            False,
            None,
            "",
        ]
        for label, answer, square in zip(asked.labels, sums, squares, strict=True)
    ]
    return rows_sql(COLUMNS, rows)


def histogram_margin(law: HistogramLaw, weight_squared: float, queries: int, beta: float) -> float:
    """Gaussian: a sub-Gaussian tail. Laplace: Bernstein's bound, with weights of at most 1."""
    chances = log(2 * queries / beta)
    usual = law.stderr * sqrt(2 * weight_squared * chances)
    return usual if law.noise is NoiseKind.GAUSSIAN else usual + float(law.spread) * chances
