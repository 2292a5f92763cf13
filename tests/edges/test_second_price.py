"""The price is computed twice: where what will run costs more than the statement says, nothing is charged or made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from importlib import import_module
from typing import Any

import pytest

import dpduck
from dpduck.privacy import Charge
from tests.edges.clinics import Clinic, by

POLICY = """CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 4,
    BUDGET (epsilon = 40, delta = 1e-5, delta_keys = 5e-6), DOMAIN sex IN (0, 1), DOMAIN age RANGE 0 TO 100 STEP 10)"""
COUNTED = "AS SELECT sex, age, count(*) AS n FROM visits GROUP BY sex, age"
SYNTHETIC = "AS SELECT sex, age FROM visits WORKLOAD MARGINALS (2)"
APPROXIMATE = "epsilon = 1, delta = 1e-6"
KINDS = {
    "Laplace": ("cube_release.compiled_cost", by("sex")),
    "Gaussian": ("cube_release.compiled_cost", by("sex", more="delta = 1e-6")),
    "keys": (
        "key_release.selection_cost",
        by("ward", more="delta = 1e-6, group_selection_strategy = LAPLACE_THRESHOLD"),
    ),
    "summary": (
        "summary_release.summary_cost",
        f"CREATE PRIVATE VIEW summarised OPTIONS (epsilon = 1, summary = 'filter', theta = 2) {COUNTED}",
    ),
    "total": (
        "summary_release.total_cost",
        "CREATE PRIVATE VIEW totalled "
        f"OPTIONS (epsilon = 1, summary = 'threshold', summary_size = 10, total_epsilon = 0.1) {COUNTED}",
    ),
    "nodes of ranges": (
        "summary_release.summary_cost",
        "CREATE PRIVATE VIEW noded OPTIONS (epsilon = 1, summary = 'filter', theta = 1, range_summary = 'dyadic') "
        "AS SELECT age, count(*) AS n FROM visits GROUP BY RANGES(age)",
    ),
    "sketch": (
        "sketch_release.sketch_cost",
        "CREATE PRIVATE VIEW sketched "
        f"OPTIONS (epsilon = 1, summary = 'sketch', summary_size = 15, sketch_rows = 3) {COUNTED}",
    ),
    "questions": (
        "synthetic_release.interrogation_cost",
        f"CREATE PRIVATE TABLE asked OPTIONS (epsilon = 1, mechanism = 'mwem', rows = 10) {SYNTHETIC}",
    ),
    "synthetic cube": (
        "synthetic_release.compiled_cost",
        f"CREATE PRIVATE TABLE cubed OPTIONS (epsilon = 1, mechanism = 'cube', rows = 10) {SYNTHETIC}",
    ),
    "projection": (
        "projection_release.projection_cost",
        f"CREATE PRIVATE PROJECTION projected OPTIONS ({APPROXIMATE}, sparsity = 2, queries = 5) "
        "AS SELECT ward FROM visits",
    ),
    "histogram": (
        "session_release.histogram_cost",
        f"CREATE PRIVATE HISTOGRAM lazy OPTIONS ({APPROXIMATE}, queries = 5) ON visits (ward)",
    ),
    "session": (
        "session_release.gate_cost",
        f"CREATE PRIVATE SESSION open_session OPTIONS ({APPROXIMATE}, sparsity = 2, queries = 5) ON visits (ward)",
    ),
}


def dearer(cost: Charge | Fraction) -> Charge | Fraction:
    """A hundredth more."""
    more = Fraction(101, 100)
    if isinstance(cost, Fraction):
        return cost * more
    epsilon = None if cost.epsilon is None else cost.epsilon * more
    return replace(cost, epsilon=epsilon, rho=cost.rho * more, delta=cost.delta * more)


@pytest.fixture(scope="module")
def clinic() -> Iterator[Clinic]:
    """One clinic in memory for all kinds: opening one takes longer than a test."""
    with dpduck.connect() as connection:
        made = Clinic(connection)
        made.fill()
        made.protect(POLICY)
        yield made


@pytest.mark.parametrize("kind", list(KINDS))
def test_what_costs_more_than_it_says_is_not_made(clinic: Clinic, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN 5: a mismatch of the two prices is an internal error before the charge; without one, all is well."""
    place, statement = KINDS[kind]
    module, name = place.split(".")
    second = getattr(import_module(f"dpduck.edges.{module}"), name)
    before = clinic.charges()

    def raised(*given: Any) -> Charge | Fraction:
        return dearer(second(*given))

    with monkeypatch.context() as patch:
        patch.setattr(f"dpduck.edges.{place}", raised)
        assert "more than the statement; nothing was charged" in clinic.refused(statement)
    assert clinic.charges() == before
    clinic.dp(statement)
    assert clinic.charges() == before + 1
