"""Streams through SQL, over one table, references and joins: any history, against an oracle in Python.

Histories are played by the statements themselves, CREATE, REFRESH and DROP. The oracle is a few lists. At each refresh
a neighbour lacks the rows that belong to one person at that time, whoever had them before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpduck.strategies.time_axis import STRATEGIES
from tests.mechanisms.streams.streams import MOST, PERIODS, Visits, options

EVE, BOB, ANN = 1, 2, 3
SOURCES = {
    "one table": "came, ward, count(*) AS n FROM stays GROUP BY came, ward",
    "joined": "came, sex, count(*) AS n FROM stays JOIN people USING (person) GROUP BY came, sex",
    "left": "came, sex, count(*) AS n FROM stays LEFT JOIN people USING (person) GROUP BY came, sex",
    "semi": "came, ward, count(*) AS n FROM stays SEMI JOIN (SELECT person FROM people WHERE sex = 'f') AS f "
    "USING (person) GROUP BY came, ward",
    "anti": "came, ward, count(*) AS n FROM stays ANTI JOIN (SELECT person FROM people WHERE sex = 'f') AS f "
    "USING (person) GROUP BY came, ward",
    "looked up": "billed, sort, count(*) AS n FROM bills GROUP BY billed, sort",
    "looked up and joined": "came, sort, count(*) AS n FROM bills JOIN stays ON bills.stay = stays.stay "
    "GROUP BY came, sort",
}
POLICIES = """
CREATE PRIVACY POLICY ON people (PRIVACY UNIT person MAX ROWS 1, BUDGET (epsilon = 100000),
    DOMAIN sex IN ('f', 'm') WITH NULL);
CREATE PRIVACY POLICY ON stays (PRIVACY UNIT person REFERENCES people.person MAX ROWS {most},
    DOMAIN ward IN ('a', 'b'), DOMAIN came RANGE 2024-01-01 TO 2025-01-01 STEP MONTH);
CREATE PRIVACY POLICY ON bills (PRIVACY UNIT stay REFERENCES stays.stay MAX ROWS {most},
    DOMAIN sort IN ('a', 'b'), DOMAIN billed RANGE 2024-01-01 TO 2025-01-01 STEP MONTH)"""


@dataclass
class State:
    """All rows at one time: of people a sex, of stays who, when and where, of bills the stay, when and which."""

    people: dict[int, str] = field(default_factory=dict)
    stays: dict[int, tuple[int | None, date, str]] = field(default_factory=dict)
    bills: list[tuple[int, date, str]] = field(default_factory=list)

    def without(self, person: int) -> State:
        """Returns the state without one person's rows."""
        return State(
            {who: sex for who, sex in self.people.items() if who != person},
            {stay: of for stay, of in self.stays.items() if of[0] != person},
            [bill for bill in self.bills if self._whose(bill[0]) != person],
        )

    def _whose(self, stay: int) -> int | None:
        return self.stays[stay][0] if stay in self.stays else None

    def rows(self, name: str) -> list[tuple[int, date]]:
        """Returns the owner and the day of each row that a stream reads."""
        if name.startswith("looked up"):
            joined = name.endswith("joined")
            days = [
                (self._whose(stay), self.stays[stay][1] if joined else day)
                for stay, day, _ in self.bills
                if stay in self.stays
            ]
        else:
            women = {who for who, sex in self.people.items() if sex == "f"}
            kept = {
                "one table": lambda who: True, "left": lambda who: True, "joined": self.people.__contains__,
                "semi": women.__contains__, "anti": lambda who: who not in women,
            }[name]  # fmt: skip
            days = [(who, day) for who, day, _ in self.stays.values() if kept(who)]
        return [(who, day) for who, day in days if who is not None]


@dataclass(frozen=True)
class Turn:
    """Changes before a refresh, and the number of periods that it closes."""

    people: dict[int, str]
    stays: dict[int, tuple[int | None, date, str]]
    bills: Sequence[tuple[int, date, str]]
    change: str
    closed: int


def changed(state: State, turn: Turn) -> State:
    """Returns the state after a turn: rows come, and old ones are deleted, moved to other months or given to others."""
    found = State({**state.people, **turn.people}, {**state.stays, **turn.stays}, [*state.bills, *turn.bills])
    if turn.change == "delete":
        return State({}, {n: of for n, of in found.stays.items() if n % 2}, [b for b in found.bills if b[2] == "a"])
    if turn.change == "move":
        later = {
            n: (who, day.replace(month=min(12, day.month + 1), day=1), w) for n, (who, day, w) in found.stays.items()
        }
        return State(found.people, later, found.bills)
    if turn.change == "give away":
        others = {EVE: BOB, BOB: EVE, ANN: ANN, None: EVE}
        return State(found.people, {n: (others[who], day, w) for n, (who, day, w) in found.stays.items()}, found.bills)
    return found


def counted(name: str, states: Sequence[State], closed: Sequence[int]) -> list[int]:
    """The oracle counts, in each period, each person's earliest MOST rows that came in time."""
    taken, found, before = Counter[int](), [0] * PERIODS, 0
    for state, now in zip(states, closed, strict=True):
        for who, month in sorted((who, day.month) for who, day in state.rows(name)):
            if before < month <= now and taken[who] < MOST:
                taken[who] += 1
                found[month - 1] += 1
        before = max(before, now)
    return found


class Joins(Visits):
    """A database of people, their stays, and bills that refer to stays."""

    def __init__(self) -> None:
        super().__init__(config={"threads": 1})
        self.con.execute("CREATE TABLE people (person INTEGER PRIMARY KEY, sex VARCHAR)")
        self.con.execute("CREATE TABLE stays (stay INTEGER PRIMARY KEY, person INTEGER, came DATE, ward VARCHAR)")
        self.con.execute("CREATE TABLE bills (stay INTEGER, billed DATE, sort VARCHAR)")
        for statement in POLICIES.format(most=MOST).split(";"):
            self.dp(statement.strip())

    def fill(self, state: State) -> None:
        rows: dict[str, list[list[object]]] = {
            "people": [[*of] for of in state.people.items()],
            "stays": [[number, *of] for number, of in state.stays.items()],
            "bills": [[*of] for of in state.bills],
        }
        for table, of_table in rows.items():
            self.con.execute(f"DELETE FROM {table}")
            if of_table:
                marks = f"({', '.join('?' * len(of_table[0]))})"
                values = ", ".join([marks] * len(of_table))
                self.con.execute(f"INSERT INTO {table} VALUES {values}", [value for row in of_table for value in row])

    def played(self, name: str, strategy: str, states: Sequence[State], closed: Sequence[int]) -> NDArray[np.int64]:
        """The exact counts by period and other key that a stream has after a history."""
        clause = options(strategy=strategy)
        self.dp(f"CREATE PRIVATE STREAM by_month OPTIONS ({clause}) AS SELECT {SOURCES[name]}")
        for state, now in zip(states, closed, strict=True):
            self.fill(state)
            self.refresh(now)
        found = self.exact()
        self.dp("DROP PRIVATE STREAM by_month")
        return found


@pytest.fixture(scope="module")
def joins() -> Iterator[Joins]:
    made = Joins()
    yield made
    made.con.close()


PEOPLE = [EVE, EVE, EVE, EVE, BOB, ANN]
DAYS = st.dates(date(2024, 1, 1), date(2024, PERIODS + 1, 5))
LETTERS = st.sampled_from("ab")
TURNS = st.builds(
    Turn,
    st.dictionaries(st.sampled_from(PEOPLE), st.sampled_from("fm"), max_size=2),
    st.dictionaries(
        st.integers(0, 25), st.tuples(st.sampled_from([*PEOPLE, None]), DAYS, LETTERS), min_size=12, max_size=20
    ),
    st.lists(st.tuples(st.integers(0, 25), DAYS, LETTERS), min_size=12, max_size=20),
    st.sampled_from(["", "", "delete", "move", "give away"]),
    st.integers(2, PERIODS),
)


@pytest.mark.slow
@settings(max_examples=8, deadline=None, phases=[Phase.generate])
@given(
    name=st.sampled_from(sorted(SOURCES)),
    strategy=st.sampled_from(STRATEGIES),
    turns=st.lists(TURNS, min_size=2, max_size=3),
)
def test_any_history(joins: Joins, name: str, strategy: str, turns: list[Turn]) -> None:
    """A row counts in its month if it came before the close and is among its person's first MAX ROWS.
    So one person moves all periods together by MAX ROWS at most.
    """
    states, state = [], State()
    for turn in turns:
        state = changed(state, turn)
        states.append(state)
    closed = sorted(turn.closed for turn in turns)
    table = joins.played(name, strategy, states, closed)
    assert table.sum(axis=1).tolist() == counted(name, states, closed)
    neighbour = joins.played(name, strategy, [one.without(EVE) for one in states], closed)
    assert np.abs(table - neighbour).sum() <= MOST


@pytest.mark.slow
def test_the_bound_is_reached_by_references_and_joins(joins: Joins) -> None:
    """Somebody with more than MAX ROWS rows moves counts by MAX ROWS, whichever tables these rows are made of."""
    stays = {number: (EVE, date(2024, number, 2), "a") for number in range(1, PERIODS + 1)}
    bills = [(number, date(2024, number, 3), "a") for number in stays for _ in range(2)]
    state = State({EVE: "f"}, stays, bills)  # type: ignore[arg-type]
    for name in ("joined", "looked up", "looked up and joined"):
        found, without = (joins.played(name, "periods", [of] * 2, [1, 6]) for of in (state, state.without(EVE)))
        assert np.abs(found - without).sum() == MOST, name


REFUSED = {
    "stays.came, count(*) AS n FROM stays JOIN stays AS other USING (person) GROUP BY stays.came": "each with each",
    "came, count(*) AS n FROM stays RIGHT JOIN people USING (person) GROUP BY came": "RIGHT and FULL JOIN",
    "came, count(*) AS n FROM (SELECT came, person FROM stays UNION ALL SELECT came, person FROM stays) AS u "
    "GROUP BY came": "not those of UNION ALL",
    "came, count(*) AS n FROM (SELECT person, max(came) AS came FROM stays GROUP BY person) AS u GROUP BY came": "",
    "came, count(*) AS n FROM stays SEMI JOIN (SELECT person FROM stays GROUP BY person HAVING count(*) > 2) AS o "
    "USING (person) GROUP BY came": "",
}


@pytest.mark.parametrize("select", REFUSED)
def test_joins_that_are_refused(joins: Joins, select: str) -> None:
    """Rows that are multiplied, united, or made of all rows of a unit are refused by name, before anything is paid."""
    said = joins.refusal(f"CREATE PRIVATE STREAM s OPTIONS (epsilon = 1) AS SELECT {select}")
    assert REFUSED[select] in said and "accepted:" in said
    assert joins.con.execute("FROM dp_streams() WHERE name = 's'").fetchall() == []
