"""Answers of histograms and sessions as tables."""

from __future__ import annotations

from collections.abc import Sequence
from math import log, sqrt

import numpy as np

from dpduck.kernel.noise.law import Noise, NoiseKind
from dpduck.kernel.queries.sessions import UNITS
from dpduck.mechanisms.sparse.ask import HYPOTHESIS, MEASURED
from dpduck.mechanisms.sparse.plan import SessionPlan
from dpduck.mechanisms.sparse.questions import KeyQuestions
from dpduck.mechanisms.sparse.store import SessionAnswer, SparseRecord
from dpduck.store.tables import Value, rows_sql

COLUMNS = (
    ("question", "VARCHAR"), ("answer", "DOUBLE"), ("margin", "DOUBLE"), ("source", "VARCHAR"), ("updated", "BOOLEAN"),
    ("updates_left", "BIGINT"), ("note", "VARCHAR"),
)  # fmt: skip
OUT_OF_UPDATES = "no updates are left: from the hypothesis, without a statement about its error"
MORE_THAN_DECLARED = "beyond the declared number of questions"


def session_answers(
    named: SparseRecord, plan: SessionPlan, asked: KeyQuestions, answers: Sequence[SessionAnswer]
) -> str:
    """Renders SQL with one row for each question of a session."""
    bounds = {HYPOTHESIS: plan.alpha, MEASURED: plan.measured}
    rows: list[list[Value]] = []
    for label, reply in zip(asked.labels, answers, strict=True):
        note = "" if reply.source in bounds else OUT_OF_UPDATES
        if reply.number > named.queries:
            note = note or MORE_THAN_DECLARED
        left = plan.law.updates - reply.updates
        rows.append([label, reply.answer, bounds.get(reply.source), reply.source, reply.source == MEASURED, left, note])
    return rows_sql(COLUMNS, rows)


def histogram_answers(named: SparseRecord, noise: Noise, asked: KeyQuestions, values: Sequence[int]) -> str:
    """Renders SQL with one row for each question of a histogram. With chance 1 - beta, all margins hold together."""
    shares = asked.weights / UNITS
    starts = np.concatenate([[0], np.cumsum(asked.lengths)[:-1]]).astype(np.intp)
    sums = np.add.reduceat(np.asarray(values, dtype=np.float64) * shares, starts)
    squares = np.add.reduceat(shares * shares, starts)
    rows: list[list[Value]] = [
        [
            label,
            float(answer),
            histogram_margin(noise, float(square), named.queries, named.beta),
            "histogram",
            False,
            None,
            "",
        ]
        for label, answer, square in zip(asked.labels, sums, squares, strict=True)
    ]
    return rows_sql(COLUMNS, rows)


def histogram_margin(noise: Noise, weight_squared: float, queries: int, beta: float) -> float:
    """Returns the half-width of an interval, by a sub-Gaussian tail, or for Laplace noise by Bernstein's bound."""
    chances = log(2 * queries / beta)
    parameter = float(noise.parameter)
    if noise.kind is NoiseKind.GAUSSIAN:
        return sqrt(parameter) * sqrt(2 * weight_squared * chances)
    return sqrt(2.0) * parameter * sqrt(2 * weight_squared * chances) + parameter * chances
