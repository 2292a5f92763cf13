"""Pictures of views that were chosen to mislead: the values read off the marks are those of the table."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from html import unescape
from itertools import pairwise
from math import isfinite, log
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner

import dpduck
from dpduck.commands.command_line import main
from dpduck.publish.pictures import BY_CHANCE, DARKEST, PALEST, SQRT2, PictureKey, Shape, charts
from tests.support.drawn import Drawn, read_picture

pytest.importorskip("vl_convert", reason="vl-convert is not installed")

LONG = "Department of internal medicine and cardiology "
POLICY = f"""CREATE PRIVACY POLICY ON stays (PRIVACY UNIT patient MAX ROWS 4,
BUDGET (epsilon = 1000, delta = 1e-3, delta_keys = 5e-4),
DOMAIN ward IN ('north', 'south', 'east') WITH NULL, DOMAIN sex IN ('F', 'M'), DOMAIN code IN (1, 2, 9),
DOMAIN year RANGE 2000 TO 2006 STEP 1, DOMAIN age RANGE 0 TO 100 STEP 10, DOMAIN score RANGE 0 TO 200 STEP 1,
DOMAIN arrived RANGE 2024-01-01 TO 2025-01-01 STEP MONTH, DOMAIN day RANGE 2024-01-01 TO 2024-07-19 STEP DAY,
DOMAIN bed IN ({", ".join(f"'bed {number}'" for number in range(200))}), CLAMP cost BETWEEN 0 AND 100,
DOMAIN unit IN ('NULL', '{LONG}A', '{LONG}B') WITH NULL)"""
STAYS = f"""CREATE TABLE stays AS SELECT i // 4 AS patient,
['north', 'north', 'south', 'east', NULL][i % 5 + 1] AS ward,
['F', 'M'][i % 2 + 1] AS sex, [1, 2, 2, 9][i % 4 + 1] AS code, CAST(2000 + i % 6 AS INTEGER) AS year,
CAST(i * 7 % 100 AS INTEGER) AS age, CAST(i * 13 % 200 AS INTEGER) AS score, 'bed ' || i % 200 AS bed,
DATE '2024-01-01' + CAST(i % 366 AS INTEGER) AS arrived, DATE '2024-01-01' + CAST(i % 200 AS INTEGER) AS day,
20.0 + i % 50 AS cost, ['NULL', '{LONG}A', '{LONG}B', NULL][i % 4 + 1] AS unit, 'w' || i % 7 AS free
FROM range(2000) AS r(i)"""


@dataclass(frozen=True)
class Case:
    """A view. shows: the beginning of each picture's caption. rows: the view's rows that each picture shows.

    kinds: of the pictures, where a test is about them.
    """

    select: str
    shows: tuple[str, ...]
    rows: str | tuple[str, ...] = "true"
    options: str = "epsilon = 1"
    kinds: tuple[str, ...] = ()

    def condition(self, number: int) -> str:
        """Tells which rows are in a picture."""
        return self.rows if isinstance(self.rows, str) else self.rows[number]


AVERAGES = "count(*) AS n, avg(cost) AS a FROM stays"
CASES = {
    "renamed": Case(
        f"arrived AS month, ward, {AVERAGES} GROUP BY arrived, ward",
        ("n by month and ward, and 2", "a by month and ward, and 2"),
        kinds=("lines", "lines"),
    ),
    "renamed_alone": Case(
        f"ward AS station, {AVERAGES} GROUP BY ward", ("n by station, and 2", "a by station, and 2")
    ),
    "computed": Case("month(arrived) AS m, count(*) AS n FROM stays GROUP BY m", ("n by m, and 2",)),
    "by_case": Case(
        "CASE WHEN ward = 'north' THEN 'up' ELSE 'down' END AS side, count(*) AS n FROM stays GROUP BY side",
        ("n by side, and 2",),
    ),
    "computed_after": Case("upper(sex) AS s, count(*) AS n FROM stays GROUP BY sex", ("n by s, and 2",)),
    "merged_after": Case("quarter(arrived) AS q, count(*) AS n FROM stays GROUP BY arrived", ()),
    "beside_itself": Case(
        "1 AS one, upper(sex) AS s, sex, length(sex) AS long, count(*) AS n FROM stays GROUP BY sex",
        ("n by sex, and 2",),
    ),
    "codes": Case("code, count(*) AS n FROM stays GROUP BY code", ("n by code, and 2",)),
    "years": Case(f"year, {AVERAGES} GROUP BY year", ("n by year, and 2", "a by year, and 2")),
    "bins": Case("age, count(*) AS n FROM stays GROUP BY age", ("n by age, and 2",)),
    "null_key": Case("ward, count(*) AS n FROM stays GROUP BY ward", ("n by ward, and 2",)),
    "null_text": Case("unit, count(*) AS n FROM stays GROUP BY unit", ("n by unit, and 2",)),
    "negative": Case(
        "bed, count(*) AS n FROM stays WHERE bed IN ('bed 1', 'bed 2', 'bed 3') AND ward = 'east' GROUP BY bed",
        ("n by bed, and 2",),
        options="epsilon = 0.01",
    ),
    "negative_groups": Case(
        f"sex, code, {AVERAGES} GROUP BY sex, code",
        ("n by code and sex, and 2", "a by code and sex, and 2"),
        options="epsilon = 0.01",
        kinds=("groups", "groups"),
    ),
    "two_texts": Case(
        "unit, ward, count(*) AS n FROM stays GROUP BY unit, ward", ("n by unit and ward, and 2",), kinds=("groups",)
    ),
    "six_years": Case(
        "arrived, year, count(*) AS n FROM stays GROUP BY arrived, year",
        tuple(f"n by arrived, where year is {year}, and 2" for year in range(2000, 2006)),
        kinds=("line",) * 6,
    ),
    "shades": Case(
        "age, arrived, count(*) AS n FROM stays GROUP BY age, arrived",
        ("n by age and arrived; one shade apart can be noise",),
        options="epsilon = 100",
        kinds=("tiles",),
    ),
    "one_shade": Case(
        "age, arrived, count(*) AS n FROM stays GROUP BY age, arrived",
        ("n by age and arrived; noise alone can make differences as large as these",),
        options="epsilon = 0.01",
        kinds=("tiles",),
    ),
    "captioned": Case(
        "sex, count(*) AS n, avg(cost) AS a FROM stays GROUP BY sex",
        ("n by sex, and 2", "a by sex, and 2"),
        options="epsilon = 1, title = 'Stays by sex', description = 'Of a made clinic.', "
        "answer_units = ('stays', 'euros')",
    ),
    "below_zero": Case(
        "code, count(*) - 3000 AS less, avg(cost) - 100 AS cheap FROM stays GROUP BY code",
        ("less by code; the view has no standard errors", "cheap by code; the view has no standard errors"),
    ),
    "three_keys": Case(
        "sex, ward, code, count(*) AS n FROM stays GROUP BY ALL",
        ("n by ward and code, where sex is F, and 2", "n by ward and code, where sex is M, and 2"),
        kinds=("groups", "groups"),
    ),
    "three_with_months": Case(
        "sex, ward, arrived, count(*) AS n FROM stays GROUP BY ALL",
        ("n by arrived and ward, where sex is F, and 2", "n by arrived and ward, where sex is M, and 2"),
        kinds=("lines", "lines"),
    ),
    "four_keys": Case("sex, ward, code, year, count(*) AS n FROM stays GROUP BY ALL", ()),
    "two_of_three": Case(f"sex, ward, {AVERAGES} GROUP BY sex, ward, code", ()),
    "not_shown": Case(f"ward, {AVERAGES} GROUP BY ward, arrived", ()),
    "many_bars": Case("bed, count(*) AS n FROM stays GROUP BY bed", ()),
    "many_numbers": Case("score, count(*) AS n FROM stays GROUP BY score", ("n by score, and 2",)),
    "many_days": Case(f"day, {AVERAGES} GROUP BY day", ("n by day, and 2", "a by day, and 2")),
    "one_bar": Case("sex, count(*) AS n FROM stays WHERE sex = 'F' GROUP BY sex", ()),
    "total": Case("count(*) AS n FROM stays", ()),
    "cube": Case(
        "sex, code AS c, count(*) AS n FROM stays GROUP BY CUBE (sex, code)",
        ("n by c and sex, without totals, and 2",),
        "sex IS NOT NULL AND c IS NOT NULL",
    ),
    "cube_with_null": Case(
        "sex, ward, count(*) AS n FROM stays GROUP BY CUBE (sex, ward)",
        ("n by ward and sex, without totals, and 2",),
        "grouping_level = 'sex, ward'",
    ),
    "cube_with_level": Case(
        "sex, ward, GROUPING(sex, ward) AS level, count(*) AS n FROM stays GROUP BY CUBE (sex, ward)",
        ("n by ward and sex, without totals, and 2",),
        "level = 0",
    ),
    "rollup": Case(
        "arrived AS month, count(*) AS n FROM stays GROUP BY ROLLUP (arrived)",
        ("n by month, without totals, and 2",),
        "month IS NOT NULL",
    ),
    "single_sets": Case(
        "sex, ward, count(*) AS n FROM stays GROUP BY GROUPING SETS ((sex), (ward))",
        ("n by sex, and 2", "n by ward, and 2"),
        ("grouping_level = 'sex'", "grouping_level = 'ward'"),
    ),
    "marginals": Case(
        "sex, ward, code, count(*) AS n FROM stays GROUP BY MARGINALS (2, sex, ward, code)",
        ("n by ward and sex, and 2", "n by code and sex, and 2", "n by ward and code, and 2"),
        ("grouping_level = 'sex, ward'", "grouping_level = 'sex, code'", "grouping_level = 'ward, code'"),
    ),
    "twice": Case("sex, count(*) AS n FROM stays GROUP BY GROUPING SETS ((sex), (sex))", ()),
    "some_groups": Case(
        "arrived AS month, count(*) AS n FROM stays GROUP BY arrived HAVING month(arrived) NOT IN (3, 4)",
        ("n by month, and 2",),
    ),
    "not_finite": Case(
        "arrived, CASE month(arrived) WHEN 3 THEN NULL WHEN 6 THEN 'inf'::DOUBLE ELSE count(*) END AS n FROM stays "
        "GROUP BY arrived",
        ("n by arrived; the view has no standard errors",),
    ),
    "error_of_another": Case(
        "sex, count(*) AS n, avg(cost) AS n_stderr FROM stays GROUP BY sex",
        ("n by sex; the view has no standard errors", "n_stderr by sex, and 2"),
    ),
    "error_renamed": Case(
        "sex, dp_stderr(n) AS wrong, count(*) AS n FROM stays GROUP BY sex", ("n by sex, and 2",)
    ),
    "prefixes": Case(
        "range_end(age) AS below, count(*) AS n FROM stays GROUP BY PREFIXES(age)", ("n by below, and 2",)
    ),
    "selected": Case(
        "free AS word, count(*) AS n FROM stays GROUP BY free",
        ("n by word",),
        options="epsilon = 9, delta = 1e-5, group_selection_strategy = LAPLACE_THRESHOLD, other = TRUE",
    ),
}  # fmt: skip
EARLIER = ("renamed", "renamed_alone", "codes", "cube_with_null", "computed", "null_key")
"""Views of which there is a copy with the comments that version 0.2 wrote."""
DRAWN_EARLIER = {
    "codes": ("n by code",),
    "cube_with_null": ("n by ward and sex, without NULL",),
    "null_key": ("n by ward",),
}


@dataclass(frozen=True)
class View:
    """A view with its table, and its pictures on the page with their captions."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    pictures: tuple[tuple[str, Drawn], ...]
    page: str


def _ask_until_noise_is_usual(owner: duckdb.DuckDBPyConnection) -> None:
    """Asks for the view of noise anew while its noise alone makes several shades.

    By BY_CHANCE, that is rarer than once in twenty times. All of ten tables have it less often than once in 1e13 runs.
    """
    for number in range(10):
        sizes = owner.execute("SELECT max(n) - min(n), max(n_stderr), count(n) FROM private.one_shade").fetchone()
        assert sizes is not None
        if sizes[0] <= SQRT2 * log(sizes[2] / BY_CHANCE) * sizes[1]:
            return
        case = CASES["one_shade"]
        for statement in (
            "DROP PRIVATE VIEW one_shade",
            f"CREATE PRIVATE VIEW one_shade OPTIONS ({case.options}, refresh = '{number}') AS SELECT {case.select}",
        ):
            owner.execute("FROM dp(?)", [statement])


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with all views, one a stream, and copies as the version before this would have left them."""
    folder = tmp_path_factory.mktemp("pictures")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPDUCK_STATE_DIR", str(folder / "state"))
        with dpduck.connect(folder / "clinic.duckdb") as owner:
            owner.execute(STAYS)
            stream = (
                "CREATE PRIVATE STREAM stream OPTIONS (epsilon = 1, periods = 12, title = 'Stays, month by month') "
                "AS SELECT arrived AS month, sex, "
                "count(*) AS n FROM stays GROUP BY arrived, sex"
            )
            made = list(CASES.items())
            made += [(f"earlier_{name}", CASES[name]) for name in EARLIER]
            for statement in (
                POLICY,
                *(
                    f"CREATE PRIVATE VIEW {name} OPTIONS ({case.options}) AS SELECT {case.select}"
                    for name, case in made
                ),
                stream,
                "REFRESH PRIVATE STREAM stream UNTIL '2024-09-01'",
                "CREATE PRIVATE STREAM streamed_cube OPTIONS (epsilon = 1, periods = 12) AS SELECT arrived, sex, "
                "count(*) AS n, GROUPING(arrived, sex) AS level FROM stays "
                "GROUP BY GROUPING SETS ((arrived), (arrived, sex))",
                "REFRESH PRIVATE STREAM streamed_cube UNTIL '2024-06-01'",
            ):
                owner.execute("FROM dp(?)", [statement])
            _ask_until_noise_is_usual(owner)
        with duckdb.connect(str(folder / "clinic_private.duckdb")) as store:
            for name in EARLIER:
                _comment_as_before(store, f"earlier_{name}")
    return folder


def _comment_as_before(store: duckdb.DuckDBPyConnection, view: str) -> None:
    """Comments on the columns as 0.2 did: keys under the names that they have in the table of people."""
    store.execute(f"ALTER TABLE {view} DROP COLUMN IF EXISTS grouping_level")
    columns = [name for name, *_ in store.execute(f"DESCRIBE {view}").fetchall()]
    for name in columns:
        guarantee = "differentially private, epsilon = 1 (pure)"
        said = f"computed from answers that are {guarantee}"
        if name in ("n", "a"):
            said = f"{guarantee}; an answer"
        elif name in ("ward", "sex", "code", "arrived"):
            said = "a key, whose values are public"
        store.execute(f"COMMENT ON COLUMN {view}.{name} IS '{said}'")


@pytest.fixture(scope="module")
def page(clinic: Path) -> str:
    """The page of dpduck report, drawn where clocks are five hours behind."""
    target = clinic / "page.html"
    environment = {"DPDUCK_STATE_DIR": str(clinic / "state"), "TZ": "America/New_York"}
    ran = CliRunner().invoke(main, ["report", str(clinic / "clinic.duckdb"), "--to", str(target)], env=environment)
    assert ran.exit_code == 0, ran.output
    return target.read_text(encoding="utf-8")


def view_of(clinic: Path, page: str, name: str, condition: str = "true") -> View:
    """Returns the rows of a view that meet a condition, and its part of the page."""
    with duckdb.connect(str(clinic / "clinic_private.duckdb"), read_only=True) as store:
        found = store.execute(f"FROM {name} WHERE {condition}")
        columns, rows = tuple(column[0] for column in found.description), tuple(found.fetchall())
    (section,) = re.findall(rf'<section><h2 id="{name}">.*?</section>', page, re.DOTALL)
    figures = re.findall(r"<figure>(<svg.*?</svg>)<figcaption>(.*?)</figcaption></figure>", section, re.DOTALL)
    pictures = tuple((unescape(caption), read_picture(svg)) for svg, caption in figures)
    return View(columns, rows, pictures, section)


@pytest.mark.parametrize("name", CASES)
def test_pictures_say_what_the_table_says(clinic: Path, page: str, name: str) -> None:
    """One mark for each row, at its keys and with its value and its error, or there is no picture."""
    case = CASES[name]
    pictures = view_of(clinic, page, name).pictures
    captions = [caption for caption, _ in pictures]
    assert len(captions) == len(case.shows), captions
    for number, ((caption, drawn), begins) in enumerate(zip(pictures, case.shows, strict=True)):
        assert caption.startswith(begins), (caption, begins)
        require_same(drawn, view_of(clinic, page, name, case.condition(number)), caption)
    assert not case.kinds or case.kinds == tuple(drawn.kind for _, drawn in pictures)


@pytest.mark.parametrize("name", EARLIER)
def test_pictures_of_earlier_views_are_right_or_none(clinic: Path, page: str, name: str) -> None:
    """Comments under the wrong name mislead nobody."""
    condition = "sex IS NOT NULL AND ward IS NOT NULL" if name == "cube_with_null" else CASES[name].condition(0)
    view = view_of(clinic, page, f"earlier_{name}", condition)
    assert len(view.pictures) == len(DRAWN_EARLIER.get(name, ())), [caption for caption, _ in view.pictures]
    for (caption, drawn), begins in zip(view.pictures, DRAWN_EARLIER.get(name, ()), strict=True):
        assert caption.startswith(begins)
        require_same(drawn, view, caption)


@pytest.mark.parametrize(("name", "kind"), [("codes", "bars"), ("years", "bars"), ("many_numbers", "line")])
def test_codes_and_years_have_bars(clinic: Path, page: str, name: str, kind: str) -> None:
    """No line joins values with nothing between. Whole numbers that are too many for bars have a line."""
    assert [drawn.kind for _, drawn in view_of(clinic, page, name).pictures] == [kind] * len(CASES[name].shows)


def test_a_stream_has_pictures(clinic: Path, page: str) -> None:
    """Each period and the running totals, as lines with bands, and the title that its maker gave it."""
    view = view_of(clinic, page, "stream")
    assert len(view.rows) == 16 and '<h2 id="stream">Stays, month by month</h2>' in view.page
    captions = [caption for caption, _ in view.pictures]
    assert [caption.partition(",")[0] for caption in captions] == ["n by month and sex", "n_total by month and sex"]
    for caption, drawn in view.pictures:
        assert drawn.kind == "lines" and len(drawn.errors) == 16
        require_same(drawn, view, caption)


def test_a_stream_of_several_levels_draws_the_finest(clinic: Path, page: str) -> None:
    """A stream has no grouping_level: the level that it shows itself tells totals from groups."""
    view = view_of(clinic, page, "streamed_cube", "level = 0")
    assert [caption.partition(", and")[0] for caption, _ in view.pictures] == [
        "n by arrived and sex, without totals", "n_total by arrived and sex, without totals",
    ]  # fmt: skip
    for caption, drawn in view.pictures:
        require_same(drawn, view, caption)
    assert '<td class="null">all</td>' in view.page


def test_a_view_has_the_words_of_its_maker(clinic: Path, page: str) -> None:
    """Title, description and units: on the page, in the comments, and in no digest: new words cost nothing."""
    section = view_of(clinic, page, "captioned").page
    assert '<h2 id="captioned">Stays by sex</h2><p>Of a made clinic.</p>' in section
    assert [drawn.answer for _, drawn in view_of(clinic, page, "captioned").pictures] == ["n (stays)", "a (euros)"]
    assert '<a href="#captioned">Stays by sex</a>' in page
    with duckdb.connect(str(clinic / "clinic_private.duckdb"), read_only=True) as store:
        ((comment,),) = store.execute("SELECT comment FROM duckdb_tables() WHERE table_name = 'captioned'").fetchall()
    assert comment.startswith("differentially private, epsilon = 1 (pure)")
    assert comment.split("\n")[1:] == ["Stays by sex", "Of a made clinic."]


@pytest.mark.parametrize("name", ["three_keys", "three_with_months", "six_years"])
def test_pictures_side_by_side_have_one_scale(clinic: Path, page: str, name: str) -> None:
    """The labels of the axis of answers are the same in each."""
    section = view_of(clinic, page, name).page
    scales = re.findall(
        r'aria-label="[XY]-axis titled \'n\' for a linear scale with values from (\S+ to \S+)"', section
    )
    assert len(scales) == len(CASES[name].shows) and len(set(scales)) == 1, scales


def test_two_shades_of_noise_look_alike(clinic: Path, page: str) -> None:
    """Two neighbours differ by a sixth of all shades at most, however few shades there are."""
    ((_, drawn),) = view_of(clinic, page, "shades").pictures
    assert len(drawn.inks) > 2
    colours = [[int(part) for part in re.findall(r"\d+", ink)] for ink in drawn.inks.values()]
    whole = [abs(a - b) for a, b in zip(PALEST, DARKEST, strict=True)]
    for one, other in pairwise(colours):
        assert all(abs(a - b) <= most / 6 + 1 for a, b, most in zip(one, other, whole, strict=True))
    ((_, drawn),) = view_of(clinic, page, "one_shade").pictures
    assert len(drawn.inks) == 1


def test_shades_are_steps_of_four_standard_errors() -> None:
    """Where a sixth of the span is less than that, noise sets the step. Without standard errors there are no tiles."""
    rows = [{"a": f"a{a}", "b": f"b{b}", "n": float(a + b), "e": 1.0} for a in range(9) for b in range(9)]
    shape = Shape((PictureKey("a"), PictureKey("b")), (("n", "e"),))
    ((spec, said),) = charts(shape, ("n", "e"), rows)
    shades = spec["layer"][0]["encoding"]["color"]["scale"]["domain"]
    assert shades == ["0 to 5", "5 to 10", "10 to 15", "15 to 20"] and "two shades apart hardly ever is" in said
    assert charts(shape, ("n", None), rows) == []
    ((spec, said),) = charts(shape, ("n", "e"), [row | {"e": 2.0} for row in rows])
    assert spec["layer"][0]["encoding"]["color"]["scale"]["domain"] == ["0 to 16"] and "all have one shade" in said


def test_totals_and_null_have_names_in_tables(clinic: Path, page: str) -> None:
    """A cube says which NULL is a total. A view of an earlier version says that it may be either."""
    cells = re.findall(r"<tr>(.*?)</tr>", view_of(clinic, page, "cube_with_null").page)[1:]
    rows = [tuple(re.findall(r"<td[^>]*>(.*?)</td>", cell)) for cell in cells]
    keys = {row[:2]: row[-1] for row in rows}
    assert len(keys) == len(rows) == 15
    assert keys["all", "all"] == "()" and keys["F", "all"] == "sex"
    assert keys["all", "NULL"] == "ward" and keys["F", "NULL"] == "sex, ward"
    assert list(keys)[:5] == [("F", "east"), ("F", "north"), ("F", "south"), ("F", "NULL"), ("F", "all")]
    assert list(keys)[-1] == ("all", "all"), "totals come last"
    assert '<td class="null">all</td>' in view_of(clinic, page, "rollup").page
    assert '<td class="null">NULL or all</td>' in view_of(clinic, page, "earlier_cube_with_null").page
    assert '<td class="null">NULL</td>' in view_of(clinic, page, "null_key").page
    assert '<td class="null">NULL or others</td>' in view_of(clinic, page, "selected").page


def test_numbers_that_are_names_are_printed_as_they_are(clinic: Path, page: str) -> None:
    """Years and codes have no comma. Counted numbers have."""
    section = view_of(clinic, page, "years").page
    assert '<td class="number">2004</td>' in section and "2,004" not in section


def require_same(drawn: Drawn, view: View, caption: str) -> None:
    """Fails where a mark shows no row's values, or a row has no mark."""
    places = [view.columns.index(key) for key in drawn.keys]
    answer = drawn.answer.partition(" (")[0]
    shown = list(view.rows)
    where = re.search(r", where (\w+) is (.*?)(?=, without |, and 2 |;|$)", caption)
    if where is not None:
        shown = [row for row in shown if says(where[2], row[view.columns.index(where[1])], shown)]
    by_level = re.search(r"^\S+ by (\w+)", caption)
    rows = {tuple(row[place] for place in places): row for row in shown}
    assert len(rows) == len(shown), (by_level, "two rows have one place")
    values = {at: row[view.columns.index(answer)] for at, row in rows.items()}
    values = {at: float(value) for at, value in values.items() if value is not None and isfinite(value)}
    span = max(*values.values(), 0.0) - min(*values.values(), 0.0)
    named = "wrong" if "wrong" in view.columns else f"{answer}_stderr"
    if drawn.kind == "tiles":
        require_shades(drawn, values, {at: float(row[view.columns.index(named)]) for at, row in rows.items()})
        return
    found = {row_of(at, list(values)): value for at, value in drawn.marks}
    assert len(drawn.marks) == len(values) and found.keys() == values.keys()
    for at, value in values.items():
        assert found[at] == pytest.approx(value, abs=0.005 * span), at
    for at, low, high in drawn.errors:
        row = row_of(at, list(values))
        error = rows[row][view.columns.index(named)]
        wide = max(span, 4 * error)
        assert (high - low) / 4 == pytest.approx(error, abs=0.005 * wide, rel=0.02)
        assert (high + low) / 2 == pytest.approx(values[row], abs=0.005 * wide, rel=0.02)
    assert len(drawn.errors) in (0, len(values))


def require_shades(drawn: Drawn, values: Mapping[Any, float], errors: Mapping[Any, float]) -> None:
    """Fails where a value is not in its shade, or a shade is finer than the noise."""
    assert len(drawn.shades) == len(values)
    for at, low, high in drawn.shades:
        value = values[row_of(at, list(values))]
        assert low - 1e-3 * abs(low) - 0.5 <= value <= high + 1e-3 * abs(high) + 0.5, (at, value)
        assert len(drawn.inks) == 1 or high - low >= 4 * max(errors.values()) * 0.999


def row_of(at: Sequence[str | float], rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Returns the one row with the keys at the axes."""
    columns = [tuple((row[place],) for row in rows) for place in range(len(at))]
    found = [row for row in rows if all(map(says, at, row, columns))]
    assert len(found) == 1, (at, found)
    return found[0]


def says(label: str | float, value: Any, rows: Sequence[tuple[Any, ...]]) -> bool:
    """Tells whether what stands at an axis is a value. A long text is known by its ends."""
    if isinstance(label, float):
        if isinstance(value, date):
            value = (datetime.combine(value, datetime.min.time()) - datetime(1970, 1, 1)).total_seconds()
            return abs(label - value) < 0.45 * 86_400 * (1 if len(rows) > 20 else 28)
        return abs(label - float(value)) < 0.45
    if value is None:
        return label in ("NULL or others", "(NULL)" if any("NULL" in row for row in rows) else "NULL")
    first, dots, last = label.partition("..")
    return str(value).startswith(first) and str(value).endswith(last) if dots else str(value) == label
