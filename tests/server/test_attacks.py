"""What must be refused, and what must not be: every line of the two lists, through the gate."""

from __future__ import annotations

import random
from dataclasses import replace

import duckdb
import pytest

from dpduck.values.errors import DpduckError
from tests.server.served import CANARY, Served, catalog
from tests.server.statement_lists import statements

ATTACKS, HONEST = statements("attacks.sql"), statements("honest.sql")


@pytest.fixture
def hurried(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attacks on time end after a second: whoever is slower than that is refused as well."""
    monkeypatch.setattr(served.house.window, "_limits", replace(served.house.window._limits, seconds=1.0))


READING = [text for text in HONEST if "PRIVATE VIEW" not in text]


def test_the_lists_are_long_enough() -> None:
    """At least 150 attacks and 50 honest statements, none of them twice."""
    assert len(set(ATTACKS)) == len(ATTACKS) >= 150
    assert len(set(HONEST)) == len(HONEST) >= 50


@pytest.mark.usefixtures("hurried")
def test_every_attack_is_refused_in_one_line(served: Served) -> None:
    """With nothing leaked, the ledger unchanged, and a word on what would be accepted."""
    before = window_state(served)
    for text in ATTACKS:
        message = served.refused("alice", text)
        assert "accepted: " in message, (text, message)
        assert len(message) < 1_000 and str(served.database.parent) not in message, (text, message)
    assert window_state(served) == before


@pytest.mark.usefixtures("hurried")
def test_every_attack_is_refused_in_other_clothes(served: Served) -> None:
    """With comments, line ends and another case, where they mean the same to DuckDB."""
    before, tried = window_state(served), [0, 0, 0, 0]
    for number, text in enumerate(ATTACKS):
        if "'" in text or '"' in text or "--" in text or "\x00" in text:
            continue
        commented, lined = f"/* FROM ages */ {text} -- FROM ages", text.replace(" ", "\n")
        message = served.refused("bob", (commented, text.swapcase(), f"\n\t{text}\n;", lined)[number % 4])
        assert "accepted: " in message, (text, message)
        assert len(message) < 1_000 and str(served.database.parent) not in message, (text, message)
        tried[number % 4] += 1
    assert min(tried) >= 30, "attacks in each kind of clothes"
    assert window_state(served) == before


def test_every_honest_statement_is_answered(served: Served) -> None:
    """The gate is in nobody's way."""
    for text in HONEST:
        assert served.rows("bob", text) is not None, text


def mutated(source: random.Random) -> str:
    """An honest statement with something of an attack in it."""
    honest, attack = source.choice(READING), source.choice(ATTACKS)
    kind = source.randrange(8)
    if kind == 0:
        return f"{honest}; {attack}"
    if kind == 1:
        return f"WITH stolen AS ({attack}) {honest}"
    if kind == 2:
        return honest.replace("ages", f"({attack})", 1)
    if kind == 3:
        words = honest.split(" ")
        words.insert(source.randrange(len(words) + 1), source.choice(attack.split(" ")))
        return " ".join(words)
    if kind == 4:
        place, other = source.randrange(len(honest)), source.randrange(len(attack))
        return honest[:place] + attack[other:]
    if kind == 5:
        words, others = honest.split(" "), attack.split(" ")
        words[source.randrange(len(words))] = source.choice(others)
        return " ".join(words)
    if kind == 6:
        return f"SELECT ({attack}), * FROM ({honest})"
    return "".join(source.choice((c, c.swapcase(), c, "/**/" + c)) if c == " " else c for c in honest + " " + attack)


def explore(served: Served, seed: int, number: int) -> int:
    """Runs mutations; whatever is admitted reads released values alone and changes nothing. Returns how many were."""
    source, admitted = random.Random(seed), 0  # noqa: S311
    before = window_state(served)
    for _ in range(number):
        text = mutated(source)
        try:
            sql = served.sql("bob", text)
        except DpduckError as error:
            assert "\n" not in str(error) and CANARY not in str(error), text
            continue
        admitted += 1
        with served.house.window.cursor() as cursor:
            assert len(cursor.extract_statements(sql)) == 1, text
            assert cursor.extract_statements(sql)[0].type == duckdb.StatementType.SELECT, text
            try:
                found = cursor.execute(f"SELECT * FROM ({sql}) LIMIT 100").fetchall()
            except duckdb.Error as error:
                assert CANARY not in str(error), text
                continue
        assert CANARY not in repr(found) and str(served.database.parent) not in repr(found), text
    assert window_state(served) == before
    return admitted


@pytest.mark.usefixtures("hurried")
def test_mutations_of_honest_statements_stay_inside(served: Served) -> None:
    """A bounded fuzz: some are admitted, none of them reaches anything but released values."""
    assert explore(served, 1, 400) > 5


@pytest.mark.audit
@pytest.mark.usefixtures("hurried")
def test_many_mutations_of_honest_statements_stay_inside(served: Served) -> None:
    """The same at length."""
    assert explore(served, 2, 20_000) > 200


def window_state(served: Served) -> object:
    """What a client could have changed: the catalog but for answers, the settings, the attached databases."""
    with served.house.window.cursor() as cursor:
        tables = sorted(pair for pair in catalog(cursor) if pair[0] != "answers")
        settings = cursor.execute("SELECT name, value FROM duckdb_settings() ORDER BY name").fetchall()
        databases = cursor.execute("SELECT database_name FROM duckdb_databases() ORDER BY 1").fetchall()
        macros = cursor.execute("SELECT count(*) FROM duckdb_functions()").fetchall()
    return tables, settings, databases, macros
