"""The counts of the house may only fall: sizes, ties of trusted code, and the calls of a plain count."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks import house
from benchmarks.house import Source


@dataclass(frozen=True)
class Ratchet:
    """The figure of a count, which is written anew when the count has become smaller.

    room: how much larger the count may be meanwhile. slack: how much smaller it may be before the figure must follow.
    """

    figure: int
    slack: int = 0
    room: int = 0

    def verdict(self, name: str, count: int) -> str:
        """Returns why a count does not fit its figure, or nothing."""
        if count > self.figure + self.room:
            return f"{name}: {count:,} is above {self.figure + self.room:,}"
        if count < self.figure - self.slack:
            return f"{name}: lower the ratchet from {self.figure:,} to {count:,}"
        return ""


RATCHETS = {
    house.LANGUAGE_IMPORTS: Ratchet(0),
    house.TEXT_CALLS: Ratchet(0),
    house.TEXT_TESTS: Ratchet(12),
    house.TYPE_SETS: Ratchet(1),
    house.TYPE_SET_FILES: Ratchet(1),
    house.UNIT_CLASSES: Ratchet(0),
    house.UNIT_WINDOWS: Ratchet(5),
    house.VARIANTS: Ratchet(12, slack=2),
    house.JOB_TESTS: Ratchet(0),
    house.PROTOCOLS: Ratchet(2),
    house.TABLE_MAKERS: Ratchet(1),
    house.TIER_1_OTHERS: Ratchet(0),
    house.KNOWN_STATIONS: Ratchet(2),
    # Of paths the slack is large: caches that other tests have filled make them shorter.
    house.STORED_FUNCTIONS: Ratchet(89, slack=10),
    house.STORED_MODULES: Ratchet(20, slack=3),
    # Sizes have a little room, so that a sentence more in a docstring is no failure.
    house.READING_ALL: Ratchet(15_980, slack=300, room=100),
    house.READING_LIVE: Ratchet(11_980, slack=300, room=100),
    house.TIER_1_LINES: Ratchet(2_415, slack=100, room=30),
    house.PRODUCT: Ratchet(87_400, slack=400, room=100),  # with documents, trials, totals, shells, agents, dbt
    house.FUNCTIONS: Ratchet(710, slack=40, room=110),
    house.MODULES: Ratchet(110, slack=8, room=9),
    house.SWITCHES: Ratchet(863, slack=50, room=180),
    # Words have room up to their aims.
    house.WHAT_IS: Ratchet(1, slack=1, room=4),
    house.OF_IT: Ratchet(4, slack=2, room=1),
    house.WHOSE: Ratchet(0, room=5),
    house.SEMICOLONS: Ratchet(2, slack=2, room=28),
    house.PARTICIPLES: Ratchet(17, slack=10, room=9),
    house.VAGUE_NAMES: Ratchet(20, slack=20, room=180),
    house.SHARED_CLASSES: Ratchet(0),
    house.BANNERS: Ratchet(5),
}
"""What `python -m benchmarks.house` printed last of each count."""


def test_counts_only_fall() -> None:
    """No count is above its ratchet, and no ratchet is far above its count."""
    counts = house.counts()
    assert set(counts) == set(RATCHETS)
    verdicts = [RATCHETS[name].verdict(name, count) for name, count in counts.items()]
    assert [verdict for verdict in verdicts if verdict] == []
    assert 20 < counts[house.STORED_FUNCTIONS] < counts[house.FUNCTIONS], "something is traced"


def test_a_ratchet_moves_one_way() -> None:
    """A figure is too small for a larger count, and too large for a count that fell by more than the slack."""
    ratchet = Ratchet(100, slack=2, room=10)
    assert [ratchet.verdict("x", count) for count in (98, 100, 110)] == ["", "", ""]
    assert ratchet.verdict("x", 111) == "x: 111 is above 110"
    assert ratchet.verdict("x", 97) == "x: lower the ratchet from 100 to 97"


def made(name: str, text: str) -> Source:
    """A file of the product that is not there."""
    return Source(name, text, ast.parse(text))


PLANTED = """
import re
from dpduck.language.rows import x
from dpduck.values.errors import y
INTEGERS = {"TINYINT", "SMALLINT"}
PATTERN = re.compile("TINY|SMALL")
class Job:
    unit_sql: str | None
    kind: int = 0
    head = struct.Struct("<cQ")
def f(job, known):
    if job.unit_sql is not None and known is None and isinstance(job.rows, CountingJob):
        return parts.columns_of(text.removeprefix("CASE")), f"row_number() OVER (PARTITION BY {UNIT})"
"""
TIES = {
    house.TIER_1_OTHERS: 1,
    house.LANGUAGE_IMPORTS: 1,
    house.TEXT_CALLS: 1,
    house.TEXT_TESTS: 2,
    house.TYPE_SETS: 2,
    house.TYPE_SET_FILES: 1,
    house.UNIT_CLASSES: 1,
    house.UNIT_WINDOWS: 1,
    house.VARIANTS: 2,
    house.JOB_TESTS: 1,
    house.PROTOCOLS: 1,
}


@pytest.mark.parametrize(
    ("name", "absent"),
    [
        ("kernel/jobs.py", set()),
        ("kernel/places/live.py", {house.TIER_1_OTHERS}),
        ("kernel/counting/jobs.py", {house.TIER_1_OTHERS}),
        (
            "language/rows/jobs.py",
            {house.TIER_1_OTHERS, house.LANGUAGE_IMPORTS, house.TEXT_TESTS, house.UNIT_WINDOWS, house.VARIANTS},
        ),
    ],
)
def test_what_is_counted_is_found(name: str, absent: set[str]) -> None:
    """Each tie is found in a file that has one: some in trusted code alone, one in the kernel's folder alone."""
    assert house.ties([made(name, PLANTED)]) == {tie: 0 if tie in absent else count for tie, count in TIES.items()}


WORDY = '''
"""What is told of it; whose rows."""
class Job: ...


# Another subject.

def counted(one):
    found = [one for one in one]
    """no docstring: whose"""
'''


def test_words_are_found() -> None:
    """Each phrase of a docstring counts, and each name. A class counts if two files have one of its name."""
    files = [made("a.py", WORDY), made("b.py", "class Job: ...\nfound: int = 1\ndef create_tables(): ...\n")]
    rate = round(10_000 / 7)
    assert house.words(files) == {
        **dict.fromkeys((house.WHAT_IS, house.OF_IT, house.WHOSE, house.SEMICOLONS), rate),
        house.PARTICIPLES: 1,
        house.VAGUE_NAMES: 4,
        house.SHARED_CLASSES: 1,
        house.BANNERS: 1,
        house.TABLE_MAKERS: 1,
    }
    assert house.words(files[1:])[house.SHARED_CLASSES] == 0


def test_stations_of_known_answers_are_found() -> None:
    """A station is counted once for all of its files. A file counts by its name, its folder, or the name of a class."""
    files = [
        *(made(f"mechanisms/known/{name}.py", "x = 1\n") for name in ("a", "b")),
        made("language/select/known.py", "x = 1\n"),
        made("database/reuse.py", "class KnownRows: ...\n"),
        made("store/a.py", "class Knownest: ...\nknown = 1\n"),
    ]
    assert house.stations_of_known(files) == {"mechanisms", "language", "database"}


def test_a_function_that_is_given_nodes_takes_no_text_apart() -> None:
    """A call counts where a function of its name is given a text, or where nobody knows the function."""
    call = "x = columns_of(y)\n"
    for text, count in (
        ("def columns_of(sql: str) -> list[str]: ...", 1),
        ("", 1),
        ("def columns_of(parts: Iterable[Expression]) -> list[str]: ...", 0),
        ("def columns_of(name: str) -> str: ...", 0),
    ):
        assert house.ties([made("kernel/made_up.py", f"{text}\n{call}")])[house.TEXT_CALLS] == count


def test_the_kernel_is_on_the_reading_list() -> None:
    """Lines of the kernel are read by a referee as soon as there are some. Tier 1 is what lies in its folder itself."""
    files = house.sources()
    before, kernel = (
        house.sizes(files),
        [made("kernel/made_up.py", "x = 1\n"), made("kernel/places/made_up.py", "x = 1\n")],
    )
    after = house.sizes([*files, *kernel])
    grown = {name: after[name] - count for name, count in before.items()}
    assert grown == {house.READING_ALL: 2, house.READING_LIVE: 2, house.TIER_1_LINES: 1, house.PRODUCT: 2}


def test_everything_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints each count once, with its aim."""
    monkeypatch.setattr(house, "counts", lambda: dict.fromkeys(RATCHETS, 1234))
    house.main()
    lines = capsys.readouterr().out.splitlines()
    assert sorted(line.partition(":")[0] for line in lines) == sorted(RATCHETS)
    assert f"{house.READING_ALL}: 1,234 (aim: at most 7,300)" in lines
    assert Path(house.PACKAGE).name == "dpduck"
