"""The tutorial does what its pages say: every block is typed in order, and each chapter by itself.

Private answers are held to ten times the reach of their bars. Laplace noise leaves its 95 % bar, of ln 20 scales, with
probability 0.05, and t = 10 ln 20 scales with e^-t, below 1e-13. For sums of two draws, as averages have, that is at
most (1 + t / 2) e^-t, below 2e-12. There are fewer than 120 answers, 11 of which are averages. All tests of this file
together have a false alarm with a probability below 1e-10.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpduck
from benchmarks import tutorial
from benchmarks.tutorial import Row, boxes, number, page, tables, with_columns
from tests.support.typed import Block, Typed, blocks, type_blocks
from tests.support.words import long_lines, long_sentences, words_of

CHAPTERS = ("first_counts", "whose_data", "sums_and_averages", "budget", "cubes", "publishing")
DOCS = Path(__file__).resolve().parents[1] / "docs"
BAR = ("low", "high")
REACH = 10
TERMINAL = 80
EXACT_VISITS = "SELECT ward, count(*) FROM visits GROUP BY ward"


@dataclass(frozen=True)
class Written:
    """The output of the chapters typed in order, by chapter, and the folder with its files."""

    typed: dict[str, list[Typed]]
    folder: Path

    def answers(self, chapter: str, *columns: str) -> list[list[Row]]:
        """The boxes with these columns that came back in a chapter."""
        return with_columns(boxes("".join(one.output for one in self.typed[chapter])), *columns)

    def rows(self, sql: str, file: str = "clinic.duckdb") -> list[tuple[Any, ...]]:
        """The owner's exact answer, or a reader's of another file."""
        with duckdb.connect(str(self.folder / file), read_only=True) as connection:
            return connection.execute(sql).fetchall()

    def exact(self, sql: str) -> dict[str, float]:
        """An exact answer of a key and a number. The key is named as a box names it."""
        return {str("NULL" if key is None else key): float(value) for key, value in self.rows(sql)}


def says(chapter: str, *claims: str) -> bool:
    """Tells whether a chapter has these words. The assertion beside it shows that they are right."""
    flat = " ".join(page(chapter).split())
    return all(claim in flat for claim in claims)


def parts(chapter: str) -> tuple[Block | None, list[Block]]:
    """The block by which a reader begins with this chapter, and the others."""
    found = blocks(page(chapter))
    return (None, found) if chapter == CHAPTERS[0] else (found[0], found[1:])


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    folder = tmp_path_factory.mktemp("tutorial")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("DPDUCK_STATE_DIR", str(folder / "state"))
        yield Written({chapter: type_blocks(parts(chapter)[1], folder) for chapter in CHAPTERS}, folder)


def holds(row: Row, answer: str, exact: float, times: float = 1) -> bool:
    """Tells whether an exact number lies within so many times the bar of an answer."""
    value, low, high = (number(row[name]) for name in (answer, *BAR))
    return value - times * (value - low) <= exact <= value + times * (high - value)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_is_short_and_plain(chapter: str) -> None:
    """600 to 1,000 words, no sentence of more than 25 words, no line of more than 120, or 80 in code, and a picture."""
    text = page(chapter)
    assert 600 <= words_of(text) <= 1000
    assert long_sentences(text) == [] and long_lines(text) == []
    assert long_lines("".join(block.text for block in blocks(text)), TERMINAL) == []
    assert re.findall(r"!\[[^\]]+\]\(\.\./pictures/tutorial/(\w+)\.svg\)", text)


def test_terms_are_in_the_glossary() -> None:
    """Each link to the glossary is one of its terms, linked once, where the tutorial first uses the term."""
    glossary = (DOCS / "glossary.md").read_text(encoding="utf-8").lower()
    linked = [name for chapter in CHAPTERS for name in re.findall(r"\[([^\]]+)\]\(\.\./glossary\.md\)", page(chapter))]
    assert len(linked) > 12 and len(set(linked)) == len(linked)
    assert [name for name in linked if f"| **{name.lower()}** |" not in glossary] == []


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_block_gives_what_the_page_shows(written: Written, chapter: str) -> None:
    """Words, labels, prices and exact figures are those of the page. Noisy numbers may be any."""
    assert [one.output for one in written.typed[chapter] if one.shown and not one.as_shown] == []
    assert sum(bool(one.shown) for one in written.typed[chapter]) >= 4


@pytest.mark.slow
@pytest.mark.parametrize("chapter", CHAPTERS[1:])
def test_a_chapter_can_be_begun_with(chapter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the files that it names, in an empty folder, after the commands at its top. Less is spent then."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPDUCK_STATE_DIR", str(tmp_path / "state"))
    for earlier in CHAPTERS[: max(1, min(2, CHAPTERS.index(chapter)))]:
        type_blocks([block for block in blocks(page(earlier)) if block.file], tmp_path)
    begun, others = parts(chapter)
    assert begun is not None and "to begin here" in page(chapter).partition("```")[0].replace("\n", " ").lower()
    spent = ("dpduck", "budget", "clinic.duckdb")
    typed = [one for one in type_blocks([begun, *others], tmp_path) if one.shown and one.commands != (spent,)]
    assert len(typed) > 2 and [one.output for one in typed if not one.as_shown] == []


def test_the_numbers_on_the_pages_lie_where_they_say() -> None:
    """Of the answers that the pages show: which bars hold the exact number, and which do not."""
    with tutorial.clinic() as clinic:
        exact = {ward: count for ward, count in clinic.execute(EXACT_VISITS).fetchall() if ward}
        good, weak = with_columns(boxes(page("first_counts")), "ward", "visits", *BAR)
        assert all(holds(row, "visits", exact[row["ward"]]) for row in [*good, *weak])
        assert max(abs(number(row["visits"]) - exact[row["ward"]]) for row in good) == 400
        assert says("first_counts", "The largest difference is 400 visits, and each exact count lies between")
        (cut,) = with_columns(boxes(page("whose_data")), "ward", "visits", *BAR)
        for orange, blue in zip(cut, good, strict=True):
            errors = [abs(number(row["visits"]) - exact[orange["ward"]]) for row in (orange, blue)]
            assert errors[0] > errors[1]
        assert says("whose_data", "the orange bars are the shortest, and the farthest from the truth")
    (bounds,) = with_columns(tables(page("sums_and_averages")), "upper bound", "exact within it", "private", *BAR)
    held = [row["upper bound"] for row in bounds if holds(row, "private", number(row["exact within it"]))]
    assert held == ["100", "200", "500", "1000", "5000"]
    assert says("sums_and_averages", "Five of the six do. The bar of 2000 misses it by 2:")
    assert [row["upper bound"] for row in bounds if number(row["high"]) < 194.7][:3] == ["100", "200", "500"]
    *five, mean, single = with_columns(tables(page("budget")), "", "private", *BAR)[0]
    assert [holds(row, "private", 78_798) for row in five] == [False, True, True, True, True]
    assert says("budget", "The first answer is so far off that its bar misses it.")
    assert number(mean["private"]) == round(sum(number(row["private"]) for row in five) / 5)
    reach = round((number(five[0]["high"]) - number(five[0]["low"])) / 2 / 5**0.5)
    assert number(mean["high"]) - number(mean["private"]) == reach and holds(single, "private", 78_798)


def test_counts_err_as_their_bars_say(written: Written) -> None:
    """Chapters 1 and 2: each reader's answers are near the exact ones, and bars reach as far as the pages say."""
    exact = written.exact(EXACT_VISITS)
    good, weak = written.answers("first_counts", "ward", "visits", *BAR)
    assert says("first_counts", "every bar here reaches 599 to each side", "The bars are ten times as long.")
    assert says("whose_data", "The bars reach 75 to each side, in place of 599, for the same price.")
    for rows, reach in ((good, 599), (weak, 5991)):
        assert {number(row["high"]) - number(row["visits"]) for row in rows} == {reach}
        assert all(holds(row, "visits", exact[row["ward"]], REACH) for row in rows)
    (people,) = written.answers("whose_data", "ward", "patients", *BAR)
    patients = written.exact("SELECT ward, count(DISTINCT patient_id) FROM visits GROUP BY ward")
    assert {number(row["high"]) - number(row["patients"]) for row in people} == {75}
    assert all(holds(row, "patients", patients[row["ward"]], REACH) for row in people)
    ((one,),) = written.answers("whose_data", "visits", *BAR)
    assert holds(one, "visits", 35, REACH) and number(one["high"]) - number(one["low"]) > 2000


def test_a_short_bar_may_stand_around_a_wrong_number(written: Written) -> None:
    """Chapter 2: with five visits of a patient rehabilitation loses four fifths, and its bar does not show it.

    It has 598 patients, so at most 2,990 visits are counted. Noise of scale 25 would have to add 700: below 1e-12.
    """
    (rows,) = written.answers("whose_data", "ward", "visits", *BAR)
    ward = next(row for row in rows if row["ward"] == "rehabilitation")
    exact = written.exact(EXACT_VISITS)["rehabilitation"]
    assert number(ward["high"]) < exact / 4 and number(ward["high"]) - number(ward["visits"]) == 75
    beyond = (
        "SELECT ward, count(*) FROM (SELECT ward, row_number() OVER (PARTITION BY patient_id) AS place FROM visits)"
    )
    dropped = written.exact(f"{beyond} WHERE place > 20 GROUP BY ward")
    assert sum(dropped.values()) == 4488 and dropped["rehabilitation"] > 0.9 * 4488
    assert says("whose_data", "nearly all of it would be missing in one ward", "Hardly a fifth of them is left.")


def test_a_bound_is_a_bias_that_no_bar_shows(written: Written) -> None:
    """Chapter 3: averages are near those within their bounds. The table's exact column is that of the rows.

    The bar of 5000 is left out: one answer in thirty is so low that 0 cuts its bar. By Laplace's law, that of 1000 is
    cut to the asserted width with a chance below 1e-7.
    """
    (bounds,) = with_columns(tables(page("sums_and_averages")), "upper bound", "exact within it", "private", *BAR)
    within = "SELECT bound, round(avg(least(cost, bound)), 1) FROM visits, (VALUES {0}) AS bounds(bound) WHERE cost > 0"
    listed = ", ".join(f"({row['upper bound']})" for row in bounds)
    exact = written.exact(f"{within.format(listed)} GROUP BY bound")
    assert {row["upper bound"]: number(row["exact within it"]) for row in bounds} == exact
    answers = [row for (row,) in written.answers("sums_and_averages", "average", *BAR)]
    values = [exact[row["upper bound"]] for row in bounds]
    assert all(holds(row, "average", value, REACH) for row, value in list(zip(answers, values, strict=True))[:-1])
    widths = [number(row["high"]) - number(row["low"]) for row in answers]
    assert bounds[3]["upper bound"] == "1000" and widths[0] < 10 and widths[3] > 5 * widths[0]
    (wards,) = written.answers("sums_and_averages", "ward", "average", *BAR, "total", "error")
    clamped = written.exact("SELECT ward, avg(least(cost, 1000)) FROM visits WHERE cost > 0 GROUP BY ward")
    assert all(holds(row, "average", clamped[row["ward"]], REACH) for row in wards if row["ward"] != "NULL")
    sums = written.exact("SELECT ward, sum(least(cost, 1000)) FROM visits WHERE cost > 0 GROUP BY ward")
    for row in wards:
        assert abs(number(row["total"]) - sums[row["ward"]]) < REACH * 2.12 * number(row["error"]), row


def test_asking_again_is_free_and_new_noise_is_not(written: Written) -> None:
    """Chapter 4: the same answer, and no charge. Five answers with noise of their own have five entries.

    That five draws of a discrete Laplace law of scale 2,000 are one number has a probability below 1e-14.
    """
    asked, again = (
        next(one for one in written.typed["budget"] if one.commands[0][1] == "sql" and text in one.commands[0][-1])
        for text in ("epsilon = 0.1)\n", "round(count")
    )
    five = written.answers("budget", "visits", *BAR)[1:]
    assert len(five) == 5 and len({row["visits"] for (row,) in five}) > 1
    assert all(holds(row, "visits", 78_798, REACH) for (row,) in five)
    with dpduck.connect(written.folder / "clinic.duckdb") as owner:
        entries = owner.execute("SELECT id, epsilon FROM dp_ledger()").fetchall()
        statements = [one.commands[0][-1] for one in (asked, again)]
        first, rounded = (owner.execute("FROM dp(?)", [statement]).fetchall() for statement in statements)
        assert owner.execute("SELECT id, epsilon FROM dp_ledger()").fetchall() == entries
    ((shown,),) = with_columns(boxes(asked.output), "visits", *BAR)
    assert first == [tuple(number(value) for value in shown.values())]
    assert rounded == [(round(int(shown["visits"]), -3),)]
    charged = [float(epsilon) for _, epsilon in entries if epsilon]
    assert len(charged[:12]) == 12 and abs(sum(charged[:12]) - 1.52) < 1e-9
    assert says("sums_and_averages", "You have paid for twelve answers by now")
    assert abs(sum(charged) - 2.72) < 1e-9, "no refusal and no repetition is among them"
    assert says("budget", "Type it again: the same numbers come, and nothing is charged.", "A refusal costs nothing.")


def test_a_cube_adds_up_and_answers_more(written: Written) -> None:
    """Chapter 5: totals are the sums of their cells, and known sums of cells are near the exact number."""
    (rows,) = written.answers("cubes", "ward", "sex", "visits", "visits_stderr", "grouping_level")
    cells = [row for row in rows if row["grouping_level"] == "ward, sex"]
    assert says("cubes", "Add up the three lines of surgery: they are its total, to the unit.")
    sums: dict[str, dict[str, float]] = {"ward": {}, "sex": {}, "()": {}}
    for row in cells:
        for level, key in (("ward", row["ward"]), ("sex", row["sex"]), ("()", "NULL")):
            sums[level][key] = sums[level].get(key, 0) + number(row["visits"])
    for row in rows[len(cells) :]:
        level = row["grouping_level"]
        assert number(row["visits"]) == sums[level][row["sex" if level == "sex" else "ward"]]
    counted = "SELECT coalesce(ward, 'NULL') || coalesce(sex, 'NULL'), count(*) FROM visits GROUP BY ALL"
    exact = written.exact(counted)
    for row in cells:
        assert abs(number(row["visits"]) - exact[row["ward"] + row["sex"]]) < REACH * 240
    (known,) = written.answers("cubes", "sex", "visits", *BAR)
    of_two = written.exact("SELECT sex, count(*) FROM visits WHERE ward IN ('surgery', 'cardiology') GROUP BY sex")
    assert all(holds(row, "visits", of_two[row["sex"]], REACH) for row in known)
    ((difference,),) = written.answers("cubes", "estimate", *BAR)
    assert holds(difference, "estimate", 18_471 - 15_130, REACH)


def test_what_is_published_is_private_and_stays(written: Written) -> None:
    """Chapter 6: nothing but the two views, months that do not change, and counts that are near the exact ones."""
    tables_of = "SELECT table_name FROM duckdb_tables() ORDER BY table_name"
    assert [name for (name,) in written.rows(tables_of, "published.duckdb")] == [
        "by_month",
        "by_ward_and_sex",
        "dpduck_releases",
    ]
    april, year = written.answers("publishing", "month", "visits", "visits_stderr")
    assert year[:3] == april and len(year) == 12
    assert says("publishing", "A month that was published never changes.", "Nine more months cost nothing.")
    by_month = "SELECT CAST(date_trunc('month', day) AS DATE) AS month, count(*) FROM visits GROUP BY month"
    exact = written.exact(by_month)
    assert all(abs(number(row["visits"]) - exact[row["month"]]) < REACH * 240 for row in year)


@pytest.mark.skipif(find_spec("matplotlib") is None, reason="matplotlib is not installed")
def test_pictures_say_what_the_pages_say(tmp_path: Path) -> None:
    """They are drawn from the pages' tables: drawn anew, they are the same files, and every page shows its own."""
    tutorial.draw_tutorial(tmp_path)
    shown = [name for chapter in CHAPTERS for name in re.findall(r"pictures/tutorial/(\w+)\.svg", page(chapter))]
    assert shown == list(tutorial.DRAWERS)
    kept = DOCS / "pictures" / "tutorial"
    assert {path.name for path in kept.iterdir()} == {f"{name}.svg" for name in shown}
    for name in shown:
        assert (tmp_path / f"{name}.svg").read_bytes() == (kept / f"{name}.svg").read_bytes(), name
