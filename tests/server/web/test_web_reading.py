"""The page as its readers see it: its owner, cards, sorted and filtered rows, files, examples, statements."""

from __future__ import annotations

import http.client
import io
import json
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, cast
from urllib.parse import quote

import duckdb
import pyarrow as pa
import pytest
from pyarrow import parquet

from dpduck.publish.pictures import MOST_POINTS, PictureKey, Shape, charts
from dpduck.publish.table_html import NullWord
from dpduck.publish.view_section import caption_of
from dpduck.server.clients.desk import Desk, PageAnswer
from dpduck.server.local_vault import LocalVault
from dpduck.server.principals import Principal
from dpduck.server.web import beside, cards, files, rows
from dpduck.server.web.beside import History
from dpduck.server.web.cards import View
from dpduck.server.web.files import file_of, file_sql
from dpduck.server.web.requests import REFUSED
from dpduck.server.web.rows import Wish, render_rows, wish_of
from dpduck.values.column_notes import KEY
from dpduck.values.errors import Refusal
from tests.server.served import Served
from tests.server.web.client import Browser, listening
from tests.support.clinics import by

NOTHING = REFUSED.body.decode()
TITLED = (
    "CREATE PRIVATE VIEW titled OPTIONS (epsilon = 0.5, title = 'Visits <by> sex', description = 'Of a made clinic.') "
    "AS SELECT sex, count(*) AS n FROM visits GROUP BY sex"
)


@pytest.fixture(scope="module")
def titled(served: Served) -> Iterator[Served]:
    """The clinic with a view of the owner's that has a title."""
    vault = served.service.vault
    assert isinstance(vault, LocalVault)
    vault.owner("run", TITLED)
    served.service.gate.sync()
    yield served
    vault.owner("run", "DROP PRIVATE VIEW titled")
    served.service.gate.sync()


def test_the_log_in_says_what_this_is_and_whose(served: Served) -> None:
    """The owner's words and a sentence for somebody who knows nothing, and nothing that is served."""
    with listening(served.service, title="Visits of <the> clinic") as port:
        page = Browser(port).get("/")
        assert "<h1>Visits of &lt;the&gt; clinic</h1>" in page.body
        assert "Noise is added to every number" in page.words and "you see its price before you pay" in page.words
        assert not [word for word in ("ages", "ward_cube", "visits ", "patient", "epsilon") if word in page.words]
    with listening(served.service) as port:
        assert "<h1>Private statistics</h1>" in Browser(port).get("/").body


def test_cards_have_a_title_a_sentence_a_picture_and_a_day(titled: Served, alice: Browser) -> None:
    """The maker's words where there are some, else the columns, and the day of the owner's numbers."""
    home = alice.get("/").body
    found = re.findall(r"<li><h3><a href=\"/view/(\w+)\">(.*?)</a></h3>(.*?)</li>", home, re.DOTALL)
    names = {name: (title, rest) for name, title, rest in found}
    assert names["titled"][0] == "Visits &lt;by&gt; sex" and "<p>Of a made clinic.</p>" in names["titled"][1]
    assert names["ages"][0] == "ages" and "<p>n by age.</p>" in names["ages"][1]
    days = [datetime.now(UTC).date() - timedelta(days) for days in (0, 1)]
    assert all(any(f'<time datetime="{day}">' in rest for day in days) for _, rest in names.values())
    pytest.importorskip("vl_convert", reason="vl-convert is not installed")
    assert all('<div class="thumbnail" aria-hidden="true"><svg' in rest for _, rest in names.values())
    view = alice.get("/view/titled").body
    assert "<h1>Visits &lt;by&gt; sex</h1>" in view and "<p>Of a made clinic.</p>" in view


def test_words_of_others_are_marked_as_theirs(served: Served, alice: Browser, port: int) -> None:
    """A principal may not speak as the owner, and the day of a principal's view is the maker's alone."""
    bob = Browser(port)
    bob.login(served.tokens["bob"])
    mine = "CREATE PRIVATE VIEW bobs OPTIONS (epsilon = 0.01, title = 'Pay again') AS SELECT sex, count(*) AS n " \
           "FROM visits GROUP BY sex"  # fmt: skip
    bob.pay(bob.ask(mine))
    for reader, day in ((alice, False), (bob, True)):
        (card,) = re.findall(r"<li><h3><a href=\"/view/bobs\">.*?</li>", reader.get("/").body, re.DOTALL)
        assert "not the owner of the data" in card and ("<time" in card) is day
        assert "not the owner of the data" in reader.get("/view/bobs").words
    assert "not the owner of the data" not in alice.get("/view/ages").words
    bob.pay(bob.ask("DROP PRIVATE VIEW bobs"))


@pytest.mark.parametrize(
    "columns", [f'2 * count(*) AS "{"n" * 1_200}"', ", ".join(f"count(*) AS n{one}" for one in range(61))]
)
def test_a_view_of_somebody_spoils_no_page_of_others(served: Served, alice: Browser, port: int, columns: str) -> None:
    """A name is longer than the shown part, or there are more columns than are shown."""
    bob = Browser(port)
    bob.login(served.tokens["bob"])
    bob.pay(bob.ask(f"CREATE PRIVATE VIEW a_odd OPTIONS (epsilon = 0.01) AS SELECT {columns} FROM visits"))
    for path in ("/", "/view/a_odd", "/ask"):
        page = alice.get(path)
        assert page.status == 200 and "a_odd" in page.words, path
    bob.pay(bob.ask("DROP PRIVATE VIEW a_odd"))


def test_large_views_are_not_read_for_their_cards(
    served: Served, alice: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever opens the page does not wait until the large views of others are read."""
    for most, read in ((400, True), (9, False)):
        monkeypatch.setattr(cards, "ROWS_OF_A_THUMBNAIL", most)
        before = len(served.audited())
        assert "n by age." in alice.get("/").words
        assert ('FROM "ages"' in [line["statement"] for line in served.audited()[before:]]) is read


def test_many_columns_of_one_leave_no_view_without() -> None:
    """Of all columns so many are listed: those of a view that comes late in the alphabet are among them."""
    with duckdb.connect() as con:
        for number in range(30):
            con.execute(f"CREATE TABLE a{number} AS SELECT {', '.join(f'1 AS c{one}' for one in range(250))}")
        con.execute("CREATE TABLE z AS SELECT 1 AS k, 2 AS n")
        con.execute(f"COMMENT ON COLUMN z.k IS '{KEY}'")

        class Asked:
            principal = Principal("bob", None, None, "")

            def ask(self, text: str, most: int = MOST_POINTS) -> PageAnswer:
                found = con.sql(f"SELECT * FROM ({text}) LIMIT {most}")
                return PageAnswer(tuple(found.columns), (), tuple(found.fetchall()))

        last = cards.views_of(cast("Desk", Asked()), {})[-1]
        assert last.name == "z" and last.sentence == "n by k."


def test_a_small_picture_has_no_long_names() -> None:
    """Everybody is sent the pictures of the first cards: a long name is not in each of their marks."""
    spec, _ = charts(
        Shape((PictureKey("k" * 900),), (("n", None),)), ("n", None), [{"k" * 900: v, "n": 1} for v in "ab"]
    )[0]
    assert "k" * 900 in json.dumps(spec) and "k" * 100 not in json.dumps(cards.small(spec))


def test_budgets_of_tables_of_others_are_not_shown(served: Served, alice: Browser, port: int) -> None:
    """Carol may not ask about visits: neither its budget nor its promise in words. Bob sees the budget."""
    carol, bob = Browser(port), Browser(port)
    carol.login(served.tokens["carol"])
    bob.login(served.tokens["bob"])
    for path in ("/", "/ask"):
        assert "No table has a budget for you." in carol.get(path).words and "<meter" not in carol.get(path).body
        assert "of 10 spent" in bob.get(path).words and "of the budget is spent" in bob.get(path).words
        assert "of your share is spent" in alice.get(path).words
    assert "Suppose somebody guesses" not in carol.get("/").words


def test_the_promise_is_in_words_before_fractions(alice: Browser) -> None:
    """The page says how well anybody can guess about a patient after the whole budget. Then comes the guarantee."""
    words = alice.get("/").words
    places = [words.index(one) for one in (
        "of your share is spent", "epsilon: 0", "whether one patient is in visits", "right 50 of 100 times",
        "up to 100 of 100 times", "all rows of one patient: epsilon = 10",
    )]  # fmt: skip
    assert places == sorted(places)


def test_rows_are_sorted_filtered_and_linked(alice: Browser) -> None:
    """By addresses that can be stored: the order of a column, both ways, rows that contain a text, and one row."""

    def cells(page: str) -> list[tuple[str, ...]]:
        found = re.findall(r'<tr id="row-\d+">(.*?)</tr>', page, re.DOTALL)
        return [tuple(re.findall(r"<td[^>]*>([^<]*)</td>", row)) for row in found]

    plain = cells(alice.get("/view/ages").body)
    assert [row[0] for row in plain] == [str(age) for age in range(0, 100, 10)]
    up, down = (cells(alice.get(f"/view/ages?sort=n{more}").body) for more in ("", "&down=1"))
    numbers = [int(row[1].replace(",", "")) for row in up]
    falling = [int(row[1].replace(",", "")) for row in down]
    assert numbers == sorted(numbers) and falling == numbers[::-1] and sorted(up) == sorted(down) == sorted(plain)
    assert 'aria-sort="ascending"' in alice.get("/view/ages?sort=n").body
    found = alice.get("/view/ward_cube?filter=W1")
    assert {row[1] for row in cells(found.body)} == {"w1"} and 'value="W1"' in found.body
    totals = cells(alice.get("/view/ward_cube?filter=all").body)
    assert len(totals) == 9 and all("all" in row for row in totals)
    linked = alice.get("/view/ages?sort=n&row=3").body
    assert 'href="?sort=n&amp;row=3#row-3"' in linked and '<tr id="row-3">' in linked


def test_addresses_of_rows_are_read_strictly(served: Served, alice: Browser) -> None:
    """An address that the page does not write has one fixed answer, before any statement."""
    before = len(served.audited())
    for path in (
        "/?sort=n", "/ask?statement=x", f"/view/ages?token={served.tokens['alice']}", "/view/ages?sort=n&sort=n",
        "/view/ages?filter=%00", "/view/ages?filter=a%0Ab", "/view/ages?x", "/view/ages?sort=n?",
        "/page.css?x=1", "/view/ages.csv?sort=n", "/view/ages.csv?x=1",
        "/view/ages?" + "&".join(f"a{one}=1" for one in range(20)),
    ):  # fmt: skip
        assert alice.get(path).body == NOTHING, path
    typed = [line for line in served.audited()[before:] if "page" not in line]
    assert typed == []
    for path in ("sort=nothing", "down=2", "page=-1", "page=1e3", f"filter={'x' * 201}", "row=99999999"):
        assert alice.get(f"/view/ages?{path}").body == NOTHING, path
    for path in ("", "filter=", "page=900", "row=900", f"filter={quote(chr(39) + '; DROP TABLE ages --')}"):
        assert alice.get(f"/view/ages?{path}").status == 200, path
    assert alice.post("/view/ages?sort=n", {}).body == NOTHING


def test_filters_and_names_are_text(alice: Browser) -> None:
    """The text of an address comes back escaped."""
    page = alice.get(f"/view/ages?filter={quote(chr(34) + '><script>x</script>')}").body
    assert "<script>x" not in page and "&lt;script&gt;x" in page


def test_a_view_is_a_file(served: Served, alice: Browser) -> None:
    """CSV and Parquet have all rows with their types, come as attachments, and are noted as asked."""
    expected = served.rows("alice", "FROM ward_cube ORDER BY ALL")
    body, headers = fetched(alice, "/view/ward_cube.csv")
    assert headers["Content-Disposition"] == 'attachment; filename="ward_cube.csv"'
    assert headers["X-Content-Type-Options"] == "nosniff" and headers["Content-Type"].startswith("text/csv")
    lines = body.decode().splitlines()
    assert lines[0] == '"sex","ward","n","n_stderr","grouping_level"' and len(lines) == len(expected) + 1
    body, headers = fetched(alice, "/view/ward_cube.parquet")
    assert headers["Content-Disposition"] == 'attachment; filename="ward_cube.parquet"'
    table = parquet.read_table(io.BytesIO(body))
    assert sorted(map(repr, (tuple(row.values()) for row in table.to_pylist()))) == sorted(map(repr, expected))
    assert [line["statement"] for line in served.audited() if "grouping_level" in line.get("statement", "")]
    for path in ("/view/secret.csv", "/view/ages.exe", "/view/ages.csv.csv", "/view/.csv", "/view/a%22.csv"):
        assert alice.get(path).body == NOTHING, path
    assert "Log in" in Browser(alice.port).get("/view/ages.csv").words


def test_a_file_that_waits_for_its_statement_holds_up_no_other(
    served: Served, alice: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bob's statement waits, as for a place among the runners. Alice has her file meanwhile."""
    bob, at_work, done = Browser(alice.port), threading.Event(), threading.Event()
    bob.login(served.tokens["bob"])
    admit = served.service.gate.admit

    def slow(principal: Principal, text: str, *more: Any) -> str:
        if principal.name == "bob" and text.startswith('SELECT "age"'):
            at_work.set()
            assert done.wait(60)
        return admit(principal, text, *more)

    monkeypatch.setattr(served.service.gate, "admit", slow)
    with ThreadPoolExecutor(2) as pool:
        waits = pool.submit(bob.get, "/view/ages.csv")
        try:
            assert at_work.wait(60)
            assert pool.submit(alice.get, "/view/ages.csv").result(20).status == 200 and not waits.done()
        finally:
            done.set()
        assert waits.result(60).status == 200


def fetched(browser: Browser, path: str) -> tuple[bytes, dict[str, str]]:
    client = http.client.HTTPConnection("127.0.0.1", browser.port, timeout=60)
    client.request("GET", path, headers={"Cookie": browser.cookie})
    given = client.getresponse()
    body = given.read()
    client.close()
    assert given.status == 200
    return body, dict(given.getheaders())


def test_no_text_of_a_file_is_a_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    """A spreadsheet would run what begins with =, +, - or @. Numbers stay numbers, and Parquet stays as it is."""
    texts = ["=cmd|' /C calc'!A0", "+1", "-1", "@x", "\tx", "north", None, "\n=1", "\uff1d1"]
    table = pa.table({"=name": texts, "n": [-1, 2, 3, 4, 5, 6, 7, 8, 9]})
    lines = file_of("csv", table).decode().splitlines()
    assert lines[0] == '"\'=name","n"' and lines[1].startswith("\"'=cmd|") and lines[1].endswith(",-1")
    assert lines[6] == '"north",6' and lines[7] == ",7"
    assert lines[8] == "\"'" and lines[10].startswith('"\'\uff1d1"'), "a line break, and the wide form of ="
    assert parquet.read_table(io.BytesIO(file_of("parquet", table))).to_pylist() == table.to_pylist()
    monkeypatch.setattr(files, "FILE_BYTES", 10)
    with pytest.raises(Refusal, match="too large for a file"):
        file_of("csv", table)


def test_types_that_few_programs_read_become_text() -> None:
    """Numbers, texts, days and moments stay. Nested or large values become text or a decimal."""
    kinds = [("a", "BIGINT"), ("b", "HUGEINT"), ("c", "STRUCT(x INTEGER)"), ("d", "ENUM('x')"), ('e"', "DATE")]
    assert file_sql("v", kinds) == (
        'SELECT "a", CAST("b" AS DECIMAL(38, 0)) AS "b", CAST("c" AS VARCHAR) AS "c", CAST("d" AS VARCHAR) AS "d", '
        '"e""" FROM "v"'
    )


def test_many_rows_are_in_pages() -> None:
    """A hundred at once. A link to a row leads to its page. Rows beyond the limit are said."""
    answer = PageAnswer(("k", "n"), ("VARCHAR", "BIGINT"), tuple((f"k{one:03}", one) for one in range(250)), more=True)
    shape = Shape((PictureKey("k"),), (("n", None),))

    def shown(wish: Wish) -> str:
        return "".join(render_rows(answer, shape, wish, "v"))

    first, last = shown(Wish()), shown(Wish(page=99))
    assert "Rows 1 to 100 of 250" in first and "Later rows" in first and "Earlier rows" not in first
    assert "Rows 201 to 250 of 250" in last and "Page 3 of 3" in last and "Earlier rows" in last
    assert "Rows 101 to 200 of 250" in shown(Wish(row=150)) and '<tr id="row-150">' in shown(Wish(row=150))
    assert "Only the first 250 rows are sorted" in first
    mixed: list[list[Any]] = [[Decimal(2)], ["x"], [None], [10], [NullWord("all")], [1.5]]
    assert rows._sort_rows(mixed, ["v"], Wish("v")) == [[1.5], [Decimal(2)], [10], ["all"], ["x"], [None]]
    assert wish_of({"sort": "k", "down": "1", "page": "2"}, ["k"]) == Wish("k", True, "", 2)
    days = [[date(2024, 1, 2)], [date(2024, 1, 1)]]
    assert rows._sort_rows(days, ["v"], Wish("v"))[0] == [date(2024, 1, 1)]


def test_tables_examples_and_statements_before_stand_beside(served: Served, port: int) -> None:
    """Each example is a form that shows a price, and charges nothing. Each principal's statements are their own."""
    bob = Browser(port)
    bob.login(served.tokens["bob"])
    page = bob.get("/ask").body
    side = page[page.index("<aside") :]
    assert "<code>visits</code>" in side and "private table" in side and "RANGE 0 TO 100 STEP 10" in side
    assert "the privacy unit" in side and "private view" in side and "biggest" not in side
    examples = re.findall(r'name="statement" value="([^"]*)"><button>([^<]*)</button>', side)
    assert [said for _, said in examples[:3]] == [
        "Count visits by sex: see the price", "Read ages: free", "See what is left to you: free",
    ]  # fmt: skip
    spent = served.spent()
    assert "What it costs" in bob.post("/ask", bob.form(bob.last, statement=examples[0][0])).words
    assert "The answer" in bob.post("/ask", bob.form(bob.last, statement=examples[1][0])).words
    assert served.spent() == spent
    side = bob.ask("SELECT max(n) AS biggest FROM ages").body
    assert side.index("You asked before") < side.index("<button>SELECT max(n) AS biggest FROM ages</button>")
    alice = Browser(port)
    alice.login(served.tokens["alice"])
    assert "biggest" not in alice.get("/ask").body
    carol = Browser(port)
    carol.login(served.tokens["carol"])
    assert "visits" not in re.sub(r".*<aside", "", carol.get("/ask").body, flags=re.DOTALL)


def test_the_statements_before_are_few_and_short() -> None:
    """The latest first, each once. Long and blank statements are not kept."""
    history = History()
    for one in range(beside.REMEMBERED + 5):
        history.note("bob", f"SELECT {one}")
    history.note("bob", "SELECT 10")
    history.note("bob", " ")
    history.note("bob", "x" * (beside.LONGEST_REMEMBERED + 1))
    kept = history.of("bob")
    assert len(kept) == beside.REMEMBERED and kept[:2] == ["SELECT 10", f"SELECT {beside.REMEMBERED + 4}"]
    assert history.of("alice") == []


def test_a_null_of_an_answer_is_named(alice: Browser) -> None:
    """Where a statement has several grouping sets, it may be a total. Otherwise it is the group without a value."""
    cube = (
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.0131) sex, count(*) AS n FROM visits GROUP BY CUBE (sex)"
    )
    assert '<td class="null">NULL or all</td>' in alice.pay(alice.ask(cube)).body
    plain = alice.ask("SELECT CASE WHEN age > 10 THEN age END AS a, n, n_stderr FROM ages").body
    assert '<td class="null">NULL</td>' in plain and "NULL or all" not in plain


def test_what_was_paid_is_a_list_that_a_phone_shows(served: Served, alice: Browser) -> None:
    """Each charge with its price, table, moment and statement, the latest first."""
    alice.pay(alice.ask(by("ward", "0.0123")))
    (found,) = re.findall(r'<ul class="ledger">(.*?)</ul>', alice.get("/").body, re.DOTALL)
    first = found.partition("</li>")[0]
    assert (
        "<strong>0.25 % of your budget (epsilon = 0.0123)</strong> for clinic.main.visits" in first
        and "<time>20" in first
    )
    assert "<pre" in first and "GROUP BY ward" in first and "<table" not in found


def test_cards_without_words_have_a_sentence() -> None:
    """Of what there is: answers and keys, answers alone, or the name."""
    nothing = caption_of("differentially private")
    keys = (PictureKey("sex"), PictureKey("ward"))
    for shape, said in (
        (Shape(keys, (("n", None), ("a", None))), "n and a by sex and ward."),
        (Shape((), (("n", None),)), "One row: n."),
        (Shape(keys, ()), "Rows of sex and ward."), (Shape((), ()), "Rows of v."),
    ):  # fmt: skip
        assert View("v", nothing, shape, "").sentence == said
    spec = {"layer": [{"mark": {"type": "bar"}, "encoding": {"x": {"field": "v"}, "color": {"field": "s"}}}]}
    small = cards.small(spec)
    assert small["layer"][0]["encoding"] == {"x": {"field": "v", "axis": None}, "color": {"field": "s", "legend": None}}
