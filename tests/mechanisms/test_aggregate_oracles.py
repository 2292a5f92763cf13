"""Sums, averages and sorts can raise errors on private rows, and still tell nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.mechanisms.test_oracles import SHAPE, UNITS, hostile, odd_clinic, prepare, same_outcomes
from tests.support.clinics import Clinic

OpenClinic = Callable[..., Clinic]

VALUES = (
    "big + 1", "big * 2", "-big", "abs(big)", "big // (tiny * 0)", "big % (tiny * 0)", "big / (tiny * 0)", "tiny * 100",
    "big::TINYINT", "real::BIGINT", "text::INTEGER", "text::DOUBLE", "text::DECIMAL(4, 2)", "sqrt(big)", "ln(big)",
    "acos(real)", "pow(real, 1000)", "exp(big)", "big << 60", "tiny << tiny", "length(text)", "year(moment)",
    "date_diff('second', day, DATE '0001-01-01')", "date_part('epoch', moment)", "unicode(text)", "gcd(big, tiny)",
    "lcm(big, big - 1)", "round(real, tiny)", "regexp_extract(text, '(a+)+')::INTEGER", "strlen(text)",
    "CASE WHEN flag THEN big * 2 ELSE text::INTEGER END", "coalesce(text::INTEGER, big)", "greatest(big, real)",
    # what DuckDB computes once for several uses, or for one, it computes outside of TRY
    "text::INTEGER + text::INTEGER", "(big * 3) * (big * 3)", "sqrt(big) + sqrt(big)",
)  # fmt: skip
FUNCTIONS = ("sum", "avg", "var_pop", "stddev", "median", "min", "max")
ADDED = FUNCTIONS[:4]
BOUNDS = "contribution_bounds_per_row => (-5, 100)"
CLAMPED = (
    "sum(big)", "avg(real)", "sum(big * big)", "var_samp(tiny)", "sum(big + real)", "max(big)", "sum(abs(real) * big)",
    "sum(CAST(text::INTEGER > 5 AS INTEGER))", "sum(least(greatest(text::INTEGER, 0), 9)) FILTER (WHERE sqrt(big) > 1)",
    "quantile_cont(text::INTEGER, [0.1, 0.9], contribution_bounds_per_row => (0, 9))",
)  # fmt: skip
BY_GROUP = (
    "sum(big * 2, contribution_bounds_per_group => (-5, 5))",
    "avg(text::INTEGER, contribution_bounds_per_group => (0, 9))",
    "count(text::INTEGER, contribution_bounds_per_group => (0, 2))", "count(DISTINCT who)",
)  # fmt: skip


def summing(values: Sequence[str], functions: Sequence[str]) -> list[str]:
    """Statements with several aggregates of every value. Together the aggregates read each value more than once."""
    statements = []
    for start in range(0, len(values), 18):
        items = [
            f"{functions[(start + number) % len(functions)]}({value}, {BOUNDS})"
            for number, value in enumerate(values[start : start + 18])
        ]
        statements.append(SHAPE.format(epsilon=1, what=f"sex, {', '.join(items)}", where="", key="sex"))
    return statements


def clinic_with_clamps(clinic: Clinic, unit: str) -> Clinic:
    odd = odd_clinic(clinic, unit)
    odd.dp("ALTER PRIVACY POLICY ON odd SET CLAMP big BETWEEN -10 AND 10")
    odd.dp("ALTER PRIVACY POLICY ON odd SET CLAMP real BETWEEN -1 AND 1 STEP 0.1")
    odd.dp("ALTER PRIVACY POLICY ON odd SET CLAMP tiny BETWEEN 0 AND 10")
    return odd


@pytest.mark.sampled
@UNITS
def test_no_value_decides_whether_an_aggregate_fails(open_clinic: OpenClinic, unit: str) -> None:
    """Over no rows and over hostile rows, aggregates of raising expressions have the same outcome and charge."""
    empty, full = clinic_with_clamps(open_clinic(), unit), clinic_with_clamps(open_clinic(), unit)
    hostile(full)
    prepare(unit, empty, full)
    statements = summing(VALUES, ADDED)
    listed = [*CLAMPED, *(BY_GROUP if unit != "ROW" else ())]
    statements.append(SHAPE.format(epsilon=1, what=f"sex, {', '.join(listed)}", where="", key="sex"))
    kinds = same_outcomes(empty, full, statements)
    assert kinds == ["answered"] * len(statements)


@pytest.mark.audit
@UNITS
@pytest.mark.parametrize("function", FUNCTIONS)
def test_no_value_decides_whether_one_aggregate_fails(open_clinic: OpenClinic, unit: str, function: str) -> None:
    """Every function of every value, asked alone, is answered over no rows and over hostile rows."""
    empty, full = clinic_with_clamps(open_clinic(), unit), clinic_with_clamps(open_clinic(), unit)
    hostile(full)
    prepare(unit, empty, full)
    statements = [statement for value in VALUES for statement in summing([value], [function])]
    assert set(same_outcomes(empty, full, statements)) == {"answered"}


def test_what_may_not_run_inside_an_aggregate(open_clinic: OpenClinic) -> None:
    """Volatile functions and second references are refused inside aggregates, as they are in conditions."""
    clinic = odd_clinic(open_clinic(), "ROW")
    clinic.rows("CREATE SEQUENCE s")
    for value, reason in (
        ("nextval('s')", "nextval is volatile or has side effects"),
        ("random()", "random() is not deterministic"),
        ("(SELECT max(big) FROM odd)", "a subquery in an expression is refused"),
        ("error('seen')", "error is not on the list of deterministic row functions"),
        ("hash(big)", "hash is not on the list of deterministic row functions"),
        ("rowid", "rowid depends on other rows"),
    ):
        listed = [f"{name}({value}, {BOUNDS})" for name in ("sum", "median")]
        asked = [SHAPE.format(epsilon=1, what=f"sex, {one}", where="", key="sex") for one in listed]
        assert all(f"{reason}; accepted: " in message for message in clinic.all_refused(asked)), value
    assert clinic.rows("SELECT nextval('s')") == [(1,)]
