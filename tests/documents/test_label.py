"""The privacy label: a page for everybody, which fetches nothing and is printed on one sheet."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.browser import SIZES, chromium, needs_chromium, violations
from tests.support.documented import label_of, refused

HEADS = (
    "What is protected",
    "From whom",
    "How strongly",
    "What is left out",
    "How often it may be updated",
    "Who to ask",
    "Figures",
)


def test_a_label_answers_six_questions(stores: Mapping[str, Path]) -> None:
    """Who is protected, from whom, how strongly, what is left out, how often it is updated, who to ask."""
    page = label_of(stores["pure"], "--title", "Visits of 2024")
    assert tuple(re.findall(r"<h2>(.*?)</h2>", page)) == HEADS
    for told in (
        "All rows of one patient: whether they are in the data",
        "At most 3 rows of one patient are counted in visits.",
        "a guess is right 50 of 100 times",
        "With all that was released so far, it is right at most 79 of 100 times.",
        "87 % of the budget is left.",
        "TODO: a name and an address.",
        "pure differential privacy",
    ):
        assert told in page, told


def test_a_label_of_a_unit_by_periods(stores: Mapping[str, Path]) -> None:
    """It says what a whole person may lose over all months, and that each month has a budget."""
    page = label_of(stores["month"])
    assert "whether one patient is in the data of one month" in page
    assert (
        "Over all months, releases so far cost one patient at most epsilon = 0.75, and never more than epsilon" in page
    )
    assert "Each month has a budget of its own. New months can be published until all months together have" in page
    assert "with rows in k months, k times as much may be learned" in page


def test_a_label_of_rows_warns(stores: Mapping[str, Path]) -> None:
    """Somebody with several rows is protected less."""
    assert "Somebody with k rows is protected k times less." in label_of(stores["rows"])


def test_a_row_lies_in_one_period(stores: Mapping[str, Path]) -> None:
    """A label of rows by months has no sum over months, and says which groups are missing."""
    page = label_of(stores["row_month"])
    assert "With all that was released so far, it is right at most 63 of 100 times." in page
    assert "Over all months" not in page and "in k months" not in page and "one row in one month" not in page
    assert "For the most used month, 50 % of the budget is left." in page
    assert "Some groups of january and february are not shown" in page


def test_texts_of_the_owner_are_escaped(stores: Mapping[str, Path]) -> None:
    """A title or a contact is text, whatever it looks like."""
    page = label_of(stores["pure"], "--title", "A <b>clinic</b>", "--contact", "<script>x</script>")
    assert "<script" not in page and "A &lt;b&gt;clinic" in page and "&lt;script&gt;x" in page
    assert "TODO" not in page


def test_a_label_fetches_and_runs_nothing(stores: Mapping[str, Path]) -> None:
    """No address, no script. The browser is told so, too."""
    page = label_of(stores["keys"])
    assert "default-src 'none'" in page and not re.search(r"<script|https?:|//|<img|<link", page)


def test_a_label_replaces_only_a_label(stores: Mapping[str, Path], tmp_path: Path) -> None:
    """A page of somebody else stays."""
    other = tmp_path / "page.html"
    other.write_text("mine")
    assert "something else made it; accepted: a new file, or one that label made" in refused(
        stores["pure"], "label", "--to", str(other)
    )
    assert "would be a page of HTML" in refused(stores["pure"], "label", "--to", str(tmp_path / "label.md"))


@needs_chromium
@pytest.mark.slow
def test_a_label_is_one_sheet_for_everybody(stores: Mapping[str, Path], old: Path) -> None:
    """One sheet of A4 for each kind of store, and for one of version 0.2 with many tables and clamps.

    It keeps the rules of accessibility on a phone and on a desktop.
    """
    with chromium() as browser:
        for kind, database in (*stores.items(), ("0.2", old)):
            label_of(database, "--title", "Visits of 2024", "--contact", "The office, office@example.org")
            page = browser.new_page()
            page.goto((database.parent / "label.html").as_uri())
            sheets = page.pdf(format="A4", prefer_css_page_size=True)
            assert len(re.findall(rb"/Type /Page\b(?!s)", sheets)) == 1, kind
            for width, height in SIZES.values():
                page.set_viewport_size({"width": width, "height": height})
                assert violations(page) == []
            page.close()
