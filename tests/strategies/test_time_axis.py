"""Strategies of the time axis against dense oracles: measurement times, costs and errors of answers."""

from __future__ import annotations

from fractions import Fraction
from math import comb, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpduck.strategies.time_axis import (
    BRANCHINGS,
    DENOMINATOR,
    FACTORISATION,
    PERIODS,
    STRATEGIES,
    TREE,
    TimeAxis,
    time_axis,
)
from dpduck.strategies.time_questions import TimeQuestion, variances

axes = st.builds(time_axis, st.sampled_from(STRATEGIES), st.integers(1, 40), st.sampled_from(BRANCHINGS))
questions = st.builds(TimeQuestion, st.integers(0, 12))


def oracle(axis: TimeAxis, closed: int, question: np.ndarray) -> np.ndarray:
    """The weights of least squares by the pseudo-inverse of the rows that read no later period."""
    whole = axis.matrix.astype(float)
    seen = whole[~whole[:, closed:].any(axis=1), :closed]
    return question @ np.linalg.pinv(seen)


@settings(max_examples=60, deadline=None)
@given(axes, questions, st.integers(1, 40))
def test_weights_are_least_squares(axis: TimeAxis, question: TimeQuestion, closed: int) -> None:
    """An answer is the best linear unbiased one from all measurements so far, for every strategy and question."""
    closed = min(closed, axis.periods)
    asked = question.about(closed)
    found = axis.weights(closed, asked[None])[0]
    assert found == pytest.approx(oracle(axis, closed, asked), abs=1e-9)
    seen = axis.matrix[: axis.rows_measured(closed), :closed]
    assert found @ seen == pytest.approx(asked, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(axes, questions)
def test_variances_are_those_of_the_weights(axis: TimeAxis, question: TimeQuestion) -> None:
    """dp_explain's variance of a period is that of the answer published when the period closes."""
    expected = [
        (axis.weights(closed, question.about(closed)[None]) ** 2).sum() for closed in range(1, axis.periods + 1)
    ]
    assert variances(axis, question) == pytest.approx(expected, rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(axes, st.integers(1, 6), st.data())
def test_any_rows_of_a_unit_cost_no_more_than_is_charged(axis: TimeAxis, rows: int, data: st.DataObject) -> None:
    """Whatever periods a unit's rows fall in, the measurements move by rows times the largest norm of a column."""
    places = data.draw(st.lists(st.integers(0, axis.periods - 1), min_size=0, max_size=rows))
    moved = axis.matrix @ np.bincount(places, minlength=axis.periods)
    l1, l2_squared, _ = axis.factor.norms
    assert int(np.abs(moved).sum()) <= rows * l1
    assert int((moved * moved).sum()) <= rows * rows * l2_squared
    dense = axis.matrix.astype(object)
    assert l1 == max(abs(dense).sum(axis=0)) and l2_squared == max((dense * dense).sum(axis=0))


@settings(max_examples=40, deadline=None)
@given(axes)
def test_rows_are_measured_when_their_last_period_closes(axis: TimeAxis) -> None:
    """Rows are ordered by the last period that they read, so that measurements so far are always a first part."""
    for closed in range(axis.periods + 1):
        measured = axis.rows_measured(closed)
        assert not axis.matrix[:measured, closed:].any()
        assert axis.matrix[measured:, closed:].any(axis=1).all()
        assert measured >= closed


def test_the_factorisation_is_the_rounded_square_root() -> None:
    """Entries are DENOMINATOR c_(i-j) / norm of column j, c_k = binomial(2k, k) / 4^k, to the nearest integer."""
    periods = 50
    entries = [Fraction(comb(2 * k, k), 4**k) for k in range(periods)]
    found = time_axis(FACTORISATION, periods).matrix
    for column in range(periods):
        norm = sqrt(sum(float(entry) ** 2 for entry in entries[: periods - column]))
        expected = [DENOMINATOR * float(entry) / norm for entry in entries[: periods - column]]
        assert np.abs(found[column:, column] - expected).max() <= 0.5 + 1e-6
        assert not found[:column, column].any()


def test_the_square_root_of_running_totals() -> None:
    """Before columns are brought to norm 1, the factor times itself is the matrix of running totals."""
    periods = 30
    entries = [comb(2 * k, k) / 4**k for k in range(periods)]
    root = np.array([[entries[i - j] if i >= j else 0.0 for j in range(periods)] for i in range(periods)])
    assert root @ root == pytest.approx(np.tril(np.ones((periods, periods))))


@pytest.mark.parametrize(("periods", "lower_bound"), [(36, 1.92709), (128, 2.31100)])
def test_running_totals_come_near_the_lower_bound(periods: int, lower_bound: float) -> None:
    """Gaussian noise at sigma = 1: within 1.5 % of a bound for all factorisations (benchmarks/papers/streams.py)."""
    axis = time_axis(FACTORISATION, periods)
    error = sqrt(axis.factor.norms[1] * variances(axis, TimeQuestion(0)).mean())
    assert lower_bound <= error <= 1.015 * lower_bound


def test_single_periods_alone_have_the_plain_error() -> None:
    """The strategy that measures every period by itself is the plain mechanism."""
    assert variances(time_axis(PERIODS, 9), TimeQuestion(1)).tolist() == [1.0] * 9
    assert variances(time_axis(TREE, 4), TimeQuestion(0)).tolist() == pytest.approx([1, 2 / 3, 5 / 3, 4 / 7])
