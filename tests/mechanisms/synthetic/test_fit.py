"""Where a fit ends, and with what: its steps may raise the value for a while before they lower it further."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from dpduck.mechanisms.synthetic import fit as fits
from dpduck.mechanisms.synthetic.junction import calibrate, junction_tree
from dpduck.mechanisms.synthetic.observations import Observation, records_for_plan, total_of
from dpduck.mechanisms.synthetic.table_fit import fit_tables

SHAPE = (2, 3)
SEEN = (Observation((0,), np.array([30.0, 60.0]), 2.0), Observation((1,), np.array([20.0, 30.0, 40.0]), 2.0))


def fitted_along(monkeypatch: pytest.MonkeyPatch, values: list[float]) -> float:
    """The value of the point that a fit answers with, where its steps have these values."""
    points: dict[bytes, float] = {}
    script: Iterator[float] = iter(values)

    def scripted(
        problem: fits.FitProblem, ray: fits.Ray, step: float, reference: float
    ) -> tuple[fits.Point, Sequence[np.ndarray], float] | None:
        value = next(script, None)
        if value is None:
            return None
        moved = ray.point.parameters + value
        after = replace(problem.point(moved, problem.logarithms(moved)), value=value)
        points[after.parameters.tobytes()] = value
        return after, ray.logarithms, step

    monkeypatch.setattr(fits, "_line_search", scripted)
    tree = junction_tree(((0, 1),))
    found = fits.fit(tree, SHAPE, SEEN, 90.0, steps=100, start={}, prior={}, strength=1.0, tolerance=1e-3)
    return points[np.concatenate([found.parameters[one.attributes] for one in SEEN]).tobytes()]


def test_steps_that_rise_end_no_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three steps in a row that gain nothing are not the end. The lowest point is the answer, not the last one."""
    assert fitted_along(monkeypatch, [9.0, 5.0, 5.5, 6.0, 5.4, 1.0, 1.5]) == 1.0


def test_a_fit_ends_where_steps_together_gain_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five steps that gain less than a thousandth together are the end: what comes after is not looked at."""
    little = [5.0 - 0.0009 * number for number in range(fits.PATIENCE + 1)]
    assert fitted_along(monkeypatch, [9.0, *little, 1.0]) == little[-1]
    slowly = [5.0 - 0.002 * number for number in range(20)]
    assert fitted_along(monkeypatch, [9.0, *slowly, 1.0]) == 1.0


@pytest.mark.parametrize(
    ("prior", "zeros"),
    [
        ({}, {}),
        ({(0,): np.log([0.5, 1.5])}, {}),
        ({(0,): np.full(2, -1000.0), (2,): np.log([1.0, 2.0, 4.0])}, {}),
        ({(0,): np.log([0.5, 1.5]), (0, 1): np.log(np.arange(1.0, 9.0).reshape(2, 4))}, {}),
        ({(1,): np.log([1.0, 2.0, 3.0, 4.0])}, {(1, 2): np.where(np.eye(4, 3) > 0, fits.IMPOSSIBLE, 0.0)}),
    ],
)
def test_the_total_of_a_prior_is_that_of_its_tables(
    prior: dict[tuple[int, ...], np.ndarray], zeros: dict[tuple[int, ...], np.ndarray]
) -> None:
    """Where attributes are independent it is a product of sums. Messages along the tree find the same."""
    tree = junction_tree(((0, 1), (1, 2)))
    seen = (Observation((0, 1), np.ones((2, 4)), 1.0), Observation((1, 2), np.ones((4, 3)), 1.0))
    problem = fits.FitProblem(tree, (2, 4, 3), ((0, 1), (1, 2)), seen, 9.0, prior, 1.0, zeros)
    assert problem.base[1] == pytest.approx(calibrate(tree, problem.base[0])[1], rel=1e-12)


def test_a_fit_of_what_cannot_move_ends_at_once() -> None:
    """One cell is all there is, whatever two answers say: no step, and nothing overflows."""
    seen = (Observation((0,), np.array([90.0]), 1.0), Observation((0, 1), np.array([[80.0]]), 1.0))
    found = fits.fit(junction_tree(((0, 1),)), (1, 1), seen, 1e9, steps=30, start={}, prior={}, strength=1.0)
    assert [table.tolist() for table in found.tables] == [[[1.0]]]
    assert not any(table.any() for table in found.parameters.values())


@pytest.mark.parametrize("seed", [0, 3])
def test_a_precise_margin_does_not_end_the_fit_of_its_table(seed: int) -> None:
    """Beside a margin of a thousandth of its variance a table is fitted as well as without it, and the margin exactly.

    Fitted both at once from the beginning, the table is 5 to 7 times as far from the truth, at these seeds and others.
    """
    draw = np.random.default_rng(seed)
    shape = np.multiply.outer(np.linspace(1, 0, 20) ** 2, np.linspace(1, 0, 15) ** 2) * np.exp(
        draw.normal(size=(20, 15))
    )
    exact = np.round(shape * 15000 / shape.sum())
    table = Observation((0, 1), exact + draw.normal(size=exact.shape) * 10, 100.0)
    margin = Observation((1,), exact.sum(axis=0) + draw.normal(size=15) * 0.3, 0.1)
    wrong = []
    for observations in ([table], [table, margin]):
        found = fit_tables((20, 15), observations)[0].components[0].table
        apart = found / found.sum() - exact / exact.sum()
        wrong.append((float(np.abs(apart).sum()) / 2, float(np.abs(apart.sum(axis=0)).sum()) / 2))
    assert wrong[1][0] < 1.2 * wrong[0][0]
    assert wrong[1][1] < 0.0005
    assert wrong[0][1] > 0.01


def test_an_estimate_is_brought_near_a_guess_within_its_error_alone() -> None:
    """Answers that are off by one standard error at most are brought within a factor of 2 of the guess, no farther. The
    plan takes the guess where it is right within 2, else the noisy number."""
    assert [total_of([], first, 100.0, 1_000) for first in (-5.0, 4.0, 495.0, 700.0, 2_005.0, 9_000.0)] == [
        5.0, 14.0, 500.0, 700.0, 2_000.0, 8_990.0,
    ]  # fmt: skip
    assert total_of([], -5.0, 100.0, None) == 1.0
    assert [records_for_plan(first, 100.0, 1_000) for first in (100.0, 700.0, 9_000.0)] == [110, 1_000, 8_990]
    assert records_for_plan(700.0, 100.0, None) == 700
