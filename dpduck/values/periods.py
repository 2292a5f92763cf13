"""Periods of time for units by periods: their numbers, runs of periods, and the ledger's key for a unit and a run.

Period 0 begins on the first day of the year 1, a Monday. A row is in no period if its date is missing, infinite,
before the year 1 or after 9998. Such a row is never counted under a policy that says PER.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from itertools import pairwise

WORDS = ("DAY", "WEEK", "MONTH", "QUARTER", "YEAR")
_LAST_DAY = date(9998, 12, 31)
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_DAYS = {"DAY": 1, "WEEK": 7}
_EVERY = "EVERY"
_KEY = re.compile(
    rf"(?P<unit>.* PER (?P<word>{'|'.join(WORDS)}))"
    rf"(?: (?:FROM (?P<first>\d{{4}}-\d\d-\d\d) TO (?P<end>\d{{4}}-\d\d-\d\d)|(?P<every>{_EVERY})))?",
    re.DOTALL | re.ASCII,
)


@dataclass(frozen=True)
class Period:
    """Clause PER word OF column of a policy: a unit is a person's rows in one such period. word: one of WORDS."""

    word: str
    column: str


@dataclass(frozen=True, order=True)
class Periods:
    """Run of consecutive periods of one length (word), from the number `first` to the number `last`.

    >>> str(Periods("MONTH", 12 * 2023, 12 * 2023 + 1))
    'FROM 2024-01-01 TO 2024-03-01'
    """

    word: str
    first: int
    last: int

    def __post_init__(self) -> None:
        if self.word not in WORDS or not 0 <= self.first <= self.last <= last_number(self.word):
            raise ValueError("no run of periods")

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    @property
    def every(self) -> bool:
        """Tells whether the run has all periods that there are."""
        return self.first == 0 and self.last == last_number(self.word)

    @property
    def start(self) -> date:
        return start_of(self.word, self.first)

    @property
    def end(self) -> date:
        return start_of(self.word, self.last + 1)

    def __str__(self) -> str:
        return _EVERY if self.every else f"FROM {self.start.isoformat()} TO {self.end.isoformat()}"

    def overlaps(self, other: Periods) -> bool:
        return self.word == other.word and self.first <= other.last and other.first <= self.last

    def common(self, other: Periods) -> Periods | None:
        if not self.overlaps(other):
            return None
        return Periods(self.word, max(self.first, other.first), min(self.last, other.last))


@dataclass(frozen=True)
class PeriodColumn:
    """Stored column that determines the period of a row: its SQL, its type, and the periods that are read."""

    sql: str
    type_name: str
    periods: Periods
    also: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # such columns of other joined tables


def number_of(word: str, day: date) -> int:
    """Returns the number of the period that a day lies in. Weeks begin on Mondays.

    >>> number_of("MONTH", date(1, 2, 28)), number_of("WEEK", date(1, 1, 8)), number_of("YEAR", date(1, 12, 31))
    (1, 1, 0)
    """
    if word in _DAYS:
        return (day.toordinal() - 1) // _DAYS[word]
    return (12 * (day.year - 1) + day.month - 1) // _MONTHS[word]


def start_of(word: str, number: int) -> date:
    """Returns the first day of a period.

    >>> start_of("QUARTER", number_of("QUARTER", date(2024, 5, 17))).isoformat()
    '2024-04-01'
    """
    if word in _DAYS:
        return date(1, 1, 1) + timedelta(days=number * _DAYS[word])
    months = number * _MONTHS[word]
    return date(months // 12 + 1, months % 12 + 1, 1)


def last_number(word: str) -> int:
    """Returns the number of the last period of this length."""
    return number_of(word, _LAST_DAY)


def every(word: str) -> Periods:
    """Returns the run of all periods of one length."""
    return Periods(word, 0, last_number(word))


def between(word: str, first: date, last: date) -> Periods | None:
    """Returns the periods of all days from first to last. None if no such period has a number."""
    low, high = number_of(word, first), min(number_of(word, last), last_number(word))
    return Periods(word, low, high) if low <= high else None


def charge_key(unit_key: str, periods: Periods | None) -> str:
    """Returns the ledger's key for a charge: a unit's key, followed by the periods if there are any.

    >>> charge_key("clinic.main.visits.patient_id PER DAY", Periods("DAY", 738885, 738885))
    'clinic.main.visits.patient_id PER DAY FROM 2024-01-01 TO 2024-01-02'
    """
    return unit_key if periods is None else f"{unit_key} {periods}"


def split_key(key: str) -> tuple[str, Periods | None]:
    """Splits a key of charge_key into a unit's key and the periods, None for a key without periods.

    >>> split_key("main.visits.patient_id PER YEAR FROM 2024-01-01 TO 2026-01-01")[1].count
    2
    """
    match = _KEY.fullmatch(key)
    if match is None or (match["every"] is None and match["first"] is None):
        return key, None
    if match["every"]:
        return match["unit"], every(match["word"])
    first, end = date.fromisoformat(match["first"]), date.fromisoformat(match["end"])
    word = match["word"]
    return match["unit"], Periods(word, number_of(word, first), number_of(word, end - timedelta(days=1)))


def word_of(unit_key: str) -> str | None:
    """Returns the word, such as MONTH, in the key of a unit by periods. None for any other unit."""
    match = _KEY.fullmatch(unit_key)
    return None if match is None else match["word"]


def is_period_name(name: str) -> bool:
    """Tells whether a column's name could be taken for a unit's key with its periods."""
    return _KEY.fullmatch(f"x{name.upper()}") is not None


def each(run: Periods) -> list[Periods]:
    """Splits a run into runs of one period each."""
    return [replace(run, first=number, last=number) for number in range(run.first, run.last + 1)]


def format_run(run: Periods) -> str:
    """Renders a run for people: a month by its number, other periods by the first day. Several have first and last.

    >>> [format_run(run) for run in (Periods("MONTH", 24280, 24280), Periods("WEEK", 105589, 105590), every("DAY"))]
    ['2024-05', '2024-08-26 to 2024-09-02', 'every day']
    """
    if run.every:
        return f"every {run.word.lower()}"
    first, last = (_name(run.word, number) for number in (run.first, run.last))
    return first if run.count == 1 else f"{first} to {last}"


def _name(word: str, number: int) -> str:
    text = start_of(word, number).isoformat()
    return {"MONTH": text[:7], "YEAR": text[:4]}.get(word, text)


def runs(periods: Iterable[Periods]) -> list[Periods]:
    """Splits runs at every start and end. Returns the pieces in order, each once, without the gaps between runs.

    >>> [(one.first, one.last) for one in runs([Periods("DAY", 1, 5), Periods("DAY", 4, 9)])]
    [(1, 3), (4, 5), (6, 9)]
    """
    listed = list(periods)
    cuts = sorted({run.first for run in listed} | {run.last + 1 for run in listed})
    depth = dict.fromkeys(cuts, 0)
    for run in listed:
        depth[run.first] += 1
        depth[run.last + 1] -= 1
    pieces, covered = [], 0
    for start, end in pairwise(cuts):
        covered += depth[start]
        if covered:
            pieces.append(Periods(listed[0].word, start, end - 1))
    return pieces
