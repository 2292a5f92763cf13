"""Titles, descriptions and units of private views: words for readers, which change no answer and cost nothing."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import dpduck
from dpduck.publish.view_section import caption_of
from dpduck.values.column_notes import ERROR_OF, IS_ANSWER, unit_in
from tests.support.clinics import Clinic, one_line

SELECT = "SELECT sex, count(*) AS n, sum(age) AS years FROM visits GROUP BY sex"
POLICY = """CREATE PRIVACY POLICY ON visits (PRIVACY UNIT patient MAX ROWS 4, BUDGET (epsilon = 10),
    DOMAIN sex IN (0, 1), CLAMP age BETWEEN 0 AND 100)"""


@pytest.fixture
def clinic(tmp_path: Path) -> Clinic:
    clinic = Clinic(dpduck.connect(tmp_path / "clinic.duckdb"))
    clinic.fill()
    clinic.dp(POLICY)
    return clinic


def view(clinic: Clinic, options: str, replace: str = "") -> None:
    clinic.dp(f"CREATE {replace} PRIVATE VIEW by_sex OPTIONS (epsilon = 1{options}) AS {SELECT}")


def comments(clinic: Clinic) -> tuple[str, dict[str, str]]:
    """The comment on the table of the view, and those on its columns."""
    table = clinic.value("SELECT comment FROM duckdb_tables() WHERE table_name = 'by_sex'")
    columns = clinic.rows("SELECT column_name, comment FROM duckdb_columns() WHERE table_name = 'by_sex'")
    return str(table), {str(name): str(comment) for name, comment in columns}


def test_words_travel_with_the_view(clinic: Clinic) -> None:
    """Title and description follow the guarantee, each on a line. A unit stands in the comment on its answer."""
    view(clinic, ", title = 'Visits by sex', description = 'Of 2024.', answer_units = ('visits', 'years')")
    table, columns = comments(clinic)
    caption = caption_of(table)
    assert caption.guarantee.startswith("differentially private, epsilon = 1")
    assert (caption.title, caption.description) == ("Visits by sex", "Of 2024.")
    assert {name: unit_in(note) for name, note in columns.items()} == {
        "sex": "", "n": "visits", "n_stderr": "", "years": "years", "years_stderr": "",
    }  # fmt: skip


def test_names_are_no_words_for_readers(clinic: Clinic) -> None:
    """A name with a line break gives no title. One with a semicolon gives no unit and no other answer's error."""
    columns = (
        'sex, count(*) AS "n\nBy the owner", sum(age) AS "m; in euros", count(age) AS "k; the standard error of b"'
    )
    clinic.dp(f"CREATE PRIVATE VIEW by_sex OPTIONS (epsilon = 1) AS SELECT {columns} FROM visits GROUP BY sex")
    table, notes = comments(clinic)
    assert caption_of(table).title == caption_of(table).description == ""
    assert {unit_in(note) for note in notes.values()} == {""}
    answers = [note for note in notes.values() if IS_ANSWER in note]
    assert len(answers) == 3 and not [note for note in answers if ERROR_OF in note]


def test_other_words_are_free(clinic: Clinic) -> None:
    """The same rows under another title, without a charge. A view without a title has its old comment."""
    view(clinic, "")
    before, charges = clinic.rows("FROM private.by_sex ORDER BY sex"), clinic.charges()
    bare, _ = comments(clinic)
    assert "\n" not in bare
    view(clinic, ", title = 'Visits'", "OR REPLACE")
    assert clinic.rows("FROM private.by_sex ORDER BY sex") == before and clinic.charges() == charges
    assert comments(clinic)[0].endswith("\nVisits")
    view(clinic, ", description = 'Of 2024.'", "OR REPLACE")
    assert caption_of(comments(clinic)[0]).description == "Of 2024." and not caption_of(comments(clinic)[0]).title


def test_a_refreshed_view_keeps_its_words(clinic: Clinic) -> None:
    """REFRESH writes newer rows under the same name."""
    view(clinic, ", title = 'Visits', answer_units = 'visits'")
    clinic.dp("REFRESH PRIVATE VIEW by_sex")
    table, columns = comments(clinic)
    assert caption_of(table).title == "Visits" and unit_in(columns["n"]) == "visits"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (", title = ''", "title is not a text for readers; accepted: a quoted text of at most 100 characters"),
        (", title = 'a' || 'b'", "title is not a text for readers"),
        (", title = 'a; an answer'", "without line breaks and semicolons"),
        (", description = 'a\nb'", "description is not a text for readers"),
        (f", description = '{'x' * 501}'", "at most 500 characters"),
        (", answer_units = 'the standard error of n; in'", "answer_units is not a text for readers"),
        (
            ", answer_units = ('visits', 'years', 'more')",
            "answer_units has more units than the SELECT has answers; accepted: answer_units = '..'",
        ),
    ],
)
def test_words_that_are_none_are_refused(clinic: Clinic, options: str, told: str) -> None:
    """Before any charge. A semicolon would begin another part of a comment, which tells keys from answers."""
    before = clinic.charges()
    with pytest.raises(duckdb.Error) as caught:
        view(clinic, options)
    assert told in one_line(caught.value) and clinic.charges() == before


def test_a_statement_without_a_view_has_no_words(clinic: Clinic) -> None:
    """Nobody would see them."""
    with pytest.raises(duckdb.Error, match="are for the readers of a private view"):
        clinic.dp(f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, title = 'x') {SELECT[7:]}")
