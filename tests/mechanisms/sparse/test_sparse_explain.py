"""dp_explain of sparse queries: all ways side by side, before anything is spent."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.mechanisms.sparse.sparse import fill
from tests.support.clinics import Clinic

WAYS = {"session", "projection", "histogram", "sketch", "direct"}


@pytest.fixture
def visits(open_clinic: Callable[..., Clinic]) -> Clinic:
    made = open_clinic()
    fill(made)
    return made


def explained(visits: Clinic, kind: str, options: str) -> dict[str, tuple[bool, float, str]]:
    text = f"CREATE PRIVATE {kind} x OPTIONS ({options}) ON visits (code)"
    rows = visits.con.execute("SELECT strategy, chosen, predicted_error, note FROM dp_explain(?)", [text]).fetchall()
    assert rows[0][1]
    return {row[0]: row[1:] for row in rows}


@pytest.mark.parametrize("price", ["epsilon = 1", "epsilon = 1, delta = 1e-6", "rho = 0.1"])
def test_every_way_is_compared(visits: Clinic, price: str) -> None:
    """Session, projection, lazy histogram, sketch and direct noise, with the error at confidence 1 - beta."""
    charges = visits.charges()
    for kind in ("SESSION", "PROJECTION", "HISTOGRAM"):
        found = explained(visits, kind, f"{price}, sparsity = 16, queries = 2000")
        assert set(found) == WAYS
        assert [name for name, row in found.items() if row[0]] == [kind.lower()]
        assert all(row[1] > 0 for row in found.values())
        best = min(found, key=lambda name: found[name][1])
        assert [name for name, row in found.items() if "smallest predicted error" in row[2]] == [best]
        assert "HMAC-SHA256" in found["histogram"][2]
    assert visits.charges() == charges


def test_a_hopeless_session_says_so(visits: Clinic) -> None:
    """dp_explain warns of an alpha of half the rows or more, by public figures alone. So do creation and answers."""
    plain, hopeless = "epsilon = 5, sparsity = 2, queries = 20", "epsilon = 1, queries = 20, alpha = 1e9"
    assert "hopeless" not in explained(visits, "SESSION", f"{plain}, updates = 1")["session"][2]
    assert explained(visits, "SESSION", hopeless)["session"][2].startswith("hopeless: alpha = 1e+09 is no less than")
    statement = f"CREATE PRIVATE SESSION s OPTIONS ({hopeless}) ON visits (code)"
    told = visits.dp(statement)
    assert told[0][0].startswith("s is ready; hopeless: alpha = 1e+09 is no less than half of the ")
    assert visits.dp(statement) == told
    assert visits.value("SELECT note FROM dp_sessions()").startswith("hopeless: alpha")


def test_the_histogram_beats_the_projection(visits: Clinic) -> None:
    """The same noise and no distortion, for every number of queries. A few queries are cheapest one by one."""
    for queries in (10, 1000, 10**6):
        found = explained(visits, "HISTOGRAM", f"epsilon = 1, delta = 1e-6, sparsity = 16, queries = {queries}")
        assert found["histogram"][1] < found["projection"][1]
    few = explained(visits, "HISTOGRAM", "epsilon = 1, delta = 1e-6, sparsity = 64, queries = 5")
    assert few["direct"][1] < few["histogram"][1]
