"""dpduck audit: exact counts of made-up tables are the sum of those of each privacy unit alone."""

from __future__ import annotations

import duckdb
import pytest

from dpduck.auditor.additivity import sums
from dpduck.auditor.audit import ADDITIVITY, NOT_THE_SUM, check_sums
from dpduck.auditor.conditions import condition_statements
from dpduck.commands.audit import lines
from tests.auditor.planted import BY_TWO, COUNT, KEYS, MEDIAN, SUM, shop
from tests.support.additivity import plain_again

STATEMENTS = (COUNT, SUM, MEDIAN, BY_TWO)
BUDGETS = {
    "epsilon = 10": "epsilon = 1",
    "epsilon = 10, delta = 1e-3, delta_keys = 5e-4": "epsilon = 1",
    "rho = 1": "rho = 1",
}
"""Of a policy, and the price of a statement."""


@pytest.mark.sampled
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("unit", ["patient MAX ROWS 4", "ROW"])
def test_counts_of_twins_add_up(unit: str, budget: str) -> None:
    """Sums, medians, counts, and conditions over every column. False alarm: 1e-20, with 1e-25 for each number."""
    with shop(budget, unit) as source:
        texts = [one.replace("epsilon = 1", BUDGETS[budget]) for one in STATEMENTS]
        (found,) = check_sums(source, texts, BUDGETS[budget])
    assert (found.mechanism, found.told, found.broken) == (ADDITIVITY, "", False)
    (line,) = lines(found)
    assert len(line) <= 80 and line.endswith(" statements: all units, and each alone      holds")
    assert int(line.split()[2]) >= 12


def test_conditions_that_a_scan_is_given_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The audit finds the planted fault (unsplit conditions) and names a statement that shows it."""
    plain_again(monkeypatch)
    with shop() as source:
        found = list(check_sums(source, [], "epsilon = 1"))
    assert found and all(one.broken and one.told == NOT_THE_SUM for one in found)
    assert all("IS DISTINCT FROM" in one.statement for one in found)
    text = list(lines(found[0]))
    assert text[0].endswith("TELLS") and "what does not add up" in text[1] and max(map(len, text)) <= 80


def test_no_private_row_is_read() -> None:
    """Twins come from the policy. They have four units, of which one has NULL in every column."""
    with shop() as source:
        source.execute("UPDATE visits SET drug = 'private'")
        seen = []

        def given(made: duckdb.DuckDBPyConnection) -> list[str]:
            columns = "count(*), count(sex), count(DISTINCT sex), count(*) FILTER (WHERE drug = 'private')"
            seen.extend(made.execute(f"SELECT {columns} FROM visits GROUP BY patient ORDER BY 2, 3").fetchall())
            return [*condition_statements(made, "epsilon = 1")[:1], KEYS, "SELECT what nobody accepts"]

        assert sums(source, given).statements == 1
    assert len(seen) == 4 and seen[0][:2] == (4, 0) and any(one[2] == 1 for one in seen)
    assert {one[3] for one in seen} == {0}
