"""What a statement around answers may cost whoever runs it: refused from its text alone."""

from __future__ import annotations

import pytest

from dpduck.frontend.select.outer import MOST_QUERIES
from tests.frontend.clinic import open_clinic, told

ANSWER = "(SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) sex, count(*) AS n FROM visits GROUP BY sex)"


@pytest.mark.parametrize(
    "around",
    [
        "SELECT n FROM {0}" + " UNION ALL SELECT 2" * MOST_QUERIES,
        "SELECT a.n FROM {0} AS a" + "".join(f" JOIN wards AS w{i} ON TRUE" for i in range(MOST_QUERIES)),
        "WITH " + ", ".join(f"c{i} AS (SELECT {i} AS x)" for i in range(MOST_QUERIES)) + " SELECT n FROM {0}",
    ],
)
def test_many_queries_around_an_answer(around: str) -> None:
    """Thousands of arms of a UNION ALL would take memory that a server has for everybody."""
    with open_clinic() as clinic:
        assert f"accepted: at most {MOST_QUERIES}" in told(clinic, around.format(ANSWER))


def test_a_few_of_everything() -> None:
    """What people write is no nearer to the bounds than it was."""
    doubled = f"SELECT sex || ' / ' || sex AS s, lag(n, 2, 0) OVER (ORDER BY n) AS before FROM {ANSWER}"
    with open_clinic() as clinic:
        for statement in (doubled, f"SELECT s || '!' AS s FROM ({doubled}) UNION ALL SELECT 'all'"):
            assert "accepted: " not in told(clinic, statement)
