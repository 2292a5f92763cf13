"""The request of an accepted statement is pinned, and with negligible noise its answer is DuckDB's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import duckdb
import pytest
from sqlglot import parse_one

from dpduck.database import database
from dpduck.language.rows.facts import PublicFacts
from dpduck.language.select.analyse import Analysis, analyse
from dpduck.language.statements.kinds import AskStatement
from dpduck.language.text.options import Option
from tests.language.clinic import ask
from tests.language.full_clinic import open_full_clinic, plain, rows_of
from tests.language.golden_files import Golden, read_golden

ACCEPTED = read_golden("accepted_*.sql")


@pytest.fixture(scope="module")
def clinic() -> Iterator[duckdb.DuckDBPyConnection]:
    with open_full_clinic() as connection:
        yield connection


def parts(analysis: Analysis) -> dict[str, str]:
    """The parts of a request that golden files pin, as short texts."""
    request = analysis.request
    names = [key.name for key in request.question.keys]
    keys = [f"{key.name} = {key.expression} [{', '.join(map(str, key.labels))}]" for key in request.question.keys]
    sets = [f"({', '.join(names[position] for position in chosen)})" for chosen in request.question.grouping_sets]
    counted = [aggregate.condition or "*" for aggregate in request.question.aggregates]
    lines = {
        "source": request.rows.from_sql,
        "filters": " AND ".join(request.rows.filters),
        "keys": "; ".join(keys),
        "sets": " ".join(sets),
        "counts": "; ".join(counted),
        "bound": f"{request.rows.unit_bound} of {request.rows.unit_sql}"
        if request.rows.unit_sql
        else str(request.rows.unit_bound),
    }
    return {name: line for name, line in lines.items() if line}


def shape(result: duckdb.DuckDBPyConnection, analysis: Analysis) -> str:
    """Returns names and types of a result. With several grouping sets BIGINT and DOUBLE are both NUMBER."""
    types = {"BIGINT": "NUMBER", "DOUBLE": "NUMBER"} if len(analysis.request.question.grouping_sets) > 1 else {}
    return ", ".join(f"{column[0]} {types.get(str(column[1]), column[1])}" for column in result.description or ())


@pytest.mark.sampled
@pytest.mark.parametrize("golden", ACCEPTED, ids=str)
def test_accepted(golden: Golden, clinic: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lowering is right: the request is the pinned one, and the answer is DuckDB's own without the clause."""
    seen: list[Analysis] = []

    def watched(statement: AskStatement, facts: PublicFacts, more: Sequence[Option] = ()) -> Analysis:
        seen.append(analyse(statement, facts, more))
        return seen[-1]

    monkeypatch.setattr(database, "analyse", watched)
    result = ask(clinic, golden.statement)
    expected = dict(golden.expected)
    exact_sql = expected.pop("plain", plain(golden.statement))
    assert {**parts(seen[0]), "columns": shape(result, seen[0])} == expected
    ordered = parse_one(exact_sql, read="duckdb").args.get("order") is not None
    found = rows_of(result, ordered=ordered)
    exact = rows_of(clinic.execute(exact_sql), ordered=ordered)
    if seen[0].request.rows.unit_bound > SURE_BOUND:
        assert found[0] == exact[0] and len(found[1]) == len(exact[1])
        assert all(map(near, found[1], exact[1]))
    else:
        assert found == exact


SURE_BOUND = 4
"""Up to so many rows of a unit a count at epsilon = 100 is wrong with a chance of at most 3e-11."""


def near(row: tuple[object, ...], exact: tuple[object, ...]) -> bool:
    """Tells whether counts are at most 2 off. At 16 rows of a unit, scale 0.16, one in 7e7 counts is further off."""
    return all(
        abs(one - other) <= 2 if isinstance(one, int | float) and isinstance(other, int | float) else one == other
        for one, other in zip(row, exact, strict=True)
    )


def test_enough_is_accepted() -> None:
    """The golden files hold at least 40 accepted statements of every kind, each title once in its file."""
    assert len(ACCEPTED) >= 40
    assert len(set(map(str, ACCEPTED))) == len(ACCEPTED)
