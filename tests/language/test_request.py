"""Equal requests are one release: which changes of a statement change the digest of its request, and which do not."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from tests.language.clinic import ask
from tests.language.facts import request_of
from tests.language.full_clinic import open_full_clinic

OPTIONS = "WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1)"
PLAIN = f"SELECT {OPTIONS} sex, count(*) AS n FROM visits WHERE age > 10 AND urgent GROUP BY sex"
JOINED = f"SELECT {OPTIONS} region, count(*) FROM visits JOIN wards ON ward = name GROUP BY region"


@pytest.fixture(scope="module")
def clinic() -> Iterator[duckdb.DuckDBPyConnection]:
    with open_full_clinic() as connection:
        yield connection


@pytest.fixture
def own_clinic() -> Iterator[duckdb.DuckDBPyConnection]:
    with open_full_clinic() as connection:
        yield connection


@pytest.mark.parametrize(
    "text",
    [
        f"select {OPTIONS}\n  sex,\tcount( * )  n\nfrom VISITS -- a comment\nwhere AGE > 10 and /* another */ URGENT "
        "group by SEX",
        f"SELECT {OPTIONS} v.sex AS s, count(*) FROM memory.main.visits AS v WHERE v.age > 10 AND v.urgent GROUP BY s",
        f'SELECT {OPTIONS} "sex", count(*) AS n FROM "visits" WHERE "age" > 10 AND "urgent" GROUP BY 1',
        f"SELECT {OPTIONS} sex, count(*) AS n FROM visits WHERE urgent AND age > 10 GROUP BY sex",
        f"SELECT {OPTIONS} sex, count(*) AS n FROM visits WHERE age > 10 AND urgent AND age > 10 GROUP BY ALL",
        f"{PLAIN} HAVING n > 5",
        f"{PLAIN} ORDER BY n DESC LIMIT 1",
        f"{PLAIN} QUALIFY rank() OVER (ORDER BY n) = 1",
        f"SELECT max(n) FROM ({PLAIN})",
        f"SELECT {OPTIONS} count(*) / 2, upper(sex), dp_stderr(count(*)) FROM visits WHERE age > 10 AND urgent "
        "GROUP BY sex",
        f"SELECT {OPTIONS} sex, count(*) FROM (SELECT * FROM visits WHERE urgent) WHERE age > 10 GROUP BY sex",
        f"WITH v AS (SELECT sex AS s, age AS a, urgent AS u FROM visits) SELECT {OPTIONS} s, count(1) FROM v "
        "WHERE a > 10 AND u GROUP BY s",
        PLAIN.replace("epsilon = 1", "epsilon = 1.0"),
        PLAIN.replace("epsilon = 1", "EPSILON = 1e0"),
        PLAIN.replace("epsilon = 1", "epsilon = 1, confidence = 0.9"),
        PLAIN.replace("epsilon = 1", "epsilon = 1, strategy = 'auto'"),
    ],
)
def test_the_same_request(clinic: duckdb.DuckDBPyConnection, text: str) -> None:
    """Spaces, names, the order of conditions and computations over the answers do not make another release."""
    assert request_of(clinic, text).digest() == request_of(clinic, PLAIN).digest()


@pytest.mark.parametrize(
    "text",
    [
        PLAIN.replace("age > 10", "age > 11"),
        PLAIN.replace("age > 10", "age >= 10"),
        PLAIN.replace(" AND urgent", ""),
        PLAIN.replace("epsilon = 1", "epsilon = 1.000000001"),
        PLAIN.replace("epsilon = 1", "epsilon = 1, refresh = 'again'"),
        PLAIN.replace("epsilon = 1", "epsilon = 1, nonnegative = true"),
        PLAIN.replace("count(*)", "count(note)"),
        PLAIN.replace("count(*)", "count(*) FILTER (WHERE age > 5)"),
        PLAIN.replace("sex", "grade"),
        PLAIN.replace("sex", "upper(sex)"),
        PLAIN.replace("GROUP BY sex", "GROUP BY CUBE (sex)"),
        f"{PLAIN} HAVING count(note) > 5",
        PLAIN.replace("FROM visits", "FROM visits JOIN wards ON ward = name"),
        PLAIN.replace("FROM visits", "FROM visits LEFT JOIN wards ON ward = name"),
    ],
)
def test_another_request(clinic: duckdb.DuckDBPyConnection, text: str) -> None:
    """A change of the counted rows, or of the price, makes another release."""
    assert request_of(clinic, text).digest() != request_of(clinic, PLAIN).digest()


def test_public_facts_count(own_clinic: duckdb.DuckDBPyConnection) -> None:
    """A public table with other content, another policy, and another epoch each make another release."""
    digests = [request_of(own_clinic, JOINED).digest()]
    for change in (
        "INSERT INTO wards VALUES ('w9', 'west', 4)",
        "UPDATE wards SET region = 'east' WHERE name = 'w0'",
        "UPDATE wards SET beds = 99 WHERE name = 'w0'",
        "DELETE FROM wards WHERE name = 'w2'",
    ):
        own_clinic.execute(change)
        digests.append(request_of(own_clinic, JOINED).digest())
    for change in (
        "ALTER PRIVACY POLICY ON visits NEW EPOCH",
        "ALTER PRIVACY POLICY ON visits SET DOMAIN sex IN ('M', 'F')",
    ):
        ask(own_clinic, change)
        digests.append(request_of(own_clinic, JOINED).digest())
    assert len(set(digests)) == len(digests)


def test_private_rows_do_not_count(own_clinic: duckdb.DuckDBPyConnection) -> None:
    """Changed private rows change no request: else the cache would reveal the change."""
    before = request_of(own_clinic, JOINED)
    for change in (
        "INSERT INTO visits SELECT * FROM visits",
        "UPDATE visits SET ward = 'w0'",
        "DELETE FROM visits",
        "INSERT INTO offers VALUES ('w0', 'more')",
        "CREATE TABLE more AS SELECT 1 AS x",
        "UPDATE wards SET beds = beds",
    ):
        own_clinic.execute(change)
        assert request_of(own_clinic, JOINED) == before


def test_joins_multiply_the_bound(clinic: duckdb.DuckDBPyConnection) -> None:
    """A row that a join repeats counts as often in the price, and rows of a unit are bounded after the joins."""
    joins = "JOIN offers AS o ON v.ward = o.ward JOIN offers AS p ON v.ward = p.ward"
    offers = f"SELECT {OPTIONS} count(*) FROM {{}} AS v {joins}"
    assert request_of(clinic, offers.format("visits")).rows.unit_bound == 9
    assert request_of(clinic, offers.format("people")).rows.unit_bound == 2
    assert request_of(clinic, JOINED).rows.unit_bound == 1


def test_statements_may_ask_for_fewer_rows(clinic: duckdb.DuckDBPyConnection) -> None:
    """max_rows_contributed lowers the bound of one statement, and makes another request."""
    text = f"SELECT {OPTIONS} count(*) FROM people"
    fewer = text.replace("epsilon = 1", "epsilon = 1, max_rows_contributed = 1, privacy_unit_column = PERSON")
    assert request_of(clinic, fewer).rows.unit_bound == 1
    assert request_of(clinic, fewer).digest() != request_of(clinic, text).digest()
