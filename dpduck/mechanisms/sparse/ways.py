"""Predicted error of each way to answer sparse queries at one price, from public figures alone."""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt

from dpduck.mechanisms.sparse.plan import SessionPlan, SparseWorkload
from dpduck.mechanisms.sparse.projection import ProjectionPlan
from dpduck.values.privacy import Charge

SKETCH_DEPTH, SKETCH_CELLS = 5, 1 << 16


@dataclass(frozen=True)
class Way:
    """One way to answer. stderr: of one query, None for a session. error: bound for all. cells: released integers."""

    name: str
    stderr: float | None
    error: float
    cells: int
    note: str


def ways(
    charge: Charge,
    unit_bound: int,
    declared: SparseWorkload,
    second_moment: float,
    projection: ProjectionPlan,
    session: SessionPlan | None,
) -> list[Way]:
    """Returns all ways, the smallest error first. `session` is None if no session meets the declared figures."""
    listed = [
        _histogram(charge, unit_bound, declared),
        _projection(declared, second_moment, projection),
        _sketch(charge, unit_bound, declared, second_moment),
        _direct(charge, unit_bound, declared),
    ]
    if session is not None:
        note = f"{session.law.updates} updates; the hypothesis answers unchecked when they are used up"
        note = "; ".join(filter(None, (session.warning, note)))
        listed.append(Way("session", None, session.alpha, session.law.updates, note))
    return sorted(listed, key=lambda way: way.error)


def _histogram(charge: Charge, unit_bound: int, declared: SparseWorkload) -> Way:
    error, stderr = _independent(charge, unit_bound, declared, 1, declared.sparsity)
    note = "asked of the owner, dp_ask; computational: as strong as HMAC-SHA256"
    return Way("histogram", stderr, error, 0, note)


def _projection(declared: SparseWorkload, second_moment: float, plan: ProjectionPlan) -> Way:
    largest = sqrt(declared.sparsity * second_moment)  # Cauchy and Schwarz: no answer is larger
    stderr = plan.stderr(declared.sparsity, second_moment, largest)
    error = plan.error(declared.sparsity, second_moment, largest)
    return Way("projection", stderr, error, plan.rows, "a released table, asked by dp_project in any DuckDB")


def _sketch(charge: Charge, unit_bound: int, declared: SparseWorkload, second_moment: float) -> Way:
    """Predicts the error of a count sketch with SKETCH_DEPTH rows: by noise, and by other keys in the same cells."""
    depth = SKETCH_DEPTH
    if charge.epsilon is None:
        noise = unit_bound**2 / (2 * float(charge.rho))
    else:
        noise = 2 * depth * (unit_bound / float(charge.epsilon)) ** 2
    stderr = sqrt(declared.sparsity * (noise + second_moment / SKETCH_CELLS))
    error = stderr * sqrt(2 * log(2 * declared.queries / declared.beta))
    return Way("sketch", stderr, error, SKETCH_CELLS, f"a released count sketch, {depth} by {SKETCH_CELLS // depth}")


def _direct(charge: Charge, unit_bound: int, declared: SparseWorkload) -> Way:
    error, stderr = _independent(charge, unit_bound, declared, declared.queries, 1)
    return Way("direct", stderr, error, declared.queries, "one count for each query, the price divided by their number")


def _independent(
    charge: Charge, unit_bound: int, declared: SparseWorkload, parts: int, terms: int
) -> tuple[float, float]:
    """Returns error and standard error of a sum of `terms` noises. Each noise costs 1 / `parts` of the price."""
    chances = log(2 * declared.queries / declared.beta)
    if charge.epsilon is None:
        stderr = unit_bound * sqrt(terms * parts / (2 * float(charge.rho)))
        return stderr * sqrt(2 * chances), stderr
    scale = unit_bound * parts / float(charge.epsilon)
    stderr = scale * sqrt(2.0 * terms)
    return (scale * chances if terms == 1 else stderr * sqrt(2 * chances) + scale * chances), stderr
