"""SQL around answers that would cost the host much time or memory is refused from its text alone."""

from __future__ import annotations

import sys
from types import FrameType

import pytest

from dpduck.language.select.outer import MOST_QUERIES
from tests.language.clinic import open_clinic, told

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
    """Thousands of arms of a UNION ALL are refused: they would take memory that a server has for everybody."""
    with open_clinic() as clinic:
        assert f"accepted: at most {MOST_QUERIES}" in told(clinic, around.format(ANSWER))


LONG = {
    "ORDER BY": "sex, count(*) AS n FROM visits GROUP BY sex ORDER BY " + ", ".join(["n"] * 20_000),
    "items": ", ".join(f"count(*) AS n{number}" for number in range(2_000)) + " FROM visits",
    "GROUP BY": "sex, count(*) AS n FROM visits GROUP BY " + ", ".join(["sex"] * 2_000),
    "arguments": "count(*) FROM visits WHERE coalesce(" + ", ".join(["ward"] * 20_000) + ") > 1",
    "columns in IN": "count(*) FROM visits WHERE ward IN (" + ", ".join(["ward"] * 2_000) + ")",
}


@pytest.mark.parametrize("parts", LONG)
def test_long_lists_are_not_planned(parts: str) -> None:
    """Long lists of computed parts are refused: each part is planned in the process that every principal waits for."""
    with open_clinic() as clinic:
        said = told(clinic, f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) {LONG[parts]}")
        assert "a list of " in said and "accepted: at most 1000" in said


def test_long_lists_of_constants_are() -> None:
    """A list of thousands of constants in IN (..) is accepted, as for a domain that is written out."""
    numbers = ", ".join(map(str, range(12_000)))
    with open_clinic() as clinic:
        statement = (
            f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits WHERE age IN ({numbers})"
        )
        assert "accepted: " not in told(clinic, statement)


def test_long_conditions_over_answers_are_copied_once() -> None:
    """Rewriting copies a long chain of conditions over answers once, and not again at each level."""

    def copied(parts: int) -> int:
        seen = 0

        def count(frame: FrameType, event: str, _: object) -> None:
            nonlocal seen
            seen += event == "call" and frame.f_code.co_name == "__init__" and "sqlglot" in frame.f_code.co_filename

        statement = f"{ANSWER[1:-1]} HAVING n > 1{' AND n > 1' * parts}"
        with open_clinic() as clinic:
            sys.setprofile(count)
            try:
                assert "accepted: " not in told(clinic, statement)
            finally:
                sys.setprofile(None)
        return seen

    assert copied(200) < 8 * copied(50)


def test_a_few_of_everything() -> None:
    """Ordinary statements stay far below all bounds."""
    doubled = f"SELECT sex || ' / ' || sex AS s, lag(n, 2, 0) OVER (ORDER BY n) AS before FROM {ANSWER}"
    with open_clinic() as clinic:
        for statement in (doubled, f"SELECT s || '!' AS s FROM ({doubled}) UNION ALL SELECT 'all'"):
            assert "accepted: " not in told(clinic, statement)
